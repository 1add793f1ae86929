#!/bin/sh
# run.sh: installs what the tests need, builds, and runs all of them: unit tests plain and under AddressSanitizer + UBSan, the saved corpus of the
# fuzz targets, the scenarios on real mounts. Ends with one line: N passed, N failed, N skipped. Exit 1 where one failed or was skipped
# without being expected to. What takes longer is in tests/soak.sh.
set -eu
cd "$(dirname "$0")/.."
here=$(pwd)
sh examples/install-packages.sh attr acl rsync git sqlite3 python3 iproute2 xfsprogs mandoc scdoc libclang-rt-14-dev clang procps util-linux e2fsprogs \
    debhelper dh-apparmor fakeroot lintian apparmor zsh fish fio systemd strace
: "${JOBS:=2}"
[ -f build/build.ninja ] || meson setup build > /dev/null
[ -f build-asan/build.ninja ] || CC=clang meson setup build-asan -Db_sanitize=address,undefined -Db_lundef=false > /dev/null
ninja -C build -j "$JOBS" | tail -1
ninja -C build-asan -j "$JOBS" | tail -1
passed=0 failed=0 skipped=0 list=
log=$(mktemp)
count() { # NAME COMMAND...
    name=$1; shift
    start=$(date +%s)
    rc=0
    "$@" > "$log" 2>&1 || rc=$?
    took=$(($(date +%s) - start))
    case $rc in
    0) passed=$((passed + 1)); echo "ok      $name (${took} s)" ;;
    77) skipped=$((skipped + 1)); echo "skipped $name: $(sed -n 's/^SKIP: //p' "$log" | tail -1)"; list="$list $name" ;;
    *) failed=$((failed + 1)); echo "FAILED  $name (exit $rc, ${took} s)"; tail -n 40 "$log" | sed 's/^/        /' ;;
    esac
}
tests_of() { meson introspect "$1" --tests | python3 -c 'import json, sys; print(*[t["name"] for t in json.load(sys.stdin)])'; }
for b in build build-asan; do
    case $b in build) how=plain ;; *) how=sanitized ;; esac
    for t in $(tests_of $b); do
        # man pages and the comparison with the model are not about memory errors: once is enough
        case $how:$t in sanitized:man_* | sanitized:histories* | sanitized:compare*) continue ;; esac
        count "$t ($how)" meson test -C $b --no-rebuild --print-errorlogs "$t"
        [ "$rc" = 0 ] && grep -q 'Skipped: *[1-9]' "$log" && [ "$rc" = 0 ] && { passed=$((passed - 1)); skipped=$((skipped + 1)); list="$list $t"; }
    done
done
for s in tests/scenario/[0-9]*.sh; do
    count "$(basename "$s" .sh)" env TWOFOLD="$here/build/src/cli/twofold" timeout 300 bash "$s"
done
rm -f "$log"
[ -z "$list" ] || echo "skipped:$list"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
