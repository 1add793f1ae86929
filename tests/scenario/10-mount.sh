#!/bin/bash
# Goal: everything that a tree can hold goes in and comes out the same, before and after a remount: every file type, hard links, xattrs, names
# of 255 bytes and names that are not UTF-8, sizes around page borders, a sparse file of 3 GiB, times in nanoseconds, owners and modes; a large directory
# lists each name once, also while it changes.
. "$(dirname "$0")/lib.sh"
need_fuse
need python3 getfattr setfattr
init a
mnt a

# makes the same tree in DIR
tree() {
    python3 - "$1" <<'P'
import os, random, socket, stat, sys
top = os.fsencode(sys.argv[1]); r = random.Random(11)
def p(*x): return os.path.join(top, *[e if isinstance(e, bytes) else e.encode() for e in x])
os.makedirs(p("sub", "deeper", "deepest"))
os.mkdir(p("empty dir"))
for n in (0, 1, 100, 3967, 3968, 3969, 4095, 4096, 4097, 8192, 100000, 1 << 20, (1 << 20) + 1, (4 << 20) + 4095):
    with open(p("size-%d" % n), "wb") as f: f.write(r.randbytes(n))
for name in (b"n" * 255, "ä".encode() * 127, b"\xff\xfe not utf-8 \x80", b"new\nline", b" leading", b"trailing ", b"-dash", b"quote\"'`$(x)", b"\\back", b"..a", b"...", b"\x01\x7f"):
    with open(p(name), "wb") as f: f.write(name)
for n in (1, 255, 1023, 4095): os.symlink(b"l" * n, p("link-%d" % n))
os.symlink("size-100", p("sub", "good-link"))
os.symlink(b"\xff\x00"[:1], p("link-bytes"))
os.link(p("size-4096"), p("sub", "hard")); os.link(p("size-4096"), p("sub", "deeper", "hard"))
os.mkfifo(p("fifo"), 0o640)
s = socket.socket(socket.AF_UNIX); cwd = os.getcwd(); os.chdir(top); s.bind("sock"); os.chdir(cwd)
os.mknod(p("null"), stat.S_IFCHR | 0o666, os.makedev(1, 3))
os.mknod(p("blk"), stat.S_IFBLK | 0o600, os.makedev(259, 1048575))
with open(p("sparse"), "wb") as f:
    f.write(b"start"); f.seek((2 << 30) - 3); f.write(b"across"); f.seek((3 << 30) - 4); f.write(b"end!")
for i, mode in enumerate((0o0, 0o400, 0o755, 0o1777, 0o2755, 0o4711, 0o6777)):
    with open(p("mode-%d" % i), "wb") as f: f.write(b"x")
    os.chown(p("mode-%d" % i), 1000 + i, 2000 + i); os.chmod(p("mode-%d" % i), mode)
os.mkdir(p("setgid")); os.chown(p("setgid"), 0, 4242); os.chmod(p("setgid"), 0o2775)
os.mkdir(p("sticky")); os.chmod(p("sticky"), 0o1777)
os.chown(p("link-1"), 77, 88, follow_symlinks=False)
i = 0
paths = [os.path.join(d, n) for d, ds, fs in os.walk(top) for n in ds + fs]
for n in sorted(paths, reverse=True):   # what is in a directory before it
    i += 1
    os.utime(n, ns=(1000000000 * i + 5, 1500000000 * 10**9 + i * 1000003), follow_symlinks=False)
os.utime(p("size-1"), ns=(-5 * 10**9, -7 * 10**9 + 1)); os.utime(p("size-0"), ns=(0, 5000000000 * 10**9 + 999999999))
P
}
# one line an entry; sizes of directories are each filesystem's own
show() { (cd "$1" && find . -mindepth 1 \( -type d -printf '%P %y %m %U %G - %T@ %l\n' -o -printf '%P %y %m %U %G %s %T@ %n %l\n' \) | sort); (cd "$1" && find . -type f ! -name sparse -print0 | sort -z | xargs -0 sha256sum); (cd "$1" && find . -type b -o -type c | sort | xargs stat -c '%n %t %T'); }

say "every file type"
tree "$W/ref"
tree "$W/a/t"
show "$W/ref" > "$W/want"
show "$W/a/t" > "$W/got"
diff "$W/want" "$W/got" > "$W/diff" || fail "the tree differs: $(head -4 "$W/diff" | tr '\n' ';')"
setfattr -n user.short -v x "$W/a/t/size-100"
setfattr -n user.long -v "$(head -c 30000 /dev/zero | tr '\0' y)" "$W/a/t/size-100"
setfattr -n trusted.bin -v 0x00ff01 "$W/a/t/sub"
setfattr -h -n trusted.onlink -v l "$W/a/t/link-255"
getfattr -hd -m - "$W/a/t/size-100" "$W/a/t/sub" "$W/a/t/link-255" > "$W/xattr" 2>/dev/null

