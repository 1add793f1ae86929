#!/bin/bash
# Goal: what `twofold help` lists, commands and options, is completed by bash, zsh and fish.
. "$(dirname "$0")/lib.sh"
c=$here/contrib/completion
"$TWOFOLD" help > "$W/help" || die "twofold help"
bash -n "$c/twofold.bash" || fail "the bash completion does not parse"
! command -v zsh > /dev/null || zsh -n "$c/_twofold" || fail "the zsh completion does not parse"
! command -v fish > /dev/null || fish -n "$c/twofold.fish" || fail "the fish completion does not parse"
# COMMAND [OPTION]... a line; continuation lines belong to the command above
awk '/^  twofold [a-z]/ { if (l) print l; l = $2 } /^  twofold STORE/ { if (l) print l; l = "" } l { n = split($0, w, /[^-a-z]+/); for (i = 1; i <= n; i++) if (w[i] ~ /^--[a-z]/) l = l " " w[i] } END { if (l) print l }' "$W/help" > "$W/commands"
[ "$(wc -l < "$W/commands")" -ge 13 ] || fail "help lists too few commands: $(cat "$W/commands")"
# shellcheck disable=SC1091
. "$c/twofold.bash"
bash_words() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _twofold; printf '%s\n' "${COMPREPLY[@]}"; }
while read -r command options; do
    bash_words twofold "" | grep -qx "$command" || fail "bash: $command"
    grep -q "'$command:" "$c/_twofold" || fail "zsh: $command"
    grep -E '^set -l commands ' "$c/twofold.fish" | grep -qw "$command" || fail "fish: $command"
    for o in $options; do
        case $o in --passfile | --keyfile | --extpass) key='\$key' ;; *) key="$o\b" ;; esac
        bash_words twofold "$command" x "$o" | grep -qx -- "$o" || fail "bash: $command $o"
        grep -E "^([a-z|]*\|)?$command(\|[a-z|]*)?\)" "$c/_twofold" | grep -qe "$o\b" -e "$key" || fail "zsh: $command $o"
        grep -E "__fish_seen_subcommand_from [a-z ]*\b$command\b" "$c/twofold.fish" | grep -qe " -l ${o#--}\b" || fail "fish: $command $o"
    done
done < "$W/commands"
