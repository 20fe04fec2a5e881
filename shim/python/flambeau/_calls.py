"""Calls of a graph as data: what is called, and arguments as constants and lists that begin with their kind."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch

from flambeau._fake import _resolve


def called(path: str, names: list[str], writes: bool, strides: list[list[int]], *args: Any) -> list[torch.Tensor]:
    """The tensors that a call gives, in memory of their own, with these strides.

    `path` is that of a function, or `.` and the name of a method of tensors; `names` are those of the last arguments.
    `writes`: it writes to its first argument, and is given a copy of that.
    """
    given = [argument(arg) for arg in args]
    if writes:
        given[0] = given[0].clone()
    count = len(given) - len(names)
    made = callee(path)(*given[:count], **dict(zip(names, given[count:], strict=True)))
    results = [made] if isinstance(made, torch.Tensor) else [part for part in made if part is not None]
    known = {value.untyped_storage()._cdata for value in _tensors(given[writes:])}
    return [_own(result, stride, known) for result, stride in zip(results, strides, strict=True)]


def warned(message: str, category: type[Warning] | None, file: str, line: int, module: dict[str, Any]) -> None:
    """`warnings.warn` at this line of a file, for a module with these globals."""
    registry = module.setdefault("__warningregistry__", {})
    name = module.get("__name__") or "<string>"
    warnings.warn_explicit(message, category or UserWarning, file, line, name, registry)


def callee(path: str) -> Any:
    """What a graph calls by this path."""
    return getattr(torch.Tensor, path[1:]) if path.startswith(".") else _resolve(path)


def argument(arg: Any, nodes: Sequence[Any] = ()) -> Any:
    """An argument: a list of its kind and its parts, a tensor, or a constant. `nodes` are named by kind `node`."""
    if not isinstance(arg, list):
        return arg
    kind, *parts = arg
    if kind == "node":
        return nodes[parts[0]]
    found = [argument(part, nodes) for part in parts]
    if kind == "slice":
        return slice(*found)
    if kind == "dict":
        return dict(zip(found[::2], found[1::2], strict=True))
    return found if kind == "list" else tuple(found)


def _own(result: torch.Tensor, stride: list[int], known: set[int]) -> torch.Tensor:
    """A result with these strides, in memory that is none of `known`, which it is added to."""
    storage = result.untyped_storage()._cdata
    if storage in known or list(result.stride()) != stride:
        made = torch.empty_strided(result.shape, stride, dtype=result.dtype, device=result.device)
        return made.copy_(result)
    known.add(storage)
    return result


def _tensors(values: Sequence[Any]) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    for value in values:
        if isinstance(value, (list, tuple)):
            found.extend(_tensors(value))
        elif isinstance(value, torch.Tensor):
            found.append(value)
    return found
