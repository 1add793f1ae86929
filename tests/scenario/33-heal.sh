#!/bin/bash
# Goal: damage in one store is invisible to programs while a peer holds the same: a bad page, a bad page of tags, an object or the whole folder of objects gone
# are taken from the peer at the first read, verified, and stand on the disk again. Without a peer: EIO for what is damaged, and healed once one is back.
. "$(dirname "$0")/lib.sh"
need_fuse
need python3 getfattr
pair a b
python3 - "$W/b" <<'P'
import os, random, sys
r = random.Random(11)
for name, pages in (("big", 1000), ("other", 300), ("third", 20)):
    with open(os.path.join(sys.argv[1], name), "wb") as f: f.write(r.randbytes(pages * 4096 + 777))
with open(os.path.join(sys.argv[1], "sparse"), "wb") as f:
    f.write(b"head" * 2000); f.seek(3 << 20); f.write(b"tail" * 2000)
P
insync a b
mkdir "$W/ref"; cp --sparse=always "$W/b"/* "$W/ref/"
object_of() { find "$W/b.store/objects" -type f -size "+$1k" -size "-$2k" | head -1; }
unsound() { for f in "$W/ref"/*; do cmp -s "$f" "$W/b/${f##*/}" || echo "${f##*/}"; done | tr '\n' ' '; }
# attack PYTHON: on b's store while it is not mounted; o(min KiB, max KiB) finds an object
attack() {
    umnt b
    python3 - "$W/b.store/objects" <<P || die "attack"
import os, glob, sys, shutil
d = sys.argv[1]
def o(lo, hi): return [p for p in glob.glob(d + "/*/*") if lo <= os.path.getsize(p) >> 10 <= hi][0]
$1
P
}
connected() { for _ in $(seq 100); do [ "$("$TWOFOLD" peer list "$W/b" | grep -c 'in-sync\|sending\|receiving')" != 0 ] && return; sleep 0.1; done; fail "the peer did not come back"; }

say "pages of one file, then all of its tags, then objects that are gone"
attack 'p = o(4000, 4200); f = open(p, "r+b"); f.seek(4096 * 10); f.write(bytes(4096 * 3)); f.seek(4096 * 500 + 7); f.write(b"x")'
mnt b; connected
equal "pages that were damaged" "$(unsound)" ""
[ "$(counter b count.healed-pages)" = 4 ] || fail "4 pages should have been healed, the counter says $(counter b count.healed-pages)"
equal "state" "$(getfattr --only-values -n user.twofold.state "$W/b/big")" "in-sync"
attack 'p = o(4000, 4200); f = open(p, "r+b"); f.seek(4096 * (1 + 129)); f.write(bytes(4096)); os.remove(o(1100, 1300)); p = o(40, 120); open(p, "r+b").truncate(5000)'
mnt b; connected
equal "tags, a deleted object, a cut one" "$(unsound)" ""
attack 'shutil.rmtree(d)'
mnt b; connected
before=$(counter b bytes.wire-received)
equal "the folder of objects deleted" "$(unsound)" ""
head -c 100000 /dev/urandom > "$W/b/new"; cp "$W/b/new" "$W/ref/new"
insync a b; same a b

say "healed is healed: nothing is fetched after the next mount"
umnt b; umnt a
mnt b
equal "alone" "$(unsound)" ""

say "no peer: EIO for the damaged page alone, healed when it is back"
attack 'p = o(4000, 4200); f = open(p, "r+b"); f.seek(4096 * 50 + 9); f.write(b"xyz")'
mnt b
equal "unsound" "$(unsound)" "big "
equal "state" "$(getfattr --only-values -n user.twofold.state "$W/b/big")" "damaged"
check "the rest is readable" cmp -s <(dd if="$W/b/big" bs=4096 skip=60 status=none) <(dd if="$W/ref/big" bs=4096 skip=60 status=none)
mnt a "listen=127.0.0.1:$(port 1)"; connected
for _ in $(seq 100); do [ "$(getfattr --only-values -n user.twofold.state "$W/b/big")" = in-sync ] && break; sleep 0.1; done
equal "healed by itself" "$(getfattr --only-values -n user.twofold.state "$W/b/big")" "in-sync"
umnt a
equal "after the peer came back" "$(unsound)" ""
