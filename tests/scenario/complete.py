"""complete.py zsh|bash|fish FILE: reads command lines from standard input and prints, for each, a line of JSON with what that shell offers for it, as a list.
zsh runs its real completion system on a terminal of its own; bash gets the words as readline cuts them; fish has a command for it."""
import json, os, pty, re, subprocess, sys, tempfile, time

shell, file = sys.argv[1], os.path.abspath(sys.argv[2])
lines = [l.rstrip("\n") for l in sys.stdin]
home = tempfile.TemporaryDirectory()
env = dict(os.environ, HOME=home.name, ZDOTDIR=home.name, TERM="dumb", LC_ALL="C.UTF-8")

def bash():
    script = """. "$0"; compopt() { :; }
while IFS= read -r COMP_LINE; do
    COMP_POINT=${#COMP_LINE}; mapfile -t COMP_WORDS; COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); COMPREPLY=(); _twofold; printf '%s\\n' "${COMPREPLY[@]}"
done"""
    for l in lines:
        words = re.findall(r"[^ =:]+|[=:]+", l) + ([""] if l[-1] in " =:" else [])
        r = subprocess.run(["bash", "--norc", "-c", script, file], input="\n".join([l] + words + [""]), capture_output=True, text=True, env=env, cwd=home.name)
        assert not r.stderr, r.stderr
        print(json.dumps(r.stdout.split("\n")[:-1]))

def fish():
    for l in lines:
        r = subprocess.run(["fish", "--no-config", "-c", 'source $argv[1]; complete -C $argv[2]', file, l], capture_output=True, text=True, env=env, cwd=home.name)
        assert not r.stderr, r.stderr
        print(json.dumps([c.split("\t")[0] for c in r.stdout.splitlines()]))

RC = """PS1=; unsetopt beep zle_bracketed_paste 2> /dev/null; bindkey -e
fpath=(%s $fpath); autoload -Uz compinit; compinit -u -D
compadd() { # what is offered is written down; lists that the completion system only makes for itself are not
    local -a hits; local a
    for a in "$@"; do case $a in --) break ;; -[OAD]*) builtin compadd "$@"; return ;; esac; done
    builtin compadd -A hits "$@"; print -rl -- $hits >> $HOME/out
    builtin compadd "$@"
}
offer() { _main_complete; compstate[insert]=; compstate[list]=; print -r -- '==end' >> $HOME/out; }
zle -C offer complete-word offer; bindkey '^T' offer
print -r -- '==ready' >> $HOME/out
"""

def zsh():
    with open(os.path.join(home.name, ".zshrc"), "w") as f:
        f.write(RC % os.path.dirname(file))
    pid, fd = pty.fork()
    if pid == 0:
        os.chdir(home.name)
        os.execvpe("zsh", ["zsh", "-d", "-i"], env)
    out = os.path.join(home.name, "out")
    os.set_blocking(fd, False)
    def wait(mark):
        seen = b""
        for _ in range(int(os.environ.get("TRIES", "6000"))):
            try: seen += os.read(fd, 65536)
            except BlockingIOError: pass
            text = open(out).read() if os.path.exists(out) else ""
            if text.endswith(mark + "\n"):
                os.truncate(out, 0)
                return text.split("\n")[:-2]
            time.sleep(0.01)
        sys.exit("zsh does not answer: " + repr(seen[-500:]))
    wait("==ready")
    for l in lines:
        os.write(fd, b"\x15" + l.encode() + b"\x14")
        print(json.dumps(wait("==end")))
    os.close(fd)
    os.waitpid(pid, 0)

{"bash": bash, "zsh": zsh, "fish": fish}[shell]()
