#!/bin/bash
# Goal: a replica that deletes most of a volume does not take it from the others: past half of the names further deletions are held, status says so, everything else goes on;
# one command, at one replica, undoes what is held on all replicas, or carries it out on all; what is held outlives a restart.
. "$(dirname "$0")/lib.sh"
need_fuse
HOLD=hold
p=$(port 1)
init a
mnt a "listen=127.0.0.1:$p"
for n in b c; do
    "$TWOFOLD" invite "$W/a" --address "127.0.0.1:$p" | "$TWOFOLD" join - "$W/$n.store" --name "$n" --passfile "$PASS" > /dev/null || die "join $n"
    mnt $n
done
names() { find "$W/$1" -name 'f*' -type f | wc -l; }
held() { "$TWOFOLD" status "$W/$1" --json | sed 's/.*"held_deletions":\([0-9]*\).*/\1/'; }
synced() { local n; for n in "$@"; do "$TWOFOLD" sync "$W/$n" --timeout 60s || fail "sync $n"; done; for n in "$@"; do "$TWOFOLD" sync "$W/$n" --timeout 60s || fail "sync $n"; done; }
fill() { local i; mkdir -p "$W/a/sub"; for i in $(seq 100); do echo "content $i" > "$W/a/f$i"; head -c 9000 /dev/zero > "$W/a/sub/f$i"; done; }
fill
insync a b c

say "few deletions go through"
rm "$W"/a/f1 "$W"/a/f2; synced a b c
equal "names at b" "$(names b)" 198
equal "held at b" "$(held b)" 0

say "most are held"
find "$W/a" -name 'f*' -delete; rmdir "$W/a/sub"; echo goes on > "$W/a/other"
synced a b c
for n in b c; do
    left=$(names $n)
    [ "$left" -ge 90 ] && [ "$left" -le 110 ] || fail "$left names are left at $n"
    [ "$(held $n)" -ge 90 ] || fail "held at $n: $(held $n)"
    equal "a new file at $n" "$(cat "$W/$n/other")" "goes on"
done
"$TWOFOLD" status "$W/b" > "$W/status" && fail "status calls this in step"
grep -q "deletions from peers are held" "$W/status" || fail "status does not say it"
one=$(find "$W/b" -name 'f*' -type f | head -1); size=$(stat -c %s "$one")
equal "held files can be read" "$(wc -c < "$one")" "$size"
umnt b; mnt b
[ "$(held b)" -ge 90 ] || fail "what is held is forgotten by a restart"

say "undone at one, for all"
left=$(names b)
"$TWOFOLD" deletions "$W/b" undo | grep -q undone || fail "undo"
insync a b c; same a b; same b c
equal "names at a" "$(names a)" "$left"
equal "held at c" "$(held c)" 0
equal "one of them at a" "$(cmp "${one/#$W\/b/$W\/a}" "$one" && echo same)" same

say "carried out at one, for all"
fill; insync a b c
find "$W/a" -name 'f*' -delete
synced a b c
[ "$(held b)" -gt 0 ] && [ "$(held c)" -gt 0 ] || fail "nothing is held: $(held b) $(held c)"
"$TWOFOLD" deletions "$W/c" accept > /dev/null || fail "accept"
insync a b c; same a b; same b c
equal "names at b" "$(names b)" 0
equal "held at b" "$(held b)" 0
code 1 "$TWOFOLD" deletions "$W/b" accept
