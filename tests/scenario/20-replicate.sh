#!/bin/bash
# Goal: everything that a filesystem holds arrives exactly, in both directions: all types of files, names, owners, times, attributes, ACLs, hard links and holes;
# then every kind of change to it, as a small record where it is one; and soon after a close.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/tree.sh"
need_fuse
need python3 setfattr getfattr
pair a b

say "a tree each way"
mkdir "$W/a/from-a"; make_tree "$W/a/from-a" one
insync a b
same a b
equal "links" "$(stat -c %h "$W/b/from-a/inline")" 3
equal "one inode" "$(stat -c %i "$W/b/from-a/inline")" "$(stat -c %i "$W/b/from-a/second name")"
blocks=$(stat -c %b "$W/b/from-a/sparse")
[ "$blocks" -lt 2000 ] || fail "the sparse file takes $blocks blocks at the peer"
rm "$W/b/from-a/sparse" # comparing 3 GiB once is enough
mkdir "$W/b/from-b"; make_tree "$W/b/from-b" two 300M
insync a b
same a b

say "changes"
sent() { counter "$1" bytes.wire-sent; }
before=$(sent a)
mv "$W/a/from-a/deep" "$W/a/from-a/moved"
mv "$W/a/from-a/large" "$W/a/from-a/moved/er/large renamed"
insync a b
after=$(sent a)
[ $((after - before)) -lt 20000 ] || fail "two renames sent $((after - before)) bytes"
rm -r "$W/b/from-b/deep"; rm "$W/b/from-b/second name"; rm "$W/b/from-b/fifo"
chmod 600 "$W/b/from-a/program"; chown 1:2 "$W/b/from-a/inline"
setfattr -x user.text "$W/b/from-a/inline"; setfattr -n user.new -v 1 "$W/b/from-a/moved"
touch -d '1985-10-26 01:21:00.987654321 UTC' "$W/b/from-a/char"
ln "$W/b/from-a/three-pages" "$W/b/from-a/moved/another"
insync a b
same a b
echo appended >> "$W/a/from-a/three-pages"
printf 'INSIDE' | dd of="$W/a/from-b/large" conv=notrunc bs=1 seek=1500000 status=none
truncate -s 5000 "$W/a/from-b/three-pages"
fallocate -p -o 4096 -l 1000000 "$W/a/from-b/large"
cp "$W/a/from-b/inline" "$W/a/x"; head -c 200000 /dev/urandom > "$W/a/x.new"; mv "$W/a/x.new" "$W/a/x"
mv --exchange "$W/a/x" "$W/a/from-a/empty" 2>/dev/null || true
rm "$W/a/from-a/fifo"; mkdir "$W/a/from-a/fifo"; echo in > "$W/a/from-a/fifo/file"
insync a b
same a b

say "100 bytes in a large file send a few KiB"
head -c 20000000 /dev/urandom > "$W/a/big"
insync a b
before=$(sent a)
head -c 100 /dev/urandom | dd of="$W/a/big" conv=notrunc bs=1 seek=7654321 status=none
insync a b
after=$(sent a)
[ $((after - before)) -lt 40000 ] || fail "100 bytes changed sent $((after - before)) bytes"
check "the large file is equal" cmp "$W/a/big" "$W/b/big"

say "soon after a close"
python3 - "$W/a" "$W/b" > "$W/lag" <<'P' || fail "a file did not come within 5 s"
import os, sys, time
a, b = sys.argv[1:]; took = []
for i in range(20):
    name = "/soon%d" % i; src, dst = (a, b) if i % 2 else (b, a); start = time.monotonic()
    with open(src + name, "w") as f: f.write("x" * 1000 * i)
    while True:
        try:
            if os.stat(dst + name).st_size == 1000 * i: break
        except OSError: pass
        if time.monotonic() - start > 5: sys.exit(1)
        time.sleep(0.001)
    took.append((time.monotonic() - start) * 1000); time.sleep(0.15)
took.sort(); print("%d %d" % (took[10], took[-1]))
P
read -r median worst < "$W/lag"
say "close to shown at the peer: median $median ms, worst $worst ms"
[ "${median:-9999}" -le "${LAG_MS:-300}" ] || fail "a closed file took $median ms (median) to show at the peer"

say "many small files"
cp -a /usr/include/linux "$W/a/linux" 2>/dev/null || cp -a /etc "$W/a/linux"
insync a b
same a b
rm -r "$W/b/linux"
insync a b
same a b
sound a b
umnt a; umnt b
mnt a; mnt b
same a b
