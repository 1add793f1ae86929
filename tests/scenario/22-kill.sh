#!/bin/bash
# Goal: kill -9 of either side at any moment, and a connection cut in the middle of a large file, lose nothing; what had come is not sent again. KILLS (4) rounds.
. "$(dirname "$0")/lib.sh"
need_fuse
need python3
# A relay between the two, so that the connection can be cut without touching either: SIGUSR1 cuts all, the file LIMIT ends a connection after so many bytes.
cat > "$W/relay.py" <<'P'
import os, select, signal, socket, sys, threading
port, to, work = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]; live = set()
def limit():
    try: return int(open(work + "/limit").read())
    except (OSError, ValueError): return None
def cut(*_):
    for s in list(live):
        try: s.shutdown(socket.SHUT_RDWR)
        except OSError: pass
def carry(a, b):
    n = 0
    try:
        while True:
            d = a.recv(65536)
            if not d: break
            n += len(d); l = limit()
            if l is not None and n > l: break
            b.sendall(d)
    except OSError: pass
    for s in (a, b):
        try: s.shutdown(socket.SHUT_RDWR)
        except OSError: pass
        live.discard(s)
signal.signal(signal.SIGUSR1, cut)
l = socket.socket(); l.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); l.bind(("127.0.0.1", port)); l.listen(16)
while True:
    try: c, _ = l.accept()
    except InterruptedError: continue
    try: u = socket.create_connection(("127.0.0.1", to))
    except OSError: c.close(); continue
    live.update((c, u))
    threading.Thread(target=carry, args=(c, u), daemon=True).start(); threading.Thread(target=carry, args=(u, c), daemon=True).start()
P
pa=$(port 1) pr=$(port 2)
python3 "$W/relay.py" "$pr" "$pa" "$W" & relay=$!; pids+=("$relay")
init a
mnt a "listen=127.0.0.1:$pa"
"$TWOFOLD" invite "$W/a" --address "127.0.0.1:$pr" > "$W/token" || die invite
"$TWOFOLD" join - "$W/b.store" --name b --passfile "$PASS" < "$W/token" > "$W/out" || die "join: $(cat "$W/out")"
mnt b
echo hello > "$W/a/hello"
insync a b

say "a connection that ends every 8 MB, within a file of 64 MB"
echo 0 > "$W/limit" # nothing passes while a file is written: the versions of one that grows are not what this counts
before=$(counter b bytes.wire-received)
head -c 40000000 /dev/urandom > "$W/a/large"; sync "$W/a/large"
echo 8000000 > "$W/limit"
insync a b
echo 0 > "$W/limit"
head -c 24000000 /dev/urandom >> "$W/a/large" # what comes on top of a version that is there, as changed ranges
sync "$W/a/large"
echo 8000000 > "$W/limit"
insync a b
rm "$W/limit"
same a b
# what was under way at an end is lost; what was received is not received again
got=$(($(counter b bytes.wire-received) - before))
[ "$got" -lt 68000000 ] || fail "64 MB took $got bytes: it began anew"
say "$got bytes for 64,000,000"

say "cuts while many files come"
( for i in 1 2 3 4 5 6 7 8; do sleep 0.3; kill -USR1 "$relay"; done ) & pids+=($!)
for i in $(seq 300); do head -c $((i * 400)) /dev/urandom > "$W/a/s$i"; head -c 300 /dev/urandom > "$W/b/t$i"; done
insync a b
same a b

say "kill -9 of either side"
for round in $(seq "${KILLS:-4}"); do
    head -c 15000000 /dev/urandom > "$W/a/k$round"; head -c 100000 /dev/urandom > "$W/b/l$round"
    sync "$W/a/k$round" "$W/b/l$round"
    for i in $(seq 30); do echo "$round $i" > "$W/a/r$round-$i"; done
    sync "$W/a/r$round-"* # each: fsync of a file that is stored already promises nothing about others
    sleep "0.$((RANDOM % 5))"
    victim=a o="listen=127.0.0.1:$pa"; [ $((round % 2)) = 0 ] && victim=b o=
    kill9 "$victim"
    mnt "$victim" "$o"
    sound "$victim"
    insync a b
    same a b
    [ "$(ls "$W/b" | grep -c "^r$round-")" = 30 ] || fail "round $round: files that were synced are lost"
    equal "size" "$(stat -c %s "$W/b/k$round")" 15000000
done
ls "$W/a" | grep -q conflict && fail "a conflict from nothing: $(ls "$W/a" | grep conflict | head -3)"
sound a b
umnt b; umnt a
left=$(ls "$W/a.store/incoming" "$W/b.store/incoming" | grep -vc ':$\|^$')
[ "$left" -le 4 ] || fail "$left pieces are left in incoming/"
