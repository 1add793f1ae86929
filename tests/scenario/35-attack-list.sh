#!/bin/bash
# Goal: whoever changes the store of one of two replicas is noticed, gets nothing false served that a read can tell, and after a scrub all is as it was: bit flip, zeroed page, zeroed
# tail, cut at a page border, cut anywhere, objects exchanged, object deleted, old page put back, old object put back, old record put back, record removed. A whole
# old store put back is noticed when it meets its peer.
. "$(dirname "$0")/lib.sh"
need_fuse
need python3 sqlite3 getfattr
pair a b
python3 - "$W/b" <<'P'
import os, random, sys
r = random.Random(3)
for name in ("one", "two"):
    with open(os.path.join(sys.argv[1], name), "wb") as f: f.write(r.randbytes(200 * 4096 + 99))
P
echo first > "$W/b/record"; chmod 600 "$W/b/record"
insync a b
umnt b; cp -a "$W/b.store" "$W/old"; mnt b
# pages overwritten in place: the same object, other entries
python3 - "$W/b" <<'P'
import os, sys
for name in ("one", "two"):
    fd = os.open(os.path.join(sys.argv[1], name), os.O_WRONLY)
    for page in range(0, 200, 10): os.pwrite(fd, b"NEW" + name.encode() * 400, page * 4096 + 50)
    os.fsync(fd); os.close(fd)
P
chmod 644 "$W/b/record"
insync a b
mkdir "$W/ref"; cp -p "$W/b"/* "$W/ref/"
umnt b; rm -rf "$W/good"; cp -a "$W/b.store" "$W/good"
connected() { for _ in $(seq 100); do "$TWOFOLD" peer list "$W/b" | grep -q 'in-sync\|sending\|receiving' && return; sleep 0.05; done; fail "the peer did not come back"; }
# pages that are served and are not what was written
wrong() { python3 - "$W/b" "$W/ref" "$W/oldref" <<'P'
import os, sys
n = 0
for name in ("one", "two"):
    ref = open(sys.argv[2] + "/" + name, "rb").read()
    try: fd = os.open(sys.argv[1] + "/" + name, os.O_RDONLY)
    except OSError: continue
    for off in range(0, len(ref), 4096):
        try: n += os.pread(fd, 4096, off) != ref[off:off + 4096]
        except OSError: pass
print(n)
P
}
attack() { # NAME TELLS(1: a read tells) PYTHON
    rm -rf "$W/b.store"; cp -a "$W/good" "$W/b.store"
    python3 - "$W/b.store" "$W/old" <<P || die "attack $1"
import os, glob, sys, shutil, sqlite3
store, old = sys.argv[1:]
def objects(d): return sorted(p for p in glob.glob(d + "/objects/*/*") if os.path.getsize(p) > 700000)
p, q = objects(store)[:2]
was = objects(old)[0]
size = os.path.getsize(p)
db = sqlite3.connect(store + "/journal.db") if "db." in '''$3''' else None
page = lambda i: 4096 * (1 + 129 * (i // 128) + 1 + i % 128)
f = open(p, "r+b")
$3
f.close()
if db: db.commit(); db.close()
P
    # noticed without a peer
    local_code=0; "$TWOFOLD" check "$W/b.store" --passfile "$PASS" > "$W/check.out" 2>&1 || local_code=$?
    [ "$local_code" = 4 ] || fail "$1: check exits $local_code: $(cat "$W/check.out")"
    mnt b; connected
    [ "$2" = 0 ] || equal "$1: wrong pages served" "$(wrong)" 0
    "$TWOFOLD" check "$W/b" --repair > "$W/check.out" 2>&1
    code 0 "$TWOFOLD" check "$W/b"
    equal "$1: after healing" "$(wrong)" 0
    diff -r "$W/ref" "$W/b" > /dev/null 2>&1 || fail "$1: not healed: $(cat "$W/check.out")"
    equal "$1: mode" "$(stat -c %a "$W/b/record")" 644
    umnt b
    say "$1"
}
attack "bit flip" 1 'f.seek(page(7) + 100); c = f.read(1); f.seek(page(7) + 100); f.write(bytes([c[0] ^ 4]))'
attack "zeroed page" 1 'f.seek(page(150)); f.write(bytes(4096))'
attack "zeroed tail" 1 'f.seek(page(180)); f.write(bytes(size - page(180)))'
attack "cut at a page border" 1 'f.truncate(page(100))'
attack "cut anywhere" 1 'f.truncate(5555)'
attack "objects exchanged" 1 'os.rename(p, p + "x"); os.rename(q, p); os.rename(p + "x", q)'
attack "object deleted" 1 'os.remove(p)'
attack "old page put back" 0 'o = open(was, "rb"); o.seek(page(20)); d = o.read(4096); o.seek(4096 + 20 * 32); e = o.read(32); f.seek(page(20)); f.write(d); f.seek(4096 + 20 * 32); f.write(e)'
attack "old object put back" 0 'shutil.copy(was, p)'
attack "old record put back" 0 'o = sqlite3.connect(old + "/journal.db"); [db.execute("UPDATE node SET attrs=? WHERE row=?", (a, r)) for r, a in o.execute("SELECT row, attrs FROM node")]'
attack "record removed" 0 'db.execute("UPDATE node SET times=NULL WHERE row>1 AND nlink=1")'
attack "the record of the root directory" 1 'db.execute("UPDATE node SET attrs=zeroblob(300) WHERE row=1")'

say "old store put back"
rm -rf "$W/b.store"; cp -a "$W/old" "$W/b.store"
mnt b; connected
insync a b
diff -r "$W/ref" "$W/b" > /dev/null || fail "an old store does not catch up"
