#!/bin/bash
# Goal: however a mount ends, nothing that was written is lost and the store is free again: umount, fusermount3 -u, twofold umount, SIGTERM (idle and in use), a killed
# process whose dead mount is replaced. What is refused has its exit code: a second mount of a store (5), a wrong passphrase (3), a damaged or absent store (4).
. "$(dirname "$0")/lib.sh"
need_fuse
need fusermount3
init a
n=0
# writes a little, with a page of it still dirty in the kernel
write_some() { n=$((n + 1)); mkdir "$W/a/d$n"; head -c 100000 /dev/urandom > "$W/a/d$n/f"; ln "$W/a/d$n/f" "$W/a/d$n/g"; sha256sum < "$W/a/d$n/f" > "$W/sum.$n"; }
all_there() { local i; for i in $(seq "$n"); do sha256sum < "$W/a/d$i/g" | cmp -s - "$W/sum.$i" || fail "$1: file $i is not what was written"; done; }
is_mounted() { grep -q " $W/a fuse" /proc/self/mounts; }
ended() { local i; for i in $(seq 100); do [ -z "$(daemon_pid a)" ] && return 0; sleep 0.1; done; fail "$1: the process does not end"; }

say "umount"
mnt a; write_some; umount "$W/a" || fail "umount"; ended umount
mnt a; all_there umount
say "fusermount3 -u"
write_some; fusermount3 -u "$W/a" || fail "fusermount3"; ended fusermount3
mnt a; all_there "fusermount3 -u"
say "twofold umount waits"
write_some; umnt a; [ -z "$(daemon_pid a)" ] || sleep 0.2; [ -z "$(daemon_pid a)" ] || fail "twofold umount returned before the process ended"
mnt a; all_there "twofold umount"
say "SIGTERM"
write_some; kill -TERM "$(daemon_pid a)"; ended SIGTERM; is_mounted && fail "still mounted after SIGTERM"
mnt a; all_there SIGTERM
say "SIGTERM while a program uses it"
write_some
exec 7> "$W/a/open"; printf 'written before' >&7
p=$(daemon_pid a); kill -TERM "$p"; ended "SIGTERM in use"; is_mounted && fail "still mounted after SIGTERM in use"
exec 7>&-
mnt a; all_there "SIGTERM in use"; equal "the file that was open" "$(cat "$W/a/open")" "written before"
say "SIGINT in the foreground"
umnt a
# an interactive shell leaves SIGINT as it is for what it starts; a script must ask for it
python3 -c 'import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])' "$TWOFOLD" mount -f "$W/a.store" "$W/a" -o "passfile=$PASS,allow_other" & fg=$!; pids+=("$fg")
for i in $(seq 100); do is_mounted && ls "$W/a/d1" > /dev/null 2>&1 && break; sleep 0.1; done
write_some; kill -INT "$fg"; wait "$fg" || fail "exit code $? after SIGINT"; is_mounted && fail "still mounted after SIGINT"
mnt a; all_there SIGINT

say "a second mount of the same store"
mkdir "$W/b"
code 5 "$TWOFOLD" mount "$W/a.store" "$W/b" -o "passfile=$PASS"
all_there "a refused second mount"

say "a dead mount is replaced"
write_some; sync -f "$W/a"; setfattr -n user.twofold.sync -v 1 "$W/a" || fail "sync"
p=$(daemon_pid a); kill -9 "$p"; for i in $(seq 500); do gone "$p" && break; sleep 0.01; done
ls "$W/a" > /dev/null 2>&1 && fail "a dead mount answers"
mnt a; all_there "a dead mount replaced"
equal "mounts at the mountpoint" "$(grep -c " $W/a fuse" /proc/self/mounts)" 1
say "umount in use says so"
( cd "$W/a/d1" && exec sleep 30 ) & s=$!; sleep 0.2
code 1 "$TWOFOLD" umount "$W/a"
kill "$s"; wait "$s" 2>/dev/null
umnt a

say "refused, with the right code"
printf 'wrong\n' > "$W/wrong"
code 3 "$TWOFOLD" mount "$W/a.store" "$W/a" -o "passfile=$W/wrong"
code 4 "$TWOFOLD" mount "$W/b" "$W/a" -o "passfile=$PASS"
cp -a "$W/a.store" "$W/damaged.store"
printf 'X' | dd of="$W/damaged.store/volume" bs=1 seek=40 conv=notrunc status=none
code 4 "$TWOFOLD" mount "$W/damaged.store" "$W/a" -o "passfile=$PASS"
code 2 "$TWOFOLD" mount "$W/a.store" "$W/a" -o "passfile=$PASS,nosuchoption"
code 1 "$TWOFOLD" mount "$W/a.store" "$W/nowhere" -o "passfile=$PASS"
is_mounted && fail "mounted though refused"
mnt a; all_there "after refusals"; umnt a
say "killed and mounted again at once, while programs write: the dead mount is gone"
mnt a
python3 - "$W/a" <<'P' & writer=$!
import os, sys, time
end, i = time.time() + 60, 0
while time.time() < end:
    i += 1
    try:
        with open("%s/w%d" % (sys.argv[1], i % 50), "wb") as f: f.write(os.urandom(100000))
    except OSError: time.sleep(0.001)
P
pids+=("$writer")
for i in $(seq 12); do
    sleep 0.1; p=$(daemon_pid a); kill -9 "$p"; mnt a
    equal "mounts at the mountpoint" "$(grep -c " $W/a fuse" /proc/self/mounts)" 1
done
kill "$writer"; wait "$writer" 2> /dev/null
umnt a
equal "mounts left" "$(grep -c " $W/a fuse" /proc/self/mounts)" 0
