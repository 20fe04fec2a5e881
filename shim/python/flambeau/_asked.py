"""Which gradients `torch.autograd.grad` would give in a graph: torch says it, of tensors without data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from flambeau._calls import argument, callee
from flambeau._fake import blank


def gradients(
    nodes: Sequence[Sequence[Any]],
    outputs: Sequence[int],
    seeds: Sequence[int | None],
    inputs: Sequence[int],
    keeps: bool,
    creates: bool,
    tensors: Sequence[torch.Tensor],
) -> tuple[torch.Tensor | None, ...]:
    """Runs the graph of these nodes, and asks for the gradients of `inputs`; `None` stands for one that there is not.

    A node is empty for the next one of `tensors`, holds a constant, or a function's path, its arguments, their names.
    Tensors are called by the numbers of their nodes. Raises what torch raises, and `TypeError` for gradients that share
    memory.
    """
    given = iter(tensors)
    own: set[int] = set()
    values: list[Any] = []
    for node in nodes:
        if not node:
            taken = next(given)
            tensor = blank(taken, taken.device)
            own.add(tensor.untyped_storage()._cdata)
            values.append(tensor)
        elif len(node) == 1:
            values.append(node[0])
        else:
            path, args, names = node
            found = [argument(arg, values) for arg in args]
            count = len(found) - len(names)
            values.append(callee(path)(*found[:count], **dict(zip(names, found[count:], strict=True))))
    begun = [None if seed is None else values[seed] for seed in seeds]
    made: tuple[torch.Tensor | None, ...] = torch.autograd.grad(
        [values[at] for at in outputs],
        [values[at] for at in inputs],
        begun,
        retain_graph=keeps,
        create_graph=creates,
        allow_unused=True,
    )
    tensors = [tensor for tensor in made if tensor is not None]
    if any(tensor.untyped_storage()._cdata in own for tensor in tensors) or _overlap(tensors):
        raise TypeError("gradients that share memory")
    return made


def _overlap(tensors: list[torch.Tensor]) -> bool:
    """Whether two of them show the same element."""
    by_storage: dict[int, list[torch.Tensor]] = {}
    for tensor in tensors:
        by_storage.setdefault(tensor.untyped_storage()._cdata, []).append(tensor)
    for group in by_storage.values():
        if len(group) == 1:
            continue
        places = [(list(t.shape), list(t.stride()), int(t.storage_offset())) for t in group]
        ends = [
            offset + sum((n - 1) * s for n, s in zip(shape, stride, strict=True)) for shape, stride, offset in places
        ]
        with _disable_current_modes():
            shown = torch.zeros(max(ends) + 1, dtype=torch.bool)
            for shape, stride, offset in places:
                part = torch.as_strided(shown, shape, stride, offset)
                if bool(part.any()):
                    return True
                part.fill_(True)
    return False
