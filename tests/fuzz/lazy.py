"""Iterators and what consumes them: containers that change meanwhile, generators with effects, iterators shared and copied.

An iterator and a consumer are drawn each by itself, so that every consumer meets every iterator.
"""

from __future__ import annotations

from .expressions import Expressions
from .scope import Scope

#: What a generator does before it yields. Holes: {l} a list that its consumer may change, {t} {i} {tv} {cond}; `j` counts.
EFFECTS = [
    "{l}.append(j)", "{l}.insert(0, {i})", "SEEN.append(j)", "GL.append(j % 3)", "{l}[:1] = [{i}]", "del {l}[:1]", "GD['g'] = j",
    "{tv}.add_(1)", "GB.k = j", "tally(j)", "SEEN.append({t})", "j += 1", "len({l})",
]  # fmt: skip
BREAKS = ["flambeau.graph_break()", "print('yields', j)", "crc(j)", "os.cpu_count()"]
ENDS = [
    "raise Oops(j)",
    "return",
    "raise StopIteration(j)",
    "raise KeyError(j)",
    "1 // 0",
    "return j",
    "[][j]",
    "GB.nothing",
]
YIELDS = ["j", "len({l})", "sum({l}) % 7", "{l}[-1]", "{i}", "j + {i}", "GB.k", "crc(j)"]
#: Iterators in one expression.
ITERATORS = [
    "({l}[-1] * 2 % 11 for _ in range(3))", "(len({l}) for _ in range({i} % 4))", "(v + {i} for v in {l}[:3])",
    "map(lambda v: v + len({l}), {l}[:3])", "map(lambda v: {l}.append(v) or len({l}), [1, {i}])", "(({l}.append({i}), v)[1] for v in GL[:3])",
    "filter(lambda v: {l}.append(1) or v % 2, [{i}, 2, 3])", "filter(None, {l}[:4])", "itertools.islice({l}, 3)",
    "itertools.islice(iter({l}), {i} % 3, 5)", "itertools.chain({l}[:2], (len({l}) for _ in 'ab'))", "itertools.takewhile(lambda v: v < 4, {l}[:5])",
    "itertools.dropwhile(lambda v: {cond}, {l}[:5])", "itertools.accumulate({l}[:4])", "itertools.accumulate({l}[:4], lambda p, q: {l}.append(p) or q)",
    "itertools.starmap(lambda p, q: p + q + len({l}), zip({l}[:3], (1, 2)))", "itertools.repeat(len({l}), 2)", "itertools.compress({l}[:4], [1, 0, {i}])",
    "itertools.chain.from_iterable([{l}[:2], (v for v in {l}[:1])])", "itertools.islice(itertools.cycle({l}[:2] or [1]), 5)", "itertools.filterfalse(lambda v: v % 2, {l}[:4])",
    "itertools.zip_longest({l}[:2], (1, 2, 3), fillvalue=0)", "itertools.pairwise({l}[:4])", "itertools.batched({l}[:4], 2)",
    "iter({l}[:3])", "iter(lambda: {l}.append(1) or len({l}), len({l}) + 3)", "reversed({l}[:3])", "reversed({l})", "zip({l}[:3], iter({l}[:2]))",
    "enumerate(v for v in {l}[:3])", "enumerate({l}[:3], {i})", "range({i} % 5)", "dict.fromkeys({l}[:3], 1)", "dict.fromkeys({l}[:3], 1).keys()",
    "{{v: j for j, v in enumerate({l}[:3])}}.values()", "{{v: j for j, v in enumerate({l}[:3])}}.items()", "{l}[:3]", "tuple({l}[:3])", "set({l}[:3])",
    "str({i} + 10)", "(v for v in ())", "(w for v in ({l}[:2], GL[:2]) for w in v)", "(v for v in {l}[:4] if {l}.append(1) or v % 2)",
    "map(int, str({i} + 12))", "map(len, (str(v) for v in {l}[:2]))", "map(max, {l}[:3], [2, 2])", "map({l}.__getitem__, range(3))", "map(GD.get, 'gh', {l}[:2])",
    "(1 // (v - {i}) for v in {l}[:4])", "(fail_at(v) for v in {l}[:4])", "map(fail_at, range({i}))", "iter({t}.shape)", "Steps({i})", "iter(Steps({i}))", "Items({l}[:3])",
    "filter(fail_at, range({i}))", "({l}.pop() for _ in range(3))", "(GL.append(v) or v for v in {l}[:2])", "({t}.sum() for _ in range(2))", "map({t}.add, {l}[:2])",
]  # fmt: skip
#: Uses of one, {it}; what is kept of it is appended to SEEN. {l} the list, {d} a dict, {e} a set.
CONSUMERS = [
    "{l}.extend({it})", "{l} += {it}", "{l}[:1] = {it}", "{l}[1:] = {it}", "{l}[::2] = {it}", "{l}[len({l}):] = {it}",
    "SEEN.append(list({it}))", "SEEN.append(tuple({it}))", "SEEN.append(sorted({it}))", "SEEN.append(sorted({it}, key=lambda v: {l}.append(1) or -v))",
    "SEEN.append(sum({it}))", "SEEN.append(sum({it}, {i}))", "SEEN.append(min({it}, default=1))", "SEEN.append(max({it}, key=lambda v: {l}.append(v) or v % 3))",
    "SEEN.append(min({it}, key=fail_at))", "SEEN.append(any({it}))", "SEEN.append(all({it}))", "SEEN.append(any(v > 2 for v in {it}))", "SEEN.append(dict(zip('abc', {it})))",
    "SEEN.append(dict(enumerate({it})))", "SEEN.append(dict((v, {l}.append(1)) for v in {it}))", "SEEN.append(','.join(map(str, {it})))", "SEEN.append(','.join(str(v) for v in {it}))",
    "{a}, *{b} = {it}\nSEEN.append(({a}, {b}))", "{a}, {b} = {it}\nSEEN.append(({a}, {b}))", "*{a}, {b} = {it}\nSEEN.append(({a}, {b}))", "SEEN.append({{*{it}}})", "SEEN.append([*{it}, *{l}[:2]])",
    "SEEN.append((*{it},))", "SEEN.append((lambda *r: r)(*{it}))", "SEEN.append((lambda p=1, *r, k=2: (p, r, k))(*{it}, k=len({l})))", "SEEN.append(max(*{it}))",
    "{d}.update((str(v), v) for v in {it})", "{d}.update(zip('xyz', {it}))", "{d} |= zip('xyz', {it})", "{e}.update({it})", "{e}.update({it}, {l}[:2])", "{e}.difference_update({it})", "{e}.intersection_update({it})",
    "{e}.symmetric_difference_update({it})", "SEEN.append({e}.union({it}))", "SEEN.append({e}.issuperset({it}))", "SEEN.append({e}.isdisjoint({it}))", "SEEN.append(set({it}))", "SEEN.append(frozenset({it}))",
    "SEEN.append(dict.fromkeys({it}, {i}))", "SEEN.append(collections.deque({it}, 2))", "{a} = collections.deque(GL[:2], 3)\n{a}.extend({it})\nSEEN.append({a})", "{a} = collections.deque()\n{a}.extendleft({it})\nSEEN.append({a})",
    "{a} = collections.deque(GL[:2])\n{a} += {it}\nSEEN.append({a})", "SEEN.append(collections.Counter({it}))", "{a} = collections.Counter()\n{a}.update({it})\nSEEN.append({a})", "SEEN.append(functools.reduce(lambda p, q: {l}.append(1) or q, {it}))",
    "SEEN.append(functools.reduce(lambda p, q: p + q, {it}, {i}))", "SEEN.append({i} in {it})", "SEEN.append(2 not in {it})", "SEEN.append(operator.contains({it}, 2))", "SEEN.append(math.prod({it}))", "SEEN.append(bytes({it}))",
    "SEEN.append(bytearray({it}))", "SEEN.append(list(zip({it}, {l}[:2])))", "SEEN.append(list(zip({l}[:2], {it}, strict=True)))", "{a} = iter({it})\nSEEN.append(list(zip({a}, {a})))", "SEEN.append(list(map(lambda p, q: p, {it}, {l}[:3])))",
    "SEEN.append(list(itertools.chain({it}, {l}[:1])))", "SEEN.append([(k, list(g)) for k, g in itertools.groupby({it})])", "{a}, {b} = itertools.tee({it})\nSEEN.append([next({a}, 0), list({b}), list({a})])",
    "SEEN.append(list(itertools.product({it}, [1, 2])))", "SEEN.append(list(itertools.combinations({it}, 2)))", "SEEN.append(list(itertools.accumulate({it})))", "SEEN.append(list(itertools.islice({it}, 2)))", "SEEN.append(list(enumerate({it})))",
    "SEEN.append(next(iter({it})))", "SEEN.append(next(iter({it}), None))", "{a} = iter({it})\nnext({a}, 0)\n{l}.extend({a})", "{a} = iter({it})\n{l}.append(9)\nSEEN.append(list({a}))", "{a} = iter({it})\nSEEN.append((list({a}), list({a}), next({a}, 'done')))",
    "{a} = iter({it})\nfor {b} in {a}:\n    SEEN.append(({b}, next({a}, None)))", "{a} = iter({it})\nfor {b} in {a}:\n    {tv} = {t}\n    if {cond}:\n        break\nSEEN.append(list({a}))", "for {a} in {it}:\n    flambeau.graph_break()\n    {l}.append(1)\n    {tv} = {t}",
    "for {a} in {it}:\n    {tv} = {t}\n    {l}.append({i})", "for {a}, {b} in enumerate({it}):\n    SEEN.append(({a}, {b}, len({l})))\n    {tv} = {t}", "{a} = iter({it})\nflambeau.graph_break()\nSEEN.append(list({a}))", "{a} = iter({it})\nnext({a}, 0)\nflambeau.graph_break()\nSEEN.append(list({a}))",
    "{a} = [{it}, 1]\nSEEN.append(list({a}[0]))\nSEEN.append(list({a}[0]))", "SEEN.append([v for v in {it} if {l}.append(1) or v])", "SEEN.append({{v: len({l}) for v in {it}}})", "SEEN.append({{len({l}) + v for v in {it}}})", "SEEN.append(list(v for v in {it} if v))",
    "{a} = iter({it})\n{b} = copy.copy({a})\nSEEN.append((list({a}), list({b})))", "{a} = iter({it})\nnext({a}, 0)\n{b} = copy.deepcopy({a})\nSEEN.append((list({b}), list({a})))", "{a} = iter({it})\n{b} = pickle.loads(pickle.dumps({a}))\nSEEN.append((list({b}), list({a})))",
    "{a} = iter({it})\nSEEN.append(operator.length_hint({a}, 7))\nSEEN.append(list({a}))", "SEEN.append(len({it}))", "SEEN.append(iter({it}) is iter({it}))", "{a} = iter({it})\nSEEN.append(iter({a}) is {a})", "{a} = {it}\nSEEN.append((hasattr({a}, '__len__'), hasattr({a}, '__next__'), type({a}).__name__))",
    "{a} = iter({it})\nSEEN.append(next(iter(lambda: next({a}, 2), 2), 'end'))\nSEEN.append(list({a}))", "{a} = {it}\nSEEN.append(isinstance({a}, collections.abc.Iterator))\nSEEN.append(isinstance({a}, collections.abc.Sized))", "SEEN.append(torch.tensor(list({it})))", "{tv} = sum(({t} * v for v in {it}), {tv})",
    "def {a}():\n    SEEN.append((yield from {it}))\n    yield {i}\nSEEN.append(list({a}()))", "def {a}(*r, **o):\n    return r, {t}\nSEEN.append({a}(*{it}))", "SEEN.append(heapq.nsmallest(2, {it}))", "SEEN.append(list(heapq.merge({it}, {l}[:2])))", "SEEN.append('%s %s' % tuple({it}))",
    "SEEN.append(apply(list, {it}))", "SEEN.append(apply(lambda v: [*v], {it}))", "SEEN.append(collections.OrderedDict(enumerate({it})))", "SEEN.append(Pair._make({it}))", "{a} = Pair(1, 2)\n{a}.t, {a}.k = {it}", "GB.items, GB.k = {it}", "GL[0], {a} = {it}", "{l}.__init__({it})", "list.extend({l}, {it})",
    "list.__iadd__({l}, {it})", "{l}.__setitem__(slice(0, 1), {it})", "SEEN.append([] + {it})", "SEEN.append({l} == {it})", "if {it}:\n    SEEN.append('true')\n    {tv} = {t}", "match {it}:\n    case [{a}, *{b}]:\n        SEEN.append({a})\n    case _:\n        SEEN.append('no')", "SEEN.append(sorted({it}, reverse=True))",
    "try:\n    {l}.extend({it})\nfinally:\n    SEEN.append(len({l}))", "with Quiet('l', True):\n    {l}.extend({it})", "with contextlib.suppress(Exception):\n    {l} += {it}", "SEEN.append(twice({it}))", "SEEN.append(list(reversed(list({it}))))", "SEEN.append(list(map(fail_at, {it})))", "SEEN.append(str.join('-', {it}))",
]  # fmt: skip


