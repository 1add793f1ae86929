#!/bin/bash
# Goal: every kept old volume, one for each format version, still opens and shows what it showed when it was made.
. "$(dirname "$0")/lib.sh"
need_fuse
need xz getfattr
printf 'old volume' > "$PASS"
found=0
for tar in "$here"/tests/corpus/volume-*.tar.xz; do
    [ -e "$tar" ] || continue
    found=$((found + 1))
    tar -C "$W" -xJf "$tar" || die "unpacking $tar"
    mnt v
    { listing "$W/v"; (cd "$W/v" && find . -type f -print0 | sort -z | xargs -0 sha256sum); } > "$W/listing"
    diff "${tar%.tar.xz}.listing" "$W/listing" > "$W/diff" || fail "$(basename "$tar") shows something else: $(head -3 "$W/diff")"
    echo new > "$W/v/new" || fail "$(basename "$tar") cannot be written"
    umnt v
    rm -rf "$W/v.store"
done
[ "$found" -gt 0 ] || fail "no old volume is kept"
