#!/bin/bash
# Goal: a token works once, in time, for its volume; what is refused is refused by name and leaves nothing half-made; a removed replica is turned away and says why.
. "$(dirname "$0")/lib.sh"
need_fuse
t=$TWOFOLD
p=$(port 1)
init a
mnt a "listen=127.0.0.1:$p"
echo one > "$W/a/one"
invite() { "$t" invite "$W/a" --address "127.0.0.1:$p" "$@" || die "invite"; }
join() { local token=$1 n=$2; shift 2; echo "$token" | "$t" join - "$W/$n.store" --passfile "$PASS" "$@"; }
refused() { # CODE WHAT TOKEN STORE WORDS [options]
    local want=$1 what=$2 token=$3 n=$4 words=$5 got=0; shift 5
    join "$token" "$n" "$@" > "$W/out" 2> "$W/err" || got=$?
    equal "exit of $what" "$got" "$want"
    grep -qi -- "$words" "$W/err" || fail "$what: the message does not say '$words': $(cat "$W/err")"
    test ! -e "$W/$n.store" || fail "$what left a store"
}

say "tokens"
token=$(invite)
refused 2 "no token" "hello" x "not a token" --name x
refused 2 "half a token" "${token:0:60}" x "incomplete" --name x
refused 1 "a taken name" "$token" x "replica name" --name a
join "$token" b --name b > "$W/out" || die "join after a refused name: the token must still be good"
grep -q 'joined as b' "$W/out" || fail "join does not say what it did"
refused 6 "a used token" "$token" x "used up" --name x
short=$(invite --expires 1s); sleep 1.5
refused 6 "an expired token" "$short" x "expired" --name x
token2=$(invite)
refused 1 "a member's name" "$token2" x "b" --name b
mkdir "$W/full.store"; echo keep > "$W/full.store/keep"
code 1 join "$token2" full --name full
equal "the folder's content" "$(cat "$W/full.store/keep")" keep
for text in "$token" "$token2"; do grep -rqF "${text#twofold1:}" "$W/a.store" && fail "the store holds a token in the clear"; done

say "nobody listens"
umnt a
refused 6 "nobody there" "$token2" x "reach" --name x

say "another volume at the address"
init z
mnt z "listen=127.0.0.1:$p"
refused 6 "another store there" "$token2" x "" --name x
mnt b
for i in $(seq 50); do "$t" status "$W/b" > "$W/out" 2>&1; grep -q 'last error' "$W/out" && break; sleep 0.1; done
grep -qi 'last error.*volume' "$W/out" || fail "status does not name the wrong volume: $(cat "$W/out")"
test ! -e "$W/z/one" || fail "a file came from a foreign volume"
echo own > "$W/z/own"; sleep 0.5
test ! -e "$W/b/own" || fail "a file went to a foreign volume"
umnt z

say "the right one again"
mnt a "listen=127.0.0.1:$p"
insync a b
same a b

say "pause, resume"
code 0 "$t" peer pause "$W/a" b
echo two > "$W/a/two"; sleep 0.6
test ! -e "$W/b/two" || fail "a paused peering carried a file"
code 0 "$t" peer list "$W/a"; grep -q paused "$W/out" || fail "peer list does not say paused"
code 0 "$t" peer resume "$W/a" b
insync a b
same a b

say "a removed replica"
code 1 "$t" peer remove "$W/a" nobody
code 0 "$t" peer remove "$W/a" b
echo three > "$W/a/three"
for i in $(seq 50); do "$t" peer list "$W/b" > "$W/out"; grep -q refused "$W/out" && break; sleep 0.2; done
grep -q 'refused.*removed' "$W/out" || fail "the removed replica does not say why: $(cat "$W/out")"
test ! -e "$W/b/three" || fail "a removed replica got a file"
umnt b; mnt b; sleep 1
test ! -e "$W/b/three" || fail "a removed replica got a file after a remount"
join "$(invite)" c --name c > "$W/out" || fail "a new join after a removal"
mnt c
insync a c
same a c
equal "old and new replica" "$(cat "$W/b/one" "$W/c/three" | tr '\n' ' ')" "one three "
