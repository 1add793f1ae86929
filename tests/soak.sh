#!/bin/sh
# soak.sh [PART...]: what takes longer than tests/run.sh may: the scenarios against a binary with AddressSanitizer and UBSan, unit tests under
# ThreadSanitizer, minutes of fuzzing for each target, many seeds of the simulation, 50 rounds of kill -9 on either side, a minute without a link, 100 power cuts, churn, real programs, public suites, a million files,
# what changes cost on the wire at full size.
# Parts: asan tsan fuzz sim kill power churn programs suites million frugal (default: all). What `suites` needs, and where it looks for it: tests/suites.sh.
# MINUTES: of fuzzing for each target (default 2). SEEDS: how many of the simulation, from FIRST on (default 5000 from 20000). Ends with one line: N passed, N failed.
set -eu
cd "$(dirname "$0")/.."
here=$(pwd)
sh examples/install-packages.sh attr acl rsync git sqlite3 python3 iproute2 xfsprogs mandoc libclang-rt-14-dev clang
[ -f build/build.ninja ] || meson setup build > /dev/null
ninja -C build -j 2 | tail -1
parts=${*:-asan tsan fuzz sim kill power churn programs suites million frugal}
results=$(mktemp)
trap 'rm -f "$results"' EXIT
count() { sh tests/one.sh "$results" "$@"; } # NAME COMMAND...
ended() { grep -c "^$1 " "$results" || true; }
setup() { # FOLDER OPTIONS...
    dir=$1; shift
    [ -f "$dir/build.ninja" ] || CC=clang meson setup "$dir" -Db_lundef=false "$@" > /dev/null
    ninja -C "$dir" -j 2 | tail -1
}
for part in $parts; do
    case $part in
    asan)
        setup build-asan -Db_sanitize=address,undefined
        for s in tests/scenario/[0-9]*.sh; do
            case $s in *quickstart* | *install* | *debian*) continue ;; esac
            count "$(basename "$s" .sh) (sanitized)" env TWOFOLD="$here/build-asan/src/cli/twofold" UBSAN_OPTIONS=halt_on_error=1 MOUNT_LIMIT=30000 timeout 1500 bash "$s"
        done ;;
    tsan)
        setup build-tsan -Db_sanitize=thread
        for t in $(meson introspect build-tsan --tests | python3 -c 'import json, sys; print(*[t["name"] for t in json.load(sys.stdin) if any("unit" in x for x in t["suite"])])'); do
            count "$t (thread sanitizer)" meson test -C build-tsan --no-rebuild --print-errorlogs -t 10 "$t"
        done
        for s in 10-mount 20-replicate; do
            for f in tests/scenario/$s*.sh; do [ -e "$f" ] && count "$(basename "$f" .sh) (thread sanitizer)" env TWOFOLD="$here/build-tsan/src/cli/twofold" TSAN_OPTIONS=halt_on_error=1 timeout 1800 bash "$f"; done
        done ;;
    fuzz)
        setup build-fuzz -Db_sanitize=address,undefined -Dfuzz=true
        for f in build-fuzz/tests/fuzz_*; do
            case $f in *.p) continue ;; esac
            n=$(basename "$f"); d=$(mktemp -d)
            count "$n" "$f" -max_total_time=$((60 * ${MINUTES:-2})) -timeout=20 -rss_limit_mb=2048 -artifact_prefix="$d/" "$d" "tests/corpus/${n#fuzz_}"
            find "$d" -name 'crash-*' -o -name 'leak-*' -o -name 'timeout-*' | head -3
            rm -rf "$d"
        done ;;
    sim)
        count "simulation, ${SEEDS:-5000} seeds" build/tests/sim -s "${FIRST:-20000}" -n "${SEEDS:-5000}" -o 150 ;;
    kill)
        count "kill -9 of the writer, 50 rounds" env TWOFOLD="$here/build/src/cli/twofold" KILLS=50 timeout 1800 bash tests/scenario/13-durability.sh
        count "kill -9 of either side, 50 rounds" env TWOFOLD="$here/build/src/cli/twofold" KILLS=50 timeout 1800 bash tests/scenario/22-kill.sh
        count "a minute without a link" env TWOFOLD="$here/build/src/cli/twofold" DOWN=60 timeout 600 bash tests/scenario/21-partition.sh ;;
    churn) for n in $(seq 201 230); do count "churn, seed $n" env TWOFOLD="$here/build/src/cli/twofold" CHURN_SEED=$n timeout 300 bash tests/scenario/churn.sh; done ;;
    power) count "power cuts, 100 images" env TWOFOLD="$here/build/src/cli/twofold" IMAGES=100 timeout 1800 bash tests/scenario/50-powercut.sh ;;
    programs) count "real programs" env TWOFOLD="$here/build/src/cli/twofold" timeout 1800 bash tests/scenario/programs.sh ;;
    suites) for s in pjdfstest fsx fsstress xfstests stress-ng fio; do count "$s" env TWOFOLD="$here/build/src/cli/twofold" timeout 3600 bash tests/suites.sh "$s"; done ;;
    million) count "a million files" env TWOFOLD="$here/build/src/cli/twofold" timeout 3600 bash tests/suites.sh million ;;
    frugal)
        count "bytes on the wire, full size" env TWOFOLD="$here/build/src/cli/twofold" FULL=1 timeout 900 bash tests/scenario/25-frugal.sh
        count "back with 1,000 changes among 100,000 files" env TWOFOLD="$here/build/src/cli/twofold" timeout 1800 bash tests/scenario/away.sh ;;
    *) echo "no such part: $part" >&2; exit 2 ;;
    esac
done
echo "$(ended ok) passed, $(ended failed) failed"
[ "$(ended failed)" = 0 ]
