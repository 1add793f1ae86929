#!/bin/bash
# Goal: twofold bench runs its three tests with both engines, small, prints numbers for both sides, writes a well-formed chart, is quiet in a pipe, and
# leaves nothing mounted and nothing behind, also when it is interrupted.
. "$(dirname "$0")/lib.sh"
need_fuse
need python3
t=$TWOFOLD
mkdir "$W/d"
clean() { # WHAT
    grep -q " $W/d/" /proc/self/mounts && fail "$1: something is still mounted"
    equal "$1: left behind" "$(ls -A "$W/d")" ""
}
code 2 "$t" bench
code 2 "$t" bench disk --size nonsense
code 2 "$t" bench disk --cipher none
code 2 "$t" bench replicate --scale 0
code 2 "$t" bench sql --seconds 0
code 1 "$t" bench disk --dir "$W/nowhere"
code 1 "$t" bench disk --dir "$W/d" --size 100T
grep -q 'GiB are needed' "$W/err" || fail "a full disk is not named"
clean refused
code 0 "$t" bench disk --dir "$W/d" --size 4M --passes 1 --seconds 0.2 --engine builtin --svg "$W/c.svg"
equal "rows with a ratio" "$(grep -cE 'MiB/s .* [0-9]+\.[0-9]{3} ' "$W/out")" 8
grep -q 'built-in loop' "$W/out" || fail "the engine is not named"
equal "words on standard error" "$(cat "$W/err")" ""
python3 -c 'import sys, xml.dom.minidom as m; d = m.parse(sys.argv[1]); assert len(d.getElementsByTagName("rect")) == 25' "$W/c.svg" || fail "the chart"
clean disk
if command -v fio > /dev/null; then
    code 0 "$t" bench sql --dir "$W/d" --size 4M --seconds 0.3 --json
    python3 -c 'import json, sys
d = json.load(open(sys.argv[1])); assert len(d["results"]) == 3 and "fio" in d["engine"], d
assert all(r[s]["median"] > 0 and r[s]["latency_us"]["p99"] > 0 for r in d["results"] for s in ("sealed", "none", "plain")), d' "$W/out" || fail "bench sql --json"
    clean sql
fi
code 0 "$t" bench replicate --dir "$W/d" --scale 0.002 --passes 1 --json
python3 -c 'import json, sys
r = {x["name"]: x for x in json.load(open(sys.argv[1]))["results"]}
assert r["first synchronisation"]["sealed"]["mean"] > 0 and r["a day'"'"'s edits"]["none"]["mean"] > 0, r' "$W/out" || fail "bench replicate --json"
clean replicate
# where it stands then depends on the machine: several moments of each
for seconds in 0.12 0.2 0.5 1.1 1.9; do
    for what in "disk --size 4M --engine builtin" "sql --size 4M" "replicate --scale 0.005"; do
        # shellcheck disable=SC2086
        timeout 60 python3 "$here/tests/scenario/terminal.py" 80 $seconds "$t" bench $what --passes 1 --dir "$W/d" > "$W/out"; rc=$?
        # 130: before it had begun
        case $rc in 0 | 1 | 130) ;; *) fail "Ctrl-C after $seconds s of $what: exit $rc: $(tail -3 "$W/out")" ;; esac
        clean "Ctrl-C after $seconds s of $what"
    done
done
"$t" bench replicate --dir "$W/d" --scale 0.05 --passes 1 > /dev/null 2>&1 & p=$!
for i in $(seq 100); do grep -q " $W/d/" /proc/self/mounts && break; sleep 0.05; done
kill -9 $p; wait $p 2> /dev/null
for i in $(seq 200); do grep -q " $W/d/" /proc/self/mounts || break; sleep 0.05; done
grep -q " $W/d/" /proc/self/mounts && fail "a mount outlives a bench that was killed"
rm -rf "$W/d"; mkdir "$W/d"
for s in INT TERM; do
    env -i PATH="$PATH" "$t" bench replicate --dir "$W/d" --scale 0.05 --passes 1 > "$W/out" 2> "$W/err" & p=$!
    sleep 1; kill -$s $p; wait $p
    grep -q interrupted "$W/err" || fail "SIG$s: does not say that it was interrupted"
    clean "SIG$s"
done
