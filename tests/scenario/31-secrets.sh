#!/bin/bash
# Goal: nothing that was written can be read in the store: no name, no content, no attribute, no symlink target; journal, its WAL and the redo
# log included; while mounted, after kill -9 and after a clean unmount. With --cipher none contents may show, names and attributes not.
. "$(dirname "$0")/lib.sh"
need_fuse
need setfattr

write_all() { # into mount $1
    mkdir "$1/dir-NEEDLEONE"
    printf 'content NEEDLETWO small' > "$1/dir-NEEDLEONE/file-NEEDLETHREE"
    for i in $(seq 4000); do echo "line $i NEEDLEFOUR"; done > "$1/large"
    sync "$1/large"
    printf 'NEEDLEFIVE overwritten' | dd of="$1/large" bs=1 seek=5000 conv=notrunc status=none
    sync "$1/large"
    ln -s /path/NEEDLESIX "$1/link"
    setfattr -n user.NEEDLESEVEN -v NEEDLEEIGHT "$1/large"
    printf 'NEEDLENINE' > "$1/gone"; sync "$1/gone"; rm "$1/gone"
    mv "$1/dir-NEEDLEONE/file-NEEDLETHREE" "$1/dir-NEEDLEONE/renamed-NEEDLETEN"
}
search() { # STORE WORDS...: prints those found in file contents (each file is read once) and in names
    local s=$1; shift
    { LC_ALL=C grep -rhoaE -- "$(IFS='|'; echo "$*")" "$s"; find "$s" | LC_ALL=C grep -oE -- "$(IFS='|'; echo "$*")"; } | sort -u
}
words="NEEDLEONE NEEDLETWO NEEDLETHREE NEEDLEFOUR NEEDLEFIVE NEEDLESIX NEEDLESEVEN NEEDLEEIGHT NEEDLENINE NEEDLETEN correct.horse"
ciphers="xchacha20poly1305"
grep -qw aes /proc/cpuinfo && ciphers="$ciphers aes256gcm"
for c in $ciphers; do
    init "s-$c" --cipher "$c"
    mnt "s-$c"
    write_all "$W/s-$c"
    sync -f "$W/s-$c"
    # the test itself must be able to find something
    check "the search finds words in the mount" test -n "$(search "$W/s-$c" NEEDLETWO)"
    equal "$c: found while mounted" "$(search "$W/s-$c.store" $words)" ""
    kill9 "s-$c"
    equal "$c: found after kill -9" "$(search "$W/s-$c.store" $words)" ""
    mnt "s-$c"
    check "$c: content after kill -9" grep -q NEEDLEFIVE "$W/s-$c/large"
    umnt "s-$c"
    equal "$c: found after unmount" "$(search "$W/s-$c.store" $words)" ""
done
init s-none --cipher none
mnt s-none
write_all "$W/s-none"
umnt s-none
equal "none: names and attributes found" "$(search "$W/s-none.store" NEEDLEONE NEEDLETHREE NEEDLESIX NEEDLESEVEN NEEDLEEIGHT NEEDLETEN)" ""
check "none: contents are plain, as its name says" test -n "$(search "$W/s-none.store" NEEDLEFOUR)"
