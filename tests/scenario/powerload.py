#!/usr/bin/env python3
"""powerload.py run MOUNT LEDGER | check MOUNT LEDGER TIME

run: endless work on MOUNT by several processes; what fsync acknowledged is noted in files of the folder LEDGER (which lies on another
disk), each line with the time. check: what of it must be there after the disk stopped at unix time TIME. Prints what is wrong, exit 1.

 pages   random 4 KiB pages of a file are overwritten, fdatasync after a few; every page must be one that was written, and not older
         than the last acknowledged one
 save    write to a temporary name, fsync, rename over the final name, fsync of the folder
 sloppy  the same without any fsync: the old or the new content, never an empty or a mixed file
 append  records of odd lengths appended, fdatasync after some
 sql     rows committed to an SQLite database; it opens, passes its integrity check, has every acknowledged row
 tree    folders made, moved into each other, files hard linked, truncated and extended, holes; acknowledged by fsync of the file
 small   many small files made and then fsynced, those of ten rounds before unlinked; each acknowledged one is there, whole
 git     commits with core.fsync=all; the repository passes git fsck, and the last acknowledged commit is part of its history
"""
import json, os, random, signal, sqlite3, struct, subprocess, sys, time, zlib

PAGE, PAGES, FILES = 4096, 2048, 24


def note(ledger, **what):
    what["t"] = time.time()
    ledger.write((json.dumps(what) + "\n").encode())


def body(tag, number, version, size):
    head = struct.pack("<IIQI", tag, number, version, size)
    return head + random.Random(head).randbytes(size - len(head) - 4) + struct.pack("<I", zlib.crc32(head))


def parse(data):
    """(tag, number, version) of a whole body, or None."""
    if len(data) < 24:
        return None
    tag, number, version, size = struct.unpack("<IIQI", data[:20])
    return (tag, number, version) if size == len(data) and data == body(tag, number, version, size) else None


def run_pages(d, ledger, r):
    fd, version, waiting = os.open(d + "/pages", os.O_RDWR), 0, {}
    while True:
        version += 1
        n = r.randrange(PAGES)
        os.pwrite(fd, body(1, n, version, PAGE), n * PAGE)
        waiting[n] = version
        if len(waiting) >= r.choice((4, 16, 200)):
            os.fdatasync(fd)
            note(ledger, pages=waiting)
            waiting = {}


