"""A whole random program: globals, classes, generators, context managers, nested functions, and the root `f`."""

from __future__ import annotations

from .scope import Helper, Scope
from .statements import Statements

HEADER = """\
G = 3
GL = [1, 2]
GD = {"g": 1}
GT = torch.tensor([0.5, -1.0, 2.0])
GB = Box(torch.tensor([1.0, 0.25, -0.5]), 2)
NS = types.SimpleNamespace(v=1)
NET = Net({loud})
PEEK = PeekBox(GT + 1, 1)
SEEN = []"""

ARGUMENTS = "x, y, n, items, d, b"


class Program(Statements):
    """`source` defines `f(x, y, n, items, d, b)`; equal seeds give equal sources."""

    def __init__(self, seed: int, breaks: float | None = None):
        super().__init__(seed, breaks)
        for line in HEADER.splitlines():
            self.line(line.replace("{loud}", str(self.chance(self.breaks * 2))))
        total = self.random.choice([6, 10, 16, 24, 34])
        makers = [
            (4, self.plain), (1.5, self.keyword), (1.5, self.method), (1.2, self.generator), (1, self.recursive),
            (1, self.maker), (0.8, self.manager), (0.6, self.procedure), (0.5, self.one_line),
        ]  # fmt: skip
        if self.chance(0.4):
            self.classes()
        count = self.random.choice([0, 1, 2, 3, 4])
        for _ in range(count):
            self.budget = max(1, total // (count + 1))
            self.weighted(makers)()
        scope = self.function_scope("root")
        for kind, name in (("t", "x"), ("t", "y"), ("i", "n"), ("li", "items"), ("d", "d"), ("b", "b")):
            scope.add(kind, name)
        with self.block(f"def f({ARGUMENTS}):"):
            self.use_globals(scope)
            self.budget = max(3, total // 2)
            while self.budget > 0:
                self.statement(scope)
            self.line(self.result(scope))
        self.source = "\n".join(self.lines) + "\n"

    def function_scope(self, gives: str, **changes) -> Scope:
        """What a function at module level sees."""
        scope = Scope(gives=gives)
        scope.read["b"].append("GB")
        for name, value in changes.items():
            setattr(scope, name, value)
        return scope

    def use_globals(self, scope: Scope) -> None:
        """Sometimes a `global` declaration, so that the function stores to it."""
        if self.chance(0.25):
            self.line("global G, GT")
            scope.add("i", "G")
            scope.add("t", "GT")

    def function(self, header: str, scope: Scope, arguments: tuple[str, str] = ("a", "k")) -> None:
        """The body of a function of a tensor and an int."""
        scope.add("t", arguments[0])
        scope.add("i", arguments[1])
        with self.block(header):
            self.use_globals(scope)
            self.body(scope, self.budget)
            self.line(self.result(scope))

    def plain(self) -> None:
        """`def h(a, k)`."""
        name, gives = self.fresh("h"), self.pick("t", "t", "i", "pair")
        decorator = self.weighted([(10, ""), (1, "@torch.no_grad()"), (1, "@traced"), (1, "@counted")])
        if decorator:
            self.line(decorator)
        self.function(f"def {name}(a, k):", self.function_scope(gives))
        self.helpers.append(Helper(name, [f"{name}({{t}}, {{i}})", f"{name}(k={{i}}, a={{t}})"], gives))

    def keyword(self) -> None:
        """Defaults, star arguments, keyword-only arguments."""
        name = self.fresh("h")
        scope = self.function_scope("t")
        for extra in ("scale",):
            scope.add("i", extra)
        scope.add("li", "more")
        scope.add("d", "opts")
        with self.block(f"def {name}(a, k=2, *rest, scale=1, **opts):"):
            self.line("more = list(rest)")
            scope.add("t", "a")
            scope.add("i", "k")
            self.body(scope, self.budget)
            self.line(self.result(scope))
        calls = [f"{name}({{t}})", f"{name}({{t}}, {{i}}, {{i}}, 3)", f"{name}({{t}}, scale={{i}}, c={{i}})",
                 f"{name}({{t}}, *[{{i}}, {{i}}])", f"{name}(**{{'a': {{t}}, 'k': {{i}}, 'z': 1}})",
                 f"{name}({{t}}, *GL, scale={{i}})"]  # fmt: skip
        self.helpers.append(Helper(name, calls, "t"))

    def method(self) -> None:
        """A class with state, a property, static and class methods, `super()`."""
        name = self.fresh("C")
        base = self.pick("", "(Box)", "(PropBox)")
        with self.block(f"class {name}{base}:"):
            self.line("count = 0")
            with self.block("def __init__(self, k):"):
                self.line("super().__init__(GT * 2, k)" if base else "self.t, self.k, self.items = GT + 1, k, []")
            scope = self.function_scope("t")
            scope.add("b", "self")
            if base:
                scope.read["fn"].append("super().step")
            self.function("def run(self, a, k):", scope)
            self.line("@property")
            with self.block("def twice(self):"):
                self.line("return self.k * 2 % 9")
            kind = self.pick("static", "class")
            self.line(f"@{kind}method")
            self.budget = max(self.budget, 1)
            self.function(f"def make({'' if kind == 'static' else 'cls, '}a, k):", self.function_scope("t"))
        made = self.fresh("o")
        self.line(f"{made} = {name}(2)")
        calls = [f"{name}({{i}} % 5).run({{t}}, {{i}})", f"{made}.run({{t}}, {{i}})", f"{made}.run({{t}}, k={{i}})",
                 f"{name}.make({{t}}, {made}.twice)"]  # fmt: skip
        self.helpers.append(Helper(name, calls, "t"))

    def generator(self) -> None:
        """A generator of ints or tensors."""
        name, gives = self.fresh("g"), self.pick("gen", "gent")
        scope = self.function_scope(gives, generator=True)
        scope.add("t", "a")
        scope.add("i", "k")
        with self.block(f"def {name}(a, k):"):
            self.yield_(scope)
            if self.chance(0.5):
                inner = scope.copy(loop=1)
                step = inner.add("i", self.fresh("k"))
                with self.block(f"for {step} in range({self.pick('2', 'k % 3', '3')}):"):
                    self.body(inner, 2)
                    self.yield_(inner)
            self.body(scope, self.budget)
            others = [h for h in self.helpers if h.gives == gives]
            if others and self.chance(0.5):
                self.line(f"yield from {self.call(others[0], scope)}")
            else:
                self.yield_(scope)
        self.helpers.append(Helper(name, [f"{name}({{t}}, {{i}})"], gives))

    def recursive(self) -> None:
        """Calls itself a few times."""
        name = self.fresh("rec")
        scope = self.function_scope("t")
        scope.add("t", "a")
        scope.add("i", "k")
        with self.block(f"def {name}(a, k):"):
            with self.block("if k <= 0:"):
                self.line("return a")
            self.body(scope, self.budget)
            t, most = self.t(scope, 1), self.pick(3, 3, 7)
            self.line(self.pick(f"return {name}({t}, min(k, {most}) - 1)", f"a = {name}({t}, min(k, {most}) - 1)"))
            if self.lines[-1].strip().startswith("a ="):
                self.body(scope, 2)
                self.line(self.result(scope))
        self.helpers.append(Helper(name, [f"{name}({{t}}, {most})", f"{name}({{t}}, {{i}})"], "t"))

    def maker(self) -> None:
        """A closure with a cell that it writes."""
        name = self.fresh("mk")
        outer = self.function_scope("t")
        outer.add("i", "k")
        outer.add("t", "a")
        with self.block(f"def {name}(k, a=GT):"):
            self.line("total = k")
            inner = self.function_scope("t")
            for kind in ("t", "i"):
                inner.read[kind] += [n for n in outer.read[kind] if n not in ("a", "k")]
            inner.add("i", "total")
            inner.add("t", "a")
            with self.block("def inner(v, j=1):"):
                self.line("nonlocal total, a")
                inner.add("t", "v")
                inner.add("i", "j")
                self.body(inner, self.budget)
                self.line(f"total = (total + {self.i(inner, 1)}) % 17")
                self.line(self.result(inner))
            self.line(self.pick("return inner", "total += 1; return inner", "inner(a); return inner"))
        made = self.fresh("o")
        self.line(f"{made} = {name}(1)")
        calls = [f"{name}({{i}})({{t}})", f"{made}({{t}}, {{i}})", f"{name}({{i}}, {{t}})({{t}}, j={{i}})"]
        self.helpers.append(Helper(name, calls, "t"))

    def manager(self) -> None:
        """A context manager written as a generator."""
        name = self.fresh("cm")
        scope = self.function_scope("none")
        scope.add("t", "a")
        scope.add("i", "k")
        self.line("@contextlib.contextmanager")
        with self.block(f"def {name}(a, k):"):
            if self.chance(0.5):
                self.body(scope, 2)
            with self.block("try:"):
                self.line(f"yield {self.i(scope, 1)}")
            if self.chance(0.4):
                with self.block(f"except {self.pick('Oops', 'Exception')}:"):
                    self.body(scope.copy(), 1)
            with self.block("finally:"):
                self.body(scope.copy(), 2)
        self.helpers.append(Helper(name, [f"{name}({{t}}, {{i}})"], "cm"))

    def procedure(self) -> None:
        """Changes its arguments and gives nothing."""
        name = self.fresh("p")
        scope = self.function_scope("none")
        scope.add("li", "out")
        self.function(f"def {name}(a, k, out=GL):", scope)
        self.helpers.append(Helper(name, [f"{name}({{t}}, {{i}})", f"{name}({{t}}, {{i}}, [{{i}}])"], "none"))

    def one_line(self) -> None:
        """A lambda of the module."""
        name = self.fresh("fl")
        scope = self.function_scope("t")
        scope.read["t"].append("a")
        scope.read["i"].append("k")
        self.line(f"{name} = lambda a, k=1: {self.t(scope, 2)}")
        self.helpers.append(Helper(name, [f"{name}({{t}}, {{i}})", f"{name}({{t}})"], "t"))

    def local_function(self, scope: Scope) -> None:
        """A closure inside a function, over its locals, some of them written through `nonlocal`."""
        name = self.fresh("fn")
        inner = scope.copy(gives="t", loop=0, generator=False)
        inner.depth += 1
        owned = [n for n in scope.write["i"] + scope.write["t"] if n not in ("G", "GT")]
        chosen = self.random.sample(owned, min(len(owned), self.random.randrange(3)))
        for kind, names in inner.write.items():
            inner.write[kind] = [n for n in names if n in chosen]
        if "G" in scope.write["i"]:
            inner.read["i"] = [n for n in inner.read["i"] if n != "G"]
            inner.read["t"] = [n for n in inner.read["t"] if n != "GT"]
        inner.add("t", "a")
        inner.add("i", "k")
        with self.block(f"def {name}(a, k=1):"):
            kept = [n for n in chosen if n not in ("a", "k")]
            if kept:
                self.line(f"nonlocal {', '.join(kept)}")
            self.body(inner, 3)
            self.line(self.result(inner))
        scope.add("fn", name)


def source(seed: int, breaks: float | None = None) -> str:
    """The program of this seed: the first of its attempts that is valid Python. `breaks`: how often it breaks."""
    for attempt in range(100):
        text = Program(seed + attempt * 1_000_003, breaks).source
        try:
            compile(text, "<program>", "exec")
        except SyntaxError:
            continue
        return text
    raise RuntimeError(f"seed {seed} gives no valid program")
