#!/bin/bash
# Goal: the README's first command runs to its end, shows what it promises, and leaves nothing behind.
. "$(dirname "$0")/lib.sh"
need_fuse
(cd "$here" && TMPDIR=$W sh examples/quickstart.sh) > "$W/out" 2>&1 || { tail -20 "$W/out"; die "quickstart"; }
for want in 'copied [0-9]* files' 'both mounts show the same' 'in office.store: neither' 'in branch.store: neither' 'and branch has it' 'from the branch' 'user.twofold.op.write='; do
    grep -q "$want" "$W/out" || fail "the quickstart does not show: $want"
done
grown=$(sed -n 's/.*wire-sent grew by \([0-9]*\) bytes/\1/p' "$W/out")
[ "$grown" -gt 0 ] && [ "$grown" -lt 32768 ] || fail "an edit of 100 bytes sent $grown bytes"
equal "mounts left" "$(grep -c " $W/.* fuse.twofold" /proc/self/mounts)" 0
equal "folders left" "$(find "$W" -maxdepth 1 -name 'twofold-quickstart*' | wc -l)" 0
