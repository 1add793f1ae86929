# shellcheck shell=bash
# Sourced by the scenario scripts. Gives each a work folder of its own ($W), makes stores, mounts and peers in it, and takes all away at the end, also
# when the script fails: unmounts what it mounted, ends the processes it started, by id.
#
# TWOFOLD names the binary (default: build/src/cli/twofold of this tree). A script that cannot run says why: skip "reason" (exit 77).
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
TWOFOLD=${TWOFOLD:-$here/build/src/cli/twofold}
export TWOFOLD_ARGON2=${TWOFOLD_ARGON2:-1:8} # cheap key derivation: these tests unlock often
export LC_ALL=C.UTF-8
PATH=/usr/sbin:/usr/bin:/sbin:/bin:$PATH # the system's own tools first
W=$(mktemp -d "${TMPDIR:-/tmp}/twofold-scenario.XXXXXX")
PASS=$W/pass
printf 'correct horse battery\n' > "$PASS"
mounted=() pids=() netns=()
failures=0

skip() { echo "SKIP: $*"; exit 77; }
say() { echo "-- $*"; }
fail() { echo "FAILED: $*" >&2; failures=$((failures + 1)); }
die() { fail "$@"; exit 1; }
# check WHAT COMMAND...: runs it; a failure is counted and printed
check() { local what=$1; shift; "$@" || fail "$what"; }
equal() { [ "$2" = "$3" ] || fail "$1: expected '$3', got '$2'"; }
# code CODE COMMAND...: it must exit with this code
code() { local want=$1 got=0; shift; "$@" > "$W/out" 2> "$W/err" || got=$?; [ "$got" = "$want" ] || fail "exit $got instead of $want: $* ($(tail -1 "$W/err"))"; }

