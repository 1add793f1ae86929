#!/bin/bash
# Goal: the command line does what twofold(1) says: exit codes, clear messages, key sources, key slots, log, status, peers; nothing half-made stays.
. "$(dirname "$0")/lib.sh"
need_fuse
t=$TWOFOLD
code 2 "$t"
code 2 "$t" nonsense
code 2 "$t" init
code 2 "$t" init "$W/x" --name 'bad name' --passfile "$PASS"
code 2 "$t" init "$W/x" --cipher rot13 --passfile "$PASS"
test ! -e "$W/x" || fail "a refused init left something"
code 0 "$t" --version
code 0 "$t" --help
mkdir "$W/full"; touch "$W/full/file"
code 1 "$t" init "$W/full" --passfile "$PASS"
check "a refused init left the folder alone" test "$(ls "$W/full")" = file
code 1 "$t" init "$W/none/such/dir" --passfile "$PASS"
: > "$W/empty"; code 2 "$t" init "$W/x" --passfile "$W/empty"
code 2 "$t" init "$W/x" --passfile "$PASS" --extpass 'echo x'
test ! -e "$W/x" || fail "a refused init left something"

say "key sources"
head -c 64 /dev/urandom > "$W/keyfile"
code 0 "$t" init "$W/k.store" --name k --keyfile "$W/keyfile"
mkdir "$W/k"
code 3 "$t" mount "$W/k.store" "$W/k" -o "passfile=$W/keyfile"
code 0 "$t" mount "$W/k.store" "$W/k" -o "keyfile=$W/keyfile"; mounted+=("$W/k")
code 5 "$t" key list "$W/k.store"
umnt k
printf 'second' > "$W/second"
code 0 "$t" key add "$W/k.store" --keyfile "$W/keyfile" --new-passfile "$W/second" --label laptop
code 0 "$t" key list "$W/k.store"
equal "slots listed" "$(grep -c . "$W/out")" 2
grep -q laptop "$W/out" || fail "the label is not listed"
code 0 "$t" mount "$W/k.store" "$W/k" -o "extpass=cat $W/second"; umnt k
mkdir "$W/cred"; cp "$W/second" "$W/cred/twofold"
CREDENTIALS_DIRECTORY=$W/cred code 0 "$t" mount "$W/k.store" "$W/k"; umnt k
code 1 "$t" key remove "$W/k.store" 77 --keyfile "$W/keyfile"
code 0 "$t" key remove "$W/k.store" 1 --passfile "$W/second"
code 3 "$t" mount "$W/k.store" "$W/k" -o "keyfile=$W/keyfile"
code 1 "$t" key remove "$W/k.store" 2 --passfile "$W/second"
code 3 "$t" mount "$W/k.store" "$W/k" -o "passfile=$PASS"
code 3 setsid "$t" mount "$W/k.store" "$W/k" < /dev/null
code 2 "$t" mount "$W/k.store" "$W/k" -o "passfile=$W/second,unknown"
grep -q unknown "$W/err" || fail "the unknown option is not named"
code 2 "$t" mount "$W/k.store" "$W/k" -o "passfile=$W/second,fsync=quorum"
code 4 "$t" mount "$W/full" "$W/k" -o "passfile=$PASS"
code 1 "$t" mount "$W/nowhere" "$W/k" -o "passfile=$PASS"
# what is wrong is said before a passphrase is asked for
says() { local want=$1; shift; code "$@"; grep -q -e "$want" "$W/err" || fail "$*: says '$(tail -1 "$W/err")', not '$want'"; }
says "No such file" 1 setsid "$t" status "$W/nowhere" < /dev/null
says "not a twofold store" 4 setsid "$t" check "$W/full" < /dev/null
says "not a twofold store" 4 setsid "$t" serve "$W/full" < /dev/null
says "mounted or served" 1 setsid "$t" sync "$W/k.store" < /dev/null
says "mounted or served" 1 setsid "$t" scrub "$W/k.store" < /dev/null
says "no such command" 2 "$t" staus "$W/k.store"
says "cannot be changed" 2 "$t" mount "$W/k.store" "$W/k" -o "passfile=$W/second,remount,ro"
equal "modes in the store" "$(find "$W/k.store" -type f -perm /077)" ""

say "serve, status, log, peers"
pair a b
echo hello > "$W/a/file"; mkdir "$W/a/dir"; mv "$W/a/file" "$W/a/dir/moved"
insync a b
code 0 "$t" status "$W/a"
code 0 "$t" status "$W/a" --json
python3 -c 'import json, sys; d = json.load(open(sys.argv[1])); assert d["peers"][0]["name"] == "b" and d["peers"][0]["state"] == "in-sync", d' "$W/out" || fail "status --json"
code 0 "$t" log "$W/b"
grep -q 'dir/moved' "$W/out" || fail "log does not name the file: $(head -5 "$W/out")"
touch "$W/a/$(printf 'line\nfeed')"; insync a b
code 0 "$t" log "$W/a"
grep -q 'line.012feed' "$W/out" || fail "log prints a control character of a name as it is"
code 0 "$t" log "$W/a" --json
python3 -c 'import json, sys; [json.loads(l) for l in open(sys.argv[1])]' "$W/out" || fail "log --json"
timeout 3 "$t" log "$W/a" --follow > "$W/follow" & f=$!
sleep 0.5; touch "$W/a/later"; wait $f
grep -q later "$W/follow" || fail "log --follow did not show what came later"
code 0 "$t" conflicts "$W/a"
code 0 "$t" peer list "$W/a"
grep -q '^b' "$W/out" || fail "peer list"
code 0 "$t" peer pause "$W/a" b
echo x > "$W/a/paused"; sleep 1
check "nothing goes to a paused peer" test ! -e "$W/b/paused"
code 1 "$t" status "$W/a"
code 0 "$t" peer resume "$W/a" b
for i in $(seq 100); do [ -e "$W/b/paused" ] && break; sleep 0.1; done
check "after resume it arrives" test -e "$W/b/paused"
code 1 "$t" peer pause "$W/a" nobody
umnt b
"$t" serve "$W/b.store" -o "passfile=$PASS" || fail serve
p=$(daemon_pid b); pids+=("$p")
echo y > "$W/a/served"; "$t" sync "$W/a" --timeout 20s || fail "sync with a served store"
code 0 "$t" status "$W/b.store"
kill "$p"; for i in $(seq 500); do gone "$p" && break; sleep 0.02; done
check "serve ends at SIGTERM" gone "$p"
mnt b
equal "what was served is there" "$(cat "$W/b/served")" y
code 0 "$t" peer remove "$W/a" b
sleep 1
code 0 "$t" peer list "$W/a"
grep -q '^b' "$W/out" && fail "a removed peer is listed"
true
