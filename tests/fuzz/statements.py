"""Random statements other than definitions: assignments, mutation, control flow, exceptions, contexts, breaks."""

from __future__ import annotations

from .classes import Classes
from .lazy import Lazy
from .rare import Rare
from .scope import Scope

RAISES = [
    "raise Oops({c})", "raise Uh({i})", "raise Oops('a') from ValueError({c})", "1 // ({i} - {i})", "GL[{i} + 99]",
    "{{}}[{c}]", "int('q')", "fail({t})", "{t}.view(99)", "assert {i} > 99, {c}", "next(iter(()))", "None.attribute",
    "binascii.unhexlify('z')", "{t} + torch.ones(5)", "bisect.bisect(3, {i})", "undefined_name", "GT.no_such({i})",
    "raise StopIteration", "[].pop()", "(lambda v: v)()", "operator.add({i}, 'a')", "raise KeyError({i})",
]  # fmt: skip
HANDLERS = ["Oops", "Uh", "Exception", "(Oops, ValueError)", "ZeroDivisionError", "(IndexError, KeyError)", "RuntimeError", "TypeError", "LookupError", "AttributeError", "BaseException"]  # fmt: skip
CONTEXTS = ["torch.no_grad()", "torch.no_grad()", "torch.enable_grad()", "torch.set_grad_enabled({cond})", "Quiet('k')",
            "Quiet('k', True)", "contextlib.suppress(Oops, ValueError)", "contextlib.nullcontext({i}) as {new}", "lock",
            "contextlib.ExitStack() as {other}", "torch.no_grad(), Quiet('z')", "torch.autocast('cpu', enabled=False)",
            "torch.autocast('cpu', torch.bfloat16)", "torch.autocast('cpu', torch.bfloat16), torch.no_grad()"]  # fmt: skip
LOUD = ["Ctx('k')", "Ctx({c}) as {new}", "Ctx('m', True)", "Ctx('a'), Ctx('b', {cond})"]


