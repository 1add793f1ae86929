#!/bin/bash
# Goal: what a change costs on the wire, by the program's own counter and by that of the network interface between two namespaces: a page in a large file, an insertion at
# the start of a file that an editor saves in one of several ways, a file copied, a directory of thousands of files renamed, attributes of one file. And what either side reads of its objects for
# a page in a large file, by the program's counter. SIZE_MB (256): of the large file; FILES (3000). FULL=1: 1 GiB without holes
# and 10,000 files.
. "$(dirname "$0")/lib.sh"
need_fuse
need ip nsenter python3 setfattr
n=$$
ip netns add "tfa$n" 2>/dev/null || skip "network namespaces are not available"
netns+=("tfa$n"); ip netns add "tfb$n" && netns+=("tfb$n")
ip link add "va$n" netns "tfa$n" type veth peer name "vb$n" netns "tfb$n" 2>/dev/null || skip "veth is not available"
on() { nsenter "--net=/run/netns/tf$1$n" "${@:2}"; }
on a ip addr add 10.78.0.1/24 dev "va$n"; on b ip addr add 10.78.0.2/24 dev "vb$n"
for s in a b; do on $s ip link set "v$s$n" up; on $s ip link set lo up; done
full=${FULL:-0}; [ "$full" = 1 ] && SIZE_MB=1024 FILES=10000
init a
mkdir "$W/a" "$W/b"
on a "$TWOFOLD" mount "$W/a.store" "$W/a" -o "passfile=$PASS,listen=10.78.0.1:7420" || die "mount a"; mounted+=("$W/a")
on a "$TWOFOLD" invite "$W/a" --address 10.78.0.1 > "$W/token" || die "invite"
on b "$TWOFOLD" join - "$W/b.store" --name b --passfile "$PASS" < "$W/token" > "$W/out" || die "join"
on b "$TWOFOLD" mount "$W/b.store" "$W/b" -o "passfile=$PASS" || die "mount b"; mounted+=("$W/b")
if [ "$full" = 1 ]; then head -c "${SIZE_MB}M" /dev/urandom > "$W/a/large"; else truncate -s "${SIZE_MB:-256}M" "$W/a/large"; fi; head -c 8M /dev/urandom | dd of="$W/a/large" conv=notrunc bs=1M seek=100 status=none
head -c 64M /dev/urandom > "$W/a/saved"
mkdir "$W/a/dir"; python3 -c "
for i in range(${FILES:-3000}): open('$W/a/dir/f%d' % i, 'w').write(str(i))"
echo x > "$W/a/one"
insync a b
wire() { on a awk -v d="va$n:" '$1 == d {print $10}' /proc/net/dev; } # bytes that a's interface sent
row() { # WHAT MOST COMMAND...
    local what=$1 most=$2 c0 w0 c w; shift 2
    c0=$(counter a bytes.wire-sent); w0=$(wire)
    "$@" || fail "$what: the change itself"
    insync a b
    c=$(($(counter a bytes.wire-sent) - c0)); w=$(($(wire) - w0))
    say "$what: $c bytes sent, $w at the interface, at most $most"
    [ "$c" -le "$most" ] || fail "$what sent $c bytes"
    # headers and acknowledgements of TCP, and what the other direction asks for
    [ "$w" -ge "$c" ] && [ "$w" -le $((c + c / 5 + 16384)) ] || fail "$what: the interface counted $w bytes, the program $c"
}
page() { head -c 4096 /dev/urandom | dd of="$W/a/large" conv=notrunc,fsync bs=4096 seek=26000 count=1 status=none; }
# As editors save, for longer than a commit takes: the peer asks for the new file before it has its name. NEW: how it is called until then.
insert() { # NEW
    { head -c 1024 /dev/urandom; head -c 40000000 "$W/a/saved"; sleep 1.2; tail -c +40000001 "$W/a/saved"; } > "$W/a/$1" && sync "$W/a/$1" && sleep 0.5 && mv "$W/a/$1" "$W/a/saved"
}
insert_aside() { mv "$W/a/saved" "$W/a/saved~"; { head -c 1024 /dev/urandom; cat "$W/a/saved~"; } > "$W/a/saved"; sync "$W/a/saved"; rm "$W/a/saved~"; }
ra=$(counter a bytes.object-read) rb=$(counter b bytes.object-read)
row "4 KiB overwritten in ${SIZE_MB:-256} MiB" 16384 page
ra=$(($(counter a bytes.object-read) - ra)) rb=$(($(counter b bytes.object-read) - rb))
say "   bytes of objects read for it: $ra here, $rb there, at most 1048576"
[ $((ra + rb)) -gt 0 ] && [ "$ra" -le 1048576 ] && [ "$rb" -le 1048576 ] || fail "4 KiB overwritten read $ra bytes here, $rb there"
row "1 KiB inserted at the start of 64 MiB, saved by rename" 262144 insert saved.new
row "the same, under a name that says nothing" 262144 insert .goutputstream-X1Y2Z3
row "the same, the older one put aside" 262144 insert_aside
row "64 MiB copied with cp" 262144 cp "$W/a/saved" "$W/a/copied"
row "64 MiB copied through a pipe" 262144 sh -c 'cat "$0/saved" | cat > "$0/piped"' "$W/a"
row "a directory of ${FILES:-3000} files renamed" 8192 mv "$W/a/dir" "$W/a/renamed"
row "chmod" 2048 chmod 600 "$W/a/one"
row "utimens" 2048 touch -d '2001-02-03 04:05:06 UTC' "$W/a/one"
row "setxattr" 2048 setfattr -n user.x -v y "$W/a/one"
same a b