class Lazy(Expressions):
    """`lazy` writes one consumer of one iterator."""

    def __init__(self, seed: int, breaks: float | None = None):
        super().__init__(seed, breaks)
        self.lazily = self.pick(0.2, 0.5, 2)  # how often

    def lazy(self, scope: Scope) -> None:
        """What remains is seen: the list and, where it is so, the exception."""
        iterated = self.name(scope, "li", "GL") if self.chance(0.6) else None
        if iterated not in scope.write["li"]:
            value = self.pick("[1, 2]", f"[{self.i(scope, 0)}, 3, 1]", "GL[:3]", "[]")
            iterated = scope.add("li", self.fresh("l"))
            self.line(f"{iterated} = {value}")
        names = {hole: self.fresh("z") for hole in ("a", "b")}
        names |= {"l": iterated, "d": "GD", "e": "set()", "tv": self.stored(scope, "t", "torch.ones(3)")}
        iterator = self.random.choice(ITERATORS)
        if self.chance(0.3) and not scope.generator:
            iterator = f"{self.generator_function(scope, names)}({self.i(scope, 0)})"
        elif self.chance(0.2):
            iterator = self.pick(f"iter({iterator})", f"list({iterator})", f"(v for v in {iterator})", f"map(abs, {iterator})")  # fmt: skip
        consumer = self.random.choice(CONSUMERS).replace("{it}", iterator)
        for hole, of, value in (("d", "d", "{'x': 1}"), ("e", "e", "{1, 2}")):
            if f"{{{hole}}}" in consumer:
                names[hole] = self.stored(scope, of, value)
        with self.block("try:"):
            self.template(consumer, names, scope)
        with self.block("except Exception as error:"):
            self.line("SEEN.append(said(error))")
        if self.chance(0.5):
            self.line(f"SEEN.append({iterated}[-4:])")
        self.line(f"del {iterated}[6:]")

    def stored(self, scope: Scope, kind: str, value: str) -> str:
        """A name of this function that may be stored to."""
        if not scope.write[kind]:
            self.line(f"{scope.add(kind, self.fresh('z'))} = {value}")
        return self.random.choice(scope.write[kind])

    def template(self, text: str, names: dict[str, str], scope: Scope) -> None:
        """Writes a template's lines, its holes filled."""
        for hole, name in names.items():
            text = text.replace(f"{{{hole}}}", name)
        for line in self.fill(text, scope).split("\n"):
            self.line(line)

    def generator_function(self, scope: Scope, names: dict[str, str]) -> str:
        """A generator with effects, some that end early; its name."""
        name = self.fresh("gen")
        with self.block(f"def {name}(k):"), self.block("for j in range(3):"):
            for _ in range(self.random.randrange(3)):
                self.template(self.random.choice(EFFECTS).replace("{tv}", "GT"), names, scope)
            if self.chance(self.breaks * 2):
                self.line(self.random.choice(BREAKS))
            if self.chance(0.4):
                with self.block(f"if j {self.pick('==', '>', '==')} {self.pick('k', '1', '2')}:"):
                    self.line(self.random.choice(ENDS))
            self.template(f"yield {self.random.choice(YIELDS)}", names, scope)
        return name
