#!/usr/bin/env python3
"""compare.py REPLAY [SEEDS] [REPLICAS]: random histories in the model of the merge rules and the same in the real code.

The model is knowledge.py in the folder model/ of $TWOFOLD_SHARED (default: ../shared beside this tree). Where that is not there the test says so and exits 77 (skipped).
Every change that the model makes goes to REPLAY (replay.c) with its ids, clock and counter, and so does every message; after each
step both print the tree of the replica concerned. They must be equal to the letter, conflict names included, and so must the vector
and `apart` of every content. For that the model is changed in four places: ids are 128 bits; copies get their ids from
the real hash; conflict names have the real form, written here a second time; and deletions of a link are a set, as the design has it
(the model keeps the newest).
"""
import datetime
import hashlib
import os
import random
import re
import struct
import subprocess
import sys

ROOT_HEX = 'f' * 32
ZERO_HEX = '0' * 32
CLOCK_START = 1_790_000_000
MARK = re.compile(rb'(.+)\.conflict-\d{8}-\d{6}-[A-Za-z0-9_-]{1,32}-([0-9a-f]{32}|[0-9a-f]{8})$', re.S)

try:
    sys.path.insert(0, os.path.join(os.environ.get('TWOFOLD_SHARED') or os.path.join(os.path.dirname(os.path.abspath(__file__)), '../../../shared'), 'model'))
    sys.dont_write_bytecode = True
    import convergence as model
    import knowledge
except ImportError:
    print('skipped: no model/knowledge.py in $TWOFOLD_SHARED')
    sys.exit(77)

copy_links = {}  # node of a copy -> the copy's link id
old_hash = model.H


def replica_number(letter):
    return 'ABCDEFGH'.index(letter) + 1


def derive(label, node, dot):
    h = hashlib.blake2b(digest_size=16)
    h.update(label + bytes.fromhex(node) + struct.pack('<QQ', replica_number(dot[0]), dot[1]))
    return h.hexdigest()


def link_hex(link):
    return copy_links[link[1:]] if link.startswith('L') else link


def real_hash(*a):
    """H(node, dot) is the node of a copy; H(link) the hex digits that a conflict name shows."""
    if len(a) == 1:
        return link_hex(a[0])
    node = derive(b'twofold copy', *a)
    copy_links[node] = derive(b'twofold copy link', *a)
    return node


def real_name(name, clock, digits, k=10):
    """k = 10: the first try; 11: all 32 digits; from 12 on a second later each."""
    s = name.encode()
    dot = s.rfind(b'.')
    stem, ext = (s[:dot], s[dot:]) if dot > 0 and 1 <= len(s) - dot - 1 <= 16 else (s, b'')
    m = MARK.match(stem)
    if m:
        stem = m.group(1)
    at = datetime.datetime.fromtimestamp(CLOCK_START + clock[0] + max(0, k - 11), datetime.timezone.utc)
    tail = b'.conflict-%s-%s-%s' % (at.strftime('%Y%m%d-%H%M%S').encode(), clock[1].encode(), digits[:8 if k == 10 else 32].encode())
    while len(stem) + len(tail) + len(ext) > 255:
        stem = stem[:-1]
    return (stem + tail + ext).decode()


def dots_text(dots):
    return ','.join('%d:%d' % (replica_number(r), c) for r, c in sorted(dots)) or '-'


def node_hex(node):
    return ROOT_HEX if node == model.ROOT else node


class TracedRep(knowledge.SetRep):
    """SetRep that writes down what it does, with deletions as sets. G: link -> {dot: deletion held}."""
    out, want = None, None

    def __init__(s, name, skew):
        super().__init__(name, skew)
        s.G = {}

    def head(s, word, part):
        return '%s %d %d %d' % (word, replica_number(s.n), (CLOCK_START + part['clock'][0]) * 10**9, part['clock'][2])

    def place(s, now, l, node, kind, parent, name, prev):
        super().place(now, l, node, kind, parent, name, prev)
        s.out.append('%s %s %s %s %s %s %s' % (s.head('place', s.P[('place', l)]), link_hex(l), node, kind, node_hex(parent), name,
                                               node_hex(prev) if prev else ZERO_HEX))
        s.join_deletions(l)

    def gone(s, now, l, node, shown_dot):
        place = s.P.get(('place', l))
        clock, dot = s.tick(now)
        held = s.G.setdefault(l, {})
        vv = {}
        for d, g in held.items():
            vv = model.vjoin(model.vjoin(vv, g['vv']), {d[0]: d[1]})
        g = dict(clock=clock, dot=dot, vv=vv, apart=set(), seen=place['dot'] if place else None, cvv=dict(s.ctx.get(node, {})))
        s.out.append('%s %s %s %s %s' % (s.head('gone', g), link_hex(l), node, dots_text([g['seen']] if place else []),
                                         dots_text(g['cvv'].items())))
        s.hold_deletion(l, g)

    def content(s, now, n, tok):
        super().content(now, n, tok)
        p = s.P[('content', n)]
        s.out.append('%s %s %d' % (s.head('content', p), n, tok))
        s.want.append('content saw %s apart %s' % (dots_text([d for d in p['vv'].items() if d[0] != s.n]), dots_text(p['apart'])))

    def hold_deletion(s, l, g):
        held = s.G.setdefault(l, {})
        if g['dot'] in held or any(knowledge.supersedes(q, g['dot']) for q in held.values()):
            return
        for d in [d for d in held if knowledge.supersedes(g, d)]:
            del held[d]
        held[g['dot']] = g
        s.join_deletions(l)

    def join_deletions(s, l):
        """The one deletion that the model's view looks at, saying what all of them say together."""
        held, place = s.G.get(l), s.P.get(('place', l))
        if not held:
            return
        cvv = {}
        for g in held.values():
            cvv = model.vjoin(cvv, g['cvv'])
        saw = place and any(g['seen'] and g['seen'][0] == place['dot'][0] and g['seen'][1] >= place['dot'][1] for g in held.values())
        newest = max(held.values(), key=lambda g: g['clock'])
        s.P[('gone', l)] = dict(clock=newest['clock'], dot=newest['dot'], seen=place['dot'] if saw else None, cvv=cvv)

    def merge(s, k, p):
        if k[0] == 'gone':
            s.hlc = max(s.hlc, p['clock'][0])
            s.hold_deletion(k[1], p)
            return
        super().merge(k, p)
        if k[0] == 'place':
            s.join_deletions(k[1])

    def parts(s):
        return [(k, p) for k, p in super().parts() if k[0] != 'gone'] + [(('gone', l), g) for l, h in s.G.items() for g in h.values()]


