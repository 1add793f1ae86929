#!/bin/bash
# Goal: each line of examples/fstab mounts by a real mount -a (or by hand where it says noauto); the unit files are valid, and what they start works with the
# passphrase as a credential. In a mount and network namespace of its own: paths and port are those of the examples.
. "$(dirname "$0")/lib.sh"
need_fuse
need unshare ip systemd-creds systemd-analyze systemd-escape
unshare -mn --propagation private true 2> /dev/null || skip "no mount namespace of its own here (in a chroot / is no mount point)"
mkdir -p "$W/bin" "$W/sbin" "$W/etc/twofold"
cp "$TWOFOLD" "$W/bin/twofold"
for h in mount.twofold mount.fuse.twofold umount.twofold umount.fuse.twofold; do ln -s /usr/bin/twofold "$W/sbin/$h"; done
cp "$PASS" "$W/etc/twofold/team"
cat > "$W/inside.sh" <<'I'
set -eu
not() { if "$@"; then echo "should have failed: $*" >&2; exit 1; fi; } # set -e does not see a failing "!"
ip link set lo up
for f in bin sbin; do mount -t overlay overlay -o "lowerdir=$W/$f:/usr/$f" "/usr/$f"; done
mount -t overlay overlay -o "lowerdir=$W/etc:/etc" /etc
mount -t tmpfs tmpfs /srv
mkdir /srv/twofold
# every line of the file, not a list of them: store, mountpoint, options
grep -v '^#' "$here/examples/fstab" | while read -r store dir type options rest; do echo "$store $dir $options"; done > "$W/lines"
while read -r store dir options; do mkdir "$dir"; n=${dir##*/}; twofold init "$store" --name "$n" --passfile "$PASS" > /dev/null; done < "$W/lines"
mounted() { grep -q " $1 fuse.twofold" /proc/self/mounts; }
mount -a -T "$here/examples/fstab"
while read -r store dir options; do
    case ,$options, in
    *,noauto,*) not mounted "$dir"; mount -T "$here/examples/fstab" "$dir"; mounted "$dir"; how="by hand" ;;
    *) mounted "$dir"; how="by mount -a" ;;
    esac
    for o in nosuid nodev noexec; do case ,$options, in *,$o,*) grep " $dir fuse" /proc/self/mounts | grep -q "$o" ;; esac; done
    case ,$options, in *,ro,*) not touch "$dir/x" 2> /dev/null ;; *) touch "$dir/x" ;; esac
    case ,$options, in *,listen=*) "$TWOFOLD" status "$dir" > /dev/null; (: > /dev/tcp/127.0.0.1/7420) ;; esac
    umount "$dir"
    echo "ok fstab: $dir $how"
done < "$W/lines"
# the mount unit: what systemd calls mount(8) with; its name is that of the mountpoint
unit=$here/contrib/systemd/srv-team.mount
of() { sed -n "s/^$1=//p" "$unit"; }
[ "$(systemd-escape -p --suffix=mount "$(of Where)")" = "${unit##*/}" ]
mount "$(of What)" "$(of Where)" -t "$(of Type)" -o "$(of Options)"; mounted "$(of Where)"; [ -e /srv/team/x ]; umount "$(of Where)"; echo ok the mount unit
# the services: the credential is made as their first lines say, and given as systemd does
mkdir -p /var/lib/systemd; mount -t tmpfs tmpfs /var/lib/systemd
systemd-creds --with-key=host encrypt --name=twofold - "$W/team.cred" < "$PASS" > /dev/null 2>&1
not grep -qF "$(cat "$PASS")" "$W/team.cred"
[ "$(sed -n 's/^LoadCredentialEncrypted=//p' "$here/contrib/systemd/twofold@.service")" = "twofold:/etc/twofold/%i.cred" ]
mkdir "$W/cred"; systemd-creds decrypt --name=twofold "$W/team.cred" "$W/cred/twofold"
line() { sed -n "s/^$2=//p" "$here/contrib/systemd/$1" | sed "s/%i/team/g; s/\${TWOFOLD_OPTIONS}/$(sed -n 's/^Environment=TWOFOLD_OPTIONS=//p' "$here/contrib/systemd/$1")/"; }
export CREDENTIALS_DIRECTORY=$W/cred
sh -c "$(line twofold@.service ExecStart)"; [ -e /srv/team/x ]; sh -c "$(line twofold@.service ExecStop)"; not mounted /srv/team; echo ok the service, LoadCredentialEncrypted=
file=$(sed -n 's/^LoadCredential=twofold://p' "$here/contrib/systemd/plain-passphrase.conf"); cp "${file%%%i}team" "$W/cred/twofold"
sh -c "$(line twofold@.service ExecStart)"; [ -e /srv/team/x ]; sh -c "$(line twofold@.service ExecStop)"; not mounted /srv/team; echo ok the service, LoadCredential=
sh -c "exec $(line twofold-serve@.service ExecStart)" 2> "$W/served" & s=$!
for _ in $(seq 300); do ! (: > /dev/tcp/127.0.0.1/7420) 2> /dev/null || break; sleep 0.1; done
twofold peer list /srv/twofold/team.store > /dev/null; kill $s; wait $s; echo ok the service without a mount
I
W=$W PASS=$PASS here=$here TWOFOLD=$TWOFOLD unshare -mn --propagation private bash "$W/inside.sh" > "$W/out" 2>&1 || fail "in the namespace: $(tail -3 "$W/out")"
equal "steps in the namespace" "$(grep -c '^ok ' "$W/out")" $(($(grep -vc '^#' "$here/examples/fstab") + 4))
say "systemd-analyze verify"
mkdir -p "$W/units/twofold@plain.service.d"; cp "$here/contrib/systemd/srv-team.mount" "$W/units/"
for u in twofold@team twofold@plain twofold-serve@team; do sed 's,/usr/bin/twofold,/bin/true,' "$here/contrib/systemd/${u%@*}@.service" > "$W/units/$u.service"; done
cp "$here/contrib/systemd/plain-passphrase.conf" "$W/units/twofold@plain.service.d/"
verify() { systemd-analyze verify --man=no "$1" > "$W/out" 2>&1 || true; grep -E "^($W/units/)?$(basename "$1")|${2:-$1}" "$W/out"; }
for u in srv-team.mount twofold@team.service twofold-serve@team.service; do ! verify "$W/units/$u" || fail "systemd-analyze verify $u"; done
! verify "$W/units/twofold@plain.service" plain-passphrase || fail "systemd-analyze verify, with the drop-in"
sed -i 's/^Type=exec/Typ=exec/' "$W/units/twofold-serve@team.service"
verify "$W/units/twofold-serve@team.service" > /dev/null || fail "systemd-analyze says nothing of a misspelt key"