cleanup() {
    local rc=$? m p n i
    trap - EXIT
    cd /
    for m in "${mounted[@]}"; do
        for i in 1 2 3 4 5 6 7 8 9 10; do
            grep -q " $m fuse" /proc/self/mounts || break
            umount "$m" 2>/dev/null || { [ "$i" -ge 8 ] && umount -l "$m"; } || sleep 0.3
        done
    done
    for p in "${pids[@]}"; do kill "$p" 2>/dev/null; done
    for p in "${pids[@]}"; do
        for i in $(seq 500); do gone "$p" && break; sleep 0.01; done
        kill -9 "$p" 2>/dev/null
    done
    for n in "${netns[@]}"; do ip netns del "$n" 2>/dev/null; done
    # a daemon that was just unmounted may still commit
    for i in $(seq 50); do rm -rf "$W" 2>/dev/null && break; sleep 0.1; done
    [ "$rc" = 0 ] && [ "$failures" -gt 0 ] && rc=1
    exit "$rc"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

need_fuse() { [ -c /dev/fuse ] || skip "no /dev/fuse"; [ "$(id -u)" = 0 ] || skip "not root"; }
need() { local c; for c in "$@"; do command -v "$c" > /dev/null || skip "$c is not installed"; done; }

# init NAME [options]: a store $W/NAME.store of a new volume
init() { local n=$1; shift; "$TWOFOLD" init "$W/$n.store" --name "$n" --passfile "$PASS" "$@" > /dev/null || die "init $n"; }
# mnt NAME [OPTIONS]: mounts $W/NAME.store on $W/NAME. Tests delete as much as they like, so mass deletions are not held unless HOLD is set.
mnt() {
    local n=$1 o=${2:-}
    mkdir -p "$W/$n" 2>/dev/null
    "$TWOFOLD" mount "$W/$n.store" "$W/$n" -o "passfile=$PASS,allow_other,deletions=${HOLD:-apply}${o:+,$o}" || die "mount $n"
    mounted+=("$W/$n")
}
umnt() { "$TWOFOLD" umount "$W/$1" || die "umount $1"; }
# daemon_pid NAME: the process that serves the store, found by the lock that it holds
daemon_pid() {
    local p a found=
    for p in /proc/[0-9]*; do
        [ "$p/exe" -ef "$TWOFOLD" ] || continue
        mapfile -d '' -t a < "$p/cmdline"
        case " ${a[*]} " in *"$W/$1.store "*) found=${p#/proc/} ;; esac
    done 2> /dev/null
    [ -z "$found" ] || echo "$found"
}
# gone PID: it runs no more, though its parent may not have asked for it yet
gone() { local s; read -r s < "/proc/$1/stat" || return 0; case ${s##*) } in Z*) return 0 ;; esac; return 1; } 2> /dev/null
# kill9 NAME: ends its daemon at once and takes the dead mount away
kill9() {
    local p i; p=$(daemon_pid "$1"); [ -n "$p" ] || die "no daemon of $1"
    kill -9 "$p"
    for i in $(seq 500); do gone "$p" && break; sleep 0.01; done
    umount -l "$W/$1" 2>/dev/null
}
# below the range that outgoing connections take theirs from
port() { echo $((10000 + ($$ * 7 + $1) % 20000)); }
# pair A B [OPTIONS]: a volume on A, mounted and listening; B joins it, mounted. Both on loopback.
pair() {
    local a=$1 b=$2 o=${3:-} p t
    p=$(port 1)
    [ -d "$W/$a.store" ] || init "$a"
    mnt "$a" "listen=127.0.0.1:$p${o:+,$o}"
    t=$("$TWOFOLD" invite "$W/$a" --address "127.0.0.1:$p") || die "invite"
    echo "$t" | "$TWOFOLD" join - "$W/$b.store" --name "$b" --passfile "$PASS" > /dev/null || die "join"
    mnt "$b" "${o:+$o}"
}
# insync NAME...: waits until each has sent all to its connected peers, and all have the same tree root
insync() {
    local n i roots
    for i in $(seq "${INSYNC_TRIES:-300}"); do
        for n in "$@"; do "$TWOFOLD" sync "$W/$n" --timeout 60s 2> "$W/sync.err" || true; done
        roots=$(for n in "$@"; do root "$n"; done | sort -u | wc -l)
        [ "$roots" = 1 ] && return 0
        sleep 0.1
    done
    fail "not in step: $* ($(cat "$W/sync.err"))"
    return 1
}
root() { "$TWOFOLD" status "$W/$1" --json | sed 's/.*"root":"\([0-9a-f]*\)".*/\1/'; }
# counter NAME XATTR: a value of the mount's root
counter() { getfattr --only-values -n "user.twofold.$2" "$W/$1" 2>/dev/null; }
# listing DIR: all that must be equal on two replicas, one line an entry
listing() { (cd "$1" && find . -mindepth 1 -printf '%P %y %m %U %G %s %T@ %n %l\n' | sort; find . -mindepth 1 -print0 | sort -z | xargs -0r getfattr -h -d -m - -- 2>/dev/null | sed '/^# file: /!{/^$/d}'); }
# sound NAME...: `twofold check` finds nothing wrong: every page and record opens, and all add up to their roots
sound() { local n; for n in "$@"; do "$TWOFOLD" check "$W/$n" > "$W/check.out" 2>&1 || fail "check of $n: $(head -4 "$W/check.out" | tr '\n' ';')"; done; }
# same A B: identical trees in both mounts (and names, types, modes, owners, sizes, times, links, xattrs)
same() {
    # diff calls special files of one type different; the listings compare those
    diff -r --no-dereference "$W/$1" "$W/$2" 2>&1 | grep -Ev 'File .* is a (fifo|socket|(block|character) special file) while file .* is a \1$' > "$W/diff.out"
    [ ! -s "$W/diff.out" ] || { fail "contents of $1 and $2 differ: $(head -3 "$W/diff.out" | tr '\n' ';')"; return 1; }
    listing "$W/$1" > "$W/list.1"; listing "$W/$2" > "$W/list.2"
    diff "$W/list.1" "$W/list.2" > "$W/diff.out" || { fail "listings of $1 and $2 differ: $(head -4 "$W/diff.out" | tr '\n' ';')"; return 1; }
}
