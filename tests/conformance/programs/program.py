"""What a theme says of a program, and the list of all programs.

    @program("https://github.com/pytorch/pytorch/issues/146350")
    def string_predicates():
        def f(x, text): ...
        return Made(f, [(x, "abc"), (x, "12")])

The decorated function is called anew for each run, eager or compiled, from equal states of the generators. It makes the
function, its arguments, and all state that the program changes.
"""

from __future__ import annotations

import faulthandler
import importlib
import io
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

THEMES = Path(__file__).parent / "themes"


@dataclass
class Made:
    """A callable, which the runner compiles, and the arguments of its calls."""

    call: Callable[..., Any]
    calls: Sequence[tuple[Any, ...]]
    state: Any = ()
    """What the calls change besides their arguments; compared after each call."""
    look: Callable[[tuple[Any, ...], Any], Any] | None = None
    """Runs uncompiled after each call, on its arguments and result; what it gives is compared."""
    before: Callable[[int], None] | None = None
    """Runs uncompiled before the call of this number."""
    raises: Sequence[int] = ()
    """The calls that raise eagerly."""
    warns: bool = False
    """Whether warnings are compared."""
    backward: bool = False
    """Whether the runner differentiates what the result has that requires grad."""


@dataclass(frozen=True)
class Known:
    """A program, its theme, and the issue that it comes from."""

    make: Callable[[], Made]
    theme: str
    issue: str


_known: dict[str, Known] = {}

opaque = faulthandler.is_enabled
"""A C function without effects that no compiler knows: calling it breaks the graph."""


def program(issue: str) -> Callable[[Callable[[], Made]], Callable[[], Made]]:
    """Adds a program to the list, under the function's name."""

    def add(make: Callable[[], Made]) -> Callable[[], Made]:
        if make.__name__ in _known:
            raise ValueError(f"two programs are named {make.__name__}")
        _known[make.__name__] = Known(make, make.__module__.rpartition(".")[2], issue)
        return make

    return add


def programs() -> dict[str, Known]:
    """All programs by name, in the order of the themes' files."""
    for file in sorted(THEMES.glob("*.py")):
        if file.stem != "__init__":
            importlib.import_module(f"{__package__}.themes.{file.stem}")
    return _known


def ones(*shape: int) -> Any:
    """A tensor of 1, 2, 3, ... for programs that do not care for values."""
    import torch

    return torch.arange(1.0, 1.0 + torch.Size(shape).numel()).reshape(shape)


def logger(name: str, level: int = logging.INFO) -> tuple[logging.Logger, io.StringIO]:
    """A new logger that writes to a stream of its own, and that stream."""
    made, stream = logging.Logger(name, level), io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s %(funcName)s: %(message)s"))
    made.addHandler(handler)
    return made, stream
