"""Which part of a suite a slice runs: drawn from its ID, so that each commit gets another one, within a time.

What was measured when the table was written says how long each unit takes.
"""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterable
from typing import TypeVar

from .children import ROOT

Unit = TypeVar("Unit")
SECONDS = 260.0  # of one core: with two, and what varies, less than three minutes


def identity(given: str) -> str:
    """The ID itself; for `commit` the name of the commit that is checked out."""
    if given != "commit":
        return given
    asked = subprocess.run(["git", "rev-parse", "--short=10", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    return asked.stdout.strip() or "no-commit"


def drawn(units: Iterable[tuple[Unit, float]], identity: str, seconds: float = SECONDS) -> list[Unit]:
    """Units, each with its seconds, in an order that the ID gives, as many as fit into the time."""
    waiting = list(units)
    random.Random(identity).shuffle(waiting)
    chosen: list[Unit] = []
    for unit, cost in waiting:
        if cost <= seconds:
            seconds -= cost
            chosen.append(unit)
    return chosen
