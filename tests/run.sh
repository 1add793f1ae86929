#!/bin/sh
# run.sh: installs what the tests need, builds, and runs all of them, JOBS (default 2) at a time: unit tests plain and under AddressSanitizer + UBSan, the saved
# corpus of the fuzz targets, the scenarios on real mounts. Ends with one line: N passed, N failed, N skipped. Exit 1 where one failed. What takes longer is in tests/soak.sh.
set -eu
cd "$(dirname "$0")/.."
here=$(pwd)
sh examples/install-packages.sh attr acl rsync git sqlite3 python3 iproute2 xfsprogs mandoc scdoc libclang-rt-14-dev clang procps util-linux e2fsprogs chromium \
    debhelper dh-apparmor fakeroot lintian apparmor zsh fish fio systemd strace btrfs-progs
: "${JOBS:=2}"
[ -f build/build.ninja ] || meson setup build > /dev/null
[ -f build-asan/build.ninja ] || CC=clang meson setup build-asan -Db_sanitize=address,undefined -Db_lundef=false > /dev/null
ninja -C build -j "$JOBS" | tail -1
ninja -C build-asan -j "$JOBS" | tail -1
results=$(mktemp) list=$(mktemp)
trap 'rm -f "$results" "$list"' EXIT
export TWOFOLD="$here/build/src/cli/twofold"
tests_of() { meson introspect "$1" --tests | python3 -c 'import json, sys; print(*[t["name"] for t in json.load(sys.stdin)])'; }
# A line each: NAME, then the command.
for b in build build-asan; do
    case $b in build) how=plain ;; *) how=sanitized ;; esac
    for t in $(tests_of $b); do
        # man pages and the comparison with the model are not about memory errors: once is enough
        case $how:$t in sanitized:man_* | sanitized:histories* | sanitized:compare*) continue ;; esac
        echo "'$t ($how)' meson test -C $b --no-rebuild --print-errorlogs --logbase $t $t"
    done
done > "$list"
for s in tests/scenario/[0-9]*.sh; do echo "$(basename "$s" .sh) timeout 300 bash $s"; done >> "$list"
xargs -P "$JOBS" -L 1 sh tests/one.sh "$results" < "$list" || true
count() { grep -c "^$1 " "$results" || true; }
skipped=$(sed -n 's/^skipped / /p' "$results" | tr -d '\n')
[ -z "$skipped" ] || echo "skipped:$skipped"
[ "$(wc -l < "$results")" = "$(wc -l < "$list")" ] || { echo "$(wc -l < "$list") tests were to run, $(wc -l < "$results") ended"; echo "failed run.sh" >> "$results"; }
echo "$(count ok) passed, $(count failed) failed, $(count skipped) skipped"
[ "$(count failed)" = 0 ]
