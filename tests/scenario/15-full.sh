#!/bin/bash
# Goal: a full disk reaches the program as ENOSPC, at the latest at its fsync; nothing that was synced is lost or half-written; the mount stays usable, space comes back
# by deleting, and what is written then is there after a remount.
. "$(dirname "$0")/lib.sh"
need_fuse
mkdir "$W/disk" "$W/a"
# what commits a deletion on a full disk comes out of the reserve, which a small disk has too, though a smaller one
mount -t tmpfs -o size=160m none "$W/disk" || skip "no tmpfs of its own"
trap 'umount -l "$W/a" 2>/dev/null; sleep 0.5; umount -l "$W/disk" 2>/dev/null; cleanup' EXIT
"$TWOFOLD" init "$W/disk/a.store" --name a --passfile "$PASS" > /dev/null 2>&1 || die "init"
up() { "$TWOFOLD" mount "$W/disk/a.store" "$W/a" -o "passfile=$PASS,allow_other" || die "mount"; }
up
[ -s "$W/disk/a.store/reserve" ] || fail "no reserve"
head -c 3000000 /dev/urandom > "$W/a/keep"; sync "$W/a/keep"; sha256sum < "$W/a/keep" > "$W/sum.keep"
dd if=/dev/urandom of="$W/a/big" bs=1M count=400 conv=fsync 2> "$W/dd" && fail "400 MiB went into what has no room for them"
grep -q 'No space left' "$W/dd" || fail "not ENOSPC: $(head -1 "$W/dd")"
[ "$(counter a count.write-errors)" -gt 0 ] || fail "no failed write is counted"
check "reading while it is full" cmp -s <(sha256sum < "$W/a/keep") "$W/sum.keep"
check "listing while it is full" ls "$W/a" > /dev/null
check "deleting while it is full" rm "$W/a/big"
"$TWOFOLD" umount "$W/a" || fail "umount"
up
head -c 5000000 /dev/urandom > "$W/a/after" && sync "$W/a/after" || fail "writing after space came back"
sha256sum < "$W/a/after" > "$W/sum.after"
"$TWOFOLD" umount "$W/a" || fail "umount"
up
for f in keep after; do sha256sum < "$W/a/$f" | cmp -s - "$W/sum.$f" || fail "$f after a remount"; done
# a last commit that fails is no secret: no reserve, and every page taken by somebody else
for i in $(seq 2000); do echo "$i" > "$W/a/many$i" || break; done
sync "$W/a"
rm "$W/disk/a.store/reserve"
cat /dev/zero > "$W/disk/foreign" 2> "$W/cat"
rm "$W/a"/many*
code 1 "$TWOFOLD" umount "$W/a"
grep -q 'last commit failed' "$W/err" || fail "umount says nothing of it: $(cat "$W/err")"
rm "$W/disk/foreign"
up
equal "what the failed commit was to remove" "$(ls "$W/a" | grep -c many)" 2000
[ ! -e "$W/a/big" ] || fail "deleted, and there again"
"$TWOFOLD" umount "$W/a" || fail "umount"
