#!/bin/bash
# Goal: what a daemon has to say reaches syslog (a real listener on /dev/log, in a mount namespace of its own) with facility, priority, name and process
# id, also after the listener was restarted; in the foreground it goes to standard error, with priorities where that is the journal of systemd. A line feed
# in a name does not begin a line of its own, and no secret is logged.
. "$(dirname "$0")/lib.sh"
need_fuse
need unshare ip python3
unshare -mn --propagation private true 2> /dev/null || skip "no mount namespace of its own here (in a chroot / is no mount point)"
cat > "$W/listen.py" <<'P'
import os, socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
if os.path.exists("/dev/log"): os.unlink("/dev/log")
s.bind("/dev/log")
out = open(sys.argv[1], "a", buffering=1)
while True: out.write(ascii(s.recv(65536).rstrip(b"\0").decode()) + "\n")
P
cat > "$W/inside.sh" <<'I'
set -eu
not() { if "$@"; then echo "should have failed: $*" >&2; exit 1; fi; } # set -e does not see a failing "!"
ip link set lo up
mkdir "$W/dev"; mount -t tmpfs -o mode=755 tmpfs "$W/dev"
for d in null zero full random urandom tty fuse; do : > "$W/dev/$d"; mount --bind "/dev/$d" "$W/dev/$d"; done
mkdir "$W/dev/shm"; mount --bind /dev/shm "$W/dev/shm"
mount --move "$W/dev" /dev
ok() { echo "ok $*"; }
until_log() { for _ in $(seq 300); do grep -qE "$1" "$2" && return; sleep 0.1; done; echo "not in the log: $1" >&2; cat "$2" >&2; exit 1; }
listen() { python3 "$W/listen.py" "$W/log" & l=$!; for _ in $(seq 300); do [ -S /dev/log ] && return; sleep 0.1; done; exit 1; }
l=; trap '[ -z "$l" ] || kill "$l" 2> /dev/null' EXIT
: > "$W/log"; listen
store=$W/"$(printf 'line\nfeed')".store m=$W/m; mkdir "$m"
"$TWOFOLD" init "$store" --name a --passfile "$PASS" > /dev/null
start() { "$TWOFOLD" mount "$store" "$m" -o "passfile=$PASS,listen=127.0.0.1:7420"; }
start
for p in /proc/[0-9]*; do [ "$p/exe" -ef "$TWOFOLD" ] && [ "$(cut -d ' ' -f 4 "$p/stat")" != 0 ] && tr '\0' ' ' < "$p/cmdline" | grep -q "$W" && pid=${p#/proc/}; done
head -c 20000 /dev/urandom > "$m/file"; sync -f "$m"
"$TWOFOLD" scrub "$m" > /dev/null
until_log "^'<30>.* twofold\[$pid\]: .*line.+012feed.store: scrub ended" "$W/log"; ok info, with the id of the daemon, and a line feed written out
printf 'GET / HTTP/1.0\r\n\r\n' > /dev/tcp/127.0.0.1/7420
until_log "^'<28>.* twofold\[$pid\]: peer .*does not speak" "$W/log"; ok warning: somebody who is no peer
kill $l; wait $l 2> /dev/null || true
rm /dev/log; listen
"$TWOFOLD" umount "$m"
for o in "$store"/objects/*/*; do :; done; printf x | dd of="$o" bs=1 seek=9000 conv=notrunc status=none
start
not cat "$m/file" > /dev/null 2>&1
until_log "^'<27>.* twofold\[[0-9]+\]: .*does not authenticate" "$W/log"; ok error, to a listener that was restarted
"$TWOFOLD" umount "$m"
not grep -vE "^'<(27|28|30)>[A-Z][a-z]{2} [ 0-9]{2} [0-9:]{8} twofold\[[0-9]+\]: " "$W/log"; ok nothing else
not grep -F "$(cat "$PASS")" "$W/log"
# in the foreground: standard error
foreground() { "$TWOFOLD" mount "$store" "$m" -f -o "passfile=$PASS,listen=127.0.0.1:7420" 2>> "$1" & f=$!; for _ in $(seq 300); do grep -q " $m fuse" /proc/self/mounts && break; sleep 0.1; done; }
stop() { kill $f; wait $f; }
lines=$(wc -l < "$W/log")
: > "$W/plain"; foreground "$W/plain"; not cat "$m/file" > /dev/null 2>&1; until_log '^twofold: error: .*does not authenticate' "$W/plain"; stop
: > "$W/journal"; JOURNAL_STREAM=$(stat -c %d:%i "$W/journal") foreground "$W/journal"; not cat "$m/file" > /dev/null 2>&1; until_log '^<3>.*does not authenticate' "$W/journal"; stop
not grep -v '^<[346]>' "$W/journal"
[ "$(wc -l < "$W/log")" = "$lines" ]; ok standard error, plain and with priorities
I
W=$W PASS=$PASS TWOFOLD=$TWOFOLD unshare -mn --propagation private bash "$W/inside.sh" > "$W/out" 2>&1 || fail "in the namespace: $(tail -5 "$W/out")"
equal "steps in the namespace" "$(grep -c '^ok ' "$W/out")" 5
