#!/bin/bash
# Goal: what `twofold status` says is complete and true in each of its forms, fits into 80 columns while it is watched, and its exit codes are those of twofold(1).
. "$(dirname "$0")/lib.sh"
need_fuse
need python3 getfattr
t=$TWOFOLD
long=$(printf 'a-long-name-%.0s' 1 2 3 4 5 6 7 8)
mkdir "$W/$long"
# names as long as they may be, and a store whose path is wider than a terminal
"$t" init "$W/$long/a.store" --name a --passfile "$PASS" > /dev/null || die init
port=$(port 1)
mnt "$long/a" "listen=127.0.0.1:$port"
b=branch-0123456789-0123456789-012 # 32
"$t" invite "$W/$long/a" --address "127.0.0.1:$port" | "$t" join - "$W/b.store" --name "$b" --passfile "$PASS" > /dev/null || die join
mnt b
a=$W/$long/a
head -c 300000 /dev/urandom > "$a/f"
"$t" sync "$a" --timeout 60s || fail sync

say "in sync: 0"
code 0 "$t" status "$a"
grep -q "^  $b  in-sync" "$W/out" || fail "status: $(cat "$W/out")"
code 0 "$t" status "$a" --json
cat > "$W/look.py" <<'E2'
import json, subprocess, sys
d = json.load(open(sys.argv[1]))
want = {"volume", "replica", "name", "store", "cipher", "read_only", "root", "in_sync", "served", "held_deletions", "peers", "healed_pages", "damaged_files", "scrub"}
peer = {"name", "replica", "address", "state", "connected", "connected_ns", "backlog_parts", "backlog_files", "backlog_bytes", "oldest_ns", "oldest_age_ns", "lag_ns", "rate_bytes", "eta_s",
        "sent_bytes", "received_bytes", "saved_bytes", "fsync_waits", "fsync_waits_ns", "last_error"}
assert want == set(d), want ^ set(d)
p, = d["peers"]
assert peer == set(p), peer ^ set(p)
for k, v in (x.split("=", 1) for x in sys.argv[2:]):
    got = d[k] if k in d else p[k]
    assert str(got) == v, (k, got, v)
E2
json() { python3 "$W/look.py" "$W/out" "$@" || fail "status --json: $(cat "$W/out")"; }
json in_sync=True served=True state=in-sync connected=True backlog_files=0 backlog_parts=0 oldest_ns=0 eta_s=0 last_error= damaged_files=0
[ "$(sed 's/.*"sent_bytes":\([0-9]*\).*/\1/' "$W/out")" -gt 300000 ] || fail "sent: $(cat "$W/out")"

"$t" status > "$W/out" 2>&1 # of all mounts, also those of others: its code is theirs
for n in "$a" "$W/b"; do grep -qx "$n.store" "$W/out" || fail "status of all does not list $n: $(cat "$W/out")"; done

say "a connected peer lacks something: 1"
d=$(daemon_pid b)
kill -STOP "$d"
head -c 2000000 /dev/urandom > "$a/f"; sync -f "$a"
for i in $(seq 100); do "$t" status "$a" > "$W/out"; grep -q 'lacks 1 file, 1.9 MiB' "$W/out" && break; sleep 0.1; done
code 1 "$t" status "$a"
grep -q 'lacks 1 file, 1.9 MiB, oldest [0-9]* s' "$W/out" || fail "status: $(cat "$W/out")"
code 1 "$t" status "$a" --json
json in_sync=False connected=True backlog_files=1 backlog_bytes=2000000

say "watched on 80 columns, and in a pipe"
timeout 60 python3 "$here/tests/scenario/terminal.py" 80 2.5 "$t" status "$a" --watch > "$W/watch"
grep -qE '^      \[[#.]{30}\] +[0-9]+ %$' "$W/watch" || fail "no bar: $(cat "$W/watch")"
[ "$(wc -L < "$W/watch")" -le 80 ] || fail "wider than 80 columns: $(cat "$W/watch")"
[ "$(grep -c "^  $b  " "$W/watch")" -ge 2 ] || fail "drawn once"
timeout 60 python3 "$here/tests/scenario/terminal.py" 40 1.5 "$t" status "$a" --watch > "$W/watch"
equal "widest line on 40 columns" "$(wc -L < "$W/watch")" 40
timeout 2.5 "$t" status "$a" --watch > "$W/watch"
! grep -q $'[\r\033]' "$W/watch" || fail "draws in a pipe"
[ "$(grep -c "^  $b  " "$W/watch")" -ge 2 ] || fail "--watch in a pipe says it once"
timeout 2.5 "$t" status "$a" --watch --json > "$W/watch"
[ "$(wc -l < "$W/watch")" -ge 2 ] || fail "--watch --json says it once"
head -1 "$W/watch" > "$W/out"; json backlog_files=1
kill -CONT "$d"
"$t" sync "$a" --timeout 60s || fail sync
"$t" peer pause "$a" "$b"; code 1 "$t" status "$a"; "$t" peer resume "$a" "$b"
for i in $(seq 100); do "$t" status "$a" > /dev/null && break; sleep 0.1; done

say "not connected: 6"
umnt b
for i in $(seq 100); do "$t" status "$a" --json > "$W/out"; grep -q '"connected":false' "$W/out" && break; sleep 0.1; done
code 6 "$t" status "$a"
code 6 "$t" status "$a" --json; json in_sync=False state=disconnected eta_s=0
"$t" umount "$a"
code 6 "$t" status "$a.store" --passfile "$PASS"
grep -q "^  $b  not served" "$W/out" || fail "a store that is not served: $(cat "$W/out")"
code 6 "$t" status "$a.store" --passfile "$PASS" --json; json served=False state=disconnected backlog_files=0

say "damaged: 4; what cannot be asked: 2, 3, 4"
big=$(find "$a.store/objects" -type f -size +1000k | head -1)
printf x | dd of="$big" bs=1 seek=20000 conv=notrunc status=none
mnt "$long/a" "listen=127.0.0.1:$port"
! cat "$a/f" > /dev/null 2>&1 || fail "a damaged page was read"
code 4 "$t" status "$a"
grep -q '1 damaged files wait' "$W/out" || fail "status: $(cat "$W/out")"
mnt b
for i in $(seq 200); do "$t" status "$a" > "$W/out" && break; cat "$a/f" > /dev/null 2>&1; sleep 0.1; done
code 0 "$t" status "$a"
"$t" umount "$a"; umnt b
printf wrong > "$W/wrong"
code 2 "$t" status "$a.store" "$W/b.store"
code 2 "$t" status --nonsense
code 3 "$t" status "$a.store" --passfile "$W/wrong"
mkdir "$W/nothing"; code 4 "$t" status "$W/nothing" --passfile "$PASS"
init lonely; code 0 "$t" status "$W/lonely.store" --passfile "$PASS"
grep -q 'no peers' "$W/out" || fail "status without peers: $(cat "$W/out")"
