#!/bin/bash
# Goal: twofold check finds nothing in a sound store, mounted or not; damage of each kind is found, named and counted, online and offline, with exit code 4; what belongs to
# nothing is set aside; --json and --rate work; scrub starts, ends and shows.
. "$(dirname "$0")/lib.sh"
need_fuse
need python3 sqlite3
init a; mnt a
python3 - "$W/a" <<'P'
import os, random, sys
r = random.Random(5)
for i in range(40):
    with open(os.path.join(sys.argv[1], "f%d" % i), "wb") as f: f.write(r.randbytes(r.choice((0, 10, 5000, 300000))))
os.makedirs(sys.argv[1] + "/d/e/f"); os.link(sys.argv[1] + "/f1", sys.argv[1] + "/d/link"); os.symlink("x", sys.argv[1] + "/d/s")
for i in range(10, 15): os.remove(sys.argv[1] + "/f%d" % i)
with open(sys.argv[1] + "/sparse", "wb") as f: f.truncate(50 << 20); f.seek(10 << 20); f.write(b"x" * 9000)
P
key="--passfile $PASS"
code 0 "$TWOFOLD" check "$W/a"
"$TWOFOLD" check "$W/a" --json | python3 -c 'import json,sys; d=json.load(sys.stdin); assert d["sound"] and d["records"] > 100 and d["files"] > 2, d' || fail "json"
say "while files are written"
(for i in $(seq 200); do echo "$i" > "$W/a/w$i"; rm -f "$W/a/w$((i - 20))"; done) & writer=$!
for _ in 1 2 3; do code 0 "$TWOFOLD" check "$W/a"; done
wait "$writer"
"$TWOFOLD" scrub "$W/a" > /dev/null || fail "scrub"
for _ in $(seq 100); do "$TWOFOLD" status "$W/a" | grep -q 'scrub: last 20' && break; sleep 0.1; done
"$TWOFOLD" status "$W/a" | grep -q 'scrub: last 20.*0 found' || fail "scrub does not show: $("$TWOFOLD" status "$W/a" | tail -1)"
umnt a
# shellcheck disable=SC2086
code 0 "$TWOFOLD" check "$W/a.store" $key
say "damage"
cp -a "$W/a.store" "$W/clean"
damage() { # WHAT PATTERN SHELL
    rm -rf "$W/a.store"; cp -a "$W/clean" "$W/a.store"
    big=$(find "$W/a.store/objects" -type f -size +200k -size -400k | head -1)
    eval "$3"
    # shellcheck disable=SC2086
    code 4 "$TWOFOLD" check "$W/a.store" $key
    grep -q "$2" "$W/out" || fail "$1: not named: $(cat "$W/out" "$W/err")"
    mnt a; code 4 "$TWOFOLD" check "$W/a"; umnt a
}
damage "a page" "1 pages do not open" 'printf x | dd of="$big" bs=1 seek=20000 conv=notrunc status=none'
damage "an object deleted" "its object is missing" 'rm "$big"'
sql() { sqlite3 "$W/a.store/journal.db" "$1"; }
damage "a record" "does not authenticate" 'sql "UPDATE node SET times=zeroblob(length(times)) WHERE row=(SELECT max(row) FROM node WHERE times IS NOT NULL AND nlink=1)"'
damage "a record removed" "do not add up" 'sql "DELETE FROM dot WHERE counter=(SELECT max(counter) FROM dot WHERE kind=(SELECT min(kind) FROM dot))"'
damage "a link without its node" "node or directory is missing" 'sql "UPDATE link SET node=99999 WHERE row=(SELECT max(row) FROM link WHERE live=1)"'
say "what belongs to nothing"
rm -rf "$W/a.store"; cp -a "$W/clean" "$W/a.store"
mnt a
cp "$(find "$W/a.store/objects" -type f | head -1)" "$W/a.store/objects/01/0000000000000001x"; mv "$W/a.store/objects/01/0000000000000001x" "$W/a.store/objects/00/0000000000000000"
code 4 "$TWOFOLD" check "$W/a"
code 0 "$TWOFOLD" check "$W/a" --repair --rate 100M
[ -f "$W/a.store/set-aside/0000000000000000" ] || fail "not set aside"
code 2 "$TWOFOLD" check "$W/a" --rate x
