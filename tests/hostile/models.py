"""Six small models whose sessions are recorded, and the script that a recorded client runs."""

from __future__ import annotations

import json
import random
import select
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.nn as nn


def perceptron() -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Linear layers with an activation between."""
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).eval(), (torch.randn(3, 8),)


def convolution() -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """A convolution and a norm."""
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.SiLU(), nn.AdaptiveAvgPool2d(2))
    return model.eval(), (torch.randn(2, 3, 8, 8),)


def attention() -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """One layer of a transformer."""
    return nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval(), (torch.randn(2, 5, 16),)


def training() -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """A loss and its gradients."""
    weight = torch.randn(8, 8)

    def step(x: torch.Tensor) -> torch.Tensor:
        w = weight.clone().requires_grad_()
        (x @ w).tanh().sum().backward()
        return w.grad

    return step, (torch.randn(4, 8),)


def broken() -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Graph breaks, closures, containers."""
    scale = {"a": 2.0, "b": [3, 4]}

    def run(x: torch.Tensor) -> tuple[torch.Tensor, int]:
        y = x * scale["a"]
        hash(repr(scale))
        if y.sum() > 0:
            y = y + scale["b"][0]
        return y.sin(), len(scale["b"])

    return run, (torch.ones(6),)


def shapes() -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Views, slices and reductions."""

    def run(x: torch.Tensor) -> torch.Tensor:
        parts = [x[i::2].reshape(-1)[:6] for i in range(2)]
        return torch.cat(parts).softmax(0) + x.mean()

    return run, (torch.randn(4, 6),)


ALL = [perceptron, convolution, attention, training, broken, shapes]


def build(name: str) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """A model and its arguments, the same in every process."""
    torch.manual_seed(0)
    return next(model for model in ALL if model.__name__ == name)()


def same(a: Any, b: Any) -> bool:
    """Whether two results are those of one program."""
    if isinstance(a, torch.Tensor):
        return torch.allclose(a, b, rtol=1e-4, atol=1e-5, equal_nan=True)
    if isinstance(a, tuple):
        return all(same(x, y) for x, y in zip(a, b, strict=True))
    return a == b


def main(names: list[str]) -> None:
    """Compares each model compiled with itself."""
    import flambeau

    for name in names:
        fn, args = build(name)
        expected = fn(*args)
        found = flambeau.compile(fn)(*args)
        assert same(expected, found), name
    print("same")


def scaled(model: Callable[..., Any], factor: float) -> Callable[..., Any]:
    """A program that nobody compiled before, for each factor."""

    def run(*args: Any) -> tuple[Any, torch.Tensor]:
        return model(*args), (args[0] * factor).exp()

    return run


def load() -> None:
    """Compiles one program after another until standard input ends. Prints a line after the first, and JSON at the end:
    programs, how many of them gave another result than eagerly, what they raised, what ran eagerly."""
    import flambeau

    seen: dict[str, Any] = {"programs": 0, "wrong": 0, "raised": []}
    parts = [build(model.__name__) for model in ALL]
    while not select.select([sys.stdin], [], [], 0)[0]:
        seen["programs"] += 1
        flambeau.reset()
        fn, args = random.choice(parts)
        program = scaled(fn, random.random())
        try:
            found = flambeau.compile(program)(*args)
        except Exception as error:
            seen["raised"].append(repr(error))
        else:
            seen["wrong"] += not same(program(*args), found)
        if seen["programs"] == 1:
            print("begun", flush=True)
    print(json.dumps({**seen, "eager": flambeau.counters()["eager_fallbacks"]}))


if __name__ == "__main__":
    torch.set_grad_enabled(True)
    torch.set_num_threads(1)
    if sys.argv[1:] == ["load"]:
        warnings.simplefilter("ignore")
        load()
    else:
        main(sys.argv[1:])
