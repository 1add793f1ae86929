#!/bin/bash
# Goal: a store that was put back from a backup, or copied, is noticed at its first contact, takes a new identity, says so, and catches up: edits made in it since, edits
# made in the original since, and everything that others made are all there afterwards, on all replicas alike, with no conflict where none was.
. "$(dirname "$0")/lib.sh"
need_fuse
need rsync
p=$(port 1) q=$(port 2)
conflicts() { find "$W/$1" -name '*.conflict-*' | wc -l; }
replica() { "$TWOFOLD" status "$W/$1" --json | sed 's/.*"replica":"\([0-9a-f]*\)","name":"\([^"]*\)","cipher".*/\1 \2/'; }
init b
mnt b "listen=127.0.0.1:$p"
"$TWOFOLD" invite "$W/b" --address "127.0.0.1:$p" | "$TWOFOLD" join - "$W/a.store" --name a --passfile "$PASS" > /dev/null || die "join a"
"$TWOFOLD" invite "$W/b" --address "127.0.0.1:$p" | "$TWOFOLD" join - "$W/c.store" --name c --passfile "$PASS" > /dev/null || die "join c"
mnt a "listen=127.0.0.1:$q"
mnt c
mkdir "$W/a/dir"; for i in $(seq 20); do echo "old $i" > "$W/a/dir/f$i"; done
head -c 300000 /dev/urandom > "$W/a/dir/big"
insync a b c

say "a backup is put back, nothing done in it"
umnt a; cp -a "$W/a.store" "$W/backup"; mnt a "listen=127.0.0.1:$q"
echo "after the backup" > "$W/a/dir/f1"; rm "$W/a/dir/f2"; echo new > "$W/a/new-1"; mv "$W/a/dir/f3" "$W/a/moved"
insync a b c
umnt a; rm -rf "$W/a.store"; cp -a "$W/backup" "$W/a.store"
before=$(replica a 2>/dev/null || true)
mnt a "listen=127.0.0.1:$q"
insync a b c; same a b; same b c
equal "conflicts" "$(conflicts a)" 0
equal "the edit after the backup" "$(cat "$W/a/dir/f1")" "after the backup"
[ -e "$W/a/dir/f2" ] && fail "what was deleted after the backup is back"
[ -e "$W/a/moved" ] || fail "what was moved after the backup is not there"
read -r id name < <(replica a)
case $name in a-????) ;; *) fail "it goes on as '$name'" ;; esac
"$TWOFOLD" peer list "$W/b" | grep -q "$name" || fail "the new replica is no peer of b"

say "a backup is put back, and worked in before the first contact"
umnt a; rm -rf "$W/backup"; cp -a "$W/a.store" "$W/backup"; mnt a "listen=127.0.0.1:$q"
echo "lost otherwise" > "$W/a/dir/f4"; echo 1 > "$W/a/new-2"; mkdir "$W/a/dir2"; echo x > "$W/a/dir2/x"; rm "$W/a/dir/f5"
printf 'PATCH' | dd of="$W/a/dir/big" conv=notrunc bs=1 seek=100000 status=none
insync a b c
umnt a; rm -rf "$W/a.store"; cp -a "$W/backup" "$W/a.store"
umnt b; umnt c
mnt a "listen=127.0.0.1:$q"
echo "in the restored one" > "$W/a/dir/f6"; echo 2 > "$W/a/new-3"; mkdir "$W/a/dir3"; mv "$W/a/dir/f7" "$W/a/dir3/f7"; rm "$W/a/dir/f8"; chmod 600 "$W/a/dir/f9"
echo "both" > "$W/a/dir/f4"
ln "$W/a/dir/f10" "$W/a/dir3/hard"; ln -s target "$W/a/link"; for i in 1 2 3 4 5; do echo "more $i" > "$W/a/more-$i"; done
mnt b "listen=127.0.0.1:$p"; mnt c
insync a b c; same a b; same b c
equal "an edit of the original" "$(cat "$W/b/new-2")" 1
equal "an edit of the restored one" "$(cat "$W/b/dir/f6")" "in the restored one"
equal "its new file" "$(cat "$W/c/new-3")" 2
[ -e "$W/b/dir/f5" ] && fail "a deletion of the original is undone"
[ -e "$W/b/dir/f8" ] && fail "a deletion of the restored one is undone"
equal "its move" "$(cat "$W/b/dir3/f7")" "old 7"
equal "its chmod" "$(stat -c %a "$W/c/dir/f9")" 600
[ "$(dd if="$W/a/dir/big" bs=1 skip=100000 count=5 status=none)" = PATCH ] || fail "the original's change of the large file is lost"
equal "conflicts: only the file that both changed" "$(conflicts b)" 1
cat "$W/b/dir/f4" "$W"/b/dir/f4.conflict-* | sort | tr '\n' ';' | grep -q '^both;lost otherwise;$' || fail "an edit of f4 is lost"

say "a copy runs beside the original"
umnt a; cp -a "$W/a.store" "$W/d.store"
mnt a "listen=127.0.0.1:$q"
insync a b c
echo "of the original" > "$W/a/copied-1"; echo o > "$W/a/o"
insync a b c
mnt d
echo "of the copy" > "$W/d/copied-2"; echo d > "$W/d/dir/f12"
for i in $(seq 300); do [ -e "$W/b/copied-2" ] && [ -e "$W/d/copied-1" ] && break; sleep 0.1; done
insync a b c d; same a b; same b c; same c d
equal "the original's" "$(cat "$W/d/copied-1")" "of the original"
equal "the copy's" "$(cat "$W/a/copied-2")" "of the copy"
equal "the copy's edit" "$(cat "$W/a/dir/f12")" d
equal "no new conflict" "$(conflicts a)" 1
[ "$(replica a)" != "$(replica d)" ] || fail "two stores of one identity"
for n in a b c d; do umnt $n; done
for n in a b c d; do "$TWOFOLD" status "$W/$n.store" --passfile "$PASS" --json > /dev/null; done
mnt b "listen=127.0.0.1:$p"; mnt a "listen=127.0.0.1:$q"; mnt c; mnt d
echo end > "$W/d/end"; insync a b c d; same a b; same c d
