#!/bin/bash
# Goal: two hosts, as network namespaces: the link goes down while both sides write, the same names too; after it is up both trees are identical, no edit is lost, and
# the peers find each other again by themselves. DOWN (15) seconds without a link.
. "$(dirname "$0")/lib.sh"
need_fuse
need ip nsenter python3
n=$$
ip netns add "tfa$n" 2>/dev/null || skip "network namespaces are not available"
netns+=("tfa$n"); ip netns add "tfb$n" && netns+=("tfb$n")
ip link add "va$n" netns "tfa$n" type veth peer name "vb$n" netns "tfb$n" 2>/dev/null || skip "veth is not available"
# nsenter, not ip -n: that one wants / to be a mount point, which it is not in a chroot
on() { nsenter "--net=/run/netns/tf$1$n" "${@:2}"; }
on a ip addr add 10.77.0.1/24 dev "va$n"; on b ip addr add 10.77.0.2/24 dev "vb$n"
link() { on a ip link set "va$n" "$1"; on b ip link set "vb$n" "$1"; on a ip link set lo up; on b ip link set lo up; }
link up
init a
mkdir "$W/a" "$W/b"
on a "$TWOFOLD" mount "$W/a.store" "$W/a" -o "passfile=$PASS,listen=10.77.0.1:7420" || die "mount a"; mounted+=("$W/a")
on a "$TWOFOLD" invite "$W/a" --address 10.77.0.1 > "$W/token" || die "invite"
on b "$TWOFOLD" join - "$W/b.store" --name b --passfile "$PASS" < "$W/token" > "$W/out" || die "join"
on b "$TWOFOLD" mount "$W/b.store" "$W/b" -o "passfile=$PASS,listen=10.77.0.2:7420" || die "mount b"; mounted+=("$W/b")
mkdir "$W/a/both" "$W/a/dir"
for i in $(seq 20); do echo "base $i" > "$W/a/both/f$i"; echo "move $i" > "$W/a/dir/m$i"; done
head -c 3000000 /dev/urandom > "$W/a/big"
insync a b
same a b

say "down"
link down
end=$((SECONDS + ${DOWN:-15})); k=0
while [ $SECONDS -lt $end ]; do
    k=$((k + 1)); i=$((k % 20 + 1))
    echo "edit of a $k" > "$W/a/both/f$i"; echo "edit of b $k" > "$W/b/both/f$i"
    echo "new of a $k" > "$W/a/new-a-$k"; echo "new of b $k" > "$W/b/new-b-$k"
    echo "same name, a $k" > "$W/a/same-$k"; echo "same name, b $k" > "$W/b/same-$k"
    sleep 0.2
done
head -c 2000000 /dev/urandom > "$W/a/big"; printf 'b was here' | dd of="$W/b/big" conv=notrunc bs=1 seek=1234567 status=none
mv "$W/a/dir" "$W/a/dir-of-a"; mkdir "$W/b/sub"; mv "$W/b/dir/m3" "$W/b/sub/m3"; rm "$W/b/dir/m4"; echo edited > "$W/a/dir-of-a/m4"
mkdir "$W/a/made" "$W/b/made"; echo 1 > "$W/a/made/1"; echo 2 > "$W/b/made/2"
md5sum < "$W/a/big" > "$W/sum.a"; md5sum < "$W/b/big" > "$W/sum.b"
say "$k rounds of writes on both sides"

say "up"
link up
start=$SECONDS
insync a b
say "in step after $((SECONDS - start)) s"
same a b
# every last edit is shown somewhere
for side in a b; do
    for i in $(seq 20); do
        j=$((i - 1)); [ "$j" = 0 ] && j=20
        last=$((k - (k - j + 20) % 20))
        [ "$last" -gt 0 ] || continue
        grep -rqxF "edit of $side $last" "$W/a/both" || fail "edit $last of $side is lost"
    done
    for j in $(seq "$k"); do
        equal "new file of $side" "$(cat "$W/b/new-$side-$j" 2>&1)" "new of $side $j"
        grep -qxF "same name, $side $j" "$W/a/same-$j"* || fail "same-$j of $side is lost"
    done
    cat "$W/sum.$side"
done > "$W/sums"
for f in "$W"/a/big*; do md5sum < "$f"; done > "$W/have"
while read -r sum; do grep -qF "$sum" "$W/have" || fail "a content of big is lost"; done < "$W/sums"
check "the moved directory has the peer's move" test -e "$W/b/sub/m3"
grep -qx edited "$W/b/dir-of-a/m4" || fail "an edit lost against a deletion"
check "both of made" test -e "$W/b/made/1" -a -e "$W/a/made/2"

say "quiet"
before=$(counter a count.parts-sent); insync a b; sleep 2
equal "new parts once quiet" "$(counter a count.parts-sent)" "$before"
sound a b
