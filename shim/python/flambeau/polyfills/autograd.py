"""`torch.autograd.Function.apply` where no gradient is asked for: its `forward` is called, and nothing is recorded."""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.function import BackwardCFunction, Function, FunctionCtx

from flambeau.polyfills._table import instead_of, refuse


class Context(FunctionCtx):
    """What `forward` is given. It does not leave the call: nothing is kept for a backward."""

    def __init__(self, name: str, needs_input_grad: tuple[bool, ...]):
        self._flambeau_name = name
        self.needs_input_grad = needs_input_grad

    def mark_dirty(self, *args: Any) -> None:
        refuse()

    def __getattr__(self, name: str) -> Any:
        if hasattr(BackwardCFunction, name):
            refuse()
        raise AttributeError(f"'{self._flambeau_name}' object has no attribute '{name}'")


@instead_of("torch._C._FunctionBase.apply")
def apply(cls: Any, /, *args: Any) -> Any:
    needs_grad = []
    for arg in args:
        is_tensor = isinstance(arg, torch.Tensor)
        if is_tensor and type(arg) not in (torch.Tensor, torch.nn.Parameter):
            refuse()
        needs_grad.append(is_tensor and arg.requires_grad)
    grad_mode = torch.is_grad_enabled()
    if grad_mode and any(needs_grad):
        refuse()
    context = Context(cls._backward_cls.__name__, tuple(needs_grad))
    torch._C._set_grad_enabled(False)
    try:
        if cls.setup_context is Function.setup_context:
            outputs = cls.forward(context, *args)
        else:
            outputs = cls.forward(*args)
            cls.setup_context(context, args, outputs)
    finally:
        torch._C._set_grad_enabled(grad_mode)
    if isinstance(outputs, tuple):
        return tuple([_output(output, args) for output in outputs])
    return _output(outputs, args)


def _output(output: Any, args: tuple[Any, ...]) -> Any:
    """What `apply` makes of an output of `forward`: an input is given as a view of itself."""
    if not isinstance(output, torch.Tensor):
        return output
    if output.requires_grad:
        refuse()
    for arg in args:
        if output is arg:
            return output.view_as(output)
    return output
