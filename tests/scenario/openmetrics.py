"""Reads OpenMetrics text strictly (--classic: the older Prometheus text); prints the names of its samples. Exit 1 and the reason where it breaks a rule."""
import re, sys

classic = "--classic" in sys.argv
text = sys.stdin.read()
def bad(n, why):
    sys.exit("line %d: %s" % (n, why))
if not text.endswith("\n"):
    bad(0, "no newline at the end")
lines = text.split("\n")[:-1]
if not classic:
    if lines.pop() != "# EOF":
        bad(len(lines), "no EOF at the end")
types, current, seen, done = {}, None, set(), set()
SUFFIX = {"gauge": [""], "counter": [""] if classic else ["_total"], "summary": ["", "_sum", "_count"]}
label = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\["\\n])*"'
sample = re.compile(r'([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(%s(?:,%s)*)\})? (\S+)$' % (label, label))
for n, line in enumerate(lines, 1):
    if line.startswith("#"):
        m = re.match(r'# (TYPE|UNIT|HELP) ([a-z_]+) (.+)$', line) or bad(n, "not TYPE, UNIT or HELP")
        if m[1] == "TYPE":
            if m[2] in done or m[3] not in SUFFIX:
                bad(n, "family twice, or unknown type")
            current, types[m[2]] = m[2], m[3]
            done.add(current)
        elif m[2] != current:
            bad(n, "not of the family above")
        if m[1] == "UNIT" and (classic or not m[2].endswith("_" + m[3])):
            bad(n, "the name does not end in its unit")
        continue
    m = sample.match(line) or bad(n, "no sample: " + line)
    if current is None or m[1] not in [current + s for s in SUFFIX[types[current]]]:
        bad(n, "a sample outside of its family")
    key = (m[1], m[2])
    if key in seen:
        bad(n, "the same sample twice")
    seen.add(key)
    v = float(m[3])
    if types[current] != "gauge" and not v >= 0:
        bad(n, "negative")
    print(m[1])
