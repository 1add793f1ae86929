#!/bin/bash
# Goal: programs that people put on a filesystem work: git with a history of 300 commits, SQLite with a rollback journal, a write-ahead log and mapped reads, with a
# kill in between, PostgreSQL killed and recovered, rsync there and back with all that it can carry, tar with xattrs, ACLs and holes. All is there after a remount.
. "$(dirname "$0")/lib.sh"
need_fuse
need python3 getfattr setfattr
init a
mnt a
A=$W/a

SECONDS=0
say "git"
if command -v git > /dev/null; then
    # one stream of 300 commits: files that grow, are renamed, deleted, made executable
    python3 - > "$W/history" <<'P'
import random
r = random.Random(7); files = {}
out = []
for i in range(1, 301):
    changes = []
    for _ in range(r.randint(1, 6)):
        name = "d%d/s%d/f%d" % (r.randrange(8), r.randrange(4), r.randrange(40))
        if name in files and r.random() < .15:
            del files[name]; changes.append("D %s\n" % name); continue
        files[name] = files.get(name, "") + "".join("line %d of %d\n" % (k, r.getrandbits(60)) for k in range(r.randint(1, 60)))
        changes.append("M %s inline %s\ndata %d\n%s\n" % (r.choice(["100644", "100755"]), name, len(files[name]), files[name]))
    text = "commit %d" % i
    out.append("commit refs/heads/main\ncommitter A <a@example.org> %d +0000\ndata %d\n%s\n%s" % (1700000000 + i, len(text), text, "".join(changes)))
print("".join(out), end="")
P
    g() { git -c safe.directory='*' -c user.name=A -c user.email=a@example.org -c gc.auto=0 "$@"; }
    g init -q --bare "$W/ref.git" && g -C "$W/ref.git" fast-import --quiet < "$W/history"
    want=$(g -C "$W/ref.git" rev-parse main)
    g init -q -b main "$A/repo" && g -C "$A/repo" fast-import --quiet < "$W/history" || fail "git fast-import"
    equal "git: the last commit" "$(g -C "$A/repo" rev-parse main)" "$want"
    check "git checkout" g -C "$A/repo" reset -q --hard main
    for i in 1 2 3 4 5 6; do
        g -C "$A/repo" checkout -q -b "b$i" "main~$((i * 40))" && echo "$i" > "$A/repo/new$i" && g -C "$A/repo" add -A && g -C "$A/repo" commit -q -m "$i" || fail "git commit $i"
    done
    check "git merge" g -C "$A/repo" merge -q --no-edit b2
    check "git clone" g clone -q --no-hardlinks "$A/repo" "$A/clone"
    check "git gc" g -C "$A/repo" gc -q --prune=now
    check "git repack" g -C "$A/clone" repack -q -a -d -f
    umnt a; mnt a
    for d in repo clone; do
        check "git fsck $d" g -C "$A/$d" fsck --full --strict --no-dangling
        equal "git status of $d" "$(g -C "$A/$d" status --porcelain)" ""
    done
    equal "git: commits" "$(g -C "$A/repo" rev-list --count main)" 300
else echo "skipped: git is not installed"; fi

say "SQLite ($SECONDS s)"
cat > "$W/sql.py" <<'P'
import os, sqlite3, subprocess, sys, threading
os.chdir(sys.argv[1])
def ok(name, mode, mmap):
    c = sqlite3.connect(name); c.execute("pragma mmap_size=%d" % mmap)
    assert c.execute("pragma integrity_check").fetchone()[0] == "ok", name
    return c
