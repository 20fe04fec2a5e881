"""The calling thread's autocast, which torch's managers switch: read as a whole, and put back where a compiled frame
that switched it has failed."""

from __future__ import annotations

import torch

KINDS = ("cpu", "cuda")
"""The kinds of device that programs run on."""

State = tuple[list[tuple[str, bool, torch.dtype]], bool, int]
"""Of each kind whether it is on, and its type; whether casts of weights are kept; how many regions are entered."""


def depth() -> int:
    """How many regions the thread is in."""
    torch.autocast_increment_nesting()
    return int(torch.autocast_decrement_nesting())


def state() -> State:
    """As it is now."""
    kinds = [(kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in KINDS]
    return kinds, torch.is_autocast_cache_enabled(), depth()


def restore(before: State) -> None:
    """Makes it what it was."""
    kinds, keeps, entered = before
    for kind, enabled, dtype in kinds:
        torch.set_autocast_enabled(kind, enabled)
        torch.set_autocast_dtype(kind, dtype)
    torch.set_autocast_cache_enabled(keeps)
    while depth() > entered:
        torch.autocast_decrement_nesting()
    while depth() < entered:
        torch.autocast_increment_nesting()
