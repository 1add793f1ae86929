# bash completion of twofold(1)

# the value of -o: a list, of which the last entry is completed. bash has cut the word at "=" and ":", so what it replaces is only the end of the list.
_twofold_options() { # LIST
    local list=$1 entry=${1##*,} keep=${1%"$cur"} o
    case $entry in
    passfile=* | keyfile=*) compopt -o filenames 2> /dev/null; COMPREPLY=($(compgen -f -- "${entry#*=}")); return ;;
    esac
    compopt -o nospace 2> /dev/null
    for o in $(compgen -W "passfile= keyfile= extpass= listen= commit= fsync=local fsync=peer fsync=all fsync_timeout= deletions=hold deletions=apply \
scrub=weekly scrub=off allow_other uid= gid= umask= ro rw dev nodev suid nosuid exec noexec noatime nofail noauto _netdev" -- "$entry"); do
        o=${list%"$entry"}$o
        COMPREPLY+=("${o#"$keep"}")
    done
}

_twofold() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} words= key="--passfile --keyfile --extpass"
    local line=${COMP_LINE:0:COMP_POINT}
    COMPREPLY=()
    case $cur in = | :) cur= ;; esac # what readline replaces is what follows
    case ${COMP_WORDS[1]}:$line in
    mount:*" -o "* | serve:*" -o "*) case ${line##* -o } in *" "*) ;; *) _twofold_options "${line##* -o }"; return ;; esac ;;
    esac
    if [ "$COMP_CWORD" = 1 ]; then
        words="init mount umount serve invite join peer status metrics report sync log conflicts deletions check scrub key bench help --help --version"
    else
        case $prev in
        --cipher) words="xchacha20poly1305 aes256gcm none" ;;
        --engine) words="fio builtin" ;;
        --passfile | --keyfile | --new-passfile | --new-keyfile | --textfile | --svg) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --extpass | --new-extpass | --name | --address | --listen | --expires | --timeout | --rate | --label | --size | --scale | --passes | --seconds) return ;;
        esac
    fi
    if [ -z "$words" ]; then
        case ${COMP_WORDS[1]} in
        init) words="--name --cipher $key" ;;
        mount | serve) words="-f -o $key" ;;
        invite) words="--address --expires $key" ;;
        join) words="--name --listen $key" ;;
        peer) [ "$COMP_CWORD" = 2 ] && words="list remove pause resume" || words=$key ;;
        status) words="--watch --json $key" ;;
        metrics) words="--textfile $key" ;;
        report) words="-o $key" ;;
        sync) words="--timeout" ;;
        check) words="--repair --rate --resume --json $key" ;;
        scrub) [ "$COMP_CWORD" = 3 ] && words="status" ;;
        log) words="--follow --json $key" ;;
        conflicts) [ "$COMP_CWORD" = 3 ] && words="list keep restore"; words="$words $key" ;;
        deletions) [ "$COMP_CWORD" = 3 ] && words="show accept undo"; words="$words $key" ;;
        bench) [ "$COMP_CWORD" = 2 ] && words="disk sql replicate" || words="--dir --size --scale --passes --seconds --cipher --engine --cached --json --svg" ;;
        key) [ "$COMP_CWORD" = 2 ] && words="list add remove" || words="$key --new-passfile --new-keyfile --new-extpass --label" ;;
        esac
    fi
    case $cur in
    -*) COMPREPLY=($(compgen -W "$words" -- "$cur")) ;;
    *) COMPREPLY=($(compgen -W "$words" -- "$cur") $([ "$COMP_CWORD" -gt 1 ] && compgen -d -- "$cur")) ;;
    esac
}
complete -o filenames -F _twofold twofold