for mode, mmap in (("delete", 0), ("wal", 0), ("wal", 64 << 20), ("delete", 64 << 20)):
    name = "%s-%d.db" % (mode, mmap)
    c = sqlite3.connect(name, isolation_level=None); c.execute("pragma mmap_size=%d" % mmap)
    assert c.execute("pragma journal_mode=%s" % mode).fetchone()[0] == mode
    c.execute("create table t(a integer primary key, b blob)"); c.execute("create index i on t(b)")
    for k in range(5):
        c.execute("begin")
        for n in range(200): c.execute("insert into t(b) values(?)", (os.urandom(100 + n),))
        c.execute("rollback" if k == 3 else "commit")
    def writer(at):
        d = sqlite3.connect(name, timeout=60, isolation_level=None)
        for n in range(5): d.execute("insert into t values(?, x'00')", (at + n,))
    ts = [threading.Thread(target=writer, args=(100000 * (k + 1),)) for k in range(2)]
    [t.start() for t in ts]; [t.join() for t in ts]
    c.execute("delete from t where a % 3 = 0 and a < 100000"); c.execute("vacuum"); c.close()
    # a writer that is killed in the middle of a transaction
    prog = ("import os, sqlite3; c = sqlite3.connect(%r, isolation_level=None); c.execute('pragma cache_size=5'); c.execute('begin'); c.execute('update t set b = randomblob(3000)'); "
            "os.kill(os.getpid(), 9)" % name)
    assert subprocess.run([sys.executable, "-c", prog]).returncode == -9
    c = ok(name, mode, mmap); n = c.execute("select count(*), sum(length(b) = 3000) from t").fetchone(); assert n[1] == 0 and n[0] == 800 - 266 + 10, n; c.close()
P
mkdir "$A/sql"
check "SQLite" python3 "$W/sql.py" "$A/sql"

say "PostgreSQL ($SECONDS s)"
pg=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | tail -1)
if [ -n "$pg" ] && [ -x "$pg/pgbench" ] && id postgres > /dev/null 2>&1; then
    chmod 711 "$W"; mkdir "$A/pg" "$W/sock"; chown postgres "$A/pg" "$W/sock"
    as() { runuser -u postgres -- env LC_ALL=C "$@"; }
    start_pg() { as "$pg/pg_ctl" -w -t 60 -s -D "$A/pg" -l "$W/sock/log" -o "-h '' -k $W/sock -c shared_buffers=16MB -c checkpoint_timeout=30s" start; }
    sql() { as "$pg/psql" -h "$W/sock" -At -c "$1" postgres; }
    check "initdb" as "$pg/initdb" -D "$A/pg" -A trust > /dev/null
    if check "start" start_pg; then
        pgpid=$(head -1 "$A/pg/postmaster.pid")
        pids+=("$pgpid")
        check "pgbench -i" as "$pg/pgbench" -h "$W/sock" -q -i -s 1 postgres 2> /dev/null
        as "$pg/pgbench" -h "$W/sock" -c 4 -T 10 postgres > "$W/bench" 2>&1 & bench=$!
        for i in $(seq 50); do before=$(sql 'select count(*) from pgbench_history'); [ "${before:-0}" -gt 20 ] && break; sleep 0.2; done
        kill -9 "$pgpid"
        wait "$bench"
        # its children see that it is gone
        for i in $(seq 100); do fuser -s -m "$A" 2>/dev/null || break; sleep 0.1; done
        # where nobody reaps it, its number still looks alive, and these name it
        rm -f "$A/pg/postmaster.pid" "$W/sock"/.s.PGSQL.*
        umnt a; mnt a
        start_pg || fail "recovery: $(tail -n 5 "$W/sock/log" | tr '\n' ';')"
        pids+=("$(head -1 "$A/pg/postmaster.pid" 2> /dev/null)")
        after=$(sql 'select count(*) from pgbench_history')
        [ "${before:-0}" -gt 0 ] && [ "${after:-0}" -ge "$before" ] || fail "PostgreSQL: $before transactions before, $after after its crash"
        equal "PostgreSQL: the sums agree" "$(sql 'select (select sum(abalance) from pgbench_accounts) = (select sum(bbalance) from pgbench_branches) and (select sum(delta) from pgbench_history) = (select sum(tbalance) from pgbench_tellers)')" t
        check "stop" as "$pg/pg_ctl" -w -s -D "$A/pg" -m fast stop
    fi
