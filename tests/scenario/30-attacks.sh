#!/bin/bash
# Goal: whoever changes the store gets nothing false served. One bit flipped in every 4 KiB of an object, pages swapped, a page zeroed, the file cut at a
# page border and anywhere, two objects exchanged, an object deleted, bits flipped in journal.db and in volume: never wrong bytes or attributes, but EIO for what is
# damaged, with the log and user.twofold.state saying so; the rest stays readable and can be deleted.
. "$(dirname "$0")/lib.sh"
need_fuse
need python3 getfattr sqlite3
init a
mnt a
python3 - "$W/a" <<'P'
import os, random, sys
r = random.Random(7)
for name in ("big", "other"):
    with open(os.path.join(sys.argv[1], name), "wb") as f:
        f.write(r.randbytes(64 * 4096 + 777))
P
echo small > "$W/a/small"
for i in $(seq 60); do echo "file $i" > "$W/a/n$i"; done
cp "$W/a/big" "$W/big.ref"; cp "$W/a/other" "$W/other.ref"
umnt a
cp -a "$W/a.store" "$W/clean"
restore() { rm -rf "$W/a.store"; cp -a "$W/clean" "$W/a.store"; }
# the objects, largest first: big and other have the same size; which is which shows by reading
mapfile -t objects < <(find "$W/a.store/objects" -type f -printf '%s %P\n' | sort -rn | head -2 | cut -d' ' -f2)
[ "${#objects[@]}" = 2 ] || die "expected two objects"
# reads FILE page by page: prints "good bad wrong" counts; a page that reads must be equal to the reference
pages() {
    python3 - "$1" "$2" <<'P'
import os, sys
ref = open(sys.argv[2], "rb").read(); good = bad = wrong = 0
fd = os.open(sys.argv[1], os.O_RDONLY)
for off in range(0, len(ref), 4096):
    try: b = os.pread(fd, 4096, off)
    except OSError as e:
        assert e.errno == 5, e
        bad += 1; continue
    if b == ref[off:off + 4096]: good += 1
    else: wrong += 1
print(good, bad, wrong)
P
}
attack() { # NAME PYTHON-SNIPPET (p = path of an object file, q = the other): what happens to the files
    local name=$1 snippet=$2
    restore
    python3 -c "
import os
p, q = '$W/a.store/objects/${objects[0]}', '$W/a.store/objects/${objects[1]}'
$snippet
" || die "attack $name"
    mnt a
    res_big=$(pages "$W/a/big" "$W/big.ref" || echo "0 0 ?") res_other=$(pages "$W/a/other" "$W/other.ref" || echo "0 0 ?")
    set -- $res_big $res_other
    say "$name: big $res_big, other $res_other (good bad wrong)"
    [ "${3:-?}" = 0 ] && [ "${6:-?}" = 0 ] || fail "$name: wrong bytes were served"
    bad=$((${2:-0} + ${5:-0}))
    states="$(getfattr --only-values -n user.twofold.state "$W/a/big") $(getfattr --only-values -n user.twofold.state "$W/a/other")"
    if [ "$bad" -gt 0 ]; then
        case $states in *damaged*) ;; *) fail "$name: state does not say damaged: $states" ;; esac
        [ "$(counter a count.auth-failures)" -gt 0 ] || fail "$name: the counter of failures is 0"
    fi
    equal "$name: the rest is readable" "$(cat "$W/a/small")" small
    check "$name: the damaged file can be deleted" rm "$W/a/big" "$W/a/other"
    umnt a
}
attack "one bit in every page" "
f = open(p, 'r+b'); n = os.path.getsize(p)
for off in range(2 * 4096, n, 4096):
    f.seek(off + 1234); b = f.read(1); f.seek(off + 1234); f.write(bytes([b[0] ^ 4]))
"
[ "$bad" -ge 64 ] || fail "bit flips: only $bad pages noticed"
attack "two pages swapped" "
f = open(p, 'r+b'); f.seek(4096 * 12); x = f.read(4096); f.seek(4096 * 20); y = f.read(4096)
f.seek(4096 * 12); f.write(y); f.seek(4096 * 20); f.write(x)
"
equal "swapped pages noticed" "$bad" 2
attack "two pages swapped with their tag entries" "
f = open(p, 'r+b'); rd = lambda o, n: (f.seek(o), f.read(n))[1]
def wr(o, b): f.seek(o); f.write(b)
a, b = 10, 18
x, y = rd(4096 * (2 + a), 4096), rd(4096 * (2 + b), 4096); wr(4096 * (2 + a), y); wr(4096 * (2 + b), x)
x, y = rd(4096 + 32 * a, 32), rd(4096 + 32 * b, 32); wr(4096 + 32 * a, y); wr(4096 + 32 * b, x)
"
equal "swapped pages with entries noticed" "$bad" 2
attack "a page zeroed" "
f = open(p, 'r+b'); f.seek(4096 * 30); f.write(bytes(4096))
"
equal "zeroed page noticed" "$bad" 1
attack "a page and its tag entry zeroed" "
f = open(p, 'r+b'); f.seek(4096 * 30); f.write(bytes(4096)); f.seek(4096 + 32 * 28); f.write(bytes(32))
"
equal "zeroed page with entry noticed" "$bad" 1
attack "cut at a page border" "os.truncate(p, 4096 * 40)"
[ "$bad" -gt 0 ] || fail "cut not noticed"
attack "cut anywhere" "os.truncate(p, 4096 * 40 + 1000)"
[ "$bad" -gt 0 ] || fail "cut not noticed"
attack "two objects exchanged" "os.rename(p, p + '.x'); os.rename(q, p); os.rename(p + '.x', q)"
[ "$bad" -ge 128 ] || fail "exchanged objects: only $bad pages noticed"
attack "deleted" "os.unlink(p)"
[ "$bad" -ge 64 ] || fail "deleted object: only $bad pages noticed"
attack "header of the object flipped" "
f = open(p, 'r+b'); f.seek(20); b = f.read(1); f.seek(20); f.write(bytes([b[0] ^ 1]))
"
# the header says nothing that the record does not say too: it is written anew, and the pages prove themselves
equal "pages damaged after the header was written anew" "$bad" 0

