#!/bin/bash
# Goal: what a peer changes is seen at once by programs that have the file or the folder open here: appended bytes and overwritten ones through an open
# descriptor and a mapping, size and mtime, new and removed and renamed names where the kernel had cached that they do (or do not) exist,
# modes, ACLs and xattrs; a local file replaced by the peer keeps its old content for who has it open,
# and what they write to it is kept beside the peer's.
. "$(dirname "$0")/lib.sh"
need_fuse
need python3 getfattr setfattr
pair a b
cat > "$W/seen.py" <<'P'
import mmap, os, stat, subprocess, sys, time
a, b = sys.argv[1:3]; failed = 0
def seen(what, fn, within=5.0):
    global failed
    end = time.time() + within
    while time.time() < end:
        try:
            if fn(): return
        except OSError: pass
        time.sleep(0.005)
    failed += 1; print("NOT SEEN: %s" % what, file=sys.stderr)
def put(p, d):
    with open(p, "wb") as f: f.write(d)
def get(p):
    with open(p, "rb") as f: return f.read()
put(a + "/f", b"A" * 10000); seen("a new file", lambda: get(b + "/f") == b"A" * 10000)
fd = os.open(b + "/f", os.O_RDONLY); m = mmap.mmap(fd, 10000, prot=mmap.PROT_READ)
assert os.pread(fd, 4, 5000) == b"AAAA" and m[5000:5004] == b"AAAA"
with open(a + "/f", "r+b") as f: f.seek(5000); f.write(b"over")
seen("an overwrite, open descriptor", lambda: os.pread(fd, 4, 5000) == b"over")
seen("an overwrite, mapping", lambda: m[5000:5004] == b"over")
with open(a + "/f", "ab") as f: f.write(b"appended")
seen("an append, open descriptor", lambda: os.pread(fd, 100, 10000) == b"appended")
seen("an append, size", lambda: os.fstat(fd).st_size == 10008 and os.stat(b + "/f").st_size == 10008)
seen("mtime of an append", lambda: os.stat(b + "/f").st_mtime_ns == os.stat(a + "/f").st_mtime_ns)
os.utime(a + "/f", ns=(5, 1600000000123456789)); seen("utimens", lambda: os.fstat(fd).st_mtime_ns == 1600000000123456789)
os.chmod(a + "/f", 0o640); seen("chmod", lambda: stat.S_IMODE(os.fstat(fd).st_mode) == 0o640)
os.chown(a + "/f", 12, 34); seen("chown", lambda: os.fstat(fd).st_uid == 12 and os.fstat(fd).st_gid == 34)
os.setxattr(a + "/f", "user.x", b"1"); seen("setxattr", lambda: os.getxattr(b + "/f", "user.x") == b"1")
try: os.stat(b + "/later")
except FileNotFoundError: pass
assert "later" not in os.listdir(b)
put(a + "/later", b"x"); seen("a name that did not exist", lambda: os.path.exists(b + "/later")); seen("its listing", lambda: "later" in os.listdir(b))
os.rename(a + "/later", a + "/moved"); seen("a rename, new name", lambda: os.path.exists(b + "/moved")); seen("a rename, old name", lambda: not os.path.exists(b + "/later"))
os.mkdir(a + "/d"); put(a + "/d/in", b"1"); seen("a directory", lambda: os.listdir(b + "/d") == ["in"]); os.stat(b + "/d/in")
os.rename(a + "/moved", a + "/d/moved"); seen("a move", lambda: sorted(os.listdir(b + "/d")) == ["in", "moved"] and "moved" not in os.listdir(b))
os.unlink(a + "/d/in"); seen("a deletion", lambda: not os.path.exists(b + "/d/in"))
os.unlink(a + "/d/moved"); os.rmdir(a + "/d"); seen("rmdir", lambda: not os.path.exists(b + "/d"))
os.truncate(a + "/f", 3); seen("a truncation, by name", lambda: os.stat(b + "/f").st_size == 3 and get(b + "/f") == b"AAA")
put(a + "/r", b"old"); seen("r", lambda: get(b + "/r") == b"old"); g = os.open(b + "/r", os.O_RDONLY); assert os.pread(g, 9, 0) == b"old"
put(a + "/r.tmp", b"new content"); os.rename(a + "/r.tmp", a + "/r"); seen("a replaced file", lambda: get(b + "/r") == b"new content")
assert os.pread(g, 99, 0) == b"old", os.pread(g, 99, 0)
# a write through such a handle has not seen the peer's content: both are kept
put(a + "/h.txt", b"the first content"); seen("h", lambda: get(b + "/h.txt") == b"the first content"); g2 = os.open(b + "/h.txt", os.O_RDWR)
put(a + "/h.txt", b"second"); seen("a file written anew, shorter", lambda: get(b + "/h.txt") == b"second")
os.pwrite(g2, b"THE", 0); os.fsync(g2); os.close(g2)
def kept(m): return [n for n in os.listdir(m) if n.startswith("h.conflict-") and get(m + "/" + n) == b"THE first content"]
seen("what was written through an old handle", lambda: kept(b)); seen("the same at the peer", lambda: kept(a) == kept(b) and kept(a))
assert get(a + "/h.txt") == get(b + "/h.txt") == b"second"
# both append in turns through handles that stay open
put(a + "/log", b""); seen("log", lambda: os.path.exists(b + "/log")); ha = open(a + "/log", "ab", buffering=0); hb = open(b + "/log", "ab", buffering=0); want = b""
for i in range(10):
    (hb if i % 2 else ha).write(b"line %d\n" % i); os.fsync((hb if i % 2 else ha).fileno()); want += b"line %d\n" % i
    seen("turn %d" % i, lambda: get((a if i % 2 else b) + "/log") == want)
sys.exit(1 if failed else 0)
P
check "what a peer changes" python3 "$W/seen.py" "$W/a" "$W/b"
insync a b && same a b
