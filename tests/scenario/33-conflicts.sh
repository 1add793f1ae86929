#!/bin/bash
# Goal: conflicts are settled with one command: the list names each copy and its file, keep leaves one version under the file's name, restore lets a copy and its
# file change names; all replicas follow, and programs here see it at once.
. "$(dirname "$0")/lib.sh"
need_fuse
pair a b
for i in 1 2 3 4; do echo base > "$W/a/f$i.txt"; done; mkdir "$W/a/d"; echo base > "$W/a/d/g"
insync a b
"$TWOFOLD" peer pause "$W/a" b || fail pause
for i in 1 2 3 4; do echo "a $i" > "$W/a/f$i.txt"; echo "b $i" > "$W/b/f$i.txt"; done
echo a > "$W/a/d/g"; echo b > "$W/b/d/g"
"$TWOFOLD" sync "$W/a" --timeout 1s 2> /dev/null; sync -f "$W/b"
"$TWOFOLD" peer resume "$W/a" b || fail resume
insync a b; same a b
"$TWOFOLD" conflicts "$W/a" > "$W/list"
equal "conflicts listed" "$(wc -l < "$W/list")" 5
code 0 "$TWOFOLD" check "$W/a"; code 0 "$TWOFOLD" check "$W/b" # a conflict is no damage
copy() { (cd "$W/a" && find . -name "$1.conflict-*" | sed 's,^./,,'); }
content() { cat "$W/$1/$2"; }

say "keep the copy"
c=$(copy f1); was=$(content a "$c"); content a f1.txt > /dev/null
"$TWOFOLD" conflicts "$W/a" keep "$W/a/$c" > /dev/null || fail "keep the copy"
equal "kept" "$(content a f1.txt)" "$was"; [ -e "$W/a/$c" ] && fail "the copy is still there"
say "keep the file"
was=$(content b f2.txt)
"$TWOFOLD" conflicts "$W/b" keep f2.txt | grep -q "1 other version removed" || fail "keep the file"
equal "kept" "$(content b f2.txt)" "$was"
say "restore"
c=$(copy f3); was=$(content a "$c") other=$(content a f3.txt)
"$TWOFOLD" conflicts "$W/a" restore "$c" > /dev/null || fail "restore"
equal "the file" "$(content a f3.txt)" "$was"; equal "the copy" "$(content a "$c")" "$other"
g=$(cd "$W/a" && ls d/g.conflict-*); was=$(content a "$g")
"$TWOFOLD" conflicts "$W/a" keep "$g" > /dev/null || fail "keep in a directory"
insync a b; same a b
equal "at the peer" "$(content b d/g)" "$was"
equal "at the peer" "$(content b f3.txt)" "$(content a f3.txt)"
"$TWOFOLD" conflicts "$W/b" | cut -f1 > "$W/list"
grep -q '^f4' "$W/list" || fail "f4 is not listed any more"
grep -q '^f[12]\.' "$W/list" && fail "settled conflicts are listed: $(cat "$W/list")"
code 1 "$TWOFOLD" conflicts "$W/a" keep f1.txt
code 1 "$TWOFOLD" conflicts "$W/a" restore nothing
code 2 "$TWOFOLD" conflicts "$W/a" keep
code 0 "$TWOFOLD" check "$W/a"; code 0 "$TWOFOLD" check "$W/b"
