#!/bin/bash
# suites.sh SUITE: one public filesystem suite against a mount of its own. Nothing is fetched: the suites are where the environment says, or installed as packages.
# Exit 77 where one is missing.
#   pjdfstest   PJDFSTEST=the folder with pjdfstest (built) and tests/
#   fsx         FSX=the program; SEEDS (default "1 2 3"), OPERATIONS (default 100000)
#   fsstress    FSSTRESS=the program; 8 processes
#   xfstests    XFSTESTS=the folder (built); the quick group of generic (or TESTS), EXCLUDE=tests to leave out
#   stress-ng   of the class filesystem, SECONDS_EACH (default 3) for each stressor that runs on the filesystem under /var/tmp
#   fio         verify=crc32c with fsync, mapped and past the cache
#   million     a million files (FILES) made, listed, mounted again, looked up cold; the process stays under 200 MiB
. "$(dirname "$0")/scenario/lib.sh"
need_fuse
A=$W/a
rss() { awk '/^VmRSS/ {print int($2 / 1024)}' "/proc/$(daemon_pid a)/status"; }
up() { init a; mnt a "${1:-}"; }
now() { date +%s%N; }
took() { echo "$1: $((($(now) - $2) / 1000000)) ms"; }
check_store() { umnt a; mnt a; check "reading all after a remount" eval 'find "$A" -type f -exec cat {} + > /dev/null'; umnt a; }

case ${1:-} in
pjdfstest)
    [ -x "${PJDFSTEST:-}/pjdfstest" ] || skip "PJDFSTEST does not name a built pjdfstest"
    need prove
    up; mkdir "$A/t"; cd "$A/t" || exit 1
    prove -rQ "$PJDFSTEST/tests" > "$W/prove" 2>&1 || fail "pjdfstest"
    tail -n 25 "$W/prove"
    cd /; umnt a ;;
fsx)
    [ -x "${FSX:-}" ] || skip "FSX does not name fsx"
    up
    for s in ${SEEDS:-1 2 3}; do
        check "fsx, seed $s" eval '"$FSX" -q -S "$s" -N "${OPERATIONS:-100000}" -l 600000 -o 90000 -P "$W" "$A/f$s" > "$W/fsx.log" 2>&1 || { tail -n 12 "$W/fsx.log"; false; }'
        sha256sum "$A/f$s"
    done | tee "$W/sums"
    grep ' /' "$W/sums" > "$W/sums.only"
    umnt a; mnt a; check "after a remount" sha256sum --quiet -c "$W/sums.only"; umnt a ;;
fsstress)
    [ -x "${FSSTRESS:-}" ] || skip "FSSTRESS does not name fsstress"
    up; mkdir "$A/s"
    check "fsstress" timeout 300 "$FSSTRESS" -d "$A/s" -p 8 -n "${OPERATIONS:-2000}" -s 1 > "$W/log"
    find "$A/s" -type f -exec sha256sum {} + | sort > "$W/before"
    wc -l < "$W/before"
    umnt a; mnt a
    find "$A/s" -type f -exec sha256sum {} + | sort | diff -q - "$W/before" || fail "contents after a remount"
    umnt a ;;
xfstests)
    [ -x "${XFSTESTS:-}/check" ] || skip "XFSTESTS does not name a built xfstests"
    mkdir "$W/test" "$W/scratch" "$W/bin"
    for s in test scratch; do init "$s"; done
    printf '#!/bin/sh\nexec "%s" mount "$@"\n' "$TWOFOLD" > "$W/bin/mount.fuse.twofold"; chmod 755 "$W/bin/mount.fuse.twofold"
    cat > "$W/config" <<C
export FSTYP=fuse FUSE_SUBTYP=.twofold PATH=$W/bin:$PATH
export TEST_DEV=$W/test.store TEST_DIR=$W/test SCRATCH_DEV=$W/scratch.store SCRATCH_MNT=$W/scratch RESULT_BASE=$W/results
export MOUNT_OPTIONS="-o passfile=$PASS,allow_other,deletions=apply" TEST_FS_MOUNT_OPTS="-o passfile=$PASS,allow_other,deletions=apply"
C
    # it knows this type as "fuse" alone, and unmounts by the source, which is a directory here
    printf '#!/bin/sh\n/usr/bin/df "$@" | sed "s/ fuse\\.twofold/ fuse        /"\n' > "$W/bin/df"
    cat > "$W/bin/umount" <<C
