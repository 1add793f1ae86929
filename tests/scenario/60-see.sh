#!/bin/bash
# Goal: what the attributes, metrics and the check plugin say is true, complete and documented; tools that copy files do not carry the attributes away.
. "$(dirname "$0")/lib.sh"
need_fuse
need getfattr rsync python3
pair a b
echo one > "$W/a/f"; mkdir "$W/a/d"; echo two > "$W/a/d/g"; insync a b

say "attributes against their manual page"
getfattr -d -m user.twofold "$W/a" 2> /dev/null | sed -n 's/^user\.twofold\.\([^=]*\).*/\1/p' | sed 's/^peer\.b\./peer.NAME./' | sort > "$W/have"
sed -n 's/^\.It Li //p' "$here/man/twofold-xattr.7" | grep -vx -e sync -e reset | sort > "$W/said"
diff "$W/have" "$W/said" > "$W/diff.out" || fail "attributes and twofold-xattr(7) differ: $(cat "$W/diff.out")"
while read -r n; do getfattr -n "user.twofold.${n/NAME/b}" "$W/a" > /dev/null 2>&1 || fail "$n cannot be read"; done < "$W/said"
of() { getfattr --only-values -n "user.twofold.$1" "$2" 2> /dev/null; }
equal "state" "$(of state "$W/a/f")" in-sync
equal "lacking" "$(of lacking "$W/a/f")" ""
version=$(of version "$W/a/f")
equal "the replica in a version" "${version%:*}" "$(of replica "$W/a")"
equal "the version at the peer" "$(of version "$W/b/f")" "$version"
getfattr -d -m - "$W/a/f" "$W/a/d" 2> /dev/null | grep twofold && fail "listed on what is no root"
getfattr -n user.twofold.op.write "$W/a/f" > /dev/null 2>&1 && fail "a counter on a file"
head -c 3000000 /dev/urandom > "$W/a/large"; insync a b
printf x | dd of="$W/a/large" bs=1 seek=1000000 conv=notrunc status=none; insync a b
case $(of delta-saved "$W/a/large") in 29?????" of 3000000") ;; *) fail "delta-saved: $(of delta-saved "$W/a/large")" ;; esac
[ "$(of version "$W/a/large")" != "$version" ] || fail "two versions are called the same"
rm "$W/a/large"; insync a b
"$TWOFOLD" peer pause "$W/a" b; echo more >> "$W/a/f"; sync -f "$W/a"
equal "lacking" "$(getfattr --only-values -n user.twofold.lacking "$W/a/f" 2> /dev/null)" b
equal "state" "$(getfattr --only-values -n user.twofold.state "$W/a/f" 2> /dev/null)" "pending: b"
code 1 "$TWOFOLD" status "$W/a"
echo apart >> "$W/b/f"; sync -f "$W/b"
"$TWOFOLD" peer resume "$W/a" b; insync a b
equal "state of a conflict" "$(of state "$W/a/"f.conflict-*)" conflict
rm "$W/a/"f.conflict-*; insync a b
# commands of the page are taken, others are refused, and no attribute can be set or removed
for n in $(sed -n '/^.Ss Commands/,$s/^\.It Li //p' "$here/man/twofold-xattr.7"); do check "$n" setfattr -n "user.twofold.$n" "$W/a"; done
for n in nonsense state op.write; do
    setfattr -n "user.twofold.$n" -v 1 "$W/a" 2> /dev/null && fail "$n was set"
    setfattr -n "user.twofold.$n" -v 1 "$W/a/f" 2> /dev/null && fail "$n was set on a file"
    setfattr -x "user.twofold.$n" "$W/a" 2> /dev/null && fail "$n was removed"
done
check "sync" setfattr -n user.twofold.sync "$W/a"
check "reset" setfattr -n user.twofold.reset "$W/a"
case $(counter a op.write) in "count=0 "*) ;; *) fail "reset left $(counter a op.write)" ;; esac

say "nothing is carried away"
mkdir "$W/cp" "$W/rs" "$W/tar"
cp -a "$W/a/." "$W/cp/"; rsync -aX "$W/a/d" "$W/a/f" "$W/rs/"; tar -C "$W/a" --xattrs --xattrs-include='*' -cf - d f | tar -C "$W/tar" --xattrs --xattrs-include='*' -xf -
for t in cp/d cp/f cp/d/g rs/d rs/f rs/d/g tar/d tar/f tar/d/g; do
    getfattr -d -m user.twofold "$W/$t" 2> /dev/null | grep -q twofold && fail "$t carries attributes"
    [ -e "$W/$t" ] || fail "$t was not copied"
done

say "metrics"
"$TWOFOLD" metrics "$W/a" | python3 "$here/tests/scenario/openmetrics.py" > "$W/names" || fail "not OpenMetrics"
"$TWOFOLD" metrics "$W/a" --textfile "$W/t.prom" || fail "textfile"
python3 "$here/tests/scenario/openmetrics.py" --classic < "$W/t.prom" > /dev/null || fail "textfile is not Prometheus text"
command -v promtool > /dev/null && { promtool check metrics < "$W/t.prom" || fail "promtool"; }
# it is replaced as a whole: who reads the old one keeps it to its end
ln "$W/t.prom" "$W/old.prom"; cp "$W/t.prom" "$W/copy.prom"; echo more > "$W/a/counted"; sync -f "$W/a"
"$TWOFOLD" metrics "$W/a" --textfile "$W/t.prom" || fail "textfile again"
cmp -s "$W/old.prom" "$W/copy.prom" || fail "a textfile was written over"
cmp -s "$W/t.prom" "$W/old.prom" && fail "the textfile did not change"
code 1 "$TWOFOLD" metrics "$W/a" --textfile "$W/no/such/dir/t.prom"
equal "left over" "$(find "$W" -maxdepth 1 -name '*.tmp')" ""
sort -u "$W/names" > "$W/known"
python3 -c 'import json, sys; [print(t["expr"]) for p in json.load(open(sys.argv[1]))["panels"] for t in p["targets"]]' "$here/contrib/grafana/twofold.json" > "$W/used" || fail "dashboard is not JSON"
sed -n 's/^ *expr: //p' "$here/contrib/prometheus/twofold.rules.yml" >> "$W/used"
grep -o 'twofold_[a-z_]*' "$W/used" | sort -u | comm -23 - "$W/known" > "$W/unknown"
[ -s "$W/unknown" ] && fail "dashboard or rules name what is not there: $(cat "$W/unknown")"

say "check plugin"
export TWOFOLD
plugin=$here/contrib/nagios/check_twofold
code 0 "$plugin" "$W/a"; grep -q '^TWOFOLD OK: 1 peers in sync | ' "$W/out" || fail "plugin: $(cat "$W/out")"
"$TWOFOLD" peer pause "$W/a" b
code 1 "$plugin" "$W/a"; grep -q 'b is paused' "$W/out" || fail "plugin: $(cat "$W/out")"
echo late > "$W/a/late"; sync -f "$W/a"; sleep 0.3
code 2 "$plugin" -w 0.01 -c 0.1 "$W/a"
code 3 "$plugin" "$W/nothing"
