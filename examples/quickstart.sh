#!/bin/sh
# quickstart.sh: installs the packages, builds, makes a volume with two replicas on this one machine, mounts both, and shows files
# arriving, sealed at rest, with their timings; then takes everything away again. Root, Debian 12 or newer.
set -eu
cd "$(dirname "$0")/.."
sh examples/install-packages.sh attr
echo "building twofold (the first time takes about half a minute on two cores)"
[ -f build/build.ninja ] || meson setup build > /dev/null
ninja -C build > /dev/null || ninja -C build
t=$(pwd)/build/src/cli/twofold
w=$(mktemp -d "${TMPDIR:-/tmp}/twofold-quickstart.XXXXXX")
port=$((17420 + $$ % 1000))
done_with() {
    for m in office branch; do
        if grep -q " $w/$m fuse" /proc/self/mounts; then "$t" umount "$w/$m" || umount -l "$w/$m"; fi
    done
    rm -rf "$w"
}
trap done_with EXIT
trap 'exit 1' INT TERM
step() { printf '\n== %s\n' "$*"; }
now() { date +%s.%N; }
since() { echo "$1 $(now)" | awk '{printf "%.2f s", $2 - $1}'; }
same() { diff -r --no-dereference "$w/office" "$w/branch" > /dev/null; }
value() { getfattr --only-values -n "user.twofold.$2" "$w/$1"; }

step "A volume with its first replica, mounted; it listens on port $port"
head -c 24 /dev/urandom | base64 > "$w/passphrase"
mkdir "$w/office" "$w/branch"
"$t" init "$w/office.store" --name office --passfile "$w/passphrase"
"$t" mount "$w/office.store" "$w/office" -o "passfile=$w/passphrase,listen=127.0.0.1:$port"

step "A second replica: one line, pasted"
"$t" invite "$w/office" --address "127.0.0.1:$port" > "$w/token"
"$t" join - "$w/branch.store" --name branch --passfile "$w/passphrase" < "$w/token"
"$t" mount "$w/branch.store" "$w/branch" -o "passfile=$w/passphrase"

step "Files written in the one arrive in the other"
start=$(now)
cp -a /usr/include "$w/office/include"
echo "copied $(find "$w/office/include" -type f | wc -l) files of /usr/include into office in $(since "$start")"
start=$(now)
"$t" sync "$w/office" --timeout 120s
echo "branch had everything $(since "$start") later"
same && echo "diff -r: both mounts show the same"

step "Sealed at rest: a name and a text that were written, searched for in both stores"
name=stdio.h text=_POSIX_C_SOURCE
grep -rqs "$text" "$w/office/include" && echo "in the mount:    $text is there"
for s in office branch; do
    if grep -rqs -e "$text" -e "$name" "$w/$s.store" || find "$w/$s.store" -name "*$name*" | grep -q .; then
        echo "in $s.store: FOUND, that must not be" >&2
        exit 1
    fi
    echo "in $s.store: neither $name nor $text"
done

step "An edit of 100 bytes in a file of 64 MiB sends a few KiB"
head -c 64M /dev/urandom > "$w/office/large"
"$t" sync "$w/office" --timeout 120s
before=$(value office bytes.wire-sent)
head -c 100 /dev/urandom | dd of="$w/office/large" bs=1 seek=33000000 conv=notrunc status=none
"$t" sync "$w/office" --timeout 60s
after=$(value office bytes.wire-sent)
echo "user.twofold.bytes.wire-sent grew by $((after - before)) bytes"
cmp "$w/office/large" "$w/branch/large" && echo "and branch has it"

step "And back: written at the branch, read in the office"
echo 'from the branch' > "$w/branch/note"
"$t" sync "$w/branch" --timeout 60s
cat "$w/office/note"

step "What the office's mount counted (getfattr -d -m user.twofold)"
getfattr -d -m user.twofold --absolute-names "$w/office" | grep -v '="count=0 '

step "twofold status"
"$t" status "$w/office" || true
step "Unmounted and cleaned up"
