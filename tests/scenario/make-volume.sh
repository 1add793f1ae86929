#!/bin/bash
# make-volume.sh OUT.tar.xz: makes the small volume that tests/corpus keeps for this format version, and beside it OUT.listing: what a mount of it must
# show. Run once when a format version is released, never again for it (32-old-volume.sh opens what is kept).
. "$(dirname "$0")/lib.sh"
need_fuse
need setfattr setfacl xz
out=$1
printf 'old volume' > "$PASS"
init v
mnt v
cd "$W/v" || die cd
mkdir -p dir/sub; echo inline > dir/inline; head -c 100000 /dev/zero | tr '\0' x > dir/object; ln dir/object dir/sub/hardlink; ln -s ../dir/inline dir/symlink
mkfifo fifo; truncate -s 1M sparse; printf end | dd of=sparse bs=1 seek=900000 conv=notrunc status=none; : > empty
printf 'not UTF-8' > "$(printf 'n\377ame')"; setfattr -n user.color -v blue dir/inline; setfacl -m u:1234:rw dir/object; chmod 4755 empty; chown 12:34 dir
printf over | dd of=dir/object bs=1 seek=50000 conv=notrunc status=none; sync dir/object
touch gone; rm gone; find . -exec touch -h -d @1700000000.123456789 {} +
cd /
listing "$W/v" > "${out%.tar.xz}.listing"
(cd "$W/v" && find . -type f -print0 | sort -z | xargs -0 sha256sum) >> "${out%.tar.xz}.listing"
umnt v
rm -f "$W/v.store/control"
tar -C "$W" --sparse -cJf "$out" v.store || die tar
