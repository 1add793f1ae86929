#!/bin/bash
# Goal: what was fsynced is there after kill -9, each time: a writer fsyncs files and directories in a loop and notes what is safe; the process is killed at a
# random moment, the store mounted again, everything noted compared, there and, once it is in step, at the peer. KILLS (10) rounds.
. "$(dirname "$0")/lib.sh"
need_fuse
need python3
pair a b
cat > "$W/writer.py" <<'P'
import os, random, sys
os.chdir(sys.argv[1]); top, note, seed = ".", sys.argv[2], int(sys.argv[3]); r = random.Random(seed)
def fsync_dir(d): f = os.open(d, os.O_RDONLY); os.fsync(f); os.close(f)
log = open(note, "a", buffering=1); k = 0
try:
    while True:
        k += 1; d = "%s/r%d" % (top, seed); os.makedirs(d, exist_ok=True)
        name = "%s/f%d" % (d, k % 40); data = r.randbytes(r.choice((0, 1, 200, 4096, 5000, 70000, 400000)))
        how = k % 3
        if how == 0:      # new content by rename over
            with open(name + ".tmp", "wb") as f: f.write(data); f.flush(); os.fsync(f.fileno())
            log.write("maybe %s %s\n" % (name, data[:16].hex() + ":%d" % len(data)))
            os.rename(name + ".tmp", name); fsync_dir(d)
        else:             # a file of its own, synced with its name
            name = "%s/g%d" % (d, k)
            with open(name, "wb") as f: f.write(data); f.flush(); os.fsync(f.fileno())
        open("%s.%d.%d" % (note, seed, k), "wb").write(data)
        log.write("safe %s %s.%d.%d\n" % (name, note, seed, k))
except OSError: pass
P
# compares all that was noted as safe; the last rename that was under way may have happened or not
cat > "$W/verify.py" <<'P'
import os, sys
note, side, part = sys.argv[1:4]; last = {}; maybe = {}
for line in open(note):
    w = line.split()
    if w[0] == "safe": last[w[1]] = w[2]; maybe.pop(w[1], None)
    elif len(w) == 3: maybe[w[1]] = w[2]
bad = 0
for name, ref in last.items():
    if not name.startswith(part): continue
    name = side + name
    try: got = open(name, "rb").read()
    except OSError as e: got = None; why = str(e)
    want = open(ref, "rb").read()
    if got == want: continue
    if got is not None and maybe.get(name[len(side):]) == got[:16].hex() + ":%d" % len(got): continue
    bad += 1; print("LOST", name, "has", None if got is None else len(got), "wants", len(want))
print(len(last), "files checked"); sys.exit(1 if bad else 0)
P
: > "$W/note"
for i in $(seq "${KILLS:-10}"); do
    python3 "$W/writer.py" "$W/a" "$W/note" "$i" & w=$!; pids+=("$w")
    sleep "$(python3 -c 'import random; print(0.2 + random.random() * 1.3)')"
    kill9 a
    kill "$w" 2>/dev/null; wait "$w" 2>/dev/null
    mnt a "listen=127.0.0.1:$(port 1)"
    sound a
    for side in a b; do
        [ "$side" = a ] || insync a b
        python3 "$W/verify.py" "$W/note" "$W/$side/" "./r$i/" > "$W/verify" || fail "round $i, $side: $(grep -m3 LOST "$W/verify" | tr '\n' ';')"
    done
done
for side in a b; do python3 "$W/verify.py" "$W/note" "$W/$side/" "" > "$W/verify" || fail "after all, $side: $(grep -m3 LOST "$W/verify" | tr '\n' ';')"; done
say "$(tail -1 "$W/verify")"

say "a new name, link, mode and xattr of a file that is stored already: its fsync stores them"
cat > "$W/names.py" <<'P'
import os, sys
d, i = sys.argv[1:]
def sync(p, flags=os.O_RDWR): f = os.open(p, flags); os.fsync(f); os.close(f)
def make(n): p = "%s/%s.%s" % (d, n, i); open(p, "wb").write(b"x" * 10000); sync(p); return p
def to(p, n): return "%s/%s.%s" % (d, n, i)
p = make("old"); os.rename(p, to(p, "renamed")); sync(to(p, "renamed"))
p = make("file"); os.link(p, to(p, "linked")); sync(p)
p = make("mode"); os.chmod(p, 0o640); sync(p)
os.mkdir(to(p, "dir")); sync(to(p, "dir"), os.O_RDONLY); os.rename(to(p, "dir"), to(p, "moved")); sync(to(p, "moved"), os.O_RDONLY)
p = make("xattr"); os.setxattr(p, "user.a", b"v"); sync(p)
P
for i in 1 2 3; do
    python3 "$W/names.py" "$W/a" "$i" || fail "writing"
    kill9 a; mnt a "listen=127.0.0.1:$(port 1)"
    for f in renamed linked moved; do check "$f, round $i" test -e "$W/a/$f.$i"; done
    for f in old dir; do [ ! -e "$W/a/$f.$i" ] || fail "$f is still there, round $i"; done
    equal "mode, round $i" "$(stat -c %a "$W/a/mode.$i")" 640
    equal "xattr, round $i" "$(getfattr --absolute-names --only-values -n user.a "$W/a/xattr.$i")" v
done
umnt a; umnt b
