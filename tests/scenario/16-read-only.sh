#!/bin/bash
# Goal: a store on a filesystem that is read-only can be read with -o ro after a clean stop. Where the last stop was not clean, or a writable mount is asked for,
# the answer says that the filesystem is read-only.
. "$(dirname "$0")/lib.sh"
need_fuse
mkdir "$W/disk" "$W/a"
mount -t tmpfs -o size=200m none "$W/disk" || skip "no tmpfs of its own"
trap 'umount -l "$W/a" 2>/dev/null; sleep 0.5; umount -l "$W/disk" 2>/dev/null; cleanup' EXIT
S="$W/disk/what?#%"
"$TWOFOLD" init "$S" --name a --passfile "$PASS" > /dev/null 2>&1 || die "init"
"$TWOFOLD" mount "$S" "$W/a" -o "passfile=$PASS" || die "mount"
echo small > "$W/a/small"; head -c 300000 /dev/urandom > "$W/a/large"; sha256sum < "$W/a/large" > "$W/sum"
"$TWOFOLD" umount "$W/a" || fail "umount"
"$TWOFOLD" mount "$S" "$W/a" -o "ro,passfile=$PASS" || die "mount -o ro"
for c in sync scrub; do code 1 "$TWOFOLD" "$c" "$W/a"; grep -q "read-only" "$W/err" || fail "$c of a read-only mount says: $(cat "$W/err")"; done
"$TWOFOLD" umount "$W/a" || fail "umount"
mount -o remount,ro "$W/disk" || die "remount"
code 1 "$TWOFOLD" mount "$S" "$W/a" -o "passfile=$PASS"
grep -q 'Read-only file system' "$W/err" || fail "a writable mount says: $(cat "$W/err")"
"$TWOFOLD" mount "$S" "$W/a" -o "ro,passfile=$PASS" || die "mount -o ro"
equal "a small file" "$(cat "$W/a/small")" small
sha256sum < "$W/a/large" | cmp -s - "$W/sum" || fail "a large file"
touch "$W/a/new" 2> /dev/null && fail "a file was made"
"$TWOFOLD" umount "$W/a" || fail "umount"
mount -o remount,rw "$W/disk" || die "remount"
"$TWOFOLD" mount "$S" "$W/a" -f -o "passfile=$PASS" 2> /dev/null & daemon=$!
for i in $(seq 100); do mountpoint -q "$W/a" && break; sleep 0.1; done
echo more > "$W/a/more"; sync "$W/a/more"
kill -9 "$daemon"; wait "$daemon" 2> /dev/null
umount -l "$W/a"
mount -o remount,ro "$W/disk" || die "remount"
code 1 "$TWOFOLD" mount "$S" "$W/a" -o "ro,passfile=$PASS"
grep -q 'not clean' "$W/err" || fail "after a kill it says: $(cat "$W/err")"
