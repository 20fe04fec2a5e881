"""The calling thread's autocast, which torch's managers switch: read as a whole, put back where a compiled frame that
switched it has failed, set to what a frame leaves; and what torch has kernels for under it."""

from __future__ import annotations

import functools

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


@functools.cache
def kernels(kind: str) -> str:
    """Names of the ops of aten that torch has kernels of autocast for, on this kind of device."""
    key = "AutocastCPU" if kind == "cpu" else f"Autocast{kind.upper()}"
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    named = [name.removeprefix("aten::") for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::")]
    return " ".join(sorted({name.split(".")[0] for name in named if has(f"aten::{name}", key)}))


def leave(entered: int, clears: bool, keeps: bool | None, switched: list[tuple[str, bool, torch.dtype]]) -> None:
    """What a frame does to it: regions that it entered and did not leave, and what the managers switch."""
    for _ in range(abs(entered)):
        torch.autocast_increment_nesting() if entered > 0 else torch.autocast_decrement_nesting()
    if clears:
        torch.clear_autocast_cache()
    if keeps is not None:
        torch.set_autocast_cache_enabled(keeps)
    for kind, on, dtype in switched:
        torch.set_autocast_enabled(kind, on)
        torch.set_autocast_dtype(kind, dtype)


def restore(before: State) -> None:
    """Makes it what it was."""
    kinds, keeps, entered = before
    leave(entered - depth(), False, keeps, kinds)
