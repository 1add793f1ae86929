#!/bin/bash
# Goal: each line of examples/fstab mounts by a real mount -a (or by hand where it says noauto); the unit files are valid, and what they start works with the
# passphrase as a credential. In a mount and network namespace of its own: paths and port are those of the examples.
. "$(dirname "$0")/lib.sh"
need_fuse
need unshare ip
unshare -mn --propagation private true 2> /dev/null || skip "no mount namespace of its own here (in a chroot / is no mount point)"
mkdir -p "$W/bin" "$W/sbin" "$W/etc/twofold"
cp "$TWOFOLD" "$W/bin/twofold"
for h in mount.twofold mount.fuse.twofold umount.twofold umount.fuse.twofold; do ln -s /usr/bin/twofold "$W/sbin/$h"; done
cp "$PASS" "$W/etc/twofold/team"
cat > "$W/inside.sh" <<'I'
set -eu
ip link set lo up
for f in bin sbin; do mount -t overlay overlay -o "lowerdir=$W/$f:/usr/$f" "/usr/$f"; done
mount -t overlay overlay -o "lowerdir=$W/etc:/etc" /etc
mount -t tmpfs tmpfs /srv
mkdir /srv/twofold /srv/team /srv/laptop /srv/usb /srv/archive
for n in team laptop usb archive; do twofold init "/srv/twofold/$n.store" --name "$n" --passfile "$PASS" > /dev/null; done
mount -a -T "$here/examples/fstab"
for n in team laptop archive; do grep -q " /srv/$n fuse.twofold" /proc/self/mounts; echo "ok mount -a: $n"; done
! grep -q " /srv/usb " /proc/self/mounts
mount -T "$here/examples/fstab" /srv/usb
grep " /srv/usb fuse.twofold" /proc/self/mounts | grep nosuid | grep nodev | grep -q noexec; echo ok noauto
! touch /srv/archive/x 2> /dev/null; echo ok ro
touch /srv/team/x
for n in team laptop usb archive; do umount "/srv/$n"; done
mkdir "$W/cred"; cp "$PASS" "$W/cred/twofold"
line() { sed -n "s/^$1=//p" "$here/contrib/systemd/twofold@.service" | sed "s/%i/team/g; s/\${TWOFOLD_OPTIONS}/allow_other/"; }
CREDENTIALS_DIRECTORY=$W/cred sh -c "$(line ExecStart)"
[ -e /srv/team/x ]; sh -c "$(line ExecStop)"; echo ok the service
I
W=$W PASS=$PASS here=$here unshare -mn --propagation private bash "$W/inside.sh" > "$W/out" 2>&1 || fail "in the namespace: $(tail -3 "$W/out")"
equal "steps in the namespace" "$(grep -c '^ok ' "$W/out")" 6
if command -v systemd-analyze > /dev/null; then
    mkdir "$W/units"; cp "$here"/contrib/systemd/srv-team.mount "$W/units/"
    sed 's,/usr/bin/twofold,/bin/true,' "$here/contrib/systemd/twofold@.service" > "$W/units/twofold@team.service"
    for u in srv-team.mount twofold@team.service; do
        systemd-analyze verify --man=no "$W/units/$u" > "$W/out" 2>&1 || true
        ! grep -F "$W/units/" "$W/out" || fail "systemd-analyze verify $u"
        ! grep -E "^($u|.*$u):.*(Unknown|Failed|not|Invalid)" "$W/out" || fail "systemd-analyze verify $u"
    done
fi
