"""The node of autograd of a graph that became kernels, forward and backward."""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.function import Function, FunctionCtx
from torch.utils._python_dispatch import _disable_current_modes


class Flambeau(Function):
    """Its inputs are tensors that require grad; its outputs were computed already."""

    @staticmethod
    def forward(ctx: FunctionCtx, call: Any, outputs: Any, kept: Any, *inputs: Any) -> Any:
        """Keeps what the derivative reads."""
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*kept)
        ctx.call = call  # type: ignore[attr-defined]
        ctx.versions = [_version(tensor) for tensor in call.takes()]  # type: ignore[attr-defined]
        return tuple(output.detach() if output._is_view() else output for output in outputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """Runs the plan of the derivative; under `create_graph=True` the graph itself, op by op."""
        kept, call = ctx.saved_tensors, ctx.call
        if torch.is_grad_enabled():
            return None, None, None, *_again(call, ctx.versions, gradients, create_graph=True)
        pairs = zip(gradients, call.layouts(), strict=True)
        taken = [_laid_out(gradient, dtype, size, stride, call) for gradient, (dtype, size, stride) in pairs]
        given = call.backward(kept, taken)
        if given is None:
            given = _again(call, ctx.versions, gradients, create_graph=False)
        return None, None, None, *given


class FlambeauOutput(Function):
    """One of several outputs of a node: hooks on it run only where a gradient comes to it, as in eager."""

    @staticmethod
    def forward(ctx: FunctionCtx, output: torch.Tensor) -> torch.Tensor:
        """The same memory, and the same count of changes."""
        return output.detach()

    @staticmethod
    def backward(ctx: FunctionCtx, gradient: torch.Tensor) -> torch.Tensor:
        """Passes it on."""
        return gradient


def attach(seen: tuple[bool, ...], *args: Any) -> Any:
    """The outputs of a part of a graph as those of a node: `call, outputs, kept, *inputs`. `seen`: which of them leave
    the graph."""
    outputs = Flambeau.apply(*args)
    if len(outputs) == 1:
        return outputs
    return [FlambeauOutput.apply(output) if own else output for output, own in zip(outputs, seen, strict=True)]


def _version(tensor: torch.Tensor) -> int | None:
    return None if tensor.is_inference() else tensor._version


def _laid_out(gradient: torch.Tensor | None, dtype: str, size: list[int], stride: list[int], call: Any) -> torch.Tensor:
    """A gradient in the layout that the plan is for."""
    if gradient is not None and list(gradient.stride()) == stride:
        return gradient
    device = call.takes()[0].device if gradient is None else gradient.device
    made = torch.empty_strided(size, stride, dtype=getattr(torch, dtype), device=device)
    return made.zero_() if gradient is None else made.copy_(gradient)


def _again(
    call: Any, versions: list[int | None], gradients: tuple[torch.Tensor | None, ...], create_graph: bool
) -> Any:
    """The gradients of the graph run once more under autograd, with a derivative of their own if that is asked for."""
    takes = call.takes()
    if [_version(tensor) for tensor in takes] != versions:
        raise RuntimeError(
            "one of the variables needed for gradient computation has been modified by an inplace operation "
            "since a compiled graph read it"
        )
    written = call.written()
    state, now = call.state(), torch.get_rng_state()
    try:
        if state is not None:
            torch.set_rng_state(state)
        with torch.enable_grad():
            takes = [
                tensor.view_as(tensor) if tensor.requires_grad else tensor.clone() if at in written else tensor
                for at, tensor in enumerate(takes)
            ]
            outputs = call.again(takes)
    finally:
        torch.set_rng_state(now)
    if outputs is None:
        raise RuntimeError(
            "a part of a compiled graph has no derivative of its derivative, as it cannot be run once more by itself: "
            "compile less of the function, or set flambeau.config.native_training = False"
        )
    pairs = [(output, gradient) for output, gradient in zip(outputs, gradients, strict=True) if gradient is not None]
    return torch.autograd.grad(
        [output for output, _ in pairs],
        [takes[at] for at in call.wanted()],
        [gradient for _, gradient in pairs],
        create_graph=create_graph,
        allow_unused=True,
    )


def subgradients() -> dict[str, bool]:
    """Derivatives that versions of torch choose differently where a function has none."""
    # Modes of the program are not to see it.
    with torch._C.DisableTorchFunction(), _disable_current_modes(), torch.inference_mode(False), torch.enable_grad():
        # Its node is called by itself: autograd's engine is not started, after which a process with GPUs may not fork.
        node: Any = torch.ones((), requires_grad=True).clamp(min=1.0).grad_fn
        return {"clamp_at_limits": bool(node(torch.ones(())))}
