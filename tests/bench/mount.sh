#!/bin/bash
# mount.sh: the mount beside a plain directory and, where they are installed, gocryptfs and libfuse's passthrough_ll: the same work on each in one run, in
# turn, as one table of medians and ratios. See --help.
set -u
usage() {
    cat <<'EOF'
usage: tests/bench/mount.sh [-d DIR] [-s MIB] [-t SECONDS] [-r ROUNDS] [-c CIPHER] [-T TREE] [-f "FS..."] [-w "ROWS..."]
  -d DIR      where stores and mounts lie (default /dev/shm: the disk is out of the way)
  -s MIB      size of the large file (default 256)
  -t SECONDS  of each random test (default 3; 0: none)
  -r ROUNDS   each filesystem in turn, so often (default 1); medians are shown, and the spread of more than one
  -c CIPHER   of the volume (default xchacha20poly1305)
  -T TREE     the folder that is packed, unpacked, listed, read and removed (default /usr/include)
  -f "FS..."  of: plain twofold none gocryptfs passthrough (default: all that are there; none: twofold --cipher none)
  -w "ROWS..." seq rand tree sync (default: all)
TWOFOLD names the binary, PASSTHROUGH that of libfuse's example passthrough_ll. Random tests need fio. What it costs beside the time is counted too: processor
seconds of the daemon for each GiB written and read. `twofold bench disk` and `sql` compare sealed and unsealed on a disk.
EOF
}
here=$(cd "$(dirname "$0")/../.." && pwd)
t=${TWOFOLD:-$here/build/src/cli/twofold}
dir=/dev/shm size=256 seconds=3 rounds=1 cipher=xchacha20poly1305 tree=/usr/include fs_list= rows="seq rand tree sync"
case ${1:-} in --help | -h) usage; exit 0 ;; esac
while getopts d:s:t:r:c:T:f:w: o; do
    case $o in
    d) dir=$OPTARG ;; s) size=$OPTARG ;; t) seconds=$OPTARG ;; r) rounds=$OPTARG ;; c) cipher=$OPTARG ;;
    T) tree=$OPTARG ;; f) fs_list=$OPTARG ;; w) rows=$OPTARG ;; *) usage >&2; exit 2 ;;
    esac
done
[ -x "$t" ] || { echo "mount.sh: $t is not there: build first, or name it with TWOFOLD" >&2; exit 1; }
passthrough=${PASSTHROUGH:-$(command -v passthrough_ll)}
if [ -z "$fs_list" ]; then
    fs_list="plain twofold"
    command -v gocryptfs > /dev/null && fs_list="$fs_list gocryptfs"
    [ -n "$passthrough" ] && fs_list="$fs_list passthrough"
fi
command -v fio > /dev/null || seconds=0
export TWOFOLD_ARGON2=1:8
w=$(mktemp -d "$dir/twofold-bench.XXXXXX") || exit 1
mnt=$w/mnt back=$w/back pid=
end() { mountpoint -q "$mnt" && umount -l "$mnt"; rm -rf "$w"; }
trap end EXIT
trap 'exit 1' INT TERM
echo passphrase > "$w/pass"
tar -cf "$w/tree.tar" -C "$tree" . || exit 1
entries=$(tar -tf "$w/tree.tar" | wc -l)

up() {
    case $fs in
    plain) pid=; return ;;
    twofold | none) "$t" mount "$back" "$mnt" -o "passfile=$w/pass" ;;
    gocryptfs) gocryptfs -q -nosyslog -passfile "$w/pass" "$back" "$mnt" > /dev/null 2>&1 ;;
    passthrough) "$passthrough" -o "source=$back,cache=always,writeback,max_idle_threads=10" "$mnt" ;;
    esac
    for _ in $(seq 100); do mountpoint -q "$mnt" && break; sleep .05; done
    mountpoint -q "$mnt" || { echo "mount.sh: no mount of $fs" >&2; return 1; }
    pid=
    for p in /proc/[0-9]*; do # the daemon names the folder and is not one of ours
        [ "${p#/proc/}" = $$ ] || ! { tr '\0' ' ' < "$p/cmdline"; } 2> /dev/null | grep -q "$w/back.* $w/mnt" || pid=${p#/proc/}
    done
}
down() {
    [ "$fs" = plain ] && return
    umount "$mnt"
    for _ in $(seq 500); do [ -n "$pid" ] && kill -0 "$pid" 2> /dev/null || break; sleep .02; done
}
fresh() {
    rm -rf "$back" "$mnt"
    mkdir "$back" "$mnt"
    case $fs in
    twofold) "$t" init "$back" --name bench --cipher "$cipher" --passfile "$w/pass" > /dev/null ;;
    none) "$t" init "$back" --name bench --cipher none --passfile "$w/pass" > /dev/null 2>&1 ;;
    gocryptfs) gocryptfs -init -q -nosyslog -passfile "$w/pass" "$back" > /dev/null 2>&1 ;;
    esac
    up
}
remount() { sync -f "$mnt"; down; up; }
cpu() { [ -n "$pid" ] && awk '{print ($14 + $15) / 100}' "/proc/$pid/stat" 2> /dev/null || echo 0; }
say() { printf '%s\t%s\t%s\n' "$fs" "$1" "$2" >> "$w/results"; } # ROW VALUE
# seconds COMMAND: what it took, in $took; processor seconds of the daemon in $used
seconds_of() {
    local c s=$EPOCHREALTIME
    c=$(cpu)
    "$@" > /dev/null
    took=$(awk -v a="$s" -v b="$EPOCHREALTIME" 'BEGIN {printf "%.4f", b - a}')
    used=$(awk -v a="$c" -v b="$(cpu)" 'BEGIN {printf "%.2f", b - a}')
}
rate() { awk -v n="$1" -v s="$2" 'BEGIN {printf "%.1f", n / s}'; }
per_gib() { say "$1" "$(awk -v c="$used" -v m="$size" 'BEGIN {printf "%.2f", c * 1024 / m}')"; }
random() { # FIELD OPTION...: of fio's terse output
    local field=$1; shift
    fio --name=j --filename="$mnt/large" --size="${size}M" --time_based --runtime="$seconds" --ioengine=psync --group_reporting --output-format=terse \
        --terse-version=3 "$@" 2> /dev/null | cut -d';' -f"$field"
}
mib() { awk '{printf "%.1f", $1 / 1024}'; }
wants() { case " $rows " in *" $1 "*) return 0 ;; *) return 1 ;; esac; }

