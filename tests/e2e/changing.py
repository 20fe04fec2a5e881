"""Programs that change a module between its calls: how one is written, and how it is driven and compared.

A program is a generator. It yields a module first, and gets back what its user holds (the module itself, or what was
compiled of it); after that, each `yield` is one call, with the arguments that are yielded or with a new input. Between
calls it changes what it likes. `World` is its log of hooks and its source of tensors.
"""

from __future__ import annotations

import contextlib
import itertools
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

#: Programs by name.
PROGRAMS: dict[str, Program] = {}


@dataclass
class Program:
    """A sequence of changes, and what it may cost.

    `breaks`: codes of the graph breaks that are met. `graphs`: graphs compiled in all calls together, where the changes
    should cost none or few. `slack`: widens the tolerance.
    """

    run: Callable[[World], Iterator[Any]]
    breaks: frozenset[str] = frozenset()
    graphs: int | None = None
    slack: float = 1.0


def program(
    graphs: int | None = None, breaks: str = "", slack: float = 1.0
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Adds a generator function to `PROGRAMS`."""

    def add(run: Callable[..., Any]) -> Callable[..., Any]:
        assert run.__name__ not in PROGRAMS, run.__name__
        PROGRAMS[run.__name__] = Program(run, frozenset(breaks.split()), graphs, slack)
        return run

    return add


@dataclass
class World:
    """What a program is given: inputs, a log, clean-up at the end."""

    grad: bool = True
    entries: list[Any] = field(default_factory=list)
    after: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    seeds: Iterator[int] = field(default_factory=lambda: itertools.count(7))

    def log(self, *what: Any) -> None:
        """Notes something."""
        self.entries.append(what)

    def noting(self, name: str) -> Callable[..., None]:
        """A hook of any kind that notes its arguments but the module."""

        def note(module: Any, *args: Any) -> None:
            self.entries.append((name, type(module).__name__, *args))

        return note

    def x(self, *shape: int) -> torch.Tensor:
        """An input, another one each time."""
        generator = torch.Generator().manual_seed(next(self.seeds))
        return torch.randn(shape or (3, 4), generator=generator).requires_grad_(self.grad)


class Net(nn.Module):
    """Two linear layers, a block of its own between them."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.block = Block()
        self.last = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.block(self.first(x)))


class Block(nn.Module):
    """A linear layer with an activation, scaled by an attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.scale = 2.0

    def forward(self, x: torch.Tensor, extra: float = 1.0) -> torch.Tensor:
        return torch.relu(self.linear(x)) * self.scale * extra


@dataclass
class Seen:
    """What one call left to see."""

    outcome: Any
    gradients: dict[str, torch.Tensor]
    state: dict[str, Any]
    log: list[Any]
    warned: list[str]


def drive(program: Program, compiling: Callable[[Any], Any], grad: bool, through: str = "compiled") -> list[Seen]:
    """Runs a program; `compiling` makes the compiled form, `through` says which of the two is changed and looked at."""
    torch.manual_seed(0)
    world = World(grad)
    with world.after, torch.set_grad_enabled(grad):
        steps = program.run(world)
        module = next(steps)
        called = compiling(module)
        held = called if through == "compiled" else module
        arguments, seen = steps.send(held), []
        while True:
            args = arguments if isinstance(arguments, tuple) else (world.x(),)
            kwargs = args[-1] if isinstance(args[-1], dict) else {}
            args = args[: len(args) - bool(kwargs)]
            seen.append(_call(called, held, args, kwargs, world))
            try:
                arguments = next(steps)
            except StopIteration:
                return seen


def _call(called: Any, held: Any, args: tuple[Any, ...], kwargs: dict[str, Any], world: World) -> Seen:
    named = dict(held.named_parameters()) | {
        f"input {i}": a for i, a in enumerate(args) if isinstance(a, torch.Tensor) and a.is_leaf
    }
    for tensor in named.values():
        tensor.grad = None
    world.entries.clear()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            outcome = called(*args, **kwargs)
            _backward(outcome)
        except Exception as error:
            outcome = (type(error), str(error))
    gradients = {name: t.grad.clone() for name, t in named.items() if t.grad is not None}
    state = {name: t.detach().clone() for name, t in held.state_dict().items() if isinstance(t, torch.Tensor)}
    texts = [str(w.message) for w in warned if not str(w.message).startswith("flambeau ")]
    return Seen(outcome, gradients, state, list(world.entries), texts)


def _backward(outcome: Any) -> None:
    leaves = tree_leaves(outcome)
    terms = [t.square().sum() for t in leaves if isinstance(t, torch.Tensor) and t.requires_grad]
    if terms:
        torch.stack(terms).sum().backward()
