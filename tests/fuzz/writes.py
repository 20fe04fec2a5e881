"""`python -m tests.fuzz.writes --seeds 0:1000`: random writes to parts of tensors, eagerly and compiled.

A program makes tensors of one shape of two arguments, writes to slices of them what it reads of slices of others, of steps and
dimensions that meet, touch or miss each other, and returns some. Compared are values, strides and the arguments afterwards.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any

import torch

import flambeau
from tests import internal

from . import quick

FRESH = [
    "{a}.clone()",
    "torch.zeros_like(x)",
    "torch.zeros({shape})",
    "{a} * 2",
    "{a} + y",
    "torch.empty_like(x).fill_(3)",
]
WHOLE = [
    "{a}.cumsum(0)", "{a}.flip(0) + 1", "{a}.transpose(0, -1).contiguous().transpose(0, -1)", "{a} * {b}", "torch.relu({a})",
    "{a} - {b}.mean()", "torch.cat([{a}, {b}], -1)[..., :{a}.shape[-1]]", "torch.where({a} > 0, {a}, {b})",
]  # fmt: skip
READ = ["{r}", "{r} - {s} * 0.5", "{r} - {s} * 0.5", "{a}.sum()", "{r}.sin()", "1.5", "0"]
WRITE = [*["{t} = {e}"] * 3, "{t} += {e}", "{t} *= {e}", "{t}.copy_(torch.as_tensor({e}))", "{t}.add_({e})"]


class Writer:
    """Writes a program."""

    def __init__(self, seed: int) -> None:
        self.choose = random.Random(seed)
        self.shape = [self.choose.randint(2, 6) for _ in range(self.choose.choice([1, 2, 2, 3]))]
        self.made: list[str] = []
        self.lines: list[str] = []

    def name(self) -> str:
        """A tensor that there is."""
        return self.choose.choice(["x", "y", *self.made])

    def part(self) -> tuple[str, list[int]]:
        """An index and the shape of what it shows."""
        index, shown = [], []
        for size in self.shape:
            kind = self.choose.random()
            start = self.choose.randrange(size)
            stop = self.choose.randrange(start, size) + 1
            if kind < 0.25:
                index.append(str(self.choose.choice([start, start - size])))
            elif kind < 0.45:
                index.append(":")
                shown.append(size)
            elif kind < 0.55:
                step = self.choose.choice([2, 3])
                index.append(f"{start}::{step}")
                shown.append(len(range(start, size, step)))
            else:
                index.append(f"{start}:{stop}")
                shown.append(stop - start)
        return ", ".join(index), shown

    def like(self, shown: list[int]) -> str | None:
        """Another part of the same shape, if one is found."""
        index, left = [], list(shown)
        for at, size in enumerate(self.shape):
            needed = len(left) > len(self.shape) - at - 1
            if left and left[0] <= size and (needed or self.choose.random() < 0.6):
                length = left.pop(0)
                start = self.choose.randrange(size - length + 1)
                index.append(f"{start}:{start + length}")
            else:
                index.append(str(self.choose.randrange(size)))
        return None if left else f"{self.name()}[{', '.join(index)}]"

    def write(self) -> str:
        """A line that writes to a part of a tensor."""
        index, shown = self.part()
        read, other = self.like(shown), self.like(shown)
        value = self.choose.choice(READ if read and other else READ[-2:])
        value = value.format(r=read, s=other, a=self.name())
        return self.choose.choice(WRITE).format(t=f"{self.choose.choice(self.made)}[{index}]", e=value)

    def make(self, choices: list[str]) -> None:
        """A line that makes a tensor."""
        made = self.choose.choice(choices).format(a=self.name(), b=self.name(), shape=self.shape)
        self.lines.append(f"t{len(self.made)} = {made}")
        self.made.append(f"t{len(self.made)}")

    def program(self) -> str:
        """The program."""
        for _ in range(self.choose.randint(3, 12)):
            kind = self.choose.random()
            if kind < 0.25 or not self.made:
                self.make(FRESH)
            elif kind < 0.35:
                self.make(WHOLE)
            elif kind < 0.4:
                self.lines.append(f"{self.choose.choice(self.made)} += {self.name()}.sum(0)")
            else:
                self.lines.append(self.write())
        returned = self.choose.sample(self.made, min(len(self.made), self.choose.randint(1, 3)))
        return "def f(x, y):\n    " + "\n    ".join(self.lines) + f"\n    return [{', '.join(returned)}]\n"


def source(seed: int) -> str:
    """The program of a seed."""
    return Writer(seed).program()


def seen(seed: int, wrap: Callable[[Any], Any]) -> Any:
    """What a call of the program shows."""
    names: dict[str, Any] = {"torch": torch}
    writer = Writer(seed)
    exec(compile(writer.program(), "<program>", "exec"), names)
    torch.manual_seed(seed)
    x, y = torch.randn(writer.shape), torch.randn(writer.shape)
    try:
        with torch.no_grad():
            made = wrap(names["f"])(x, y)
    except RuntimeError as error:
        return type(error)
    return [(tensor.stride(), tensor.clone()) for tensor in [*made, x, y]]


def same(expected: Any, ours: Any) -> bool:
    """Whether they differ by rounding alone."""
    if isinstance(expected, type) or isinstance(ours, type):
        return expected is ours
    pairs = zip(expected, ours, strict=True)
    return all(s == t and torch.allclose(a, b, rtol=1e-4, atol=1e-4, equal_nan=True) for (s, a), (t, b) in pairs)


def failure(seed: int) -> str:
    """How the compiled program differs; empty if it does not."""
    expected = seen(seed, lambda call: call)
    flambeau.reset()
    ours = seen(seed, flambeau.compile)
    if not same(expected, ours):
        return f"{ours} instead of {expected}"
    reasons = internal.counted(flambeau.counters())
    return f"a fallback that is a mistake: {reasons}" if reasons else ""


told = quick.told(source, failure)

if __name__ == "__main__":
    sys.exit(quick.run("writes", __doc__, lambda seed: f"# {seed}\n{source(seed)}", told))
