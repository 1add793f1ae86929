#!/bin/bash
# Goal: three replicas in a row, a - b - c: what changes at one end arrives at the other through the middle, exactly, also what changed while the middle was away;
# edits of one file at both ends meanwhile are both kept, the same on all three, and then it is quiet.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/tree.sh"
need_fuse
need setfattr getfattr
pa=$(port 1) pb=$(port 2)
init a
mnt a "listen=127.0.0.1:$pa"
"$TWOFOLD" invite "$W/a" --address "127.0.0.1:$pa" | "$TWOFOLD" join - "$W/b.store" --name b --passfile "$PASS" > /dev/null || die "join b"
mnt b "listen=127.0.0.1:$pb"
insync a b
"$TWOFOLD" invite "$W/b" --address "127.0.0.1:$pb" | "$TWOFOLD" join - "$W/c.store" --name c --passfile "$PASS" > /dev/null || die "join c"
mnt c
# c has heard of a by now and dials it itself; here all is to go through b
insync b c
for i in $(seq 50); do "$TWOFOLD" peer pause "$W/c" a 2>/dev/null && break; sleep 0.2; done
[ "$i" -lt 50 ] || fail "c does not know a as a peer"

say "through the middle"
mkdir "$W/a/t"; make_tree "$W/a/t" three 20M
insync a b c
same a c
echo "from c" > "$W/c/from-c"; head -c 100 /dev/urandom | dd of="$W/c/t/large" conv=notrunc bs=1 seek=1000000 status=none
insync c b a
same a b; same a c

say "the middle is away"
umnt b
echo "edit of a" > "$W/a/from-c"; echo "edit of c" > "$W/c/from-c"
mv "$W/a/t/deep" "$W/a/t/deeper"; echo new > "$W/c/t/deep/er/new"
rm "$W/c/t/three-pages"; head -c 50000 /dev/urandom > "$W/a/t/inline"
mnt b "listen=127.0.0.1:$pb"
insync a b c
same a b; same a c
equal "both edits" "$(cat "$W"/c/from-c*| sort | tr '\n' ' ')" "edit of a edit of c "
equal "the new file followed its directory" "$(cat "$W/a/t/deeper/er/new")" new
test ! -e "$W/a/t/three-pages" || fail "a deletion did not arrive"

say "quiet"
sleep 1; before=$(counter b count.parts-sent); sleep 3
equal "new parts once quiet" "$(counter b count.parts-sent)" "$before"
