#!/bin/bash
# Goal: POSIX habits that a FUSE filesystem with a write-back cache easily breaks: unlinked and renamed-over files that stay open, O_TRUNC on reopen with
# the caches dropped, O_APPEND from four processes, mmap, holes and SEEK_DATA over dirty pages, fallocate, copy_file_range, xattrs, ACLs, setuid
# clearing, rename's flags, file handles after a dropped cache, locks, inotify.
. "$(dirname "$0")/lib.sh"
need_fuse
need python3 getfattr setfattr
init a
mnt a
cat > "$W/posix.py" <<'P'
import ctypes, errno, fcntl, mmap, os, random, stat, subprocess, sys, time
top = sys.argv[1]; os.chdir(top); failed = 0
libc = ctypes.CDLL(None, use_errno=True)
for f in (libc.fallocate,): f.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]
KEEP, PUNCH, COLLAPSE, ZERO = 1, 2, 8, 16
def falloc(fd, mode, off, n):
    if libc.fallocate(fd, mode, off, n): raise OSError(ctypes.get_errno(), "fallocate")
def rename2(a, b, flags):
    if libc.renameat2(-100, a.encode(), -100, b.encode(), flags): raise OSError(ctypes.get_errno(), "renameat2")
def put(name, data):
    with open(name, "wb") as f: f.write(data)
def get(name):
    with open(name, "rb") as f: return f.read()
def drop():
    os.sync(); open("/proc/sys/vm/drop_caches", "w").write("3")
def fails(no, fn, *a):
    try: fn(*a)
    except OSError as e:
        assert e.errno == no, "%s instead of %s" % (e, os.strerror(no)); return
    raise AssertionError("no error instead of %s" % os.strerror(no))
def as_user(uid, gid, groups, fn):
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups(groups); os.setgid(gid); os.setuid(uid); fn(); os._exit(0)
        except BaseException as e:
            print(repr(e)); os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0

def unlinked_open():
    f = os.open("u", os.O_CREAT | os.O_RDWR); os.write(f, b"a" * 5000); os.unlink("u")
    assert not os.path.exists("u") and os.fstat(f).st_nlink == 0
    drop(); os.pwrite(f, b"b" * 5000, 5000); os.fsync(f); os.ftruncate(f, 9000); os.fchmod(f, 0o600)
    drop(); assert os.pread(f, 20000, 0) == b"a" * 5000 + b"b" * 4000 and os.fstat(f).st_size == 9000
    os.close(f)
def renamed_over():
    put("old", b"old content"); put("new", b"new"); f = os.open("old", os.O_RDWR); g = os.open("new", os.O_RDONLY)
    os.rename("new", "old"); os.pwrite(f, b"OLD", 0); os.fsync(f); drop()
    assert os.pread(f, 99, 0) == b"OLD content" and os.fstat(f).st_nlink == 0
    assert os.pread(g, 99, 0) == b"new" == get("old")
    os.close(f); os.close(g)
def trunc_reopen():
    for big in (10000, 3000, 300000):
        put("t", b"x" * big); drop(); put("t", b"y" * 100); drop()
        assert get("t") == b"y" * 100 and os.stat("t").st_size == 100
        os.truncate("t", big); drop(); assert get("t") == b"y" * 100 + bytes(big - 100)
