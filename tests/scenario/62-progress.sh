#!/bin/bash
# Goal: what takes long says on a terminal how far it is, in lines of at most 80 columns, and nothing of that in a pipe; `sync` ends when whoever asked is gone or the
# replica is unmounted.
. "$(dirname "$0")/lib.sh"
need_fuse
need python3
t=$TWOFOLD
tty() { local seconds=$1; shift; timeout 60 python3 "$here/tests/scenario/terminal.py" 80 "$seconds" "$@"; }
quiet() { # WHAT: what the last `code` got in a pipe
    ! grep -q $'[\r\033]' "$W/out" "$W/err" || fail "$1 draws in a pipe: $(cat -v "$W/out" "$W/err" | head -3)"
}

say "init, join"
code 0 tty 0 "$t" init "$W/i.store" --name i --passfile "$PASS"
grep -q '^deriving the key' "$W/out" || fail "init on a terminal: $(cat "$W/out")"
code 0 "$t" init "$W/q.store" --name q --passfile "$PASS"; quiet init
equal "init's words on standard error" "$(cat "$W/err")" ""
pair a b
for how in tty pipe; do
    token=$("$t" invite "$W/a" --address "127.0.0.1:$(port 1)") || die "invite"
    if [ $how = tty ]; then
        code 0 tty 0 "$t" join "$token" "$W/$how.store" --name $how --passfile "$PASS"
        grep -q '^asking the inviting replica' "$W/out" || fail "join on a terminal: $(cat "$W/out")"
        grep -q '^deriving the key' "$W/out" || fail "join on a terminal: $(cat "$W/out")"
    else
        code 0 "$t" join "$token" "$W/$how.store" --name $how --passfile "$PASS"; quiet join
    fi
done
code 0 tty 0 "$t" log "$W/q.store" --passfile "$PASS"
grep -q '^opening the store' "$W/out" || fail "a store that is opened, on a terminal: $(cat "$W/out")"

say "sync"
head -c 300000 /dev/urandom > "$W/a/f"; insync a b
b=$(daemon_pid b)
kill -STOP "$b"
head -c 3000000 /dev/urandom > "$W/a/f"
code 6 tty 0 "$t" sync "$W/a" --timeout 3s
grep -q '1 peer lacks 1 files' "$W/out" || fail "sync on a terminal: $(cat "$W/out")"
code 6 "$t" sync "$W/a" --timeout 500ms; quiet sync
"$t" sync "$W/a" --timeout 1h 2> /dev/null & p=$!; pids+=("$p")
sleep 0.5; kill "$p"; wait "$p"
"$t" sync "$W/a" --timeout 1h 2> "$W/sync" & p=$!; pids+=("$p")
sleep 0.5
timeout 60 "$t" umount "$W/a" || fail "umount beside a sync"
kill -CONT "$b"
wait "$p"; equal "sync's code when the replica is unmounted" $? 1
grep -q 'unmounted or stopped' "$W/sync" || fail "sync does not say why it ended: $(cat "$W/sync")"
mnt a "listen=127.0.0.1:$(port 1)"

say "check"
code 0 tty 0 "$t" check "$W/a" --rate 2M
grep -q '%, .* MiB read' "$W/out" || fail "check on a terminal: $(cat "$W/out")"
code 0 "$t" check "$W/a" --rate 3M; quiet check
umnt a
code 0 tty 0 "$t" check "$W/a.store" --rate 2M --passfile "$PASS"
grep -q '%, .* MiB read' "$W/out" || fail "check of a store, on a terminal: $(cat "$W/out")"

say "bench"
mkdir "$W/d"
code 0 tty 0 "$t" bench disk --dir "$W/d" --size 1M --passes 1 --seconds 0.1 --engine builtin
grep -q 'pass 1 of 1, none: SEQ1M Q1T1 read, about [0-9]* [a-z]* left' "$W/out" || fail "bench disk on a terminal: $(head -20 "$W/out")"
code 0 tty 0 "$t" bench replicate --dir "$W/d" --scale 0.002 --passes 1
grep -q 'pass 1/1, sealed: writing the tree' "$W/out" || fail "bench replicate on a terminal: $(head -20 "$W/out")"
code 0 "$t" bench replicate --dir "$W/d" --scale 0.001 --passes 1; quiet bench
