#!/bin/sh
# two-hosts.sh: an office and its branch, each a host with a network of its own (network namespaces of this machine, joined by a cable), from the first command
# to an edit on both sides while the line was down. Takes everything away again at the end. Root; the packages iproute2 and util-linux.
#
# On two real hosts leave out "on office" and "on branch" and type what follows on that host; stores then lie in /srv/twofold, say, the folder is /srv/team, the
# address is the one by which the branch reaches the office, and the passphrase is asked for or comes from a file of root's (mode 0600).
set -eu
twofold=${TWOFOLD:-$(command -v twofold || echo "$(dirname "$0")/../build/src/cli/twofold")}
w=$(mktemp -d "${TMPDIR:-/tmp}/twofold-two-hosts.XXXXXX")
office=twofold-office-$$ branch=twofold-branch-$$ # names of the network namespaces
done_with() {
    for m in office branch; do
        if grep -q " $w/$m/team fuse" /proc/self/mounts; then "$twofold" umount "$w/$m/team" || umount -l "$w/$m/team"; fi
    done
    for n in "$office" "$branch"; do ip netns del "$n" 2> /dev/null || true; done
    rm -rf "$w"
}
trap done_with EXIT
trap 'exit 1' INT TERM
step() { printf '\n== %s\n' "$*"; }
on() { host=$1; shift; case $host in office) host=$office ;; *) host=$branch ;; esac; nsenter --net="/run/netns/$host" "$@"; }
# waits until the command succeeds, a minute at most
until_true() { n=0; until "$@" > /dev/null 2>&1; do n=$((n + 1)); [ "$n" -lt 600 ] || { echo "gave up waiting for: $*" >&2; exit 1; }; sleep 0.1; done; }

step "Two hosts and a cable: office is 192.0.2.1, branch is 192.0.2.2"
ip netns add "$office"; ip netns add "$branch"
ip link add cable netns "$office" type veth peer name cable netns "$branch"
on office ip address add 192.0.2.1/24 dev cable; on branch ip address add 192.0.2.2/24 dev cable
for h in office branch; do on $h ip link set lo up; on $h ip link set cable up; mkdir -p "$w/$h/team"; head -c 24 /dev/urandom | base64 > "$w/$h/passphrase"; done

step "Office: a volume, mounted, listening. Only one of two hosts needs to be reachable"
on office "$twofold" init "$w/office/team.store" --name office --passfile "$w/office/passphrase"
on office "$twofold" mount "$w/office/team.store" "$w/office/team" -o "passfile=$w/office/passphrase,listen=192.0.2.1:7420"
mkdir "$w/office/team/contracts"; echo 'first draft' > "$w/office/team/contracts/lease"

step "Office: an invitation, one line, good for one use within an hour. It goes to the branch by a way that you trust (it lets its bearer in)"
on office "$twofold" invite "$w/office/team" --address 192.0.2.1:7420 --expires 1h > "$w/token"

step "Branch: joins with it, under a passphrase of its own, and mounts"
on branch "$twofold" join - "$w/branch/team.store" --name branch --passfile "$w/branch/passphrase" < "$w/token"
rm "$w/token"
on branch "$twofold" mount "$w/branch/team.store" "$w/branch/team" -o "passfile=$w/branch/passphrase"
until_true grep -qx 'first draft' "$w/branch/team/contracts/lease"
echo "branch reads: $(cat "$w/branch/team/contracts/lease")"

step "Both ways: the branch writes, the office reads"
echo 'signed' > "$w/branch/team/contracts/lease.signed"
on branch "$twofold" sync "$w/branch/team" --timeout 60s
ls -l "$w/office/team/contracts"
on office "$twofold" status "$w/office/team"

step "The line is down: both go on working, in different files and in the same one"
on branch ip link set cable down
echo 'minutes of Monday' > "$w/office/team/minutes"
echo 'price list' > "$w/branch/team/prices"
echo 'second draft, of the office' > "$w/office/team/contracts/lease"
sleep 1
echo 'second draft, of the branch' > "$w/branch/team/contracts/lease"

step "The line is back: nothing to be typed. The newer version has the name, the other stands beside it, on both hosts"
on branch ip link set cable up
in_step() {
    "$twofold" sync "$w/office/team" --timeout 10s && "$twofold" sync "$w/branch/team" --timeout 10s && diff -r "$w/office/team" "$w/branch/team" &&
        ls "$w/office/team/contracts/"*.conflict-* && cat "$w/office/team/prices" "$w/branch/team/minutes"
}
until_true in_step
grep -r '' "$w/office/team" | sed "s,$w/office/,,"
on office "$twofold" conflicts "$w/office/team"

step "One of the two is chosen: the other version goes, everywhere"
kept=contracts/lease
on office "$twofold" conflicts "$w/office/team" keep "$w/office/team/$kept"
gone() { ! ls "$w/branch/team/contracts/"*.conflict-*; }
until_true gone
echo "both hosts have: $(cat "$w/branch/team/$kept")"

step "Unmounted and cleaned up"
