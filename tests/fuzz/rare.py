"""Rarer statements as templates: what each line of the table is about stands in its text. Names that stay: {new} of the kind given."""

from __future__ import annotations

from .expressions import Expressions
from .scope import Scope
from .themes import THEMES

#: (text, kind of {new} or ""). Holes: {t} {i} {s} {c} {cond}, {tv} {iv} {lv} names, {new} {a} {b} fresh names.
RARE = [
    # deques and sets
    ("{new} = collections.deque([{i}, {i}], maxlen=3)\n{new}.append({i})\n{new}.appendleft({i})\n{new}.rotate(1)", "li"),
    ("{a} = collections.deque({lv})\nwhile {a}:\n    {b} = {a}.popleft()\n    if {cond}:\n        break\n    print('q', {b})\nelse:\n    print('empty')\n{new} = len({a})", "i"),
    ("{a} = {{v % 3 for v in {lv}}} | {{{i}}}\n{a} -= {{1}}\n{new} = sorted({a} ^ {{{i}, 2}})", "li"),
    ("{a} = collections.Counter({lv})\n{new} = sum({a}.values()) + {a}[{i}]", "i"),
    ("{a} = collections.defaultdict(list)\nfor {b} in {lv}:\n    {a}[{b} % 2].append({i})\n{new} = [len(v) for v in {a}.values()]", "li"),
    ("{a} = collections.OrderedDict(x={i}, y={i})\n{a}.move_to_end('x')\n{new} = next(iter({a}.values()))", "i"),
    # numbers: large ints, floats, formatting
    ("{new} = ({i} << 70) % 9 + (10 ** 20 + {i}) % 7", "i"),
    ("print(f'{{{i}:>5}}|{{{i} / 3:.2f}}|{{{i}!r:<4}}', '%05d %s %x' % ({i}, {i}, abs({i})))", ""),
    ("{new} = int(round({i} / 3 + 0.25, 1) * 4) % 9", "i"),
    ("{new} = int(float('inf') > {i}) + int(float('nan') == {i})", "i"),
    ("{new} = ({i}).bit_length() + int(str({i}).zfill(3)[-1])", "i"),
    # loops in loops, with break, continue and else; finally on the way out
    ("for {a} in range(3):\n    for {b} in range(3):\n        if {cond}:\n            continue\n        if {b} == {a}:\n            break\n        {tv} = {t}\n    else:\n        print('inner', {a})\n        continue\n    if {cond}:\n        break\nelse:\n    {iv} = {i}", ""),
    ("for {a} in range(3):\n    try:\n        if {cond}:\n            continue\n        {tv} = {t}\n        if {cond}:\n            break\n        print('body', {a})\n    finally:\n        {iv} = {i}\n        print('finally', {a})", ""),
    ("while True:\n    try:\n        {tv} = {t}\n        if {cond}:\n            raise Oops({i})\n    except Oops as {a}:\n        print('caught', {a}.args)\n    finally:\n        break", ""),
    ("try:\n    try:\n        {tv} = {t}\n        raise Uh({i})\n    except Uh:\n        print('first')\n        {iv} = {i}\n        raise KeyError({i})\n    finally:\n        print('between')\nexcept KeyError as {a}:\n    print(type({a}.__context__).__name__, {a})", ""),
    ("try:\n    try:\n        {tv} = {t}\n        1 // ({i} - {i})\n    finally:\n        flambeau.graph_break()\n        {iv} = {i}\nexcept ZeroDivisionError:\n    {tv} = {t}", ""),
    ("for {a} in range(4):\n    with torch.no_grad(), Quiet('l'):\n        {tv} = {t}\n        if {cond}:\n            break\n        flambeau.graph_break()", ""),
    # context managers
    ("with torch.no_grad(), Ctx('u'), Quiet('v'), torch.enable_grad():\n    {tv} = {t}\n    print(torch.is_grad_enabled())", ""),
    ("with contextlib.ExitStack() as {a}:\n    {a}.enter_context(torch.no_grad())\n    {a}.enter_context(Ctx('s'))\n    {tv} = {t}\n    flambeau.graph_break()", ""),
    ("with Quiet('w', True):\n    with torch.no_grad():\n        {tv} = {t}\n        if {cond}:\n            raise Oops('out')\n        print('in')", ""),
    ("torch.set_grad_enabled({cond})\n{tv} = {t}\nprint(torch.is_grad_enabled())\ntorch.set_grad_enabled(True)", ""),
    # generators driven by hand
    ("def {a}(k):\n    total = k\n    while total < 9:\n        got = yield total\n        total += got or 1\n{b} = {a}({i})\n{new} = next({b}, 0)\ntry:\n    {new} += {b}.send({i} % 3)\nexcept (StopIteration, TypeError):\n    {new} = 1", "i"),
    ("def {a}(v):\n    try:\n        yield v\n        yield v + 1\n    except Oops as e:\n        yield v * 2\n    finally:\n        GL.append(7)\n{b} = {a}({t})\n{new} = next({b})\nif {cond}:\n    {new} = {b}.throw(Oops('t'))\n{b}.close()", "t"),
    ("def {a}():\n    yield from {lv}[:2]\n    got = yield from ({i}, 2)\n    return got\n{new} = list({a}())", "li"),
    ("{new} = [v for v in ({i} + w for w in {lv}[:3]) if v % 2 or crc(v) > 2]", "li"),
    ("{new} = sum(t.shape[0] for t in ({t}, {t})) % 7", "i"),
    # cells written below a break, at two levels
    ("{a} = {i}\ndef {b}(k):\n    def deep():\n        nonlocal {a}\n        {a} = ({a} + k) % 13\n        flambeau.graph_break()\n        {a} += 1\n        return {a}\n    {a}_ = deep()\n    return {a}_ + {a}\n{new} = {b}({i}) + {a}", "i"),
    ("{a} = {t}\ndef {b}():\n    nonlocal {a}\n    {a} = {a} + {i}\n    print('cell', {a}.shape)\n    {a} = {a} * 0.5\n{b}()\n{new} = {a}", "t"),
    ("{a} = [(lambda v, j=j: v + j + {i}) for j in range(2)]\n{new} = {a}[0]({i}) + {a}[1](crc({i}))", "i"),
    # classes, properties, attributes
    ("{new} = PEEK.peek + PEEK.peek", "i"),
    ("PEEK.level = {i}\n{new} = PEEK.level", "i"),
    ("{new} = PEEK.total + {i}\nPEEK.__dict__.pop('total', None)", "i"),
    ("type(PEEK).made = {i}\n{new} = PEEK.made", "i"),
    ("vars(GB)['k'] = {i} % 9\n{new} = GB.k", "i"),
    ("PEEK[{i}] = {i}\n{new} = PEEK[{i}] + (2 in PEEK) + len(PEEK)", "i"),
    ("with PEEK as {a}:\n    {new} = {a}.peek\n    {tv} = {t}", "i"),
    ("{a} = types.SimpleNamespace(t={t}, k={i})\n{a}.k += 1\n{a}.t = {a}.t + {a}.k\n{new} = {a}.t", "t"),
    ("{a} = Pair({t}, {i})\n{b}, {new} = {a}\n{new} = {a}._replace(k={i}).k + {a}.k", "i"),
    ("{a} = Record({i}, [{i}])\n{a}.items.append({i})\n{new} = {a}.k + len({a}.items) + ({a} == Record({i}, []))", "i"),
    # another module's globals; this module's through dictionaries
    ("{new} = tally({i})", "i"),
    ("tally({i})\nflambeau.graph_break()\n{new} = tally(1) + len(ledger)", "i"),
    ("{new} = loud_tally({i})", "i"),
    ("globals()['G'] = {i}\n{new} = G", "i"),
    # arguments
    ("{a} = ({t}, {i})\n{new} = apply(lambda v, *r, **o: v + len(r) + len(o), *{a}, *{lv}[:2], z={i}, **{{'w': 1}})", "t"),
    ("def {a}(*args, k=2, **kw):\n    print(len(args), k, sorted(kw))\n    return sum(args) + k + sum(kw.values())\n{new} = {a}({i}, *{lv}[:2], k={i}, z={i})", "i"),
    ("{a} = functools.partial(apply, lambda v, k, j=1: v * 0.5 + k - j)\n{new} = {a}({t}, {i}, j={i})", "t"),
    # itertools, functools, operator
    ("{new} = [a + b for a, b in itertools.product({lv}[:2], [1, {i}])]", "li"),
    ("{new} = list(itertools.accumulate({lv}[:3])) + list(itertools.islice(itertools.count({i}), 2))", "li"),
    ("{new} = functools.reduce(lambda p, q: p + q, {lv}, {i}) % 11", "i"),
    ("{new} = [k for k, g in itertools.groupby(sorted({lv}[:4]))]", "li"),
    ("{new} = operator.itemgetter(0)([{i}]) + operator.attrgetter('k')(GB)", "i"),
    # caches
    ("{new} = memo({i} % 6)[0] + len(memo({i} % 6, 'a', word={i} % 3))", "i"),
    ("memo({i} % 4).append({i})\nprint(memo({i} % 4), memo.cache_info())", ""),
    ("if {cond}:\n    memo.cache_clear()\nprint(memo(2.0), memo(2), memo(True), memo((1, 'a')), memo.cache_info())", ""),
    ("{new} = ramp({i} % 3, {t}.dtype).sum() * {t}\nprint(ramp({i} % 3, {t}.dtype) is ramp({i} % 3, {t}.dtype))", "t"),
    ("try:\n    {new} = memo(5)[0]\nexcept Oops:\n    {new} = memo(3)[0]", "i"),
    # dtypes and strides
    ("{new} = {t}.double()", "t"), ("{new} = ({t} * 4).int()", "t"), ("{new} = {t}.half().float()", "t"),
    ("{new} = {t}.transpose(0, -1).contiguous().transpose(0, -1)", "t"), ("{new} = ({t} > {i}).float()", "t"),
    ("{new} = {t}.repeat(2, 1)[::2]", "t"), ("{new} = torch.stack([{t}, {t}], -1)[..., 0]", "t"),
    ("{new} = {t}.to(torch.int64) // 2 + {i}", "t"), ("{new} = {t}.sum(-1, keepdim=True).expand(-1, 3)", "t"),
    ("{new} = torch.cat([{t}, {t}])[:2]", "t"), ("{new} = {t}.new_full((3,), {i})", "t"),
    ("{new} = {t}.detach()\n{new}.add_({t})", "t"), ("{new} = {t}.masked_fill({t} > 0, {i})", "t"),
    ("{tv}[{tv} > {i}] = 0", ""), ("{tv}.t().mul_(0.5)", ""), ("{tv}.unsqueeze(0).add_({i})", ""),
    ("{tv}.view(-1)[:2].zero_()", ""), ("{new} = {tv}.clone()\n{new}[..., 1:] += {i}", "t"),
    ("{new} = {t}.unfold(-1, 1, 2).sum(-1)", "t"), ("{new} = {t}.reshape(-1).unfold(0, 2, 1)[:, 1]", "t"),
    ("{a} = torch.ones(3, 3) * {t}.sum()\n{new} = {a}.diagonal({i} % 3)\n{a}.mul_(2)", "t"),
    ("{a} = torch.ones(3, 3) + {i}\n{new} = {a}.as_strided((3,), (2,))\n{a}.add_({a})", "t"),
    ("{new} = {t}.reshape(-1)[[0, -1]]", "t"), ("{new} = {t}.tensor_split(2, -1)[0]", "t"),
    ("{new} = torch.fft.fft({t}.float()).abs()", "t"), ("{new} = {t}.float().norm(dim=-1)", "t"),
    ("{tv}[{tv} > {i}] = {tv}.sum()", ""), ("{new} = torch.as_tensor({i}) + torch.as_tensor([{i}, 2])", "t"),
    ("{new} = torch.ops.aten.relu({t}) + torch.ops.aten.mul.Tensor({t}, {t})", "t"),
    # autograd
    ("{a} = {t}.detach().requires_grad_()\n({a} * {a} * 0.5).sum().backward()\n{new} = {a}.grad", "t"),
    ("{a} = {t}.detach().clone().requires_grad_()\n{b} = ({a} * 2 + {t}).sum()\n({new},) = torch.autograd.grad({b}, [{a}])", "t"),
    ("{a} = {t}.detach().float().clone().requires_grad_()\n{b} = {a} * 0.5\nflambeau.graph_break()\nwith torch.no_grad():\n    {a}.mul_(2)\n{b}.sum().backward()\n{new} = {a}.grad + {a}.detach()", "t"),
    ("{a} = {t}.detach().float().clone().requires_grad_()\n{a}.register_hook(lambda g: g * 2)\n({a} * {t}).sum().backward()\n{new} = {a}.grad", "t"),
    # ends of objects
    ("{a} = Ends('o')\n{new} = {i}\ndel {a}\nprint('after')", "i"),
    ("{a} = Ends({c})\nflambeau.graph_break()\n{a} = None\nprint('gone')", ""),
    # exceptions with state
    ("try:\n    raise Oops({i}, {t})\nexcept Oops as {a}:\n    {tv} = {a}.args[1] + {a}.args[0]\ntry:\n    {a}\nexcept NameError as {b}:\n    print('unbound', type({b}).__name__)", ""),
    ("try:\n    raise_below({i})\nexcept Oops as {a}:\n    print({a}.args, {a}.__cause__ is None, {a}.__notes__)", ""),
    ("{a} = None\ntry:\n    {tv} = {t}.view(7, 7)\nexcept RuntimeError as e:\n    {a} = str(e)\nprint({a})", ""),
    ("warn_here(str({i}), 2)\nwarnings.warn(f'w {{{i}}}', stacklevel=2)", ""),
    ("log.info('%s and %d', {c}, {i})\nlog.warning('n %s', where())", ""),
    # matching
    ("match [{i}, {i}]:\n    case [0, *{a}]:\n        {iv} = len({a})\n    case [{a}, {b}] if {a} > {b}:\n        {tv} = {t}\n        print('match', {a})\n    case _:\n        {iv} = 2", ""),
    ("match {{'k': {i}, 'v': {t}}}:\n    case {{'k': 1 | 2, 'v': {a}}}:\n        {tv} = {a}\n    case {{'k': int({b})}}:\n        {iv} = {b}", ""),
]  # fmt: skip


class Rare(Expressions):
    """`rare` writes one of them."""

    def rare(self, scope: Scope) -> None:
        """A statement of the table, with its holes filled."""
        text, kind = self.random.choice(THEMES if self.chance(0.4) else RARE)
        if "nonlocal" in text and scope.generator:
            return
        names = {hole: self.fresh("z") for hole in ("new", "a", "b") if f"{{{hole}}}" in text}
        # Names that are stored to are of this function, or the store would make them so.
        for hole, of in (("tv", "t"), ("iv", "i")):
            if f"{{{hole}}}" in text:
                if not scope.write[of]:
                    self.line(f"{scope.add(of, self.fresh('z'))} = {'torch.ones(3)' if of == 't' else '1'}")
                names[hole] = self.random.choice(scope.write[of])
        if "{lv}" in text:
            names["lv"] = self.name(scope, "li", "GL")
        for hole, name in names.items():
            text = text.replace(f"{{{hole}}}", name)
        for line in self.fill(text, scope).split("\n"):
            self.line(line)
        if kind:
            scope.add(kind, names["new"])