def appenders():
    kids = []
    for k in range(4):
        pid = os.fork()
        if pid == 0:
            f = os.open("log", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
            for i in range(500): os.write(f, b"%d %d\n" % (k, i))
            os._exit(0)
        kids.append(pid)
    for pid in kids: assert os.waitpid(pid, 0)[1] == 0
    drop(); lines = get("log").split(b"\n")
    assert sorted(lines[:-1]) == sorted(b"%d %d" % (k, i) for k in range(4) for i in range(500))
def append_after_link():
    put("al", b"1"); os.link("al", "al2"); f = open("al2", "ab"); f.write(b"2"); f.close(); os.unlink("al"); drop(); assert get("al2") == b"12"
def mapped():
    put("m", bytes(100000)); f = os.open("m", os.O_RDWR); p = mmap.mmap(f, 100000)
    p[5:9] = b"mmap"; p[99996:100000] = b"tail"; p.flush(); assert os.pread(f, 4, 5) == b"mmap"
    os.pwrite(f, b"write", 50000); assert p[50000:50005] == b"write"
    p[70000:70003] = b"raw"; p.close(); os.close(f); drop()
    d = get("m"); assert d[5:9] == b"mmap" and d[-4:] == b"tail" and d[50000:50005] == b"write" and d[70000:70003] == b"raw"
def holes():
    f = os.open("h", os.O_CREAT | os.O_RDWR)
    os.pwrite(f, b"d" * 4096, 1 << 20)                    # dirty in the kernel only
    assert os.lseek(f, 0, os.SEEK_DATA) == 1 << 20 and os.lseek(f, 0, os.SEEK_HOLE) == 0
    assert os.lseek(f, 1 << 20, os.SEEK_DATA) == 1 << 20
    assert os.lseek(f, 1 << 20, os.SEEK_HOLE) == (1 << 20) + 4096
    os.pwrite(f, b"e" * 10, 3 << 20)                      # an append that is dirty
    assert os.lseek(f, (1 << 20) + 4096, os.SEEK_DATA) == 3 << 20
    assert os.lseek(f, 3 << 20, os.SEEK_HOLE) == (3 << 20) + 10
    fails(errno.ENXIO, os.lseek, f, (3 << 20) + 10, os.SEEK_DATA)
    os.ftruncate(f, 8 << 20); fails(errno.ENXIO, os.lseek, f, 4 << 20, os.SEEK_DATA)
    drop(); assert os.lseek(f, 0, os.SEEK_DATA) == 1 << 20; os.close(f)
    assert os.stat("h").st_blocks < 64
def fallocated():
    f = os.open("fa", os.O_CREAT | os.O_RDWR); falloc(f, 0, 0, 20000); assert os.fstat(f).st_size == 20000
    assert os.pread(f, 20000, 0) == bytes(20000)
    falloc(f, KEEP, 30000, 5000); assert os.fstat(f).st_size == 20000
    os.pwrite(f, b"x" * 20000, 0); falloc(f, PUNCH | KEEP, 4000, 8292)
    want = b"x" * 4000 + bytes(8292) + b"x" * (20000 - 12292); assert os.pread(f, 30000, 0) == want
    falloc(f, ZERO, 18000, 4000); want = want[:18000] + bytes(4000); assert os.fstat(f).st_size == 22000
    drop(); assert os.pread(f, 30000, 0) == want
    fails(errno.EOPNOTSUPP, falloc, f, COLLAPSE, 0, 4096); os.close(f)
def copied():
    r = random.Random(5); data = r.randbytes(300001); put("c1", data); put("c2", b"")
    a = os.open("c1", os.O_RDWR); b = os.open("c2", os.O_RDWR); done = 0
    os.pwrite(a, b"dirty", 777); data = data[:777] + b"dirty" + data[782:]
    while done < 250000: n = os.copy_file_range(a, b, 250000 - done, 1000 + done, 50 + done); assert n; done += n
    drop(); assert get("c2") == bytes(50) + data[1000:251000]
    os.close(a); os.close(b)
def xattrs():
    put("x", b""); os.setxattr("x", "user.a", b"1"); fails(errno.EEXIST, os.setxattr, "x", "user.a", b"2", os.XATTR_CREATE)
    fails(errno.ENODATA, os.setxattr, "x", "user.b", b"2", os.XATTR_REPLACE); os.setxattr("x", "user.empty", b""); os.setxattr("x", "user.big", b"z" * 60000)
    drop(); assert os.getxattr("x", "user.empty") == b"" and os.getxattr("x", "user.big") == b"z" * 60000 and sorted(os.listxattr("x")) == ["user.a", "user.big", "user.empty"]
    os.removexattr("x", "user.a"); fails(errno.ENODATA, os.getxattr, "x", "user.a"); fails(errno.ENODATA, os.removexattr, "x", "user.a")
def acl(entries): return b"\2\0\0\0" + b"".join(t.to_bytes(2, "little") + p.to_bytes(2, "little") + (i & 0xffffffff).to_bytes(4, "little") for t, p, i in entries)
def acls():
    put("acl", b"secret"); os.chmod("acl", 0o600)
    os.setxattr("acl", "system.posix_acl_access", acl([(1, 6, -1), (2, 4, 1234), (4, 0, -1), (16, 6, -1), (32, 0, -1)]))
    assert stat.S_IMODE(os.stat("acl").st_mode) == 0o660, oct(os.stat("acl").st_mode)
    as_user(1234, 1234, [], lambda: open("acl").read())
    as_user(1235, 1235, [], lambda: fails(errno.EACCES, open, "acl"))
    os.chmod("acl", 0o600); as_user(1234, 1234, [], lambda: fails(errno.EACCES, open, "acl"))
    os.mkdir("dacl"); os.setxattr("dacl", "system.posix_acl_default", acl([(1, 7, -1), (2, 5, 1234), (4, 5, -1), (16, 7, -1), (32, 0, -1)]))
    os.umask(0o077); put("dacl/f", b""); os.mkdir("dacl/d"); os.umask(0o022)
    assert stat.S_IMODE(os.stat("dacl/f").st_mode) == 0o660, oct(os.stat("dacl/f").st_mode)
    assert os.getxattr("dacl/d", "system.posix_acl_default") == os.getxattr("dacl", "system.posix_acl_default")
    drop(); assert b"\xd2\x04" in os.getxattr("dacl/f", "system.posix_acl_access")
    os.mkdir("sga"); os.chown("sga", 1234, 4242); os.chmod("sga", 0o2755); plain = acl([(1, 7, -1), (4, 7, -1), (32, 7, -1)])
    os.setxattr("sga", "system.posix_acl_access", plain); assert os.stat("sga").st_mode & 0o2000      # root
    as_user(1234, 1234, [], lambda: os.setxattr("sga", "system.posix_acl_access", plain)); assert stat.S_IMODE(os.stat("sga").st_mode) == 0o777, oct(os.stat("sga").st_mode)
    os.umask(0o027); put("um", b""); os.umask(0o022); assert stat.S_IMODE(os.stat("um").st_mode) == 0o640
def setuid_cleared():
    put("su", b"x" * 10); os.chown("su", 1234, 1234); os.chmod("su", 0o6777)
    def w(): f = os.open("su", os.O_WRONLY); os.write(f, b"y"); os.close(f)
    as_user(1235, 1235, [], w); assert stat.S_IMODE(os.stat("su").st_mode) == 0o777, oct(os.stat("su").st_mode)
    os.chmod("su", 0o6777); as_user(1235, 1235, [], lambda: os.truncate("su", 3)); assert stat.S_IMODE(os.stat("su").st_mode) == 0o777
    os.chmod("su", 0o6777); os.chown("su", 1236, 1236); assert stat.S_IMODE(os.stat("su").st_mode) == 0o777
    os.chmod("su", 0o6777); w(); assert stat.S_IMODE(os.stat("su").st_mode) == 0o6777   # root may
    cap = bytes.fromhex("0100000202000000000000000000000000000000")
    os.setxattr("su", "security.capability", cap); w(); os.sync(); fails(errno.ENODATA, os.getxattr, "su", "security.capability")
    os.mkdir("sg"); os.chown("sg", 0, 4242); os.chmod("sg", 0o2777); put("sg/f", b""); os.mkdir("sg/d")
    assert os.stat("sg/f").st_gid == 4242 and os.stat("sg/d").st_gid == 4242 and os.stat("sg/d").st_mode & 0o2000
def setuid_cleared_direct():
    put("sd", b"this is a test\n"); os.chown("sd", 1234, 1234); os.chmod("sd", 0o6644)
    assert stat.S_IMODE(os.stat("sd").st_mode) == 0o6644
    b = mmap.mmap(-1, 4096)
    def w(): f = os.open("sd", os.O_RDWR | os.O_DIRECT); assert os.pwritev(f, [b], 0) == 4096; os.close(f)
    for i in range(2):
        as_user(1234, 1234, [], w)
        # stat(1) asks for the mode alone, which the kernel does not take for stale as it does size and times
        mode = subprocess.check_output(["stat", "-c", "%a", "sd"]); assert mode == b"2644\n", mode
        os.chmod("sd", 0o6644)
def renames():
    put("r1", b"1"); put("r2", b"2"); fails(errno.EEXIST, rename2, "r1", "r2", 1); rename2("r1", "r2", 2); assert get("r1") == b"2" and get("r2") == b"1"
    fails(errno.EINVAL, rename2, "r1", "r3", 4); rename2("r1", "r3", 1); assert not os.path.exists("r1")
    os.makedirs("d1/d2"); fails(errno.EINVAL, os.rename, "d1", "d1/d2/x"); os.mkdir("d3"); put("d3/f", b"")
    fails(errno.ENOTEMPTY, os.rename, "d1", "d3"); fails(errno.EISDIR, os.rename, "r2", "d3"); fails(errno.ENOTDIR, os.rename, "d3", "r2"); os.unlink("d3/f"); os.rename("d1", "d3"); assert os.path.isdir("d3/d2")
    put("same", b"s"); os.link("same", "same2"); os.rename("same", "same2"); assert os.path.exists("same") and os.path.exists("same2")
    fails(errno.ENOTEMPTY, os.rmdir, "d3"); fails(errno.ENOTDIR, os.rmdir, "r2")
    rename2("d3", "r2", 2); assert os.path.isdir("r2") and os.path.isfile("d3"); n = os.stat(".").st_nlink; os.rename("r2", "d5"); assert os.stat(".").st_nlink == n
def handles():
    class H(ctypes.Structure): _fields_ = [("n", ctypes.c_uint), ("t", ctypes.c_int), ("b", ctypes.c_ubyte * 128)]
    os.makedirs("hd/e"); put("hd/e/f", b"by handle"); h = H(128); mid = ctypes.c_int()
    assert libc.name_to_handle_at(-100, b"hd/e/f", ctypes.byref(h), ctypes.byref(mid), 0) == 0
    drop(); root = os.open(top, os.O_RDONLY); f = libc.open_by_handle_at(root, ctypes.byref(h), os.O_RDONLY)
    assert f >= 0, os.strerror(ctypes.get_errno()); assert os.read(f, 99) == b"by handle"; os.close(f)
    os.unlink("hd/e/f"); drop(); f = libc.open_by_handle_at(root, ctypes.byref(h), os.O_RDONLY); assert f == -1 and ctypes.get_errno() == errno.ESTALE; os.close(root)
def locks():
    put("lk", b"x"); f = os.open("lk", os.O_RDWR); fcntl.flock(f, fcntl.LOCK_EX); g = os.open("lk", os.O_RDWR); fails(errno.EAGAIN, fcntl.flock, g, fcntl.LOCK_EX | fcntl.LOCK_NB)
    fcntl.lockf(f, fcntl.LOCK_EX)
    def child(): h = os.open("lk", os.O_RDWR); fails(errno.EAGAIN, fcntl.lockf, h, fcntl.LOCK_EX | fcntl.LOCK_NB)
    as_user(0, 0, [], child); os.close(f); os.close(g)
def inotified():
    i = libc.inotify_init1(os.O_NONBLOCK); os.mkdir("in"); libc.inotify_add_watch(i, b"in", 0x100 | 0x200 | 2 | 8)
    put("in/f", b"x"); os.unlink("in/f"); assert b"f\0" in os.read(i, 4096); os.close(i)
def times():
    put("tm", b"x"); os.utime("tm", ns=(1, 1234567890123456789)); s = os.stat("tm"); assert s.st_mtime_ns == 1234567890123456789 and s.st_atime_ns == 1
    drop(); assert os.stat("tm").st_mtime_ns == 1234567890123456789
    c = os.stat("tm").st_ctime_ns; time.sleep(0.02); os.chmod("tm", 0o600); assert os.stat("tm").st_ctime_ns > c
    time.sleep(0.02); put("tm", b"yy"); drop(); assert time.time() - os.stat("tm").st_mtime < 30
    d = os.stat(".").st_mtime_ns; time.sleep(0.02); put("tm2", b""); assert os.stat(".").st_mtime_ns > d
def direct():
    b = mmap.mmap(-1, 8192); b.write(b"D" * 8192); f = os.open("dio", os.O_CREAT | os.O_RDWR | os.O_DIRECT)
    assert os.pwritev(f, [b], 4096) == 8192; c = mmap.mmap(-1, 8192); assert os.preadv(f, [c], 4096) == 8192 and c[:] == b[:]; os.close(f); drop()
    assert get("dio") == bytes(4096) + b"D" * 8192
def times_kept():
    # the kernel sends its times of a file at moments of its own: between a change and what it knows of it, too
    before, data = {}, mmap.mmap(-1, 4096)
    def change(i, f):
        if i % 3 == 0: falloc(f, 3, 0, 4096)
        elif i % 3 == 1: os.pwritev(f, [data], 4096)
        else: os.copy_file_range(f, f, 4096, 0, 8192)
    for i in range(120):
        n = "tk%d" % i; f = os.open(n, os.O_CREAT | os.O_RDWR); os.write(f, b"x" * 8192); os.fsync(f)
        if i % 3 == 1: fcntl.fcntl(f, fcntl.F_SETFL, os.O_DIRECT)
        change(i, f); os.close(f); before[n] = os.stat(n).st_mtime_ns
    drop()
    other = [n for n, t in before.items() if os.stat(n).st_mtime_ns != t]; assert not other, (len(other), other[:4])
def executed():
    put("sh", b"#!/bin/sh\necho ran\n"); os.chmod("sh", 0o755); assert subprocess.check_output(["./sh"]) == b"ran\n"
    subprocess.check_call(["cp", "/bin/true", "tr"]); subprocess.check_call(["./tr"])
def tools():
    subprocess.check_call("tar --xattrs -cf tar.1 x h sg && mkdir ex && tar --xattrs -xf tar.1 -C ex && cmp h ex/h && cp -a --sparse=always h h2 && cmp h h2", shell=True)
for fn in (unlinked_open, renamed_over, trunc_reopen, appenders, append_after_link, mapped, holes, fallocated, copied, xattrs, acls, setuid_cleared, setuid_cleared_direct, renames, handles, locks, inotified, times, direct, times_kept, executed, tools):
    if sys.argv[2:] and fn.__name__ not in sys.argv[2:]: continue
    try: fn()
    except BaseException as e:
        tb = e.__traceback__
        while tb.tb_next and tb.tb_next.tb_frame.f_code.co_filename == __file__ and tb.tb_next.tb_frame.f_code.co_name != "fails": tb = tb.tb_next
        failed += 1; print("FAILED: %s, line %d: %r" % (fn.__name__, tb.tb_lineno, e), file=sys.stderr)
sys.exit(1 if failed else 0)
P
mkdir "$W/a/w"
check "POSIX" python3 "$W/posix.py" "$W/a/w"
say "and from the store"
find "$W/a/w" -type f -exec sha256sum {} + | sort > "$W/before"
umnt a
mnt a
find "$W/a/w" -type f -exec sha256sum {} + | sort | diff - "$W/before" || fail "contents after a remount"
umnt a
