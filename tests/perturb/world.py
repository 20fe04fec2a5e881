"""A program with its arguments, freshly loaded, and calls of it that are observed. What it changes is its own."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from fuzz import check, observe
from fuzz import world as names

import flambeau
from flambeau._native import _testing

_HASH = re.compile("with the code [0-9a-f]+")  # differs between lines
Around = Callable[[], AbstractContextManager[Any]]


@dataclass(frozen=True)
class Entry:
    """A program: its source defines `f`, and `arguments()` unless it takes those of the fuzzer's `seed`."""

    name: str
    source: str
    seed: int = 0
    reach: int = 5  # steps from the function and its arguments to what is changed

    @property
    def file(self) -> str:
        """What tracebacks of it name."""
        return f"<perturbed {self.name}>"


class World:
    """One load of an entry. Two loads are equal but share nothing that the program made."""

    def __init__(self, entry: Entry, group: int = 0):
        self.entry = entry
        torch.utils.hooks.RemovableHandle.next_id = 1 << 20  # its numbers are part of what is compared
        # Code of another line has frames of its own: each call tries all that are stored for its code.
        self.module = check.load("\n" * group + entry.source, entry.file)
        make = self.module.__dict__.get("arguments")
        self.args = list(make() if make else names.inputs(entry.seed, 0))
        self.fn = self.module.f
        self.called = self.fn
        self.around: Around = nullcontext

    def compile(self, backend: str, dynamic: bool | None) -> None:
        """Calls are compiled from here on."""
        self.called = flambeau.compile(self.fn, backend=backend, dynamic=dynamic)

    def facts(self) -> dict[str, bool]:
        """The guards of the function's own compiled frames, in words, and whether they hold now."""
        compiled = getattr(self.called, "_flambeau_compiled", self.called)
        args = self.args if compiled is self.called else [self.called, *self.args]
        with self.around():
            described = _testing.guards(compiled, *args)
        frames = json.loads(described)
        guards = [guard for frame in frames if frame["code"] == 0 for guard in frame["guards"]]
        return {_HASH.sub("with the code", guard["text"]): guard["holds"] for guard in guards}

    def call(self) -> observe.Outcome:
        """One call, as a user sees it."""
        sys.modules["program"] = self.module

        def call(*args: Any) -> Any:
            with self.around():
                return self.called(*args)

        return observe.observe(self.module, call, tuple(self.args), self.entry.seed)
