#!/bin/bash
# replicate.sh [PAIRS] [SCALE]: what does encryption cost when a tree goes to a new peer?  The tree of ../shared/measure/dfsr_tree.py (SCALE 0.1: 5,161 files,
# 543 MB) lies in one replica; a second one joins; the time until it has everything, with encryption and with --cipher none in turn, PAIRS times each.
# WHERE: folder for the stores (default /dev/shm; name one on a disk to measure a disk). SYNCTHING=1: Syncthing on plain folders beside it, in the same run.
# Prints each run, medians, spread and the ratios.
set -eu
here=$(cd "$(dirname "$0")/../.." && pwd)
shared=${TWOFOLD_SHARED:-$here/../shared}
t=${TWOFOLD:-$here/build/src/cli/twofold}
pairs=${1:-3} scale=${2:-0.1}
[ -f "$shared/measure/dfsr_tree.py" ] || { echo "SKIP: no $shared/measure/dfsr_tree.py"; exit 77; }
export TWOFOLD_ARGON2=1:8
w=$(mktemp -d "${WHERE:-/dev/shm}/twofold-bench.XXXXXX")
end() { for m in a b; do grep -q " $w/$m fuse" /proc/self/mounts && { "$t" umount "$w/$m" || umount -l "$w/$m"; }; done; rm -rf "$w"; }
trap end EXIT
trap 'exit 1' INT TERM
echo passphrase > "$w/pass"
python3 "$shared/measure/dfsr_tree.py" "$w/tree" "$scale"
bytes=$(du -sb --apparent-size "$w/tree" | cut -f1) files=$(find "$w/tree" -type f | wc -l)
echo "tree: $files files, $bytes bytes; stores in ${WHERE:-/dev/shm}"
cpu() { awk '{print ($14 + $15) / 100}' "/proc/$1/stat"; }
pid_of() { for p in /proc/[0-9]*; do tr '\0' ' ' < "$p/cmdline" 2>/dev/null | grep -q "^$t mount $w/$1.store " && basename "$p"; done | tail -1; }
one() { # CIPHER: prints seconds
    local c=$1 port=$((20000 + RANDOM % 10000)) s e
    mkdir -p "$w/a" "$w/b"
    "$t" init "$w/a.store" --name a --cipher "$c" --passfile "$w/pass" > /dev/null 2>&1
    "$t" mount "$w/a.store" "$w/a" -o "passfile=$w/pass,listen=127.0.0.1:$port"
    s=$(date +%s.%N)
    cp -a "$w/tree/." "$w/a/"; sync -f "$w/a"
    echo "  copied in $(echo "$(date +%s.%N) $s" | awk '{printf "%.2f", $1 - $2}') s" >&2
    "$t" invite "$w/a" --address "127.0.0.1:$port" | "$t" join - "$w/b.store" --name b --passfile "$w/pass" > /dev/null
    s=$(date +%s.%N)
    "$t" mount "$w/b.store" "$w/b" -o "passfile=$w/pass"
    until "$t" status "$w/b" > /dev/null && [ "$("$t" status "$w/a" --json | sed 's/.*"root":"\([0-9a-f]*\)".*/\1/')" = "$("$t" status "$w/b" --json | sed 's/.*"root":"\([0-9a-f]*\)".*/\1/')" ]; do sleep 0.05; done
    e=$(date +%s.%N)
    echo "  $c: $(echo "$e $s" | awk '{printf "%.2f", $1 - $2}') s, CPU a $(cpu "$(pid_of a)") b $(cpu "$(pid_of b)") s, memory a $(awk '/VmHWM/ {print int($2 / 1024)}' "/proc/$(pid_of a)/status") b $(awk '/VmHWM/ {print int($2 / 1024)}' "/proc/$(pid_of b)/status") MiB" >&2
    diff -rq "$w/tree" "$w/b" > /dev/null || { echo "trees differ" >&2; exit 1; }
    "$t" umount "$w/a"; "$t" umount "$w/b"; rm -rf "$w"/[ab].store
    echo "$e $s" | awk '{printf "%.3f\n", $1 - $2}'
}
cipher=${CIPHER:-xchacha20poly1305}
for _ in $(seq "$pairs"); do one "$cipher" >> "$w/sealed"; one none >> "$w/none"; done
median() { sort -n "$1" | awk '{a[NR] = $1} END {print a[int((NR + 1) / 2)]}'; }
spread() { sort -n "$1" | awk 'NR == 1 {a = $1} {b = $1} END {printf "%.2f to %.2f", a, b}'; }
echo "$cipher: median $(median "$w/sealed") s ($(spread "$w/sealed")); none: median $(median "$w/none") s ($(spread "$w/none")); ratio $(echo "$(median "$w/sealed") $(median "$w/none")" | awk '{printf "%.3f", $1 / $2}')"
if [ "${SYNCTHING:-0}" = 1 ] && command -v syncthing > /dev/null; then
    mkdir "$w/sa" "$w/sb"; cp -a "$w/tree/." "$w/sa/"
    st=$(EDITS=0 bash "$shared/measure/syncthing.sh" "$w/sa" "$w/sb" | sed -n 's/^initial_sync_s \([0-9.]*\).*/\1/p')
    echo "Syncthing on plain folders: $st s; twofold over it: $(echo "$(median "$w/sealed") $st" | awk '{printf "%.3f", $1 / $2}')"
fi
