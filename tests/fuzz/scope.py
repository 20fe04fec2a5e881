"""Names that a random program may read and write at some place, by kind, and the lines written so far."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

#: t: tensor, s: tensor of one element, i: int, c: str, li: list of ints, lt: list of tensors, d: dict of str to int,
#: e: set of ints, fn: callable (tensor, int) -> tensor, b: box, dt: dict of str to tensor
KINDS = ("t", "s", "i", "c", "li", "lt", "d", "e", "fn", "b", "dt")


@dataclass
class Helper:
    """A function that programs call. `gives`: a kind, "pair" (tensor, int), "none", "gen" (of ints) or "gent"."""

    name: str
    calls: list[str]  # templates with {t} and {i}
    gives: str


@dataclass
class Scope:
    """Names by kind. A block's scope is a copy: what it defines is gone after it."""

    read: dict[str, list[str]] = field(default_factory=lambda: {k: [] for k in KINDS})
    write: dict[str, list[str]] = field(default_factory=lambda: {k: [] for k in KINDS})
    gives: str = "t"
    loop: int = 0
    generator: bool = False
    depth: int = 0

    def copy(self, **changes) -> Scope:
        """A scope for an inner block of the same function."""
        made = Scope({k: [*v] for k, v in self.read.items()}, {k: [*v] for k, v in self.write.items()})
        made.gives, made.loop, made.generator, made.depth = self.gives, self.loop, self.generator, self.depth + 1
        for name, value in changes.items():
            setattr(made, name, value)
        return made

    def add(self, kind: str, name: str) -> str:
        """A name that exists from here on."""
        for names in (self.read[kind], self.write[kind]):
            if name not in names:
                names.append(name)
        return name


class Writer:
    """Random choices, indented lines, and a budget of statements."""

    def __init__(self, seed: int):
        self.random = random.Random(seed)
        self.lines: list[str] = []
        self.level = 0
        self.budget = 0
        self._numbers: dict[str, int] = {}
        self.helpers: list[Helper] = []

    def line(self, text: str) -> None:
        """Writes one line."""
        self.lines.append("    " * self.level + text)

    @contextmanager
    def block(self, header: str) -> Iterator[None]:
        """A compound statement; `pass` where nothing is written into it."""
        self.line(header)
        self.level += 1
        before = len(self.lines)
        yield
        if len(self.lines) == before:
            self.line("pass")
        self.level -= 1

    def fresh(self, prefix: str) -> str:
        """A name that was not used before."""
        self._numbers[prefix] = self._numbers.get(prefix, -1) + 1
        return f"{prefix}{self._numbers[prefix]}"

    def chance(self, p: float) -> bool:
        """True with probability `p`."""
        return self.random.random() < p

    def pick(self, *options):
        """One of the options; strings are what it is mostly given."""
        return self.random.choice(options)

    def weighted(self, table):
        """One of [(weight, value)]."""
        return self.random.choices([v for _, v in table], [w for w, _ in table])[0]
