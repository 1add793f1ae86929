# fish completion of twofold(1)
set -l commands init mount umount serve invite join peer status metrics report sync log conflicts deletions check scrub key bench
complete -c twofold -n "not __fish_seen_subcommand_from $commands" -a "$commands" -f
complete -c twofold -n "__fish_seen_subcommand_from init join" -l name -x -d "name of this replica"
complete -c twofold -n "__fish_seen_subcommand_from init" -l cipher -x -a "xchacha20poly1305 aes256gcm none"
complete -c twofold -n "__fish_seen_subcommand_from init join invite status log peer conflicts deletions check key" -l passfile -r -d "file with the passphrase"
complete -c twofold -n "__fish_seen_subcommand_from init join invite status log peer conflicts deletions check key" -l keyfile -r -d "key file"
complete -c twofold -n "__fish_seen_subcommand_from init join invite status log peer conflicts deletions check key" -l extpass -x -d "command that prints it"
complete -c twofold -n "__fish_seen_subcommand_from mount serve" -s o -x -d "options"
complete -c twofold -n "__fish_seen_subcommand_from mount serve" -s f -d "stay in the foreground"
complete -c twofold -n "__fish_seen_subcommand_from invite" -l address -x -d "HOST:PORT of this replica"
complete -c twofold -n "__fish_seen_subcommand_from invite" -l expires -x
complete -c twofold -n "__fish_seen_subcommand_from join" -l listen -x -d "HOST:PORT of this replica"
complete -c twofold -n "__fish_seen_subcommand_from status" -l watch
complete -c twofold -n "__fish_seen_subcommand_from status log check" -l json
complete -c twofold -n "__fish_seen_subcommand_from check" -l repair
complete -c twofold -n "__fish_seen_subcommand_from check" -l resume
complete -c twofold -n "__fish_seen_subcommand_from check" -l rate -x
complete -c twofold -n "__fish_seen_subcommand_from metrics" -l textfile -r -d "file for node_exporter"
complete -c twofold -n "__fish_seen_subcommand_from report" -s o -r -d "page to write"
complete -c twofold -n "__fish_seen_subcommand_from sync" -l timeout -x
complete -c twofold -n "__fish_seen_subcommand_from log" -l follow
complete -c twofold -n "__fish_seen_subcommand_from peer" -a "list remove pause resume"
complete -c twofold -n "__fish_seen_subcommand_from key" -a "list add remove"
complete -c twofold -n "__fish_seen_subcommand_from key" -l new-passfile -r
complete -c twofold -n "__fish_seen_subcommand_from key" -l new-keyfile -r
complete -c twofold -n "__fish_seen_subcommand_from key" -l new-extpass -x
complete -c twofold -n "__fish_seen_subcommand_from key" -l label -x
complete -c twofold -n "__fish_seen_subcommand_from bench" -a "disk sql replicate"
complete -c twofold -n "__fish_seen_subcommand_from bench" -l dir -r
complete -c twofold -n "__fish_seen_subcommand_from bench" -l size -x
complete -c twofold -n "__fish_seen_subcommand_from bench" -l scale -x
complete -c twofold -n "__fish_seen_subcommand_from bench" -l passes -x
complete -c twofold -n "__fish_seen_subcommand_from bench" -l seconds -x
complete -c twofold -n "__fish_seen_subcommand_from bench" -l cipher -x -a "xchacha20poly1305 aes256gcm"
complete -c twofold -n "__fish_seen_subcommand_from bench" -l engine -x -a "fio builtin"
complete -c twofold -n "__fish_seen_subcommand_from bench" -l cached
complete -c twofold -n "__fish_seen_subcommand_from bench" -l json
complete -c twofold -n "__fish_seen_subcommand_from bench" -l svg -r