#!/bin/bash
a=("\${@/#${W//\//\\/}\\/test.store/$W/test}")
exec /usr/bin/umount "\${a[@]/#${W//\//\\/}\\/scratch.store/$W/scratch}"
C
    chmod 755 "$W/bin/df" "$W/bin/umount"
    export PATH=$W/bin:$PATH
    ln -s "$W/bin/mount.fuse.twofold" /sbin/mount.fuse.twofold 2> /dev/null && made=1
    mounted+=("$W/test" "$W/scratch")
    cd "$XFSTESTS" && HOST_OPTIONS=$W/config timeout "${LIMIT:-3000}" ./check ${TESTS:--g generic/quick} ${EXCLUDE:+-e "$EXCLUDE"} > "$W/log" 2>&1 || fail "xfstests"
    [ -z "${made:-}" ] || rm /sbin/mount.fuse.twofold
    grep -E '^(Ran|Not run|Failures|Failed)' "$W/log" ;;
stress-ng)
    need stress-ng
    up; mkdir "$A/s" "$W/plain"
    for s in $(stress-ng --class 'filesystem?' 2>&1 | sed 's/^.*stressors: *//'); do
        (cd "$W/plain" && timeout 60 stress-ng --"$s" 1 -t "${SECONDS_EACH:-3}" --temp-path "$W/plain") > "$W/log" 2>&1 || { echo "not here: $s"; continue; }
        (cd "$A/s" && timeout 90 stress-ng --"$s" 1 -t "${SECONDS_EACH:-3}" --temp-path "$A/s") > "$W/log" 2>&1 || { fail "stress-ng $s"; tail -n 4 "$W/log"; }
        rm -rf "$A/s"/*
    done
    check_store ;;
fio)
    need fio
    up
    for how in "sync --fsync=16" "mmap --fsync=16" "libaio --direct=1 --iodepth=16" "psync --direct=1"; do
        # shellcheck disable=SC2086
        check "fio, $how" fio --name=v --filename="$A/v" --ioengine=$how --rw=randwrite --bsrange=4k-64k --size="${SIZE:-64m}" --verify=crc32c --do_verify=1 --verify_fatal=1 --output="$W/log" --minimal
        rm -f "$A/v"
    done
    umnt a ;;
million)
    need python3
    up
    t=$(now)
    python3 - "$A" "${FILES:-1000000}" <<'P' || fail "making them"
import os, sys
for i in range(int(sys.argv[2])):
    if i % 1000 == 0: d = "%s/%d" % (sys.argv[1], i // 1000); os.mkdir(d)
    os.close(os.open("%s/f%d" % (d, i), os.O_CREAT | os.O_WRONLY))
P
    took "made" "$t"; t=$(now)
    equal "files listed" "$(find "$A" -type f | wc -l)" "${FILES:-1000000}"
    took "listed" "$t"; echo "RSS: $(rss) MiB"
    umnt a
    t=$(now); mnt a; ms=$((($(now) - t) / 1000000)); echo "mounted again: $ms ms"; [ "$ms" -lt 2000 ] || fail "mounting took $ms ms"
    t=$(now); check "a cold look-up" stat "$A/777/f777777" > /dev/null; took "a cold look-up" "$t"
    t=$(now); equal "listed cold, with stat" "$(find "$A" -type f -printf '%s\n' | wc -l)" "${FILES:-1000000}"; took "listed cold, with stat" "$t"
    m=$(rss); echo "RSS: $m MiB"; [ "$m" -lt 200 ] || fail "the process has $m MiB"
    umnt a ;;
*) echo "suites.sh pjdfstest|fsx|fsstress|xfstests|stress-ng|fio|million" >&2; exit 2 ;;
esac