def run_save(d, ledger, r, name="save", sync=True):
    folder, version = os.open(d + "/" + name, os.O_RDONLY), 0
    while True:
        version += 1
        n = r.randrange(FILES)
        path = f"{d}/{name}/f{n}"
        fd = os.open(path + ".tmp", os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
        os.write(fd, body(2, n, version, r.randrange(100, 60000)))
        if sync:
            os.fsync(fd)
        os.close(fd)
        os.rename(path + ".tmp", path)
        if sync:
            os.fsync(folder)
        note(ledger, n=n, v=version)
        if not sync:
            time.sleep(0.002)


def run_sloppy(d, ledger, r):
    run_save(d, ledger, r, "sloppy", False)


def run_append(d, ledger, r):
    fd, k = os.open(d + "/append", os.O_WRONLY | os.O_APPEND), 0
    while True:
        for _ in range(r.randrange(1, 12)):
            os.write(fd, body(3, k, 0, 64 + k * 97 % 5000))
            k += 1
        os.fdatasync(fd)
        note(ledger, k=k)


def run_sql(d, ledger, r):
    db, k = sqlite3.connect(d + "/sql.db", isolation_level=None), 0
    db.execute("pragma journal_mode=" + ("wal" if r.random() < 0.5 else "delete"))
    # with `full` SQLite does not sync the folder after it unlinked its journal: the last transaction may be rolled back, on every filesystem
    db.execute("pragma synchronous=extra")
    while True:
        db.execute("begin")
        for _ in range(r.randrange(1, 20)):
            db.execute("insert into t values(?, ?)", (k, r.randbytes(r.randrange(10, 900))))
            k += 1
        db.execute("commit")
        note(ledger, k=k)


def run_tree(d, ledger, r):
    k = 0
    while True:
        k += 1
        a, b = f"{d}/tree/a{k % 5}", f"{d}/tree/b{k}"
        os.makedirs(a, exist_ok=True)
        os.mkdir(b)
        path = b + "/" + "n" * r.randrange(1, 200)
        fd = os.open(path, os.O_CREAT | os.O_RDWR)
        os.write(fd, body(4, k, 0, 9000))
        os.ftruncate(fd, 5000)
        os.ftruncate(fd, 20000)
        os.pwrite(fd, b"end", 30000)
        os.link(path, a + f"/link{k}")
        os.fsync(fd)
        os.close(fd)
        note(ledger, k=k, path=os.path.relpath(path, d))
        os.rename(b, a + f"/moved{k}")
        if k > 30:
            try:
                os.unlink(f"{d}/tree/a{(k - 30) % 5}/link{k - 30}")
            except FileNotFoundError:
                pass


def run_small(d, ledger, r):
    k = 0
    while True:
        k += 1
        paths = [f"{d}/small/{k}.{i}" for i in range(20)]
        for i, p in enumerate(paths):
            with open(p, "wb") as f:
                f.write(body(5, k, i, r.randrange(40, 3000)))
        for p in paths:
            fd = os.open(p, os.O_RDONLY)
            os.fsync(fd)
            os.close(fd)
        note(ledger, k=k)
        if k > 10:
            note(ledger, gone=k - 10)
            for i in range(20):
                os.unlink(f"{d}/small/{k - 10}.{i}")


def git(d, *command):
    config = ("core.fsync=all", "gc.auto=0", "user.name=power", "user.email=power@example.org", "safe.directory=*")
    return subprocess.run(["git", *(x for c in config for x in ("-c", c)), "-C", d + "/git", *command], capture_output=True, text=True)


def run_git(d, ledger, r):
    k = 0
    while True:
        k += 1
        for _ in range(3):
            with open(f"{d}/git/f{r.randrange(30)}", "w") as f:
                f.write(f"{k}\n" * r.randrange(1, 2000))
        git(d, "add", "-A")
        done = git(d, "commit", "-q", "-m", str(k))
        if done.returncode:
            raise OSError(done.stderr)
        note(ledger, commit=git(d, "rev-parse", "HEAD").stdout.strip())


WORK = {"pages": run_pages, "save": run_save, "sloppy": run_sloppy, "append": run_append, "sql": run_sql, "tree": run_tree, "small": run_small, "git": run_git}


def prepare(d):
    with open(d + "/pages", "wb") as f:
        for n in range(PAGES):
            f.write(body(1, n, 0, PAGE))
    for name in ("save", "sloppy"):
        os.mkdir(d + "/" + name)
        for n in range(FILES):
            with open(f"{d}/{name}/f{n}", "wb") as f:
                f.write(body(2, n, 0, 1000))
    for name in ("tree", "small", "git"):
        os.mkdir(d + "/" + name)
    git(d, "init", "-q")
    open(d + "/append", "wb").close()
    sqlite3.connect(d + "/sql.db").execute("create table t(k integer primary key, b blob)")
    os.sync()


def run(d, ledger):
    for i, name in enumerate(WORK):
        if os.fork() == 0:
            try:
                WORK[name](d, open(f"{ledger}/{name}", "ab", buffering=0), random.Random(i * 7919 + int(time.time())))
            except OSError as e:
                print(name, "stopped:", e, flush=True)
            os._exit(1)
    signal.pause()


class Check:
    def __init__(self, d, ledger, t):
        self.d, self.wrong = d, []
        self.noted = {}
        for name in WORK:
            try:
                lines = [json.loads(x) for x in open(f"{ledger}/{name}", "rb").read().split(b"\n") if x.endswith(b"}")]
            except FileNotFoundError:
                lines = []
            self.noted[name] = [x for x in lines if x["t"] < t]

    def bad(self, *what):
        self.wrong.append(" ".join(str(x) for x in what))

    def pages(self):
        least = {}
        for x in self.noted["pages"]:
            for n, v in x["pages"].items():
                least[int(n)] = max(v, least.get(int(n), 0))
        fd = os.open(self.d + "/pages", os.O_RDONLY)
        for n in range(PAGES):
            got = parse(os.pread(fd, PAGE, n * PAGE))
            if not got or got[:2] != (1, n):
                self.bad("pages: page", n, "is none that was written")
            elif got[2] < least.get(n, 0):
                self.bad("pages: page", n, "has version", got[2], "acknowledged", least[n])

    def save(self, name="save"):
        least = {}
        for x in self.noted[name]:
            least[x["n"]] = x["v"] if name == "save" else 0
        for n in range(FILES):
            got = parse(open(f"{self.d}/{name}/f{n}", "rb").read())
            if not got or got[:2] != (2, n):
                self.bad(name, "file", n, "is none that was written")
            elif got[2] < least.get(n, 0):
                self.bad(name, "file", n, "has version", got[2], "acknowledged", least[n])

    def sloppy(self):
        self.save("sloppy")

    def append(self):
        data, k = open(self.d + "/append", "rb").read(), 0
        least = max([x["k"] for x in self.noted["append"]], default=0)
        while data:
            size = 64 + k * 97 % 5000
            if len(data) < size or data[:size] != body(3, k, 0, size):
                # what follows the acknowledged records may be cut, and zeros where blocks never arrived, but nothing else
                if k < least:
                    self.bad("append: record", k, "of", least, "acknowledged is damaged")
                elif not body(3, k, 0, size).startswith(data[:size].rstrip(b"\0")):
                    self.bad("append: record", k, "has bytes that were never written")
                return
            data, k = data[size:], k + 1
        if k < least:
            self.bad("append: only", k, "records of", least, "acknowledged")

    def sql(self):
        db = sqlite3.connect(self.d + "/sql.db")
        word = db.execute("pragma integrity_check").fetchone()[0]
        count = db.execute("select count(*) from t").fetchone()[0]
        least = max([x["k"] for x in self.noted["sql"]], default=0)
        if word != "ok":
            self.bad("sql:", word)
        if count < least:
            self.bad("sql:", count, "rows of", least, "acknowledged")

    def tree(self):
        found = {}
        for folder, _, names in os.walk(self.d + "/tree", onerror=lambda e: self.bad("tree:", e)):
            for n in names:
                path = folder + "/" + n
                data = open(path, "rb").read()
                k = parse(body(4, 0, 0, 9000)) and struct.unpack("<IIQI", data[:20])[1] if len(data) >= 20 else None
                if data and k is not None and len(data) == 30003:
                    want = body(4, k, 0, 9000)[:5000] + bytes(25000) + b"end"
                    if data != want:
                        self.bad("tree:", os.path.relpath(path, self.d), "has bytes that it never held")
                    found.setdefault(k, 0)
                    found[k] += 1
        for x in self.noted["tree"]:
            if x["k"] not in found:
                self.bad("tree: file", x["k"], "was acknowledged and is not there whole")

    def small(self):
        gone = {x["gone"] for x in self.noted["small"] if "gone" in x}
        for x in self.noted["small"]:
            if "k" in x and x["k"] not in gone:
                for i in range(20):
                    if parse(open(f"{self.d}/small/{x['k']}.{i}", "rb").read()) != (5, x["k"], i):
                        self.bad("small: file", x["k"], i, "was acknowledged and is not what was written")

    def git(self):
        fsck = git(self.d, "fsck", "--full", "--strict")
        if fsck.returncode:
            self.bad("git fsck:", (fsck.stderr or fsck.stdout).strip().splitlines()[-1:])
        if self.noted["git"]:
            last = self.noted["git"][-1]["commit"]
            if git(self.d, "merge-base", "--is-ancestor", last, "HEAD").returncode:
                self.bad("git: commit", last, "was acknowledged and is not in the history")

    def all(self):
        for name in WORK:
            try:
                getattr(self, name)()
            except (OSError, sqlite3.Error) as e:
                self.bad(name + ":", e)
        for folder, _, names in os.walk(self.d, onerror=lambda e: self.bad(e)):
            for n in names:
                try:
                    with open(os.path.join(folder, n), "rb") as f:
                        while f.read(1 << 20):
                            pass
                except OSError as e:
                    self.bad("unreadable:", e)
        return self.wrong


if __name__ == "__main__":
    if sys.argv[1] == "prepare":
        prepare(sys.argv[2])
    elif sys.argv[1] == "run":
        run(sys.argv[2], sys.argv[3])
    else:
        check = Check(sys.argv[2], sys.argv[3], float(sys.argv[4]))
        wrong = check.all()
        print("\n".join(wrong[:20]))
        print(len(wrong), "wrong; noted:", {n: len(x) for n, x in check.noted.items()})
        sys.exit(1 if wrong else 0)
