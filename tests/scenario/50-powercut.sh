#!/bin/bash
# Goal: nothing that fsync acknowledged is lost by a power cut, nothing is torn, the mount comes back by itself, and a peer that stayed up comes to the same tree. A disk image
# lies on a filesystem with reflinks and is attached with direct I/O: a reflink copy is the disk at one instant, and what the kernel had not yet sent is lost, as at a
# power cut. IMAGES (default 20; soak.sh: 200) of them are taken while powerload.py works; the peer stands still meanwhile, and a copy of its store is what it has then. Each is
# mounted and checked, then meets that copy of the peer.
# MOUNT_LIMIT: milliseconds that a mount may take (default 5000; sanitizers are slower). KEEP: a folder that gets the images which failed.
. "$(dirname "$0")/lib.sh"
need_fuse
need mkfs.xfs mkfs.ext4 losetup python3 git
[ -e /dev/loop-control ] || skip "no loop devices"
images=${IMAGES:-20}
loops=() stopped=
own_cleanup() {
    local rc=$? m l
    [ -n "$stopped" ] && kill -CONT "$stopped" 2>/dev/null
    [ -n "${work:-}" ] && { kill -9 -- "-$work" 2>/dev/null; wait "$work" 2>/dev/null; }
    for m in "$W/a" "$W/b" "$W/snap" "$W/live"; do grep -q " $m " /proc/self/mounts && { umount "$m" 2>/dev/null || { sleep 1; umount -l "$m"; }; }; done
    for l in "${loops[@]}"; do losetup -d "$l" 2>/dev/null; done
    grep -q " $W/host " /proc/self/mounts && { umount "$W/host" || umount -l "$W/host"; }
    (exit "$rc"); cleanup
}
trap own_cleanup EXIT
mkdir "$W/host" "$W/live" "$W/snap" "$W/a" "$W/ledger"
truncate -s 24G "$W/host.img"
mkfs.xfs -q -m reflink=1 "$W/host.img" && mount -o loop "$W/host.img" "$W/host" || skip "cannot mount a loop device with xfs"
truncate -s 1G "$W/host/disk.img"
mkfs.ext4 -q -F -E lazy_itable_init=0,lazy_journal_init=0 "$W/host/disk.img"
disk=$(losetup --show -f --direct-io=on "$W/host/disk.img") || skip "no loop device"
loops+=("$disk")
echo 4 > "/sys/block/${disk#/dev/}/queue/max_sectors_kb" # every page of a write can be lost alone
mount "$disk" "$W/live" || die "mount of the disk"
mkdir "$W/host/b.store"
ln -s "$W/live/store" "$W/a.store"; ln -s "$W/host/b.store" "$W/b.store"
"$TWOFOLD" init "$W/live/store" --name a --passfile "$PASS" > /dev/null || die init
pair a b
python3 "$here/tests/scenario/powerload.py" prepare "$W/a"
insync a b
sync -f "$W/live"
setsid python3 "$here/tests/scenario/powerload.py" run "$W/a" "$W/ledger" > "$W/work.log" 2>&1 & work=$!
peer=$(daemon_pid b)
sleep 1
for k in $(seq "$images"); do
    sleep "0.$((RANDOM % 9))$((RANDOM % 10))"
    kill -0 "$work" || die "the work ended: $(cat "$W/work.log")"
    kill -STOP "$peer"; stopped=$peer
    date +%s.%N > "$W/time.$k"
    cp --reflink=always "$W/host/disk.img" "$W/host/snap.$k" || die "reflink"
    cp -a --reflink=always "$W/host/b.store" "$W/host/b.$k" || die "copy of the peer"
    kill -CONT "$peer"; stopped=
done
kill -9 -- "-$work"; wait "$work" 2>/dev/null; work=
[ ! -s "$W/work.log" ] || fail "the work met errors: $(cat "$W/work.log")"
for m in a b; do for i in $(seq 50); do "$TWOFOLD" umount "$W/$m" 2>/dev/null && break; sleep 0.1; done; done
umount "$W/live"; losetup -d "$disk"
ids() { for m in a b; do "$TWOFOLD" status "$W/$m" --json | sed 's/.*"replica":"\([0-9a-f]*\)","name":"'$m'".*/\1/'; done; }
holds() { python3 "$here/tests/scenario/powerload.py" check "$W/$2" "$W/ledger" "$(cat "$W/time.$1")" > "$W/out" || fail "image $1, $2: $(head -5 "$W/out" | tr '\n' ';') $(tail -1 "$W/out")"; }
for k in $(seq "$images"); do
    before=$failures
    l=$(losetup --show -f "$W/host/snap.$k"); loops+=("$l")
    mount "$l" "$W/snap" || { fail "image $k: the disk does not mount"; continue; }
    rm "$W/a.store" "$W/b.store"; ln -s "$W/snap/store" "$W/a.store"; ln -s "$W/host/b.$k" "$W/b.store"
    s=$(date +%s%N)
    if "$TWOFOLD" mount "$W/a.store" "$W/a" -o "passfile=$PASS,allow_other,listen=127.0.0.1:$(port 1),deletions=apply" 2> "$W/err"; then
        took=$((($(date +%s%N) - s) / 1000000))
        [ "$took" -lt "${MOUNT_LIMIT:-5000}" ] || fail "image $k: mounting took $took ms"
        sound a
        holds "$k" a
        mnt b
        was=$(ids)
        insync a b && same a b
        # the peer had nothing that the disk had not: nobody looks restored
        equal "image $k: replica ids" "$(ids)" "$was"
        sound b
        holds "$k" b
        [ "$failures" != "$before" ] || say "image $k: ok, mounted in $took ms; $(tail -1 "$W/out")"
        "$TWOFOLD" umount "$W/b" || fail "image $k: umount b"
        "$TWOFOLD" umount "$W/a" || fail "image $k: umount"
    else fail "image $k does not mount: $(cat "$W/err")"; fi
    [ -z "${KEEP:-}" ] || [ "$failures" = "$before" ] || { cp --sparse=always "$W/host/snap.$k" "$KEEP/"; cp -r "$W/host/b.$k" "$W/ledger" "$W/time.$k" "$KEEP/"; }
    umount "$W/snap"; losetup -d "$l"
    rm -rf "$W/host/snap.$k" "$W/host/b.$k"
done