class Biased(random.Random):
    """Every third history is full of directories that move (cycles), every third of writes (sets of contents)."""
    weights = [None, [1, 6, 1, 1, 14, 1, 1, 0], [3, 1, 14, 1, 2, 2, .5, .5]]

    def choices(self, population, weights=None, **more):
        if len(population) == 8 and self.bias:
            weights = self.bias
        return super().choices(population, weights, **more)


class TracedWorld(knowledge.KnowledgeWorld):
    def __init__(s, seed, replicas, out, want):
        super().__init__(seed, replicas)
        s.r = Biased(seed)
        s.r.bias = Biased.weights[seed % 3]
        s.out, s.want, s.sent = out, want, 0
        for r in s.R:
            r.out, r.want = out, want
        out.append('history %d %d' % (seed, replicas))
        want.append('history %d' % seed)

    def nid(s):
        s.ids += 1
        return 'ff000000%024x' % s.ids  # larger than nearly every hash, as 'i' is larger than the model's 'L'

    def tree(s, rep):
        number = replica_number(rep.n)
        s.out.append('tree %d' % number)
        s.want.append('tree %d' % number)
        shown = model.view(rep.P).tree
        for path, t in sorted(('/'.join(q), t) for q, t in shown.items()):
            s.want.append('d %s' % path if t[0] == 'd' else 'f %s %d' % (path, t[2]))

    def op(s, rep):
        super().op(rep)
        s.tree(rep)

    def parcel(s, rep):
        s.out.append('send %d %d' % (s.sent, replica_number(rep.n)))
        s.sent += 1
        return s.sent - 1, rep.parts()

    def send(s):
        a, b = s.r.sample(s.R, 2)
        s.net.append((b, (s.parcel(a), dict(a.K))))

    def deliver(s):
        if not s.net:
            return
        b, (rows, known) = s.net[s.r.randrange(len(s.net))]
        x = s.r.random()
        if x > .25:
            s.net.remove((b, (rows, known)))
        if x <= .9:
            s.take(b, rows, known)

    def take(s, b, parcel, known):
        s.out.append('receive %d %d' % (parcel[0], replica_number(b.n)))
        knowledge.KnowledgeWorld.receive(s, b, list(parcel[1]), known)
        s.tree(b)

    def receive(s, b, rows, known):
        """Only the healing at the end of run() comes here, with the parts of a replica as they are then."""
        sender = next(a for a in s.R if a is not b and a.K == known and len(a.parts()) == len(rows))
        s.take(b, (s.parcel(sender)[0], rows), known)


def main():
    replay = sys.argv[1]
    seeds, replicas = (int(a) for a in (sys.argv[2:] + ['300', '3'][len(sys.argv) - 2:])[:2])
    model.H = knowledge.H = real_hash
    model.confname = real_name
    model.Rep = TracedRep
    out, want = [], []
    for seed in range(seeds):
        try:
            TracedWorld(seed, replicas, out, want).run()
        except model.Bug as e:
            print('seed %d: the model itself failed: %s' % (seed, e))
            return 1
    got = subprocess.run([replay], input='\n'.join(out) + '\n', stdout=subprocess.PIPE, text=True)
    lines = got.stdout.splitlines()
    if got.returncode:
        print('replay failed: %d' % got.returncode)
        return 1
    seed = '?'
    for i, line in enumerate(want):
        if line.startswith('history'):
            seed = line
        if i >= len(lines) or lines[i] != line:
            print('%s, line %d: the model has "%s", the code "%s"' % (seed, i, line, lines[i] if i < len(lines) else ''))
            return 1
    if len(lines) != len(want):
        print('the code printed more than the model')
        return 1
    trees = sum(line.startswith('tree') for line in want)
    conflicts = sum('.conflict-' in line for line in want)
    print('%d seeds, %d replicas: %d trees equal, %d lines with conflict names' % (seeds, replicas, trees, conflicts))
    return 0


if __name__ == '__main__':
    sys.exit(main())