class Statements(Rare, Lazy, Classes):
    """`statement` writes one; `body` several."""

    def body(self, scope: Scope, most: int) -> None:
        """Up to `most` statements, while the budget lasts."""
        for _ in range(self.random.randint(1, max(most, 1))):
            if self.budget <= 0:
                break
            self.statement(scope)

    def statement(self, scope: Scope) -> None:
        """One statement of a random kind."""
        self.budget -= 1
        nested = scope.depth < 4
        table = [
            (8, self.assign), (4, self.mutate), (self.breaks * 20, self.break_), (2 * nested, self.if_),
            (2 * nested * (scope.loop < 2), self.for_), (0.7 * nested * (scope.loop < 2), self.while_),
            (0.4 * nested * (not scope.loop), self.long_loop),
            (1.2 * nested, self.try_), (1.2 * nested, self.with_), (1.5, self.store), (0.5, self.raise_), (0.8, self.odd), (2, self.rare), (2 * self.lazily, self.lazy), (6 * bool(self.instances), self.use),
            (0.7 * nested, self.local_function), (0.6, self.return_if), (0.5 * bool(scope.loop), self.leave_loop),
            (2.5 * bool(self.helpers), self.call_statement), (1.5 * scope.generator, self.yield_),
        ]  # fmt: skip
        self.weighted(table)(scope)

    def target(self, scope: Scope, kind: str, fresh: float = 0.5) -> str:
        """A name to assign to: a new one or one that exists. Call it after the right side is made."""
        if not scope.write[kind] or self.chance(fresh):
            return scope.add(kind, self.fresh(kind if kind != "i" else "k"))
        return self.random.choice(scope.write[kind])

    def assign(self, scope: Scope) -> None:
        kind = self.weighted([(8, "t"), (5, "i"), (1, "s"), (1, "c"), (1.5, "li"), (1, "lt"), (0.7, "d"), (0.4, "e"), (1, "fn"), (0.5, "dt"), (0.4, "alias"), (1, "aug")])  # fmt: skip
        if kind in ("t", "i", "s"):
            value = getattr(self, kind)(scope, 2)
            self.line(f"{self.target(scope, kind)} = {value}")
        elif kind == "c":
            value = self.text(scope, 1)
            self.line(f"{self.target(scope, 'c')} = {value}")
        elif kind == "li":
            value = self.li(scope)
            self.line(f"{self.target(scope, 'li')} = {value}")
        elif kind == "lt":
            t = self.name(scope, "t", "GT")
            value = self.pick(f"[{self.t(scope, 1)}, {t}]", "[]", f"[{t} * k for k in range({self.i(scope, 0)} % 3)]", f"list({t})", f"[{t}] * 2")  # fmt: skip
            self.line(f"{self.target(scope, 'lt')} = {value}")
        elif kind == "d":
            value = self.pick(f"{{'a': {self.i(scope, 1)}, 'b': {self.i(scope, 1)}}}", f"dict(a={self.i(scope, 1)})", f"{{**{self.name(scope, 'd', '{}')}, 'c': {self.i(scope, 1)}}}", f"{{k: {self.i(scope, 0)} for k in 'ab'}}")  # fmt: skip
            self.line(f"{self.target(scope, 'd')} = {value}")
        elif kind == "dt":
            self.line(f"{self.target(scope, 'dt')} = {{'a': {self.t(scope, 1)}, 'b': {self.t(scope, 1)}}}")
        elif kind == "e":
            self.line(f"{self.target(scope, 'e')} = {{{self.i(scope, 1)}, {self.i(scope, 1)}}}")
        elif kind == "fn":
            form = self.pick("lambda a, k: a + k", "lambda a, k=1: {t} - k", "lambda a, *k: a * 0.5 + {i}", "functools.partial(torch.add, alpha=2)", "[lambda a, k=1, j=j: a + k + j for j in range(2)][1]", "NET", "lambda a, k: [a, {t}][k % 2]")  # fmt: skip
            self.line(f"{self.target(scope, 'fn')} = {self.fill(form, scope)}")
        elif kind == "alias":
            which = self.pick("t", "li", "lt", "b")
            if scope.read[which]:
                self.line(f"{scope.add(which, self.fresh(which))} = {self.name(scope, which, '')}")
        elif scope.write["t"] and self.chance(0.5):
            self.line(
                f"{self.random.choice(scope.write['t'])} {self.pick('+', '-')}= {self.pick(self.i(scope), self.s(scope))}"
            )
        elif scope.write["i"]:
            self.line(f"{self.random.choice(scope.write['i'])} {self.pick('+', '-', '^', '|')}= {self.i(scope)}")

    def mutate(self, scope: Scope) -> None:
        """Changes an object in place."""
        i, t = self.i(scope, 1), self.t(scope, 1)
        forms = ["GL.append({i})", "GL[0] = {i}", "GD['g'] = {i}", "GL[:] = GL[-3:]", "GD['t'] = {t}"]
        for name in scope.read["li"]:
            forms += [
                f"{name}.append({i})", f"{name}.extend([{i}, 1])", f"{name}.insert(0, {i})", f"{name}[0] = {i}",
                f"{name}.pop()", f"{name}.sort()", f"del {name}[0]", f"{name}[1:] = [{i}]", f"{name} += [{i}]" if name in scope.write["li"] else f"{name}.reverse()",
                f"heapq.heappush({name}, {i})", f"bisect.insort({name}, {i})", f"{name}.clear()", f"{name}.append(crc({i}))",
            ]  # fmt: skip
        for name in scope.read["lt"]:
            forms += [f"{name}.append({t})", f"{name}[0] = {t}", f"{name}[-1].add_(1)", f"{name}.insert(0, {t})"]
        for name in scope.read["d"]:
            forms += [f"{name}['c'] = {i}", f"{name}.setdefault('d', {i})", f"{name}.pop('a', {i})", f"{name}.update(a={i})", f"del {name}['b']", f"{name}['a'] += 1"]  # fmt: skip
        for name in scope.read["dt"]:
            forms += [f"{name}['c'] = {t}", f"{name}['a'] = {name}['a'] + 1", f"{name}['b'].mul_(0.5)"]
        for name in scope.read["e"]:
            forms += [f"{name}.add({i})", f"{name}.discard({i})", f"{name} |= {{{i}}}" if name in scope.write["e"] else f"{name}.add(1)"]  # fmt: skip
        for name in scope.read["t"]:
            forms += [f"{name}.add_({i})", f"{name}.mul_(0.5)", f"{name}[0] = {i}", f"{name}[..., 0] += 1", f"{name}.copy_({name} * 0.5)", f"bump({name}, {i})", f"{name}.data.add_(1)", f"{name}.t().add_(1)"]  # fmt: skip
        self.line(self.fill(self.random.choice(forms), scope))

    def store(self, scope: Scope) -> None:
        """Stores to an attribute or a global."""
        b = self.name(scope, "b", "GB")
        form = self.pick(f"{b}.k = {{i}} % 9", f"{b}.t = {{t}}", f"{b}.v = {{i}}", f"{b}.items.append({{i}})", f"{b}.k += 1", f"{b}.new = {{i}}", f"setattr({b}, 'k', {{i}} % 7)", "GB.k = {i} % 9", "GB.t = {t}", f"{b}.items = [{{i}}]", f"{b}.new = 1; del {b}.new", "NS.v = {t}", "NS.w = {i}", f"{self.name(scope, 't', 'GT')}.tag = {{i}}")  # fmt: skip
        self.line(self.fill(form, scope))

    def break_(self, scope: Scope) -> None:
        """A statement that breaks the graph."""
        i = self.i(scope, 1)
        self.line(
            self.fill(
                self.pick(
                    f"print('p', {i})", f"print({{c}}, {i}, sep='-')", f"print(f'{{{{{self.s(scope)}.item():.3f}}}}')",
                    "flambeau.graph_break()", "flambeau.graph_break()", "time.gmtime(0) and None", "os.cpu_count() and 0",
                    f"warnings.warn('w', stacklevel={self.random.randrange(1, 4)})", "warn_here('h')", "log.info('i %s', {i})",
                    "log.warning({c})", "print(where())", "print({t}.tolist())", "print({t}.shape)", "print(*GL)",
                    "bump({t}, 1)", "print(sorted(globals().keys() & {{'G', 'GL'}}))", "print(eval('G + 1'))",
                    "print(sys._getframe().f_code.co_name)", "print('G', G, len(GL))", "warn_here('d', 3)",
                    "print(callback(lambda v: v + {i}, {i}))", "print({t}.dtype, {i})", "sys.stdout.write('w')",
                    f"{self.name(scope, 'b', 'GB')}.v = {{i}}", "exec('G == 3')", "print(torch.is_grad_enabled())",
                ),
                scope,
            )
        )  # fmt: skip

    def odd(self, scope: Scope) -> None:
        """Constructs off the beaten track."""
        i, t = self.i(scope, 1), self.t(scope, 1)
        new, other = self.fresh("k"), self.fresh("k")
        pick = self.random.randrange(13)
        if pick == 0:
            self.line(f"{new}, *{self.fresh('r')} = {i}, {self.i(scope, 1)}, 3")
            scope.add("i", new)
        elif pick == 1 and len(scope.write["t"]) > 1:
            a, b = self.random.sample(scope.write["t"], 2)
            self.line(f"{a}, {b} = {b}, {a}")
        elif pick == 2:
            with self.block(f"match {i}:"):
                with self.block("case 1 | 2:"):
                    self.body(scope.copy(), 1)
                with self.block(f"case {new} if {new} > 3:"):
                    self.body(scope.copy(), 1)
                with self.block("case _:"):
                    self.body(scope.copy(), 1)
        elif pick == 3:
            with self.block(f"class {new.upper()}:"):
                self.line(f"field = {i}")
            self.line(f"{other} = {new.upper()}.field")
            scope.add("i", other)
        elif pick == 4:
            self.line("import math as m, zlib")
            self.line(f"{new} = m.floor({i} / 2) + zlib.crc32(b'q') % 3")
            scope.add("i", new)
        elif pick == 5:
            self.line(f"{new}, {other} = divmod({i}, 3)")
            scope.add("i", scope.add("i", new) and other)
        elif pick == 6:
            self.line(f"del {new}" if self.chance(0.1) else f"{new} = {i}; del {new}")
        elif pick == 7:
            name = self.fresh("q")
            self.line(f"{name} = collections.deque([{i}, 2], 3); {name}.appendleft({i}); {new} = {name}.pop()")
            scope.add("i", new)
        elif pick == 8:
            name = scope.add("t", self.fresh("t"))
            self.line(f"({name}, {new}), {other} = ({t}, {i}), 3")
            scope.add("i", new)
        elif pick == 9:
            self.line(f"{new} = [{i}, {t}, {self.broken_int(scope)}, {i}][2]")
            scope.add("i", new)
        elif pick == 10:
            self.line(f"{new} = {{'a': {i}, 'b': {self.broken_int(scope)}}}['b']")
            scope.add("i", new)
        elif pick == 11:
            name = scope.add("t", self.fresh("t"))
            self.line(f"{name} = apply(lambda a, k=1: a + k + {self.i(scope)}, {t}, k={self.i(scope)})")
        else:
            name = self.fresh("it")
            self.line(f"{name} = iter([{i}, {self.i(scope, 1)}, 4])")
            self.line(f"{new} = next({name})")
            scope.add("i", new)
            with self.block(f"for {other} in {name}:"):
                self.body(scope.copy(loop=scope.loop + 1), 2)

    def if_(self, scope: Scope) -> None:
        with self.block(f"if {self.cond(scope)}:"):
            self.body(scope.copy(), 3)
        if self.chance(0.3):
            with self.block(f"elif {self.cond(scope)}:"):
                self.body(scope.copy(), 2)
        if self.chance(0.4):
            with self.block("else:"):
                self.body(scope.copy(), 2)

    def for_(self, scope: Scope) -> None:
        inner = scope.copy(loop=scope.loop + 1)
        k, t = self.fresh("k"), self.fresh("t")
        i, li = self.i(scope, 1), self.name(scope, "li", "GL")
        forms = [
            (f"{k} in range({self.pick('2', '3', i + ' % 4', '1, 4', '4, 0, -2')})", k, None),
            (f"{k} in {li}[:3]", k, None),
            (f"{k} in {self.name(scope, 'b', 'GB')}.items[:2]", k, None),
            (f"{self.fresh('j')}, {k} in enumerate({li}[:3])", k, None),
            (f"{k}, {self.fresh('j')} in zip({li}, range(3))", k, None),
            (f"{k} in sorted({{{i}, 2}})", k, None),
            (f"{k} in reversed([{i}, 1])", k, None),
            (f"{t} in {self.name(scope, 't', 'GT')}", None, t),
            (f"{t} in [{self.t(scope, 1)}, {self.t(scope, 1)}]", None, t),
            (f"{k} in (v % 5 for v in {li}[:3])", k, None),
            (f"{k} in map(lambda v: v + {i}, {li}[:2])", k, None),
            (f"{k}, {t} in enumerate([{self.t(scope, 1)}, {self.t(scope, 1)}])", k, t),
            (f"{k} in itertools.chain({li}[:2], [{i}])", k, None),
        ]
        if scope.read["d"]:
            forms.append((f"{self.fresh('j')}, {k} in {self.name(scope, 'd', '')}.items()", k, None))
            forms.append((f"{k} in list({self.name(scope, 'd', '')}.values())", k, None))
        for helper in self.helpers:
            if helper.gives in ("gen", "gent"):
                target = (k, None) if helper.gives == "gen" else (None, t)
                forms += [(f"{k if helper.gives == 'gen' else t} in {self.call(helper, scope)}", *target)] * 3
        header, int_name, tensor_name = self.random.choice(forms)
        for kind, name in (("i", int_name), ("t", tensor_name)):
            if name:
                inner.add(kind, name)
        with self.block(f"for {header}:"):
            self.body(inner, 4)
        if self.chance(0.2):
            with self.block("else:"):
                self.body(scope.copy(), 1)

    def long_loop(self, scope: Scope) -> None:
        """Some more iterations of a little."""
        inner = scope.copy(loop=2)
        k = inner.add("i", self.fresh("k"))
        with self.block(f"for {k} in range({self.pick(12, 25, 40)}):"):
            self.statement(inner)
            if self.chance(0.5):
                self.statement(inner)

    def while_(self, scope: Scope) -> None:
        k = self.fresh("w")
        self.line(f"{k} = 0")
        inner = scope.copy(loop=scope.loop + 1)
        inner.read["i"].append(k)
        with self.block(f"while {k} < {self.random.randrange(1, 4)}{self.pick('', '', ' and ' + self.cond(scope))}:"):
            self.line(f"{k} += 1")
            self.body(inner, 3)
        if self.chance(0.2):
            with self.block("else:"):
                self.body(scope.copy(), 1)

    def leave_loop(self, scope: Scope) -> None:
        with self.block(f"if {self.cond(scope)}:"):
            self.line(self.pick("break", "continue"))

    def return_if(self, scope: Scope) -> None:
        with self.block(f"if {self.cond(scope)}:"):
            self.line(self.result(scope))

    def result(self, scope: Scope) -> str:
        """A return statement of this function's kind."""
        t, i = self.t(scope, 1), self.i(scope, 1)
        match scope.gives:
            case "t" | "i":
                return f"return {t if scope.gives == 't' else i}"
            case "pair":
                return f"return {t}, {i}"
            case "root":
                names = [
                    n for k in ("t", "i", "li", "lt", "d", "e", "c", "b", "dt") for n in scope.read[k] if n != "GB"
                ]
                kept = self.random.sample(names, min(len(names), self.random.randrange(1, 6)))
                return f"return {self.pick('{}', '[{}]', '({},)', '({},)').format(', '.join([t, *kept]))}"
            case _:
                return "return"

    def raise_(self, scope: Scope) -> None:
        """Raises, mostly under a condition."""
        statement = self.fill(self.random.choice(RAISES), scope)
        if self.chance(0.85):
            with self.block(f"if {self.cond(scope)}:"):
                self.line(statement)
        else:
            self.line(statement)

    def try_(self, scope: Scope) -> None:
        with self.block("try:"):
            self.body(scope.copy(), 3)
            if self.chance(0.6):
                self.raise_(scope)
            if self.chance(0.3):
                self.body(scope.copy(), 1)
        handled = self.chance(0.85)
        if handled:
            error = self.fresh("e")
            for kind in self.random.sample(HANDLERS, self.random.randrange(1, 3)):
                with self.block(f"except {kind} as {error}:"):
                    if self.chance(0.1 + self.breaks):
                        self.line(
                            self.pick(
                                f"print(type({error}).__name__, {error})",
                                f"GL.append(len(str({error})) % 5)",
                                "print(sys.exc_info()[0])",
                                f"print({error}.args, {error}.__context__)",
                            )
                        )
                    self.body(scope.copy(), 2)
                    if self.chance(0.15):
                        self.line(
                            self.pick("raise", "reraise()", f"raise Oops('again') from {error}", "raise Uh('other')")
                        )
            if self.chance(0.25):
                with self.block("else:"):
                    self.body(scope.copy(), 1)
        if not handled or self.chance(0.3):
            with self.block("finally:"):
                self.body(scope.copy(loop=0), 2)

    def with_(self, scope: Scope) -> None:
        form = self.random.choice(LOUD if self.chance(self.breaks) else CONTEXTS)
        inner, new, other = scope.copy(), self.fresh("k"), self.fresh("stack")
        made = [h for h in self.helpers if h.gives == "cm"]
        if made and self.chance(0.4):
            form = f"{self.call(self.random.choice(made), scope)} as {{new}}"
        if "{new}" in form:
            inner.add("i", new)
        text = self.fill(form.replace("{new}", new).replace("{other}", other), scope)
        with self.block(f"with {text}:"):
            if other in text:
                self.line(f"{other}.enter_context(Quiet('s'))")
                self.line(f"{other}.callback(GL.append, {self.i(scope, 0)})")
            self.body(inner, 4)

    def yield_(self, scope: Scope) -> None:
        self.line(f"yield {self.i(scope) if scope.gives == 'gen' else self.t(scope)}")

    def call_statement(self, scope: Scope) -> None:
        """Calls a function of the program."""
        helper = self.random.choice(self.helpers[-3:] if self.chance(0.5) else self.helpers)
        call = self.call(helper, scope)
        match helper.gives:
            case "t" | "i":
                self.line(f"{self.target(scope, helper.gives)} = {call}")
            case "pair":
                t, k = self.fresh("t"), self.fresh("k")
                self.line(f"{scope.add('t', t)}, {scope.add('i', k)} = {call}")
            case "none":
                self.line(call)
            case "gen" | "gent":
                it, kind = self.fresh("it"), {"gen": "i", "gent": "t"}[helper.gives]
                name = self.fresh("t" if kind == "t" else "k")
                self.line(f"{it} = {call}")
                default = "2" if kind == "i" else self.name(scope, "t", "GT")
                self.line(f"{name} = next({it}, {default})")
                scope.add(kind, name)
                form = self.pick("{0}.close()", "GL.extend([1 for v in {0}])", "", "", "for v in {0}: G")
                if form:
                    self.line(form.format(it))
            case "cm":
                with self.block(f"with {call}:"):
                    self.body(scope.copy(), 2)

    def local_function(self, scope: Scope) -> None:
        raise NotImplementedError
