"""Random expressions by kind. Tensor arithmetic stays in small multiples of powers of two, so that results are exact."""

from __future__ import annotations

from .scope import Helper, Scope, Writer


class Expressions(Writer):
    """`t`, `s`, `i`, `cond`, `text` and so on give source text; `breaks` is how often an expression breaks the graph."""

    def __init__(self, seed: int, breaks: float | None = None):
        super().__init__(seed)
        self.breaks = self.random.choice([0.0, 0.05, 0.1, 0.2, 0.3])
        self.breaks = self.breaks if breaks is None else breaks
        self.random_ops = self.chance(0.1)

    def name(self, scope: Scope, kind: str, default: str) -> str:
        """A readable name of this kind."""
        return self.random.choice(scope.read[kind]) if scope.read[kind] else default

    def t(self, scope: Scope, depth: int = 2) -> str:
        """A tensor that broadcasts with (rows, 3)."""
        name = self.name(scope, "t", "torch.ones(3)")
        if depth <= 0 or self.chance(0.2):
            return name
        sub = lambda: self.t(scope, depth - 1)
        choice = self.random.randrange(26)
        if choice < 5:
            return f"({sub()} {self.pick('+', '-')} {sub()})"
        if choice < 7:
            return f"({sub()} {self.pick('+', '-', '*')} {self.i(scope, 1)}).clamp(-32, 32)"
        if choice < 12:
            form = self.pick(
                "({0} * 0.5)", "{0}.relu()", "{0}.abs()", "(-{0})", "{0}.flip(0)", "{0}.clone()", "{0}.detach()",
                "{0}.unsqueeze(0).squeeze(0)", "{0}.reshape(-1).reshape({0}.shape)", "{0}.cumsum(-1)", "{0}.sum(0)",
                "{0}.t().t()", "{0}.expand_as({0})", "{0}.view({0}.shape)", "torch.relu({0})", "{0}[0]", "{0}[..., :]",
                "torch.nn.functional.relu({0})", "torch.zeros_like({0})",
            )  # fmt: skip
            return form.format(name)
        if choice == 12:
            return f"({sub()} * {sub()}).clamp(-8, 8)"
        if choice == 13:
            mask, other = f"{sub()} > {self.i(scope, 0)}", f"({sub()} < {self.i(scope, 0)})"
            return self.pick(
                f"torch.where({mask}, {name}, {sub()})",
                f"(lambda m: (m {self.pick('&', '|', '^')} {other}).float() - m.float())({mask})",
            )
        if choice == 14:
            return f"torch.{self.pick('maximum', 'minimum', 'add', 'sub')}({sub()}, {name})"
        if choice == 15:
            return f"({name} + {self.s(scope, depth - 1)})"
        if choice == 16:
            return f"({sub()} if {self.cond(scope)} else {name})"
        if choice == 17 and scope.read["b"]:
            return f"{self.name(scope, 'b', 'b')}.t"
        if choice == 18 and scope.read["lt"]:
            lt = self.name(scope, "lt", "[]")
            return self.pick(f"({lt}[-1] if {lt} else {name})", f"sum({lt}, {name})", f"{lt}[0]")
        if choice == 19 and scope.read["fn"]:
            return f"{self.name(scope, 'fn', 'off')}({name}, {self.i(scope, 1)})"
        if choice == 20 and scope.read["b"]:
            return f"{self.name(scope, 'b', 'b')}{self.pick('', '.step')}({name}, {self.i(scope, 0)})"
        if choice == 21 and self.chance(self.breaks * 2):
            fn, i = self.name(scope, "fn", "off"), self.i(scope, 0)
            return self.pick(
                f"off({name}, {i})", f"shift({name}, {i})", f"shift({name}, {i})", f"halve({name})", f"kept({fn}, {name}, {i})",
            )  # fmt: skip
        if choice == 21:
            return f"NET({name})"
        if choice == 22 and scope.read["dt"]:
            return f"{self.name(scope, 'dt', '{}')}.get({self.pick(*'ab')!r}, {name})"
        if choice == 23 and self.random_ops:
            return f"torch.randint(-4, 5, {name}.shape).float()"
        if choice == 24 and self.chance(0.3):
            return self.pick("GT", name)
        made = [h for h in self.helpers if h.gives in ("t", "pair")]
        if made and choice >= 22:
            helper = self.random.choice(made)
            call = self.call(helper, scope)
            return call if helper.gives == "t" else f"{call}[0]"
        return name

    def s(self, scope: Scope, depth: int = 1) -> str:
        """A tensor of one element."""
        if scope.read["s"] and self.chance(0.3):
            return self.name(scope, "s", "")
        return self.pick("{0}.sum()", "{0}.max()", "{0}.min()", "({0}.sum() * 0.25)", "{0}.reshape(-1)[0]").format(
            self.t(scope, depth - 1)
        )

    def i(self, scope: Scope, depth: int = 2) -> str:
        """A small int."""
        name = self.name(scope, "i", "2")
        if depth <= 0 or self.chance(0.2):
            return self.pick(name, name, str(self.random.randrange(6)))
        if self.chance(self.breaks):
            return self.broken_int(scope)
        sub = lambda: self.i(scope, depth - 1)
        simple = [
            f"({sub()} + {sub()})", f"({sub()} - {sub()})", f"({sub()} * {sub()} % 7)", f"({sub()} // 2)",
            f"min({sub()}, {sub()})", f"max({sub()}, {sub()})", f"abs({sub()})", f"({sub()} & 3)", f"({name} << 1) % 9",
            f"{self.name(scope, 't', 'GT')}.shape[-1]", f"{self.name(scope, 't', 'GT')}.dim()", "G", "len(GL)",
            f"({sub()} if {self.cond(scope, 0)} else {name})", f"divmod({name}, 3)[1]", f"int({self.cond(scope, 0)})",
            f"({name} or {sub()})", f"({name} and {sub()})", f"int({str(self.random.randrange(9))!r})", f"-{name}",
            f"pow({sub()} % 3, 2)", f"len({self.text(scope, 0)})", f"(lambda k: k + {name})({sub()})",
        ]  # fmt: skip
        if scope.read["li"]:
            li = self.name(scope, "li", "[]")
            simple += [
                f"len({li})", f"sum({li}) % 11", f"({li}[0] if {li} else {name})", f"{li}[-1]", f"{li}.count({name})",
                f"sum(v % 3 for v in {li})", f"max([{name}, *{li}]) % 9", f"len([v for v in {li} if v > {name}])",
            ]  # fmt: skip
        if scope.read["d"]:
            d, key = self.name(scope, "d", "{}"), self.pick("a", "b", "c")
            simple += [f"{d}.get({key!r}, {name})", f"len({d})", f"sum({d}.values()) % 9", f"{d}['a']"]
        if scope.read["e"]:
            simple += [f"len({self.name(scope, 'e', '')})", f"sum({self.name(scope, 'e', '')}) % 9"]
        if scope.read["b"]:
            b = self.name(scope, "b", "b")
            simple += [
                f"({b} + 1 if isinstance({b}, OpBox) else {name})",
                f"(sum({b}) % 7 if isinstance({b}, OpBox) else 2)",
            ]
            simple += [f"{b}.k", f"len({b})", f"{b}['k']", f"len({b}.items)", f"getattr({b}, 'v', 4) % 5"]
        made = [h for h in self.helpers if h.gives in ("i", "pair", "gen")]
        if made and self.chance(0.3):
            helper = self.random.choice(made)
            call = self.call(helper, scope)
            return {"i": call, "pair": f"{call}[1] % 11"}.get(helper.gives, f"sum({call}) % 11")
        return self.random.choice(simple)

    def broken_int(self, scope: Scope) -> str:
        """An int that costs a graph break."""
        name = self.i(scope, 0)
        return self.pick(
            f"crc({name})", f"crc({name})", f"int({self.s(scope)}.item()) % 7", f"int({self.s(scope)}) % 5",
            f"len({self.name(scope, 't', 'GT')}.tolist())", f"(os.cpu_count() and {name})", f"(hash(str(G)) and {name})",
            f"(time.gmtime(0).tm_year and {name})", f"(flambeau.graph_break() or {name})", f"(print('e', {name}) or {name})",
            f"binascii.crc_hqx(b'q', 1) % 5 + {name}", f"len(callback(lambda v: v + {name}, {name}))",
            f"len(callback(lambda v: {self.t(scope, 1)}.shape[-1] + v, {name}))", f"len(sorted(GL, key=lambda v: crc(v + {name})))",
            f"max([crc(v) for v in range({name} % 3)], default=1)", "len({v: crc(v) for v in GL[:3]})",
            f"bisect.bisect(GL, {name})", f"({name} if {self.s(scope)} > 0 else 1)",
            f"operator.length_hint(GL, {name})", f"round(float({self.s(scope)})) % 6",
        )  # fmt: skip

    def cond(self, scope: Scope, depth: int = 1) -> str:
        """Something to test."""
        if depth <= 0:
            return f"{self.name(scope, 'i', '1')} {self.pick('<', '>', '==', '!=')} {self.random.randrange(6)}"
        if self.chance(self.breaks):
            s = self.s(scope)
            return self.pick(
                f"{s} > {self.random.randrange(-2, 3)}", f"({s} > 0).item()", f"{s}.item() < {self.i(scope, 0)}",
                f"bool({s} > 1)", f"{s} > 0 and {self.cond(scope, 0)}", f"{self.cond(scope, 0)} or {s} < 0",
                f"not {s} > 0", f"torch.equal({self.name(scope, 't', 'GT')}, GT)", f"crc({self.i(scope, 0)}) > 3",
                f"0 < {s} < 4", f"(v0 := {s}) > 0 and float(v0) < 9",
            )  # fmt: skip
        simple = [
            f"{self.i(scope, 1)} {self.pick('<', '<=', '>', '>=', '==', '!=')} {self.i(scope, 1)}",
            f"not {self.cond(scope, 0)}", f"({self.cond(scope, 0)} {self.pick('and', 'or')} {self.cond(scope, 0)})",
            f"0 < {self.i(scope, 0)} < 4", f"{self.name(scope, 't', 'GT')}.shape[0] > 2", f"{self.i(scope, 0)} % 2",
            f"{self.name(scope, 't', 'GT')} is not None", f"{self.name(scope, 't', 'GT')}.requires_grad",
            "torch.is_grad_enabled()", f"(v1 := {self.i(scope, 0)}) > 1",
        ]  # fmt: skip
        for kind, form in (("li", "{0}"), ("li", "2 in {0}"), ("d", "'c' in {0}"), ("e", "1 in {0}"), ("b", "3 in {0}"),
                           ("li", "any(v > 3 for v in {0})"), ("b", "isinstance({0}, Box)"), ("b", "hasattr({0}, 'zz')"), ("b", "{0}"), ("b", "{0} == 2"), ("b", "isinstance({0}, OpBox) and {0} < 3")):  # fmt: skip
            if scope.read[kind]:
                simple.append(form.format(self.name(scope, kind, "")))
        return self.random.choice(simple)

    def text(self, scope: Scope, depth: int = 1) -> str:
        """A string."""
        name = self.name(scope, "c", "'q'")
        if depth <= 0:
            return name
        i = self.i(scope, 1).replace("'", '"')
        if self.chance(self.breaks):
            return self.pick(
                f"f'{{{self.s(scope)}.item():.2f}}'", "where()", "where2()", f"callback(lambda v: v + 1, {i})"
            )
        li = self.name(scope, "li", "GL")
        return self.pick(
            f"f'{{{i}}}'", f"f'<{{{i}:03d}}|{{{name}!r}}>'" if name.isidentifier() else f"f'<{{{i}:03d}}>'", f"str({li})", f"({name} + 'z')", f"{name}.upper()",
            f"','.join(map(str, {li}))", f"'%d' % {i}", f"'{{}}'.format({i})", f"repr({i})", f"{name}[:3]",
        )  # fmt: skip

    def call(self, helper: Helper, scope: Scope) -> str:
        """A call of a program's function in one of its forms."""
        form = self.random.choice(helper.calls)
        while "{t}" in form or "{i}" in form:
            form = (
                form.replace("{t}", self.t(scope, 1), 1) if "{t}" in form else form.replace("{i}", self.i(scope, 1), 1)
            )
        return form

    def li(self, scope: Scope) -> str:
        """A new list of ints."""
        i, name = self.i(scope, 1), self.name(scope, "li", "GL")
        return self.pick(
            f"[{i}, {self.i(scope, 1)}]", f"list(range({i} % 4))", f"[v + {self.i(scope, 0)} for v in {name}]",
            f"[*{name}, {i}][:4]", f"sorted({name}, key=lambda v: -v)", f"{name}[::-1]", f"list(map(abs, {name}))", "[]",
            f"[{i}] * 2", f"[crc(v) for v in {name}[:3]]" if self.chance(self.breaks * 3) else f"[{i}]", f"[v for v in range(4) if v != {i}]", f"list({name})", f"[j * k for j, k in enumerate({name})]",
            f"[j + k for j in {name}[:2] for k in (1, {i})]", f"{name}",
        )  # fmt: skip

    def fill(self, form: str, scope: Scope) -> str:
        """A template's holes filled, and doubled braces made single."""
        makers = (("{t}", self.t), ("{i}", self.i), ("{c}", self.text), ("{cond}", self.cond), ("{s}", self.s))
        for hole, make in makers:
            while hole in form:
                form = form.replace(hole, make(scope, 1), 1)
        return form.replace("{{", "{").replace("}}", "}")
