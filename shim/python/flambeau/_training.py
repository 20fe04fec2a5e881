"""The node of autograd of a graph that became kernels, forward and backward."""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.function import Function, FunctionCtx


class FlambeauBackward(Function):
    """Its inputs are those of the graph that require grad; its outputs were computed already."""

    @staticmethod
    def forward(ctx: FunctionCtx, call: Any, outputs: Any, kept: Any, *inputs: Any) -> Any:
        """Keeps what the derivative reads."""
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*kept)
        ctx.call = call  # type: ignore[attr-defined]
        ctx.versions = [_version(tensor) for tensor in call.inputs()]  # type: ignore[attr-defined]
        return outputs

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """Runs the plan of the derivative; under `create_graph=True` the graph itself, op by op."""
        kept, call = ctx.saved_tensors, ctx.call
        if torch.is_grad_enabled():
            return None, None, None, *_again(call, ctx.versions, gradients)
        taken = [_laid_out(gradient, *of, call) for gradient, of in zip(gradients, call.layouts(), strict=True)]
        given = call.backward(kept, taken)
        return None, None, None, *given


def attach(*args: Any) -> Any:
    """The outputs of a graph as those of a node: `call, outputs, kept, *inputs`."""
    return FlambeauBackward.apply(*args)


def _version(tensor: torch.Tensor) -> int | None:
    return None if tensor.is_inference() else tensor._version


def _laid_out(gradient: torch.Tensor | None, dtype: str, size: list[int], stride: list[int], call: Any) -> torch.Tensor:
    """A gradient in the layout that the plan is for."""
    if gradient is not None and list(gradient.stride()) == stride:
        return gradient
    device = call.inputs()[0].device if gradient is None else gradient.device
    made = torch.empty_strided(size, stride, dtype=getattr(torch, dtype), device=device)
    return made.zero_() if gradient is None else made.copy_(gradient)


def _again(call: Any, versions: list[int | None], gradients: tuple[torch.Tensor | None, ...]) -> Any:
    """The gradients with a derivative of their own: those of the graph, run once more under autograd."""
    if call.draws():
        raise RuntimeError(
            "the derivative of a derivative of a compiled graph that draws random numbers cannot be taken: "
            "compile less of the function, or set flambeau.config.native_training = False"
        )
    inputs = call.inputs()
    if [_version(tensor) for tensor in inputs] != versions:
        raise RuntimeError(
            "one of the variables needed for gradient computation has been modified by an inplace operation "
            "since a compiled graph read it"
        )
    written = call.written()
    inputs = [
        tensor.view_as(tensor) if tensor.requires_grad else tensor.clone() if at in written else tensor
        for at, tensor in enumerate(inputs)
    ]
    outputs = call.again(inputs)
    pairs = [(output, gradient) for output, gradient in zip(outputs, gradients, strict=True) if gradient is not None]
    return torch.autograd.grad(
        [output for output, _ in pairs],
        [inputs[at] for at in call.wanted()],
        [gradient for _, gradient in pairs],
        create_graph=True,
        allow_unused=True,
    )
