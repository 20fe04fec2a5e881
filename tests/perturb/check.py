"""One change at a time: calls before it, one in the changed world, one after it is taken back; eager and compiled."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
from fuzz import observe

from .changes import Change, every
from .world import Entry, World

CALLS = ("before", "before again", "changed", "taken back")
GROUP = 10  # changes that share what the daemon stores


@dataclass(frozen=True)
class Wrong:
    """A call that did not do what eager does."""

    entry: str
    change: str
    call: str
    what: str

    def __str__(self) -> str:
        return f"{self.entry}: {self.change}: {self.call}: {self.what}"


class Refused(Exception):
    """Python does not allow the change."""


@dataclass
class Report:
    """What became of the changes of an entry."""

    changes: int
    #: Changes that Python does not allow, and what it said.
    refused: dict[str, str] = field(default_factory=dict)
    wrong: list[Wrong] = field(default_factory=list)
    #: Guards of the function's own frames, in words: how many changes broke each.
    guards: dict[str, int] = field(default_factory=dict)

    def unbroken(self) -> list[str]:
        """Guards that no change broke."""
        return [guard for guard, count in self.guards.items() if count == 0]


@dataclass
class Run:
    """How the calls of one entry are made."""

    entry: Entry
    report: Report
    backend: str = "eager"
    dynamic: bool | None = False

    def outcomes(self, change: Change, compiled: bool, group: int) -> list[observe.Outcome]:
        """What the calls of `CALLS` did."""
        world = World(self.entry, group)
        if compiled:
            world.compile(self.backend, self.dynamic)
        made = [world.call(), world.call()]
        before = world.facts() if compiled else {}
        try:
            undo = change.apply(world)
        except Exception as error:
            raise Refused(f"{type(error).__name__}: {error}") from error
        try:
            after = world.facts() if compiled else {}
            made.append(world.call())
        finally:
            undo()
        made.append(world.call())
        for guard in (guard for guard, held in before.items() if held):
            # With other code the function has other frames, and no guard is left to ask.
            holds = after.get(guard, not guard.startswith("function is "))
            self.report.guards[guard] = self.report.guards.get(guard, 0) + (not holds)
        return made

    def differences(self, change: Change, group: int) -> Iterator[Wrong]:
        """The first call of a change that differs."""
        eager = self.outcomes(change, False, group)
        compiled = self.outcomes(change, True, group)
        for call, a, b in zip(CALLS, eager, compiled, strict=True):
            if a.exception and not b.traceback:
                a.traceback = []  # an op that fails behind the commit point is raised without the program's lines
            found = observe.difference(a, b)
            if found:
                yield Wrong(self.entry.name, change.name, call, f"{found[0]} {found[1][:400]}")
                return


def check(
    entry: Entry,
    backend: str = "eager",
    dynamic: bool | None = False,
    most: int | None = None,
    only: str | None = None,
    made: Callable[[World], list[Change]] = every,
) -> Report:
    """All changes of an entry, those with `only` in their name, or `most` of them, always the same."""
    changes = [change for change in made(World(entry)) if only is None or only in change.name]
    if most is not None and most < len(changes):
        changes = random.Random(entry.name).sample(changes, most)
    torch.set_num_threads(1)  # two threads wait for each other longer than such small tensors take
    report = Report(len(changes))
    run = Run(entry, report, backend, dynamic)
    for i, change in enumerate(changes):
        try:
            report.wrong += run.differences(change, i // GROUP)
        except Refused as error:
            report.refused[change.name] = str(error)
    return report
