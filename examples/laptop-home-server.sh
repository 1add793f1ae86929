#!/bin/sh
# laptop-home-server.sh: a laptop that is sometimes away, and a server at home that is always there and only holds a sealed copy: it serves its store without a
# mount. Shown with two network namespaces of this machine; takes everything away again. Root; the packages iproute2 and util-linux.
#
# For real: on the server the lines after "on home", serving as a service (contrib/systemd/twofold-serve@.service); on the
# laptop those after "on laptop", the mount as a line in /etc/fstab without listen=: the laptop dials, so the server alone needs an address.
set -eu
twofold=${TWOFOLD:-$(command -v twofold || echo "$(dirname "$0")/../build/src/cli/twofold")}
w=$(mktemp -d "${TMPDIR:-/tmp}/twofold-laptop.XXXXXX")
home=twofold-home-$$ laptop=twofold-laptop-$$ served=
done_with() {
    for m in laptop/docs look; do
        if grep -q " $w/$m fuse" /proc/self/mounts; then "$twofold" umount "$w/$m" || umount -l "$w/$m"; fi
    done
    if [ -n "$served" ]; then kill "$served" && wait "$served" || true; fi
    for n in "$home" "$laptop"; do ip netns del "$n" 2> /dev/null || true; done
    rm -rf "$w"
}
trap done_with EXIT
trap 'exit 1' INT TERM
step() { printf '\n== %s\n' "$*"; }
on() { host=$1; shift; case $host in home) host=$home ;; *) host=$laptop ;; esac; nsenter --net="/run/netns/$host" "$@"; }
until_true() { n=0; until "$@" > /dev/null 2>&1; do n=$((n + 1)); [ "$n" -lt 600 ] || { echo "gave up waiting for: $*" >&2; exit 1; }; sleep 0.1; done; }
serve() { # nsenter becomes the server, so that its process id is the server's
    nsenter --net="/run/netns/$home" "$twofold" serve "$w/home/docs.store" -f -o "passfile=$w/home/passphrase,listen=192.0.2.1:7420" & served=$!
    until_true "$twofold" peer list "$w/home/docs.store"
}

step "The server at home, 192.0.2.1, and the laptop, now in the same network"
ip netns add "$home"; ip netns add "$laptop"
ip link add wlan netns "$home" type veth peer name wlan netns "$laptop"
on home ip address add 192.0.2.1/24 dev wlan; on laptop ip address add 192.0.2.2/24 dev wlan
for h in home laptop; do on $h ip link set lo up; on $h ip link set wlan up; mkdir -p "$w/$h"; head -c 24 /dev/urandom | base64 > "$w/$h/passphrase"; done
mkdir "$w/laptop/docs" "$w/look"

step "Home: a volume, served. Nobody can read it on the server without the passphrase, and nothing is mounted there"
on home "$twofold" init "$w/home/docs.store" --name home --passfile "$w/home/passphrase"
serve
on home "$twofold" invite "$w/home/docs.store" --address 192.0.2.1:7420 > "$w/token"

step "Laptop: joins, mounts, works"
on laptop "$twofold" join - "$w/laptop/docs.store" --name laptop --passfile "$w/laptop/passphrase" < "$w/token"
rm "$w/token"
on laptop "$twofold" mount "$w/laptop/docs.store" "$w/laptop/docs" -o "passfile=$w/laptop/passphrase"
cp -a /usr/share/common-licenses "$w/laptop/docs/licences"
on laptop "$twofold" sync "$w/laptop/docs" --timeout 60s
on laptop "$twofold" status "$w/laptop/docs"

step "On the train: no network. Work goes on, status tells what waits"
on laptop ip link set wlan down
echo 'written on the train' > "$w/laptop/docs/letter"
mv "$w/laptop/docs/licences" "$w/laptop/docs/papers"
code=0
waits() { code=0; "$twofold" status "$w/laptop/docs" > "$w/status" || code=$?; grep -q 'lacks [1-9]' "$w/status"; }
until_true waits
cat "$w/status"
echo "(exit code $code: not everything is at every peer)"

step "The battery is empty: the laptop is unmounted, and mounted again the next day. The server was updated in between"
on laptop "$twofold" umount "$w/laptop/docs"
kill "$served"; wait "$served" || true
serve
on laptop "$twofold" mount "$w/laptop/docs.store" "$w/laptop/docs" -o "passfile=$w/laptop/passphrase"

step "Home again: the laptop dials by itself, and what waited goes over: a letter, and one rename for the whole folder"
on laptop ip link set wlan up
in_step() { "$twofold" sync "$w/laptop/docs" --timeout 10s && "$twofold" status "$w/laptop/docs"; }
until_true in_step
on laptop "$twofold" status "$w/laptop/docs"

step "To see for yourself what the server has: stop serving, mount it read-only"
kill "$served"; wait "$served" || true; served=
on home "$twofold" mount "$w/home/docs.store" "$w/look" -o "passfile=$w/home/passphrase,ro"
diff -r "$w/laptop/docs" "$w/look" && echo "the server has the same $(find "$w/look" -type f | wc -l) files, and: $(cat "$w/look/letter")"
"$twofold" umount "$w/look"

step "The laptop is stolen: it is no member any more and is refused. It has a copy, sealed by its passphrase, and the volume's key in it: new secrets go into a new volume"
serve
on home "$twofold" peer remove "$w/home/docs.store" laptop
on home "$twofold" peer list "$w/home/docs.store"
refused() { "$twofold" status "$w/laptop/docs" | grep -i 'refused\|removed'; }
until_true refused
refused

step "Unmounted and cleaned up"