else echo "skipped: PostgreSQL is not installed"; fi

say "a tree that has everything ($SECONDS s)"
mkdir -p "$W/src/dir/sub" "$W/src/acl"
python3 - "$W/src" <<'P'
import os, random, socket, sys
os.chdir(sys.argv[1]); r = random.Random(3)
for n in (0, 1, 4095, 4096, 4097, 100000, 3000001): open("dir/f%d" % n, "wb").write(r.randbytes(n))
with open("sparse", "wb") as f:
    f.seek(5 << 20); f.write(b"x" * 4096); f.truncate(20 << 20)
os.link("dir/f4097", "dir/sub/hard"); os.link("dir/f4097", "hard2"); os.symlink("x" * 4095, "long"); os.symlink("dir/f1", "sym"); os.mkfifo("fifo", 0o640)
os.mknod("null", 0o20666, os.makedev(1, 3)); s = socket.socket(socket.AF_UNIX); s.bind("sock"); os.chown("dir/f1", 1234, 4321); os.chmod("dir/f0", 0o6751); os.lchown("sym", 77, 78)
open("name \u00fc \n'\"\\*", "w").write("odd"); open("n" * 255, "w").write("long")
os.setxattr("dir/f4096", "user.one", b"value"); os.setxattr("dir", "user.bin", bytes(range(256))); os.setxattr("dir/f4096", "trusted.t", b"")
for p in ("dir/f100000", "dir", "."): os.utime(p, ns=(10**18, 1234567890987654321))
P
if command -v setfacl > /dev/null; then setfacl -m u:1234:rw,g:77:r "$W/src/dir/f4095"; setfacl -d -m u:1234:rwx "$W/src/acl"; fi
# rsync leaves a time alone that is right to the second: none is of today
find "$W/src" -exec touch -h -d '2020-02-03 04:05:06.123456789 UTC' {} +
all() { listing "$1" | sed -E '/^user.twofold/d; s,^(.* d [0-7]+ [0-9]+ [0-9]+) [0-9]+ ,\1 - ,'; (cd "$1" && find . -type f -print0 | sort -z | xargs -0 sha256sum; find . -type f -o -type d | sort | xargs -d '\n' getfacl -n 2>/dev/null); }
all "$W/src" > "$W/want"
if command -v rsync > /dev/null; then
    check "rsync there" rsync -aHAXS "$W/src/" "$A/synced/"
    all "$A/synced" | diff "$W/want" - > "$W/diff" || fail "rsync there: $(head -8 "$W/diff")"
    umnt a; mnt a
    equal "rsync again has nothing to do" "$(rsync -aHAXSi "$W/src/" "$A/synced/" | grep -v '/$')" ""
    check "rsync back" rsync -aHAXS "$A/synced/" "$W/back/"
    all "$W/back" | diff "$W/want" - > "$W/diff" || fail "rsync back: $(head -8 "$W/diff")"
else echo "skipped: rsync is not installed"; fi
check "tar in" tar --xattrs --xattrs-include='*' --acls --numeric-owner -S -C "$W/src" -cf "$A/t.tar" . 2> /dev/null
mkdir "$A/x"
check "tar out" tar --xattrs --xattrs-include='*' --acls --numeric-owner -p -S -C "$A/x" -xf "$A/t.tar" 2> /dev/null
rm "$W/src/sock"
all "$W/src" | grep -v '^ d ' > "$W/want"
all "$A/x" | grep -v '^ d ' | diff "$W/want" - > "$W/diff" || fail "tar: $(head -8 "$W/diff")"
[ "$(stat -c %b "$A/x/sparse")" -lt 100 ] || fail "tar: the hole of 'sparse' takes $(stat -c %b "$A/x/sparse") blocks"
umnt a
