# shellcheck shell=bash
# Sourced by scenarios: make_tree DIR SEED [SIZE] fills a folder with every kind of file, name and attribute that must arrive exactly.
# SIZE is that of the sparse file, 3G by default.
make_tree() {
    local d=$1 seed=$2 size=${3:-3G} i long
    mkdir -p "$d/deep/er/and/deeper/still"
    head -c 100 /dev/urandom > "$d/inline"
    head -c 9000 /dev/urandom > "$d/three-pages"
    head -c 3000000 /dev/urandom > "$d/large"
    : > "$d/empty"
    printf '#!/bin/sh\necho %s\n' "$seed" > "$d/program"; chmod 4755 "$d/program"
    ln "$d/inline" "$d/second name"; ln "$d/inline" "$d/deep/third name"
    ln -s "../$seed/does not exist" "$d/dangling"; ln -s "$(printf 'x%.0s' $(seq 4000))" "$d/long link"
    mkfifo "$d/fifo"; chmod 640 "$d/fifo"
    mknod "$d/char" c 1 3; mknod "$d/block" b 7 200
    python3 -c 'import socket, sys; socket.socket(socket.AF_UNIX).bind(sys.argv[1])' "$d/socket" 2>/dev/null || (cd "$d" && python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("socket")')
    # sparse: data at both ends, and (of 3 GiB) across 2 GiB
    truncate -s "$size" "$d/sparse"
    printf 'first %s' "$seed" | dd of="$d/sparse" conv=notrunc status=none
    [ "$size" != 3G ] || head -c 8192 /dev/urandom | dd of="$d/sparse" conv=notrunc bs=4096 seek=524287 status=none
    printf 'last' >> "$d/sparse"
    truncate -s 12345 "$d/only a hole"
    long=$(printf 'n%.0s' $(seq 255)); echo long > "$d/$long"; mkdir "$d/deep/$long"
    printf 'latin' > "$d/$(printf 'caf\xe9-\xff\xfe')"
    printf 'strange' > "$d/$(printf 'line\nfeed and\ttab')"
    printf 'utf8' > "$d/grün-日本-🎉"
    printf x > "$d/ leading and trailing "; printf x > "$d/-dash"; printf x > "$d/*?[]"
    chown 12345:54321 "$d/three-pages"; chmod 0 "$d/empty"; chmod 2775 "$d/deep"; chmod 1777 "$d/deep/er"
    setfattr -n user.text -v "value of $seed" "$d/inline"
    setfattr -n user.binary -v 0x00ff0102fe "$d/deep"
    setfattr -n user.big -v "0x$(head -c 3000 /dev/urandom | od -An -v -tx1 | tr -d ' \n')" "$d/large"
    setfattr -n user.none "$d/three-pages"
    setfattr -n trusted.mark -v t "$d/large"
    setfattr -h -n trusted.link -v l "$d/dangling"
    if command -v setfacl > /dev/null; then
        setfacl -m u:1234:rwx,g:77:r-x "$d/three-pages"
        setfacl -d -m u:1234:r-x "$d/deep/er"
        mkdir "$d/deep/er/inherits"
    fi
    for i in $(seq 40); do head -c $((i * 331)) /dev/urandom > "$d/deep/er/and/f$i"; done
    touch -d '1999-12-31 23:59:59.123456789 UTC' "$d/large"
    touch -d '2040-02-29 01:02:03.000000001 UTC' "$d/second name"
    touch -h -d '1971-01-01 00:00:00.5 UTC' "$d/dangling"
    touch -d '2001-01-01 01:01:01.111111111 UTC' "$d/deep/er"
}
