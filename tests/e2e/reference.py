"""The examples of the four reference documents as programs of our own, with the counts that they must give.

The documents: the 2025 update on nested graph breaks, the page on nested graph breaks of the programming model, the
notebook on understanding graph breaks, and the page on `nn.Module` support.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

import flambeau


@dataclass
class Example:
    """`ops`: how many ops each graph has, in the order of compilation; `breaks`: how often a break is traced.

    The first of each pair is with nested graph breaks on, the second with them off.
    """

    make: Callable[[], tuple[Callable[..., Any], Any]]
    calls: list[Callable[[], tuple[Any, ...]]]
    ops: tuple[list[int], list[int]]
    breaks: tuple[int, int]


def positive() -> tuple[torch.Tensor, torch.Tensor]:
    """Two tensors with positive sums."""
    return torch.arange(12.0).reshape(3, 4) / 4, torch.ones(3, 4) * 2


def negative() -> tuple[torch.Tensor, torch.Tensor]:
    """The first one's sum is negative."""
    a, b = positive()
    return -a, b


def two_halves():
    """The update: three functions with two additions each; the break is in the middle of the innermost."""

    def low(v):
        v = v + 3
        flambeau.graph_break()
        return v + 4

    def middle(v):
        v = low(v + 2)
        return v + 5

    def high(v):
        v = middle(v + 1)
        return v + 6

    return high, None


def once_or_thrice():
    """The programming model: a break two calls deep, traced once, or once for each frame above it."""

    def leaf(v):
        v = v * 1
        flambeau.graph_break()
        return v * 2

    def between(v):
        v = v * 4
        v = leaf(v)
        return v * 8

    def top(v):
        v = v * 16
        v = between(v)
        return v * 32

    return top, None


def plain():
    """The notebook's first kernel."""
    return (lambda a, b: a + b), None


def branch():
    """A branch on a sum: the side that is not taken is never traced."""

    def kernel(a, b):
        if a.sum() > 0:
            return a + b
        return a - b

    return kernel, None


def folded():
    """Ints are folded into one constant before the branch."""

    def kernel(a, b):
        one, two = 1, 2
        three = 0 + one + two
        if a.sum() > 0:
            return a + b + three
        return a - b

    return kernel, None


def store_in_a_dict():
    """A tensor stored in a global dict is an effect, no break."""
    kept: dict[str, Any] = {}

    def kernel(a, b):
        a = a + 1.0
        kept["name"] = a
        return a * 2

    return kernel, kept


def in_a_loop():
    """A branch in the body of a loop compiles, where the reference skips the frame."""

    def kernel(a, b):
        for _ in range(5):
            total = a
            if a.sum() > 0:
                total = total + b
        return total

    return kernel, None


def flag():
    """A bool argument is a guard: one graph for each value."""

    def kernel(a, b, active):
        if active:
            return a + b
        return a - b

    return kernel, None


def inlined():
    """A helper is inlined."""

    def helper(a, b):
        return a + b

    def kernel(a, b):
        total = a - b
        return total + helper(a, b)

    return kernel, None


def helper_branches():
    """The helper has a branch on a tensor."""

    def helper(a, b):
        if a.sum() > 0:
            return a + b
        return a - b

    def kernel(a, b):
        total = a - b
        return total + helper(a, b)

    return kernel, None


def helper_of_helper_branches():
    """The branch is two calls deep: one break with nested graph breaks."""
    (one, _) = helper_branches()

    def kernel(a, b):
        total = a - b
        return total + one(a, b)

    return kernel, None


def library_op():
    """An op of a library that writes to its argument: it is in the graph, by what its fake kernel says."""
    library = torch.library.Library("flambeau_reference", "FRAGMENT")
    if not hasattr(torch.ops.flambeau_reference, "scatter_mul"):
        library.define("scatter_mul(Tensor src, Tensor index, Tensor(a!) out) -> ()")
        library.impl("scatter_mul", _scatter_mul, "CompositeExplicitAutograd")
        _kept.append(library)
    scatter_mul = torch.ops.flambeau_reference.scatter_mul

    def kernel(src, out):
        index = src.to(torch.int64).abs() % out.shape[1]
        scatter_mul(src, index, out)
        return out + 1

    return kernel, None


_kept: list[torch.library.Library] = []


def _scatter_mul(src: torch.Tensor, index: torch.Tensor, out: torch.Tensor) -> None:
    out.scatter_reduce_(1, index, src, "prod", include_self=False)


class Hooked(torch.nn.Module):
    """A linear layer with hooks before and after."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(4, 4)
        self.linear.register_forward_pre_hook(lambda module, args: (args[0] + 1,))
        self.register_forward_hook(lambda module, args, result: result * 2)

    def forward(self, v):
        return self.linear(v).relu()


def hooks():
    """Hooks set before compiling are traced: no break."""
    return Hooked().eval(), None


def pair(make):
    """Positive, then negative inputs."""
    return [make, negative]


EXAMPLES = {
    "two_halves": Example(two_halves, [lambda: positive()[:1]], ([3, 3], [1] * 6), (1, 3)),
    "once_or_thrice": Example(once_or_thrice, [lambda: positive()[:1]], ([3, 3], [1] * 6), (1, 3)),
    "plain": Example(plain, [positive], ([1], [1]), (0, 0)),
    "branch_one_side": Example(branch, [positive], ([2, 1], [2, 1]), (1, 1)),
    "branch_both_sides": Example(branch, [positive, negative], ([2, 1, 1], [2, 1, 1]), (1, 1)),
    "folded": Example(folded, [positive], ([2, 2], [2, 2]), (1, 1)),
    "store_in_a_dict": Example(store_in_a_dict, [positive], ([2], [2]), (0, 0)),
    "flag": Example(flag, [lambda: (*positive(), True), lambda: (*positive(), False)], ([1, 1], [1, 1]), (0, 0)),
    "inlined": Example(inlined, [positive], ([3], [3]), (0, 0)),
    "helper_branches": Example(helper_branches, [positive], ([3, 2], [1, 2, 1, 1]), (1, 2)),
    "helper_of_helper_branches": Example(helper_of_helper_branches, [positive], ([4, 3], [1, 1, 2, 1, 1, 1]), (1, 3)),
    "hooks": Example(hooks, [lambda: positive()[:1]], ([4], [4]), (0, 0)),
}

#: Examples whose graphs are counted in their own tests.
MORE = {
    "in_a_loop": Example(in_a_loop, [positive, negative], ([], []), (1, 1)),
    "library_op": Example(library_op, [lambda: (positive()[0], torch.zeros(3, 5))], ([], []), (0, 0)),
}
