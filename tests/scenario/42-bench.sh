#!/bin/bash
# Goal: twofold bench runs its three tests with both engines, small, prints numbers for both sides, writes a well-formed chart, is quiet in a pipe, and
# leaves nothing mounted and nothing behind, also when it is interrupted.
. "$(dirname "$0")/lib.sh"
need_fuse
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
code 1 "$t" bench disk --dir "$W/nowhere"
code 1 "$t" bench disk --dir "$W/d" --size 100T
grep -q 'GiB are needed' "$W/err" || fail "a full disk is not named"
clean refused
code 0 "$t" bench disk --dir "$W/d" --size 4M --passes 1 --seconds 1 --engine builtin --svg "$W/c.svg"
equal "rows with a ratio" "$(grep -cE 'MiB/s .* [0-9]+\.[0-9]{3} ' "$W/out")" 8
grep -q 'built-in loop' "$W/out" || fail "the engine is not named"
equal "words on standard error" "$(cat "$W/err")" ""
python3 -c 'import sys, xml.dom.minidom as m; d = m.parse(sys.argv[1]); assert len(d.getElementsByTagName("rect")) == 25' "$W/c.svg" || fail "the chart"
clean disk
if command -v fio > /dev/null; then
    code 0 "$t" bench sql --dir "$W/d" --size 4M --seconds 1 --json
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
for s in INT TERM; do
    env -i PATH="$PATH" "$t" bench replicate --dir "$W/d" --scale 0.05 --passes 1 > "$W/out" 2> "$W/err" & p=$!
    sleep 1; kill -$s $p; wait $p
    grep -q interrupted "$W/err" || fail "SIG$s: does not say that it was interrupted"
    clean "SIG$s"
done
