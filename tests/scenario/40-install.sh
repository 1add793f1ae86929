#!/bin/bash
# Goal: what meson install puts works as an administrator uses it: mount -t twofold and mount -a by fstab, umount that waits for the commit, man pages
# and completions in their places. In a mount namespace of its own, so that nothing is installed on this machine.
. "$(dirname "$0")/lib.sh"
need_fuse
need unshare meson
unshare -m --propagation private true 2> /dev/null || skip "no mount namespace of its own here (in a chroot / is no mount point)"
build=$(dirname "$(readlink -f "$TWOFOLD")")/../..
[ -f "$build/build.ninja" ] || skip "$TWOFOLD does not lie in a build folder"
DESTDIR=$W/dest meson install -C "$build" --no-rebuild > "$W/out" 2>&1 || die "meson install: $(tail -2 "$W/out")"
prefix=$(meson introspect "$build" --buildoptions | python3 -c 'import json, sys; print([o["value"] for o in json.load(sys.stdin) if o["name"] == "prefix"][0])')
d=$W/dest$prefix
for f in bin/twofold sbin/mount.twofold sbin/mount.fuse.twofold sbin/umount.twofold sbin/umount.fuse.twofold share/bash-completion/completions/twofold \
    share/zsh/site-functions/_twofold share/fish/vendor_completions.d/twofold.fish; do
    check "$f is installed" test -e "$d/$f" -o -L "$d/$f"
done
for m in man1/twofold.1 man5/twofold-format.5 man7/twofold-protocol.7 man8/mount.twofold.8; do check "$m is installed" test -e "$d/share/man/$m"; done
bash -n "$d/share/bash-completion/completions/twofold" || fail "bash completion does not parse"

init a; init b
mkdir "$W/ns" "$W/m1" "$W/m2"
for n in bin sbin; do mkdir "$W/ns/$n"; done
cp "$d/bin/twofold" "$W/ns/bin/"
for h in mount.twofold mount.fuse.twofold umount.twofold umount.fuse.twofold; do ln -s /usr/bin/twofold "$W/ns/sbin/$h"; done
cat > "$W/fstab" <<F
$W/a.store $W/m1 twofold passfile=$PASS,allow_other,nofail,_netdev,x-systemd.automount 0 0
$W/b.store $W/m2 fuse.twofold passfile=$PASS,noauto,nodev,nosuid,noatime 0 0
F
cat > "$W/inside.sh" <<'I'
set -eu
mount -t overlay overlay -o "lowerdir=$W/ns/bin:/usr/bin" /usr/bin
mount -t overlay overlay -o "lowerdir=$W/ns/sbin:/usr/sbin" /usr/sbin
ok() { echo "ok $*"; }
mount -a -T "$W/fstab"
grep -q " $W/m1 fuse.twofold" /proc/self/mounts; ok mounted by mount -a
echo hello > "$W/m1/file"
# plain umount goes through the helper, which waits: the store is free when it returns, also where much is still to be written
free() { flock_free "$1.store" || { echo "umount returned before $1.store was free"; exit 1; }; }
flock_free() { python3 -c 'import fcntl, struct, sys; fcntl.fcntl(open(sys.argv[1] + "/lock", "r+"), 37, struct.pack("hhqqi4x", 1, 0, 0, 0, 0))' "$1" 2> /dev/null; }
for i in 1 2 3; do
    head -c 20M /dev/urandom > "$W/m1/large"
    if flock_free "$W/a.store"; then echo "the lock of a mounted store can be had"; exit 1; fi
    umount "$W/m1"
    free "$W/a"
    twofold mount "$W/a.store" "$W/m1" -o "passfile=$PASS"
done
[ "$(cat "$W/m1/file")" = hello ]; ok umount waits, content is there
mount -T "$W/fstab" "$W/m2"
grep " $W/m2 fuse.twofold" /proc/self/mounts | grep -q nosuid; ok noauto entry, nosuid
umount "$W/m2"
umount "$W/m1"
mount -t twofold -o "passfile=$PASS,ro" "$W/a.store" "$W/m1"
if touch "$W/m1/x" 2> /dev/null; then exit 1; fi; ok ro
umount "$W/m1"
[ ! -s /run/mount/utab ] || ! grep -q "$W/" /run/mount/utab || { echo "lines left in utab"; exit 1; }
rc=0; mount -t twofold -o "passfile=$PASS,nonsense" "$W/a.store" "$W/m1" 2> "$W/err" || rc=$?
[ "$rc" != 0 ] && grep -q nonsense "$W/err"; ok unknown option refused by name
I
W=$W PASS=$PASS TWOFOLD_ARGON2=$TWOFOLD_ARGON2 unshare -m --propagation private bash "$W/inside.sh" > "$W/out" 2>&1 || fail "in the namespace: $(tail -3 "$W/out")"
equal "steps in the namespace" "$(grep -c '^ok ' "$W/out")" 5
