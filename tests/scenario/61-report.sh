#!/bin/bash
# Goal: the report is one page that needs nothing else and no script, its charts have data, and in a browser nothing overflows at 390 and 1280 pixels.
. "$(dirname "$0")/lib.sh"
need_fuse
export TWOFOLD_SAMPLE=1
pair a b
head -c 300000 /dev/urandom > "$W/a/<i>name&"; insync a b
"$TWOFOLD" peer pause "$W/a" b
echo 1 >> "$W/a/<i>name&"; echo 2 >> "$W/b/<i>name&"; head -c 2000000 /dev/urandom > "$W/a/big"; sync -f "$W/a"; sync -f "$W/b"; sleep 2.2
"$TWOFOLD" report "$W/a" -o - > "$W/paused.html" || fail "report"
grep -q 'Peer b is paused. It lacks [0-9]* files, [0-9.]*&nbsp;MiB; the oldest change is [0-9.]*&nbsp;s old.<small><code>twofold peer resume' "$W/paused.html" || fail "a peer that lacks something is not said"
"$TWOFOLD" peer resume "$W/a" b; insync a b; sleep 1.2
curve='class="curve"[^>]*d="M[^"]*V[0-9.]*H[^"]*V'
# a state is noted once a second, and only where it changed: until there are enough of them for a line
for i in $(seq 20); do
    "$TWOFOLD" report "$W/a" -o "$W/r.html" || fail "report"
    grep -q "$curve" "$W/r.html" && break
    "$TWOFOLD" peer pause "$W/a" b; head -c $((i * 10000)) /dev/urandom > "$W/a/more"; sync -f "$W/a"; sleep 1.2
    "$TWOFOLD" peer resume "$W/a" b; insync a b; sleep 1.2
done
grep -qiE '<script|<link|<img|@import|url\(|https?://|<i>name' "$W/r.html" && fail "the page has a script, needs something else, or does not escape names"
for id in backlog lag operations stages savings; do grep -q "id=\"$id\"" "$W/r.html" || fail "no $id"; done
[ "$(grep -o 'class="curve"' "$W/r.html" | wc -l)" = 2 ] || fail "curves of backlog and lag are missing"
grep -q "$curve" "$W/r.html" || fail "a curve has one point"
for what in 'Time left' 'Connected for' 'Last check of all bytes' 'Free for the store' 'Disk of the store' 'p99'; do grep -q "$what" "$W/r.html" || fail "no '$what'"; done
grep -q 'Needs a look' "$W/r.html" || fail "a conflict is not said"
umnt a
"$TWOFOLD" report "$W/a.store" -o "$W/alone.html" --passfile "$PASS" || fail "report of a store"
grep -q 'Nobody replicates this store' "$W/alone.html" || fail "a store that nobody serves"
mnt a
"$TWOFOLD" report "$W/a" -o - | grep -q "$curve" || fail "the history did not outlive the mount"
code 2 "$TWOFOLD" report "$W/a"
code 1 "$TWOFOLD" report "$W/a" -o "$W/no/such/dir.html"
command -v chromium > /dev/null || { [ "$failures" = 0 ] && skip "chromium is not installed"; exit 1; }
for width in 390 1280; do for page in r paused alone; do
    # headless windows are not narrower than 500: a frame of the width is what the page sees
    sed 's,</body>,<script>document.title="inner";</script></body>,' "$W/$page.html" > "$W/inner.html"
    cat > "$W/frame.html" <<END
<body><iframe id=f width=$width height=3000 style="border:0" src="inner.html"></iframe><pre id=o>none</pre><script>
f.onload=()=>{const d=f.contentDocument,w=d.documentElement.clientWidth;let bad=[];
for(const e of d.querySelectorAll("body *")){const r=e.getBoundingClientRect();if(r.width&&(r.right>w+1||r.left< -1))bad.push(e.tagName+"."+e.className)}
o.textContent="width="+w+" scroll="+d.documentElement.scrollWidth+" bad="+bad.join(",")+" end"}</script></body>
END
    timeout 60 chromium --headless=new --no-sandbox --disable-gpu --hide-scrollbars --allow-file-access-from-files --user-data-dir="$W/chromium" --virtual-time-budget=3000 \
        --window-size=1400,3000 --dump-dom "file://$W/frame.html" > "$W/dom" 2> /dev/null || fail "chromium at $width"
    equal "overflow of $page at $width" "$(grep -o 'width=[0-9]* scroll=.* end' "$W/dom" | head -1)" "width=$width scroll=$width bad= end"
done; done
