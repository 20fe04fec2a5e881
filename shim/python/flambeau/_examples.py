"""The tensors that a back end which takes FX is shown when it compiles a graph."""

from __future__ import annotations

import torch


def stand_ins(inputs: list[object]) -> list[object]:
    """For each leaf another object with the same memory, for anything else itself.

    Torch's compilers keep weak references to what they are shown, and `torch.utils.swap_tensors` refuses a tensor that
    has some.
    """
    return [_stand_in(value) if isinstance(value, torch.Tensor) else value for value in inputs]


def _stand_in(tensor: torch.Tensor) -> torch.Tensor:
    kind = type(tensor)
    if kind not in (torch.Tensor, torch.nn.Parameter) or not tensor.is_leaf or _has_history(tensor):
        return tensor
    made = tensor.data  # no view, unlike what detach() gives
    if kind is torch.nn.Parameter:
        made = torch.nn.Parameter(made, tensor.requires_grad)
    else:
        made.requires_grad_(tensor.requires_grad)
    made.__dict__.update(tensor.__dict__)
    return made


def _has_history(tensor: torch.Tensor) -> bool:
    """Whether autograd hears of it if the view is written to. Of other views torch needs to know their memory
    alone, and it cannot make every view again from its base."""
    base = tensor._base
    return base is not None and (tensor.requires_grad or base.requires_grad)