large_file() {
    seconds_of dd if=/dev/zero of="$mnt/large" bs=1M count="$size" conv=fdatasync status=none
    wants seq && say "sequential write 1 MiB + fdatasync, MiB/s" "$(rate "$size" "$took")" && per_gib "  processor seconds a GiB written"
    remount
    if wants seq; then
        seconds_of dd if="$mnt/large" of=/dev/null bs=1M status=none
        say "sequential read after remount, MiB/s" "$(rate "$size" "$took")"
        per_gib "  processor seconds a GiB read"
        remount
    fi
    if wants rand && [ "$seconds" -gt 0 ]; then
        say "random read 4 KiB, IOPS" "$(random 8 --rw=randread --bs=4k)"
        remount
        say "random read 128 KiB, 16 threads, MiB/s" "$(random 7 --rw=randread --bs=128k --numjobs=16 --thread | mib)"
        remount
        say "random write 4 KiB + final fsync, IOPS" "$(random 49 --rw=randwrite --bs=4k --end_fsync=1)"
        say "random write 4 KiB, fsync each, IOPS" "$(random 49 --rw=randwrite --bs=4k --fsync=1)"
        say "random write 128 KiB, 16 threads, MiB/s" "$(random 48 --rw=randwrite --bs=128k --numjobs=16 --thread --end_fsync=1 | mib)"
    fi
    rm -f "$mnt/large"
}
small_files() {
    mkdir "$mnt/tree"
    seconds_of sh -c 'tar -xf "$1" -C "$2" && sync -f "$2"' - "$w/tree.tar" "$mnt/tree"
    say "untar + sync, s" "$took"
    remount
    seconds_of find "$mnt/tree" -type f -size +1k
    say "find with stat, cold, s" "$took"
    seconds_of sh -c 'tar -cf - -C "$1" . | cat' - "$mnt/tree"
    say "tar of it, s" "$took"
    seconds_of rm -rf "$mnt/tree"
    say "rm -r, s" "$took"
    seconds_of cp -a "$tree" "$mnt/copy"
    say "cp -a into it, s" "$took"
}
create_sync() { for i in $(seq 200); do printf x > "$mnt/f$i"; sync "$mnt/f$i"; done; }

for r in $(seq "$rounds"); do
    for fs in $fs_list; do
        fresh || continue
        { wants seq || wants rand; } && large_file
        wants tree && small_files
        if wants sync; then
            seconds_of create_sync
            say "create + fsync, files/s" "$(rate 200 "$took")"
        fi
        down
    done
    fs_list="${fs_list#* } ${fs_list%% *}" # another one begins the next round
done

echo "in $dir, file of $size MiB, $entries entries of $tree, cipher $cipher, rounds: $rounds, $(nproc) cores, Linux $(uname -r); load $(cut -d' ' -f1-3 /proc/loadavg)"
awk -F '\t' -v fs="$(echo "$fs_list" | xargs -n1 | sort -r | xargs)" '
function median(key,   n, i, j, x, a) {
    n = count[key]
    for (i = 1; i <= n; i++) a[i] = value[key, i]
    for (i = 2; i <= n; i++) { x = a[i]; for (j = i - 1; j > 0 && a[j] > x; j--) a[j + 1] = a[j]; a[j + 1] = x }
    if (n) { low = a[1]; high = a[n] }
    return n ? (a[int((n + 1) / 2)] + a[int((n + 2) / 2)]) / 2 : 0
}
{
    key = $1 SUBSEP $2
    value[key, ++count[key]] = $3 + 0
    if (!($2 in seen)) { seen[$2] = 1; row[++rows] = $2 }
}
END {
    n = split(fs, f, " ")
    printf "%-44s", ""
    for (i = 1; i <= n; i++) printf "%22s", f[i]
    for (i = 1; i <= n; i++) if (f[i] != "twofold") printf "%16s", "x " f[i]
    print ""
    for (k = 1; k <= rows; k++) {
        printf "%-44s", row[k]
        ours = 0
        for (i = 1; i <= n; i++) {
            m[i] = median(f[i] SUBSEP row[k])
            if (f[i] == "twofold") ours = m[i]
            printf "%22s", (count[f[i] SUBSEP row[k]] > 1 ? sprintf("%.5g (%.5g-%.5g)", m[i], low, high) : sprintf("%.5g", m[i]))
        }
        # a ratio above 1: twofold does more of it in a second, or takes less time
        for (i = 1; i <= n; i++) if (f[i] != "twofold")
            printf "%16s", (!ours || !m[i] ? "-" : sprintf("%.2f", row[k] ~ /, s$|seconds/ ? m[i] / ours : ours / m[i]))
        print ""
    }
    print "x NAME: twofold against NAME; above 1 it does more in the same time, or the same in less"
}' "$w/results"
