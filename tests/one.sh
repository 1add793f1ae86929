#!/bin/sh
# one.sh RESULTS NAME COMMAND...: runs one test, of run.sh or soak.sh. Prints its line, with the end of what it wrote where it failed, and adds "ok|failed|skipped NAME" to RESULTS.
results=$1 name=$2; shift 2
log=$(mktemp) rc=0
start=$(date +%s)
"$@" > "$log" 2>&1 || rc=$?
took=$(($(date +%s) - start))
# meson says of a test that skips itself that it passed
[ "$rc" = 0 ] && [ "$1" = meson ] && grep -q 'Skipped: *[1-9]' "$log" && rc=77
{
    flock 9
    case $rc in
    0) echo "ok      $name ($took s)"; echo "ok $name" >&9 ;;
    77) echo "skipped $name: $(sed -n 's/^SKIP: //p' "$log" | tail -1)"; echo "skipped $name" >&9 ;;
    *) echo "FAILED  $name (exit $rc, $took s)"; tail -n 60 "$log" | sed 's/^/        /'; echo "failed $name" >&9 ;;
    esac
} 9>> "$results"
rm -f "$log"
