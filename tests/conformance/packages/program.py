"""What a program of this folder gives the runner. Programs import only this of ours, and say `compile` themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

Inputs = Callable[[], tuple[Any, ...]]


@dataclass
class Program:
    """A callable (compiled, or with compiled parts), makers of its arguments, and what its calls may change.

    `def program(compile)` of a program's file makes one; `compile` is `flambeau.compile`, `torch.compile` or nothing.
    Each maker of `inputs` gives the arguments of one call and is asked `times` times: values differ, shapes do not.
    """

    call: Callable[..., Any]
    inputs: Sequence[Inputs]
    state: Any = ()
    """Modules, optimizers, containers: compared after each call, with the gradients of their parameters."""
    times: int = 3
    tolerance: float = 1e-4
    """Largest difference of a float, relative to the largest number of its tensor."""
    backward: bool = True
    """Whether the runner calls `backward` on what the result has that requires grad."""
    notes: dict[str, str] = field(default_factory=dict)