say "a second time from the store"
umnt a
mnt a
show "$W/a/t" > "$W/got"
diff "$W/want" "$W/got" > "$W/diff" || fail "after a remount the tree differs: $(head -4 "$W/diff" | tr '\n' ';')"
getfattr -hd -m - "$W/a/t/size-100" "$W/a/t/sub" "$W/a/t/link-255" 2>/dev/null | diff - "$W/xattr" > /dev/null || fail "xattrs after a remount"
check "the sparse file" cmp "$W/ref/sparse" "$W/a/t/sparse"
[ "$(stat -c %b "$W/a/t/sparse")" -lt 200 ] || fail "the sparse file takes $(stat -c %b "$W/a/t/sparse") blocks"
equal "links of a directory" "$(stat -c %h "$W/a/t/sub")" 3
equal "a name of 256 bytes" "$(python3 -c 'import os,sys
try: open(os.path.join(sys.argv[1], "n" * 256), "w")
except OSError as e: print(e.errno)' "$W/a")" 36

say "a real tree"
cp -a /usr/include "$W/a/include"
umnt a
mnt a
diff -r --no-dereference /usr/include "$W/a/include" > "$W/diff" || fail "/usr/include: $(head -2 "$W/diff")"
rm -rf "$W/a/include" || fail "rm -r"
[ ! -e "$W/a/include" ] || fail "still there after rm -r"

say "a large directory"
python3 - "$W/a/big" <<'P' || fail "large directory"
import os, sys
d = sys.argv[1]; os.mkdir(d); n = 20000
for i in range(n): os.close(os.open("%s/f%06d" % (d, i), os.O_CREAT | os.O_WRONLY))
assert sorted(os.listdir(d)) == ["f%06d" % i for i in range(n)]
seen = []
with os.scandir(d) as it:               # entries removed and made while it is read: the others come exactly once
    for k, e in enumerate(it):
        seen.append(e.name)
        if k == 1000:
            for i in range(5000, 6000): os.unlink("%s/f%06d" % (d, i))
            for i in range(500): os.close(os.open("%s/g%06d" % (d, i), os.O_CREAT | os.O_WRONLY))
old = [s for s in seen if s[0] == "f" and not 5000 <= int(s[1:]) < 6000]
assert len(old) == len(set(old)) == n - 1000, (len(old), len(set(old)))
assert len(seen) == len(set(seen))
P
rm -rf "$W/a/big" || fail "rm -r of the large directory"

say "what is shown of it"
for n in op.lookup op.write op.read stage.commit bytes.sealed name replica store; do
    [ -n "$(counter a $n)" ] || fail "user.twofold.$n is empty"
done
counter a op.create | grep -q 'count=[1-9].*p99_us=' || fail "op.create: $(counter a op.create)"
getfattr -d -m user.twofold "$W/a" 2>/dev/null | grep -q '^user.twofold.op.rename=' || fail "the root does not list its counters"
getfattr -d -m user.twofold "$W/a/t/size-1" 2>/dev/null | grep -q . && fail "a file lists counters"
getfattr --only-values -n user.twofold.state "$W/a/t/size-1" 2>/dev/null | grep -Eq '^(in-sync|pending)' || fail "state of a file"
check "user.twofold.sync" setfattr -n user.twofold.sync -v 1 "$W/a"
check "user.twofold.reset" setfattr -n user.twofold.reset -v 1 "$W/a"
counter a op.create | grep -q 'count=0 ' || fail "not reset: $(counter a op.create)"
[ "$(stat -f -c %T "$W/a")" = fuseblk ] || [ "$(stat -f -c %l "$W/a")" = 255 ] || fail "statfs: names of $(stat -f -c %l "$W/a")"
df "$W/a" > /dev/null || fail "df"

say "uid=, gid=, umask= show, and do not change"
umnt a
mnt a "uid=1234,gid=1235,umask=027"
equal "owner shown" "$(stat -c '%u:%g:%a' "$W/a/t/mode-2")" 1234:1235:750
umnt a
mnt a
equal "owner stored" "$(stat -c '%u:%g:%a' "$W/a/t/mode-2")" 1002:2002:755

say "read-only"
umnt a
mnt a ro
touch "$W/a/t/new" 2>/dev/null && fail "a file made on a read-only mount"
check "reading read-only" cmp "$W/ref/size-100000" "$W/a/t/size-100000"
umnt a
