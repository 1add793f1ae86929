"""terminal.py COLUMNS SECONDS COMMAND...: runs the command on a terminal of so many columns and prints what it shows there, one line for each line drawn, also where it
was drawn over later. After SECONDS (0: never) somebody types Ctrl-C there. Exits with its code, or 99 where a line that is drawn in place was wider than the terminal."""
import fcntl, os, pty, re, select, struct, sys, termios, time

columns, seconds, command = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]
pid, fd = pty.fork()
if pid == 0:
    time.sleep(0.1) # until the size is set
    os.execvp(command[0], command)
fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
end, out = time.monotonic() + seconds, b""
while True:
    if seconds and time.monotonic() >= end:
        os.write(fd, b"\x03")
        seconds = 0
    if not select.select([fd], [], [], 0.1)[0]:
        continue
    try:
        got = os.read(fd, 65536)
    except OSError:
        break
    if not got:
        break
    out += got
code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
wide = max([len(x) for x in re.findall(r"\r\x1b\[K([^\r\n\x1b]*)(?=\r\x1b\[K)", out.decode())], default=0)
for line in re.split(r"[\r\n]+", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", out.decode())):
    if line:
        print(line)
if wide > columns:
    print("a line of %d columns" % wide, file=sys.stderr)
    sys.exit(99)
sys.exit(code if code >= 0 else 128 - code)
