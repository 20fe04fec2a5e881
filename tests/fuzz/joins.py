"""`python -m tests.fuzz.joins --seeds 0:1000`: random graphs of matrices that are cut, joined, rolled, padded and turned,
eagerly and compiled. One seed in three is with gradients.

Compared are the results with their layouts, and the gradients.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

import flambeau
from tests import internal

from . import quick

SHAPES = [(6, 8), (12, 20), (17, 33), (4, 4)]
# {a} and {b}: any matrices; {d}: a dimension; {i}, {j}: small numbers; {low}, {high}: two parts of {a} and {b}.
LINES = [
    "torch.roll({a}, ({i}, {j}), (0, 1))", "torch.roll({a}, {i}, {d})", "torch.roll({a}, {i} * 3 + {j})", "{a} * 2 + {b}",
    "torch.where({a} > {b}, {a}, {b} - 1)", "torch.cat(({high}, {low}), {d})", "torch.cat((-{high}, {low}), {d})",
    "F.pad({a}[None], (1, 1, 1, 1), mode={mode!r})[0, 1:-1, :-2]", "torch.flip({a}, ({d},)).sin()", "({a} + {b}).clone()",
    "{a}.exp().clamp(max=3)", "{a}.t().contiguous().t() + {b}", "({a} * {b}).cumsum({d})", "F.pad({low}, {padding})",
    "torch.stack(({a}, {b}), {d}).sum({d})", "{a}.clone().index_fill_({d}, torch.tensor([0, 2]), 0.5)", "{a} - {a}.mean({d}, True)",
    "torch.cat(({low}.exp(), ({high} * 2).relu()), {d})", "{a}.unfold(0, 1, 1)[..., 0] * {b}", "torch.diff({a}, dim={d}, prepend={row})",
]  # fmt: skip
ENDS = [
    "",
    ", {a}.sum(0)",
    ", {a}.mean()",
    ", {a}.reshape(-1).cumsum(0)",
    ", {a}.t().softmax(-1)",
    ", {a}.amax(1) + {b}[:, 0]",
]


def shape(choose: random.Random) -> tuple[int, int]:
    """That of the arguments; the first choice of a seed."""
    return choose.choice(SHAPES)


def source(seed: int) -> str:
    """The program of a seed."""
    choose = random.Random(seed)
    sizes = shape(choose)
    names, lines = ["x", "y"], []
    for _ in range(choose.randint(3, 9)):
        d = choose.randint(0, 1)
        a, b, cut = choose.choice(names), choose.choice(names), choose.randint(1, sizes[d] - 1)
        before = "" if d == 0 else ":, "
        parts = {
            "a": a, "b": b, "d": d, "i": choose.randint(-3, 3), "j": choose.randint(-3, 3),
            "low": f"{a}[{before}:{cut}]", "high": f"{b}[{before}{cut}:]", "row": f"{b}[{before}:1]",
            "mode": choose.choice(["circular", "reflect", "replicate"]),
            "padding": [0, 0, sizes[0] - cut, 0] if d == 0 else [sizes[1] - cut, 0],
        }  # fmt: skip
        name = f"v{len(lines)}"
        lines.append(f"    {name} = {choose.choice(LINES).format(**parts)}\n")
        names.append(name)
    made = names[2:]
    results = choose.sample(made, min(len(made), choose.randint(1, 3)))
    end = choose.choice(ENDS).format(a=results[0], b=choose.choice(made))
    return f"def f(x, y):\n{''.join(lines)}    return ({', '.join(results)}{end},)\n"


def seen(seed: int, wrap: Callable[[Any], Any]) -> list[Any]:
    """Results and gradients of the program."""
    names: dict[str, Any] = {"torch": torch, "F": F}
    exec(compile(source(seed), "<program>", "exec"), names)
    generator = torch.Generator().manual_seed(seed)
    sizes, with_gradients = shape(random.Random(seed)), seed % 3 == 0
    x, y = (torch.randn(sizes, generator=generator, requires_grad=with_gradients) for _ in range(2))
    results = wrap(names["f"])(x, y)
    if not with_gradients:
        return [(result, result.stride()) for result in results]
    loss = sum((result * result).sum() for result in results)
    return [*results, *torch.autograd.grad(loss, [x, y], allow_unused=True)]


def same(expected: Any, ours: Any) -> bool:
    """Whether two parts of what was seen differ by rounding alone."""
    if isinstance(expected, torch.Tensor) and isinstance(ours, torch.Tensor):
        return expected.shape == ours.shape and torch.allclose(expected, ours, rtol=1e-4, atol=1e-4, equal_nan=True)
    if isinstance(expected, tuple) and isinstance(ours, tuple):
        return len(expected) == len(ours) and all(map(same, expected, ours))
    return type(expected) is type(ours) and expected == ours


def failure(seed: int) -> str:
    """How the compiled program differs; empty if it does not."""
    expected = seen(seed, lambda call: call)
    flambeau.reset()
    ours = seen(seed, lambda call: flambeau.compile(call, fullgraph=True))
    for at, (eager, own) in enumerate(zip(expected, ours, strict=True)):
        if not same(eager, own):
            return f"value {at}: {own} instead of {eager}"
    reasons = internal.counted(flambeau.counters())
    return f"a fallback that is a mistake: {reasons}" if reasons else ""


told = quick.told(source, failure)


if __name__ == "__main__":
    sys.exit(quick.run("joins", __doc__, source, told))
