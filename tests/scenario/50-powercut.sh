#!/bin/bash
# Goal: nothing that fsync acknowledged is lost by a power cut, nothing is torn, and the mount comes back by itself. A disk image lies on a filesystem with
# reflinks and is attached with direct I/O: a reflink copy is the disk at one instant, and what the kernel had not yet sent is lost, as at a power cut. IMAGES (default
# 6; soak.sh: 100) of them are taken while powerload.py works; each is mounted and checked.
# MOUNT_LIMIT: milliseconds that a mount may take (default 5000; sanitizers are slower).
. "$(dirname "$0")/lib.sh"
need_fuse
need mkfs.xfs mkfs.ext4 losetup python3
[ -e /dev/loop-control ] || skip "no loop devices"
images=${IMAGES:-6}
loops=()
own_cleanup() {
    local rc=$? m l
    [ -n "${work:-}" ] && { kill -9 -- "-$work" 2>/dev/null; wait "$work" 2>/dev/null; }
    for m in "$W/a" "$W/snap" "$W/live"; do grep -q " $m " /proc/self/mounts && { umount "$m" 2>/dev/null || { sleep 1; umount -l "$m"; }; }; done
    for l in "${loops[@]}"; do losetup -d "$l" 2>/dev/null; done
    grep -q " $W/host " /proc/self/mounts && { umount "$W/host" || umount -l "$W/host"; }
    (exit "$rc"); cleanup
}
trap own_cleanup EXIT
mkdir "$W/host" "$W/live" "$W/snap" "$W/a" "$W/ledger"
truncate -s 12G "$W/host.img"
mkfs.xfs -q -m reflink=1 "$W/host.img" && mount -o loop "$W/host.img" "$W/host" || skip "cannot mount a loop device with xfs"
truncate -s 1G "$W/host/disk.img"
mkfs.ext4 -q -F -E lazy_itable_init=0,lazy_journal_init=0 "$W/host/disk.img"
disk=$(losetup --show -f --direct-io=on "$W/host/disk.img") || skip "no loop device"
loops+=("$disk")
echo 4 > "/sys/block/${disk#/dev/}/queue/max_sectors_kb" # every page of a write can be lost alone
mount "$disk" "$W/live" || die "mount of the disk"
"$TWOFOLD" init "$W/live/store" --name a --passfile "$PASS" > /dev/null || die init
"$TWOFOLD" mount "$W/live/store" "$W/a" -o "passfile=$PASS,allow_other" || die mount
python3 "$here/tests/scenario/powerload.py" prepare "$W/a"
sync -f "$W/live"
setsid python3 "$here/tests/scenario/powerload.py" run "$W/a" "$W/ledger" > "$W/work.log" 2>&1 & work=$!
sleep 1
for k in $(seq "$images"); do
    sleep "0.$((RANDOM % 9))$((RANDOM % 10))"
    kill -0 "$work" || die "the work ended: $(cat "$W/work.log")"
    date +%s.%N > "$W/time.$k"
    cp --reflink=always "$W/host/disk.img" "$W/host/snap.$k" || die "reflink"
done
kill -9 -- "-$work"; wait "$work" 2>/dev/null; work=
[ ! -s "$W/work.log" ] || fail "the work met errors: $(cat "$W/work.log")"
for i in $(seq 50); do "$TWOFOLD" umount "$W/a" 2>/dev/null && break; sleep 0.1; done
umount "$W/live"; losetup -d "$disk"
for k in $(seq "$images"); do
    l=$(losetup --show -f "$W/host/snap.$k"); loops+=("$l")
    mount "$l" "$W/snap" || { fail "image $k: the disk does not mount"; continue; }
    s=$(date +%s%N)
    if "$TWOFOLD" mount "$W/snap/store" "$W/a" -o "passfile=$PASS,allow_other" 2> "$W/err"; then
        took=$((($(date +%s%N) - s) / 1000000))
        [ "$took" -lt "${MOUNT_LIMIT:-5000}" ] || fail "image $k: mounting took $took ms"
        if python3 "$here/tests/scenario/powerload.py" check "$W/a" "$W/ledger" "$(cat "$W/time.$k")" > "$W/out"; then say "image $k: ok, mounted in $took ms; $(tail -1 "$W/out")"
        else fail "image $k: $(head -5 "$W/out" | tr '\n' ';') $(tail -1 "$W/out")"; fi
        "$TWOFOLD" umount "$W/a" || fail "image $k: umount"
    else fail "image $k does not mount: $(cat "$W/err")"; fi
    [ -z "${KEEP:-}" ] || [ "$failures" = 0 ] || { cp --sparse=always "$W/host/snap.$k" "$KEEP/"; cp -r "$W/ledger" "$W/time.$k" "$KEEP/"; }
    umount "$W/snap"; losetup -d "$l"
done