say "bits in volume"
restore
size=$(stat -c %s "$W/a.store/volume")
for off in 0 9 17 33 100 400 2000 $((size - 5)); do
    cp "$W/clean/volume" "$W/a.store/volume"
    python3 -c "f = open('$W/a.store/volume', 'r+b'); f.seek($off); b = f.read(1); f.seek($off); f.write(bytes([b[0] ^ 32]))"
    mkdir -p "$W/a"
    code 4 "$TWOFOLD" mount "$W/a.store" "$W/a" -o "passfile=$PASS"
    grep -q 'a.store' "$W/err" || fail "no clear message for a damaged volume file: $(cat "$W/err")"
done
say "volume cut, empty, missing"
truncate -s 100 "$W/a.store/volume"; code 4 "$TWOFOLD" mount "$W/a.store" "$W/a" -o "passfile=$PASS"
: > "$W/a.store/volume"; code 4 "$TWOFOLD" mount "$W/a.store" "$W/a" -o "passfile=$PASS"
rm "$W/a.store/volume"; code 4 "$TWOFOLD" mount "$W/a.store" "$W/a" -o "passfile=$PASS"

say "the redo log is taken away after a kill"
restore
mnt a; echo kept > "$W/a/kept"; sync "$W/a/kept"; dd if=/dev/zero of="$W/a/kept" bs=1 count=2 conv=notrunc,fsync status=none
kill9 a; mv "$W/a.store/redo" "$W/redo"
code 4 "$TWOFOLD" mount "$W/a.store" "$W/a" -o "passfile=$PASS"
grep -q 'redo log' "$W/err" || fail "no clear message: $(cat "$W/err")"
mv "$W/redo" "$W/a.store/redo"; mnt a
equal "what was synced" "$(od -An -c "$W/a/kept" | tr -d ' ')" '\0\0pt\n'
umnt a; rm "$W/a.store/redo"; mnt a; umnt a # after a clean stop it holds nothing

say "bits in journal.db"
restore
mnt a
# names, links and attributes enough for indexes of several pages
python3 - "$W/a" <<'P'
import os, sys
for d in range(6):
    os.mkdir("%s/d%d" % (sys.argv[1], d))
    for i in range(60):
        p = "%s/d%d/n%d" % (sys.argv[1], d, i); open(p, "wb").write(b"%d-%d " % (d, i) * (i * 3)); os.setxattr(p, "user.k", b"v%d" % i); os.chmod(p, 0o600 + i % 8)
        if i % 9 == 0: os.link(p, p + "l")
        if i % 7 == 0: os.symlink("t%d" % i, p + "s")
P
umnt a; mnt a
listing "$W/a" > "$W/list.ref"; (cd "$W/a" && find . -type f -print0 | sort -z | xargs -0 sha256sum) > "$W/sums.ref"
root_ref=$(root a); umnt a; rm -rf "$W/clean"; cp -a "$W/a.store" "$W/clean"
noticed=0
for seed in $(seq "${FLIPS:-25}"); do
    restore
    python3 -c "
import os, random
p = '$W/a.store/journal.db'; r = random.Random($seed); n = os.path.getsize(p)
f = open(p, 'r+b'); off = r.randrange(n); f.seek(off); b = f.read(1); f.seek(off); f.write(bytes([b[0] ^ (1 << r.randrange(8))]))"
    mkdir -p "$W/a"
    if "$TWOFOLD" mount "$W/a.store" "$W/a" -o "passfile=$PASS,allow_other" 2> "$W/err"; then
        mounted+=("$W/a")
        # whatever is shown must be as it was: a line that is not in the reference is wrong (a missing one, or an error, is damage noticed or seen by the root)
        (cd "$W/a" && find . -type f -print0 2>/dev/null | sort -z | xargs -0r sha256sum 2>/dev/null) > "$W/sums"
        comm -13 <(sort "$W/sums.ref") <(sort "$W/sums") > "$W/wrong"
        [ -s "$W/wrong" ] && fail "journal flip $seed: wrong content served: $(head -2 "$W/wrong")"
        listing "$W/a" > "$W/list" 2>/dev/null
        # a directory's size, link count and times follow its entries: compare files only
        grep -v ' d ' "$W/list" | comm -13 <(sort "$W/list.ref") <(sort) > "$W/wrong"
        [ -s "$W/wrong" ] && fail "journal flip $seed: wrong attributes served: $(head -2 "$W/wrong")"
        r=$(root a); [ -n "$r" ] || { fail "journal flip $seed: the daemon does not answer"; umount -l "$W/a"; continue; }
        if ! cmp -s "$W/list" "$W/list.ref" || ! cmp -s "$W/sums" "$W/sums.ref" || [ "$r" != "$root_ref" ]; then
            noticed=$((noticed + 1))
            [ "$r" != "$root_ref" ] || code 4 "$TWOFOLD" check "$W/a"
        fi
        umnt a
    else
        rc=$?
        [ $rc = 4 ] || fail "journal flip $seed: exit $rc: $(cat "$W/err")"
        noticed=$((noticed + 1))
    fi
done
say "$noticed of ${FLIPS:-25} flips in journal.db changed something that was noticed (the others hit unused bytes)"
