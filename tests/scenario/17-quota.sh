#!/bin/bash
# Goal: a quota of the store's filesystem (EDQUOT from a btrfs qgroup, with the disk itself far from full) reaches the program as EDQUOT or ENOSPC, at the latest at its
# fsync; what was synced before stays whole and readable, names can be removed, and when the quota is raised writing goes on without a new mount.
. "$(dirname "$0")/lib.sh"
need_fuse
need mkfs.btrfs btrfs
mkdir "$W/disk" "$W/a"
truncate -s 512M "$W/image"
mkfs.btrfs -q "$W/image" > /dev/null 2>&1 || die "mkfs.btrfs"
mount -o loop "$W/image" "$W/disk" 2> "$W/err" || skip "no btrfs in this kernel, or no loop device: $(cat "$W/err")"
trap 'umount -l "$W/a" 2>/dev/null; sleep 0.5; umount -l "$W/disk" 2>/dev/null; cleanup' EXIT
btrfs subvolume create "$W/disk/s" > /dev/null
btrfs quota enable "$W/disk" || skip "no quota groups"
up() { "$TWOFOLD" mount "$W/disk/s/a.store" "$W/a" -o "passfile=$PASS,allow_other" || die "mount"; }
# a limit counts what was freed only after the filesystem's own commit
settle() { btrfs filesystem sync "$W/disk"; }
"$TWOFOLD" init "$W/disk/s/a.store" --name a --passfile "$PASS" > /dev/null 2>&1 || die "init"
up
head -c 3000000 /dev/urandom > "$W/a/keep"; sync "$W/a/keep"
for i in $(seq 200); do echo "$i" > "$W/a/few$i"; done
sync "$W/a"
(cd "$W/a" && sha256sum keep few*) > "$W/sums"
umount_wait() { "$TWOFOLD" umount "$W/a" || fail "umount"; }
umount_wait
settle
used=$(du -sb "$W/disk/s" | cut -f1)
btrfs qgroup limit $((used + (60 << 20))) "$W/disk/s" || die "qgroup limit"
up
say "past the quota"
dd if=/dev/urandom of="$W/a/big" bs=1M count=200 conv=fsync 2> "$W/dd" && fail "200 MiB went past a quota of 60 MiB more"
grep -Eq 'Disk quota exceeded|No space left' "$W/dd" || fail "neither EDQUOT nor ENOSPC: $(head -1 "$W/dd")"
[ "$(counter a count.write-errors)" -gt 0 ] || fail "no failed write is counted"
# many small files meet it at the redo log and the journal
n=0; while [ "$n" -lt 400 ]; do n=$((n + 1)); head -c 3000 /dev/urandom > "$W/a/small$n" && sync "$W/a/small$n" || break; done 2> /dev/null
(cd "$W/a" && sha256sum --quiet -c "$W/sums") || fail "what was synced, while the quota is reached"
check "a listing while the quota is reached" ls "$W/a" > /dev/null
check "deleting while the quota is reached" rm -f "$W/a/big"
say "the quota is raised"
btrfs qgroup limit none "$W/disk/s" || die "qgroup limit none"
for i in $(seq 100); do settle; head -c 2000000 /dev/urandom > "$W/a/after" && sync "$W/a/after" && break; sleep 0.2; done 2> /dev/null
[ "$(stat -c %s "$W/a/after")" = 2000000 ] || fail "writing does not go on after the quota was raised"
(cd "$W/a" && sha256sum after) >> "$W/sums"
sync "$W/a"
umount_wait
up
(cd "$W/a" && sha256sum --quiet -c "$W/sums") || fail "after a new mount"
[ ! -e "$W/a/big" ] || fail "deleted, and there again"
"$TWOFOLD" check "$W/a" > "$W/out" 2>&1 || fail "check: $(head -3 "$W/out" | tr '\n' ';')"
umount_wait
