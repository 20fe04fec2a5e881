"""Functions that graphs call as a whole."""

from __future__ import annotations

from typing import Any

from torch.autograd.function import Function


def apply(cls: type[Function], /, *args: Any) -> Any:
    """`torch._C._FunctionBase.apply`, as a class method of `cls`: what `torch.autograd.Function.apply` of the class itself
    does before has been done."""
    return super(Function, cls).apply(*args)  # type: ignore[misc]
