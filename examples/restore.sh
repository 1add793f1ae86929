#!/bin/sh
# restore.sh: one disk is lost, and all is fetched from the other replica: remove the dead member, invite, join with an empty store. Shown with two stores on this
# machine; takes everything away again. Root; the package attr.
#
# For real, with "branch" as the host that is left: on it, peer remove and invite; on the new machine (or disk) of the office, join and mount. The branch must be
# reachable for that: mount it with listen=.
set -eu
twofold=${TWOFOLD:-$(command -v twofold || echo "$(dirname "$0")/../build/src/cli/twofold")}
w=$(mktemp -d "${TMPDIR:-/tmp}/twofold-restore.XXXXXX")
: "${PORT:=$((17420 + $$ % 1000))}"
done_with() {
    for m in office branch; do
        if grep -q " $w/$m fuse" /proc/self/mounts; then "$twofold" umount "$w/$m" || umount -l "$w/$m"; fi
    done
    rm -rf "$w"
}
trap done_with EXIT
trap 'exit 1' INT TERM
step() { printf '\n== %s\n' "$*"; }
# names, types, modes, owners, sizes, times, attributes and contents of a folder, to compare
all_of() { (cd "$1" && find . -mindepth 1 -printf '%P %y %m %U %G %s %T@ %l\n' | sort; find . -mindepth 1 -print0 | sort -z | xargs -0 getfattr -h -d -m '^user\.[^t]' -- 2> /dev/null; find . -type f -print0 | sort -z | xargs -0 sha256sum); }

step "Two replicas in step; they hold files, links, attributes"
head -c 24 /dev/urandom | base64 > "$w/passphrase"
mkdir "$w/office" "$w/branch"
"$twofold" init "$w/office.store" --name office --passfile "$w/passphrase"
"$twofold" mount "$w/office.store" "$w/office" -o "passfile=$w/passphrase,listen=127.0.0.1:$PORT"
"$twofold" invite "$w/office" --address "127.0.0.1:$PORT" | "$twofold" join - "$w/branch.store" --name branch --passfile "$w/passphrase"
"$twofold" mount "$w/branch.store" "$w/branch" -o "passfile=$w/passphrase,listen=127.0.0.1:$((PORT + 1))"
cp -a /usr/include/linux "$w/office/headers"
ln -s headers/fs.h "$w/office/link"; setfattr -n user.origin -v 'the office' "$w/office/headers"; chmod 640 "$w/office/headers/fs.h"
"$twofold" sync "$w/office" --timeout 120s
all_of "$w/office" > "$w/before"
echo "$(find "$w/office" -type f | wc -l) files"

step "The office's disk is lost, with its store"
"$twofold" umount "$w/office"
rm -rf "$w/office.store"

step "Branch goes on alone; status says who is missing, for how long"
echo 'written while there was one replica' > "$w/branch/alone"
"$twofold" status "$w/branch" || true

step "Branch: the lost replica is no member any more, so that nothing waits for it; a new one is invited"
"$twofold" peer remove "$w/branch" office
"$twofold" invite "$w/branch" --address "127.0.0.1:$((PORT + 1))" > "$w/token"

step "Office, with a new disk: an empty store, filled from the branch"
"$twofold" join - "$w/office.store" --name office-2 --passfile "$w/passphrase" < "$w/token"
rm "$w/token"
"$twofold" mount "$w/office.store" "$w/office" -o "passfile=$w/passphrase,listen=127.0.0.1:$PORT"
"$twofold" sync "$w/branch" --timeout 120s

step "All is back: names, modes, owners, times, attributes, contents"
cat "$w/office/alone"
rm "$w/office/alone"
all_of "$w/office" > "$w/after"
diff "$w/before" "$w/after" && echo "the same as before the loss: $(wc -l < "$w/after") lines of listing compared"
"$twofold" check "$w/office"
"$twofold" status "$w/office"

step "Unmounted and cleaned up"
