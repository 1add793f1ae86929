#!/bin/bash
# Goal: bash, zsh and fish each offer, for every command, all the options and words that twofold(1) and `twofold help` give it, and nothing that the program
# refuses; and every entry that -o takes, also in the middle of a list. Each shell runs its completion for real (complete.py).
. "$(dirname "$0")/lib.sh"
need python3 zsh fish
c=$here/contrib/completion
"$TWOFOLD" help > "$W/help" || die "twofold help"
# what there is: COMMAND WORD..., one command a line
python3 - "$W/help" "$here/man/twofold.1" > "$W/commands" <<'P' || die "the commands cannot be read"
import re, sys
want, command = {}, None
for l in open(sys.argv[1]):
    m = re.match(r"  twofold ([a-z]+)", l)
    command = m[1] if m else command if l.startswith("   ") else None
    if command: want.setdefault(command, set()).update(re.findall(r"(?<![\w-])--?[a-z][-a-z]*", l))
known, command = set(want), None
for l in open(sys.argv[2]).read().split(".Sh SYNOPSIS")[1].split(".Sh")[0].splitlines():
    w = l.split() or [""]
    if l == ".Nm": command = None
    elif command is None and w[0] == ".Cm": command = w[1]; assert command in known, command; known.discard(command)
    elif command and "Ar KEY" in l: want[command] |= {"--passfile", "--keyfile", "--extpass"}
    elif command: want[command].update("-" + x for x in re.findall(r"\bFl (-?[a-z][-a-z]*)", l))
    if command and (m := re.match(r"\.(?:Op )?Cm ([a-z]+(?: (?:\||Ar PATH \| Cm|Ar PATH|[a-z]+))*)$", l)): want[command].update(x for x in re.findall(r"\b[a-z]+\b", m[1]) if x != command)
assert not known, "twofold(1) lacks %s" % known
for k, v in sorted(want.items()): print(k, *sorted(v))
P
[ "$(wc -l < "$W/commands")" -ge 18 ] || fail "too few commands: $(cat "$W/commands")"
sed -n '/^\.Sh OPTIONS/,/^\.Sh EXAMPLES/s/^\.It Cm //p' "$here/man/mount.twofold.8" | tr ',' '\n' | sed 's/^ *Cm //; s/Ns Ar.*//; s/^ *//; s/ *$//; s/=.*/=/' | grep -vE 'comment=|x-\*|\\' | sort -u > "$W/entries"
[ "$(wc -l < "$W/entries")" -ge 20 ] || fail "too few entries of -o: $(cat "$W/entries")"

# the command lines, and for each what must be among the offers
{
    echo "twofold |$(cut -d ' ' -f 1 "$W/commands" | tr '\n' ' ')help"
    while read -r command words; do
        long=$(tr ' ' '\n' <<< "$words" | grep -e '^--' | tr '\n' ' ')
        verbs=$(tr ' ' '\n' <<< "$words" | grep -v '^-' | tr '\n' ' ')
        before=; case $command in conflicts | deletions | scrub) before="$W " ;; esac
        [ -z "$long" ] || echo "twofold $command $W --|$long"
        [ -z "$verbs" ] || echo "twofold $command $before|$verbs"
    done < "$W/commands"
    echo "twofold mount a b -o |$(grep -vE '^(atime|auto|async|defaults|user|users|nouser|owner|group|diratime|nodiratime|relatime|norelatime|strictatime)$' "$W/entries" | tr '\n' ' ')"
    echo "twofold mount a b -o allow_other,fsync_|fsync_timeout="
    echo "twofold serve a -o deletions=|hold apply"
    echo "twofold init --cipher |xchacha20poly1305 aes256gcm none"
    echo "twofold bench disk --engine |fio builtin"
} > "$W/want"
cut -d '|' -f 1 "$W/want" > "$W/lines"
for shell in bash zsh fish; do
    case $shell in zsh) f=$c/_twofold ;; *) f=$c/twofold.$shell ;; esac
    python3 "$here/tests/scenario/complete.py" $shell "$f" < "$W/lines" > "$W/offers" 2> "$W/err" || { fail "$shell: $(tail -1 "$W/err")"; continue; }
    python3 - "$W/want" "$W/offers" "$TWOFOLD" <<'P' || fail "$shell"
import json, re, subprocess, sys
bad = 0
for l, offers in zip(open(sys.argv[1]), open(sys.argv[2])):
    line, want = l.rstrip("\n").split("|")
    # an offer may hold the list before it; "fsync=local" and "fsync" (zsh goes on by itself) are both the entry fsync=
    have = set(re.sub(r"^.*,", "", o) for o in json.loads(offers))
    have |= {o.split("=")[0] + "=" for o in have if o} | {o.split("=")[-1] for o in have}
    for w in want.split():
        if w not in have: print("%r: %s is not offered" % (line, w)); bad = 1
    for o in (o for o in have if re.fullmatch(r"--[a-z-]+", o)):
        if line.endswith("--") and o not in want.split(): print("%r: %s is offered, and is no option" % (line, o)); bad = 1
sys.exit(bad)
P
done
say "nothing that the program refuses"
while read -r command words; do
    for w in $words; do
        # without its argument or a store each of these is a usage error, but never an option that is not known
        case $w in --*) "$TWOFOLD" "$command" "$w" < /dev/null > "$W/out" 2>&1; ! grep -qE 'unrecognized|no such' "$W/out" || fail "$command $w: $(cat "$W/out")" ;; esac
    done
done < "$W/commands"
"$TWOFOLD" init --nonsense > "$W/out" 2>&1; grep -q unrecognized "$W/out" || fail "an unknown option is not called so"
