#!/bin/bash
# Goal: fsync=peer and fsync=all mean it: what fsync returned for is at the peer, though both daemons die at once; with a peer that does not answer, fsync waits, status
# names the peer that holds it up, other programs go on, the time-out says ETIMEDOUT, and a peer that is back lets it go on at once.
. "$(dirname "$0")/lib.sh"
need_fuse
need python3
mnt_all() { mnt "$1" "fsync=all,fsync_timeout=$2${3:+,$3}"; }
p=$(port 1)
init a
mnt_all a 20 "listen=127.0.0.1:$p"
"$TWOFOLD" invite "$W/a" --address "127.0.0.1:$p" | "$TWOFOLD" join - "$W/b.store" --name b --passfile "$PASS" > /dev/null || die "join"
mnt b
insync a b
cat > "$W/sync.py" <<'P'
import os, sys, time, errno
start = time.monotonic()
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o644)
os.pwrite(fd, sys.argv[2].encode() * 4000, 0)
try: os.fsync(fd); how = "done"
except OSError as e: how = errno.errorcode[e.errno]
print(how, int((time.monotonic() - start) * 1000))
P
put() { python3 "$W/sync.py" "$@"; }

say "both answer"
for i in 1 2 3; do
    read -r how ms < <(put "$W/a/f" "$i"); equal "fsync" "$how" done
    [ "$ms" -lt 5000 ] || fail "an fsync took $ms ms"
    [ "$(head -c 1 "$W/b/f")" = "$i" ] || fail "after fsync the peer does not show it"
done
put "$W/a/f" 4 > "$W/how"; kill9 a; kill9 b
mnt b; equal "after kill -9 of both" "$(head -c 1 "$W/b/f")" 4
mnt_all a 20 "listen=127.0.0.1:$p"; insync a b

say "the peer does not answer"
b=$(daemon_pid b)
kill -STOP "$b"
put "$W/a/f" 5 > "$W/how" & w=$!
for i in $(seq 100); do "$TWOFOLD" status "$W/a" > "$W/status"; grep -q "holds up 1 fsync" "$W/status" && break; sleep 0.05; done
grep -A 3 "^  b " "$W/status" | grep -q "holds up 1 fsync" || fail "status does not say who holds it up: $(cat "$W/status")"
"$TWOFOLD" status "$W/a" --json | grep -q '"fsync_waits":1' || fail "status --json does not say it"
check "other files can be written" sh -c "echo other > '$W/a/other'; ls '$W/a' > /dev/null; cat '$W/a/f' > /dev/null"
kill -0 "$w" || fail "fsync returned without the peer: $(cat "$W/how")"
kill -CONT "$b"
wait "$w"; read -r how ms < "$W/how"; equal "the peer is back" "$how" done

say "time-out"
umnt a; mnt_all a 2 "listen=127.0.0.1:$p"; insync a b
kill -STOP "$b"
read -r how ms < <(put "$W/a/f" 6)
equal "fsync" "$how" ETIMEDOUT
[ "$ms" -ge 2000 ] && [ "$ms" -lt 8000 ] || fail "time-out of 2 s after $ms ms"
kill -CONT "$b"
insync a b
equal "it goes out all the same" "$(head -c 1 "$W/b/f")" 6

say "no peer is there: paused ones are not waited for; being stopped ends the wait"
kill -STOP "$b"
"$TWOFOLD" peer pause "$W/a" b || fail "pause"
read -r how ms < <(put "$W/a/f" 7); equal "fsync beside a paused peer" "$how" done
kill -CONT "$b"
"$TWOFOLD" peer resume "$W/a" b; insync a b; umnt a
mnt_all a 60 "listen=127.0.0.1:$p"; insync a b
kill -STOP "$b"
put "$W/a/f" 8 > "$W/how" & w=$!
for i in $(seq 100); do "$TWOFOLD" status "$W/a" | grep -q "holds up 1 fsync" && break; sleep 0.05; done
a=$(daemon_pid a); start=$SECONDS
kill -TERM "$a"
wait "$w"
[ $((SECONDS - start)) -lt 20 ] || fail "being stopped took $((SECONDS - start)) s"
kill -CONT "$b"
