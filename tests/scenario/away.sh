#!/bin/bash
# Goal: a peer that was away comes back after CHANGES (1000) changes among FILES (100000) files: bytes are in proportion to the changes, and the transfer starts within a second.
# Not one of run.sh's scenarios: making the files takes a minute or more. soak.sh frugal runs it.
. "$(dirname "$0")/lib.sh"
need_fuse
need python3 getfattr
files=${FILES:-100000} changes=${CHANGES:-1000}
pair a b
python3 -c "
import os
for d in range($files // 1000):
    os.mkdir('$W/a/d%d' % d)
    for i in range(1000): open('$W/a/d%d/f%d' % (d, i), 'w').write('file %d of %d\n' % (i, d))"
INSYNC_TRIES=3000 insync a b
umnt b
python3 -c "
import random
random.seed(7)
for n in range($changes): open('$W/a/d%d/f%d' % (random.randrange($files // 1000), random.randrange(1000)), 'a').write('changed\n')"
sync -f "$W/a"; sleep 1.5
c0=$(counter a bytes.wire-sent)
mnt b
mounted_ns=$(date +%s%N) first_ns=0
for i in $(seq 3000); do
    now=$(date +%s%N)
    c=$(($(counter a bytes.wire-sent) - c0))
    # a greeting is below 2 KiB
    [ "$first_ns" = 0 ] && [ "$c" -gt 8192 ] && first_ns=$now
    [ "$(root a)" = "$(root b)" ] && break
    sleep 0.02
done
done_ns=$(date +%s%N)
insync a b
c=$(($(counter a bytes.wire-sent) - c0))
[ "$first_ns" != 0 ] || first_ns=$done_ns
say "$changes changes among $files files: $c bytes sent, $((c / changes)) a change; the first of them $(((first_ns - mounted_ns) / 1000000)) ms after the mount, all after $(((done_ns - mounted_ns) / 1000000)) ms"
[ "$c" -le $((changes * 2048)) ] || fail "$c bytes for $changes changes"
[ $((first_ns - mounted_ns)) -le 1000000000 ] || fail "the transfer started late"
same a b
