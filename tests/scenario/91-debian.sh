#!/bin/bash
# Goal: contrib/debian builds packages that lintian has nothing to say about, with everything in its place; installed for real (by dpkg, over a copy of this
# system that only a mount namespace sees) they mount, keep what was written, and leave nothing when they are purged. The AppArmor profile is valid.
. "$(dirname "$0")/lib.sh"
need_fuse
need unshare dpkg-buildpackage dh fakeroot dh_apparmor lintian apparmor_parser
unshare -m --propagation private true 2> /dev/null || skip "no mount namespace of its own here (in a chroot / is no mount point)"

say "the profile"
profile=$here/contrib/apparmor/usr.bin.twofold
apparmor_parser -Q -K "$profile" > "$W/out" 2>&1 || fail "apparmor_parser: $(cat "$W/out")"
! grep -v '^Cache read/write disabled' "$W/out" || fail "apparmor_parser warns"
sed 's/capability sys_admin/capability sysadmin/' "$profile" > "$W/broken"
! apparmor_parser -Q -K "$W/broken" > "$W/out" 2>&1 || fail "apparmor_parser takes a capability that does not exist"

say "the packages"
DEB_BUILD_OPTIONS="nocheck parallel=2" sh "$here/contrib/debian/build.sh" "$W/deb" > "$W/built" || die "build.sh"
version=$(sed -n "s/.*version: '\([0-9.]*\)'.*/\1/p" "$here/meson.build" | head -1)
deb=$(echo "$W"/deb/twofold_"$version"_*.deb) more=$W/deb/twofold-monitoring_${version}_all.deb
[ -f "$deb" ] && [ -f "$more" ] || die "no packages of version $version: $(cat "$W/built")"
lintian --allow-root --info --display-info --fail-on error,warning,info "$W"/deb/*.changes > "$W/out" 2>&1 || fail "lintian: $(cat "$W/out")"
dpkg-deb -c "$deb" | awk '{ print $1, $2, $6 }' | sed 's,\./,/,' > "$W/contents"
while read -r mode path; do
    grep -q "^$mode root/root $path\$" "$W/contents" || fail "not in the package as $mode: $path ($(grep -F " $path" "$W/contents"))"
done <<'L'
-rwxr-xr-x /usr/bin/twofold
lrwxrwxrwx /usr/sbin/mount.twofold
lrwxrwxrwx /usr/sbin/mount.fuse.twofold
lrwxrwxrwx /usr/sbin/umount.twofold
lrwxrwxrwx /usr/sbin/umount.fuse.twofold
-rw-r--r-- /etc/apparmor.d/usr.bin.twofold
-rw-r--r-- /lib/systemd/system/twofold@.service
-rw-r--r-- /lib/systemd/system/twofold-serve@.service
-rw-r--r-- /usr/share/bash-completion/completions/twofold
-rw-r--r-- /usr/share/zsh/vendor-completions/_twofold
-rw-r--r-- /usr/share/fish/vendor_completions.d/twofold.fish
-rw-r--r-- /usr/share/man/man1/twofold.1.gz
-rw-r--r-- /usr/share/man/man8/mount.twofold.8.gz
-rw-r--r-- /usr/share/doc/twofold/examples/fstab
-rw-r--r-- /usr/share/doc/twofold/examples/plain-passphrase.conf
L
dpkg-deb -c "$more" > "$W/more"; grep -q '^-rwxr-xr-x root/root .* \./usr/lib/nagios/plugins/check_twofold$' "$W/more" || fail "the check plugin is not in its package"
grep -E ' /(usr/local|build|home|tmp)' "$W/contents" && fail "something that does not belong into a package"
test ! -e "$here/debian" || fail "build.sh left a debian/ in the tree"

say "installed, used, purged"
cat > "$W/inside.sh" <<'I'
set -eu
not() { if "$@"; then echo "should have failed: $*" >&2; exit 1; fi; } # set -e does not see a failing "!"
mkdir "$W/up"; mount -t tmpfs tmpfs "$W/up"
for d in usr etc var lib; do
    [ ! -L "/$d" ] || continue
    mkdir "$W/up/$d" "$W/up/$d.work"
    mount -t overlay overlay -o "lowerdir=/$d,upperdir=$W/up/$d,workdir=$W/up/$d.work" "/$d"
done
ok() { echo "ok $*"; }
changed() { find "$W/up/usr" "$W/up/etc" -name '*twofold*'; }
[ -z "$(changed)" ]
dpkg -i "$deb" "$more"
[ "$(dpkg-query -W -f '${db:Status-Status}' twofold)" = installed ]; ok installed
[ "$(twofold --version)" = "twofold $version" ]
cmp -s "$profile" /etc/apparmor.d/usr.bin.twofold; ok the profile
twofold init "$W/d.store" --name d --passfile "$PASS"
mkdir "$W/d"
mount -t twofold -o "passfile=$PASS" "$W/d.store" "$W/d"
cp -r /usr/share/doc/twofold "$W/d/doc"; echo packed > "$W/d/file"
umount "$W/d"
[ ! -e "$W/d/file" ]
twofold mount "$W/d.store" "$W/d" -o "passfile=$PASS"
[ "$(cat "$W/d/file")" = packed ]; diff -r /usr/share/doc/twofold "$W/d/doc"; ok what was written is there
/usr/lib/nagios/plugins/check_twofold "$W/d" | grep "^TWOFOLD OK: 0 peers in sync"; ok the check plugin
twofold umount "$W/d"
twofold check "$W/d.store" --passfile "$PASS"; ok check
dpkg -P twofold twofold-monitoring
changed | while read -r f; do [ -c "$f" ] || { echo "left: $f" >&2; exit 1; }; done
hash -r; not command -v twofold; ok purged
I
[ "$(dpkg-query -W -f '${db:Status-Status}' twofold 2> /dev/null)" != installed ] || skip "the package is installed on this machine"
W=$W PASS=$PASS deb=$deb more=$more version=$version profile=$profile unshare -m --propagation private bash "$W/inside.sh" > "$W/out" 2>&1 || fail "in the namespace: $(tail -5 "$W/out")"
equal "steps in the namespace" "$(grep -c '^ok ' "$W/out")" 6
