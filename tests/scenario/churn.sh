#!/bin/bash
# Programs on both sides change the same few files and folders at once, also while the peering is paused and while daemons are killed: writes in place, rewrites,
# renames onto one another, links, deletions, moved folders. Afterwards both have one tree, and the exchange has not come to a stand.
. "$(dirname "$0")/lib.sh"
need_fuse
need python3 diff getfattr

cat > "$W/churn.py" <<'P'
import os, random, sys, time
root, seed, secs = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
r = random.Random(seed)
end = time.time() + secs
n = 0
os.chdir(root)
def file(): return r.choice(['d0', 'd1', 'd2', 'd0/e', 'd1/e', '.']) + '/f%d' % r.randrange(8)
def folder(): return r.choice(['d0', 'd1', 'd2', 'd0/e', 'd1/e', 'd2/e', 'd0/e/g'])
def append(): open(file(), 'ab').write(b'%d:%d\n' % (seed, n))
def rewrite(): open(file(), 'wb').write(os.urandom(r.randrange(30000)))
def in_place():
    f = os.open(file(), os.O_RDWR)
    os.pwrite(f, b'S%d' % seed * r.randrange(1, 2000), r.randrange(60000))
    os.close(f)
def save():
    name = 'new%d' % seed
    f = os.open(name, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    os.write(f, os.urandom(r.randrange(9000)))
    os.fsync(f)
    os.close(f)
    os.rename(name, file())
steps = [append, rewrite, in_place, save, lambda: os.rename(file(), file()), lambda: os.unlink(file()), lambda: os.link(file(), file()),
         lambda: os.truncate(file(), r.randrange(50000)), lambda: os.makedirs(folder(), exist_ok=True), lambda: os.rename(folder(), folder()),
         lambda: os.rmdir(folder()), lambda: os.chmod(file(), r.choice([0o600, 0o644, 0o755])), lambda: os.setxattr(file(), 'user.x', b'%d' % n)]
while time.time() < end:
    n += 1
    try:
        r.choice(steps)()
    except OSError as e:
        if e.errno in (5, 103, 107): # was the daemon killed? what it had not written yet fails with an I/O error
            try:
                os.statvfs('.')
            except OSError:
                break
        if e.errno not in (2, 16, 17, 18, 20, 21, 22, 39, 40, 116):
            print('error', e)
            sys.exit(1)
    if n % 5 == 0:
        time.sleep(0.004)
P

# churn SEED COMMAND...: both sides for 5 s, the command meanwhile
churn() {
    local seed=$1 p1 p2; shift
    python3 "$W/churn.py" "$W/a" "$seed" 5 & p1=$!
    python3 "$W/churn.py" "$W/b" $((seed + 1)) 5 & p2=$!
    "$@"
    wait $p1 || fail "a program on a got an error it must not get"
    wait $p2 || fail "a program on b got an error it must not get"
    INSYNC_TRIES=5 insync a b && same a b
}
apart() { sleep 1; "$TWOFOLD" peer pause "$W/a" b; sleep 2.5; "$TWOFOLD" peer resume "$W/a" b; }
killed() { sleep 3; kill9 b; mnt b; }

init a
pair a b
say "apart for a while"
churn "${CHURN_SEED:-202}" apart
say "again"
churn $((${CHURN_SEED:-202} + 2)) apart
say "a daemon is killed"
churn $((${CHURN_SEED:-202} + 4)) killed
sound a b
[ "$failures" = 0 ] && say "ok"
exit 0
