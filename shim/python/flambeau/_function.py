"""Functions that graphs call as a whole."""

from __future__ import annotations

from typing import Any

from torch.autograd.function import Function


def apply(cls: type[Function], /, *args: Any) -> Any:
    """`torch._C._FunctionBase.apply` as a class method of `cls`: `torch.autograd.Function.apply` without what it does
    to the arguments first, which the trace has done."""
    return super(Function, cls).apply(*args)  # type: ignore[misc]
