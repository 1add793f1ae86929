# bash completion of twofold(1)
_twofold() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} words=
    COMPREPLY=()
    if [ "$COMP_CWORD" = 1 ]; then
        words="init mount umount serve invite join peer status metrics report sync log conflicts deletions check scrub key bench --help --version"
    else
        case $prev in
        --cipher) words="xchacha20poly1305 aes256gcm none" ;;
        --passfile | --keyfile | --new-passfile | --new-keyfile) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        -o) words="passfile= keyfile= extpass= listen= commit= fsync=local fsync=peer fsync=all fsync_timeout= deletions=hold deletions=apply scrub=weekly scrub=off allow_other ro uid= gid= umask= nodev nosuid noexec noatime" ;;
        esac
    fi
    if [ -z "$words" ]; then
        case ${COMP_WORDS[1]} in
        init) words="--name --cipher --passfile --keyfile --extpass" ;;
        mount | serve) words="-f -o" ;;
        invite) words="--address --expires --passfile --keyfile --extpass" ;;
        join) words="--name --listen --passfile --keyfile --extpass" ;;
        peer) [ "$COMP_CWORD" = 2 ] && words="list remove pause resume" ;;
        status) words="--watch --json" ;;
        metrics) words="--textfile" ;;
        report) words="-o" ;;
        sync) words="--timeout" ;;
        check) words="--repair --rate --resume --json --passfile --keyfile --extpass" ;;
        scrub) [ "$COMP_CWORD" = 3 ] && words="status" ;;
        log) words="--follow --json" ;;
        conflicts) [ "$COMP_CWORD" = 3 ] && words="list keep restore" ;;
        deletions) [ "$COMP_CWORD" = 3 ] && words="show accept undo" ;;
        bench) [ "$COMP_CWORD" = 2 ] && words="disk sql replicate" || words="--dir --size --scale --passes --seconds --cipher --engine --cached --json --svg" ;;
        key) [ "$COMP_CWORD" = 2 ] && words="list add remove" || words="--new-passfile --new-keyfile --new-extpass --label" ;;
        esac
    fi
    case $cur in
    -*) COMPREPLY=($(compgen -W "$words" -- "$cur")) ;;
    *) COMPREPLY=($(compgen -W "$words" -- "$cur") $([ "$COMP_CWORD" -gt 1 ] && compgen -d -- "$cur")) ;;
    esac
}
complete -o filenames -F _twofold twofold
