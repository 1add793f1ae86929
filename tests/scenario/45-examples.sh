#!/bin/bash
# Goal: each of the walk-throughs in examples/ runs to its end, shows what it promises, and leaves no mount, network namespace, process or file behind; also when it
# is interrupted in the middle.
. "$(dirname "$0")/lib.sh"
need_fuse
need ip nsenter getfattr
ip netns add "twofold-probe-$$" 2> /dev/null || skip "no network namespaces here"
ip netns del "twofold-probe-$$"
export TWOFOLD
PORT=$(port 5); export PORT
mkdir "$W/tmp"
nothing_left() {
    equal "$1: mounts left" "$(grep -c " $W/tmp/.* fuse.twofold" /proc/self/mounts)" 0
    equal "$1: files left" "$(ls -A "$W/tmp")" ""
    equal "$1: namespaces left" "$(ip netns list | grep -cE 'twofold-(office|branch|home|laptop)-'"$2"'( |$)')" 0
    local q left=
    for q in /proc/[0-9]*; do
        if [ "$q/exe" -ef "$TWOFOLD" ] && grep -q "$W/tmp" "$q/cmdline" && ! gone "${q#/proc/}"; then left="$left ${q#/proc/}"; fi
    done 2> /dev/null
    equal "$1: processes left" "$left" ""
}
run() { # NAME PATTERN...: each pattern must be in what it prints
    local n=$1 w p; shift
    say "$n"
    TMPDIR=$W/tmp timeout 250 sh "$here/examples/$n" > "$W/out" 2>&1 < /dev/null & p=$!
    wait $p || fail "$n: exit $? ($(tail -3 "$W/out" | tr '\n' ';'))"
    for w in "$@"; do grep -qE -- "$w" "$W/out" || fail "$n does not show: $w"; done
    nothing_left "$n" '[0-9]*'
}
run two-hosts.sh '^branch reads: first draft$' 'lease\.signed$' 'lease\.conflict-.*:second draft, of the office$' '^kept; 1 other version removed' '^both hosts have: second draft, of the branch$'
run laptop-home-server.sh 'lacks [1-9][0-9]* file' '^\(exit code [1-9][0-9]*: not everything' '^the server has the same [0-9]+ files, and: written on the train$' 'refused|removed'
run restore.sh 'disconnected' '^written while there was one replica$' '^the same as before the loss: [0-9]+ lines' '^sound$'

say "interrupted"
TMPDIR=$W/tmp setsid sh "$here/examples/two-hosts.sh" > "$W/out" 2>&1 < /dev/null & p=$!
for i in $(seq 600); do grep -q '^joined as branch' "$W/out" && break; sleep 0.1; done
kill $p; wait $p; equal "exit code of an interrupted walk-through" $? 1
nothing_left "interrupted" "$p"
true
