"""The node of autograd of a graph that became kernels, forward and backward."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch.autograd.function import Function, FunctionCtx
from torch.autograd.graph import get_gradient_edge
from torch.utils._python_dispatch import _disable_current_modes

from flambeau._calls import called


class Flambeau(Function):
    """Its inputs are tensors that require grad; its outputs were computed already."""

    @staticmethod
    def forward(ctx: FunctionCtx, call: Any, outputs: Any, kept: Any, *inputs: Any) -> Any:
        """Keeps what the derivative reads."""
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*kept)
        ctx.call, ctx.keeps = call, bool(kept)  # type: ignore[attr-defined]
        ctx.versions = [_version(tensor) for tensor in call.takes()]  # type: ignore[attr-defined]
        return tuple(output.detach() if output._is_view() else output for output in outputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """Runs the plan of the derivative; under `create_graph=True` the graph itself, op by op."""
        call = ctx.call
        is_there = [gradient is not None for gradient in gradients]
        if not any(is_there):
            return (None,) * (3 + len(call.reached_by()))
        try:
            kept = list(ctx.saved_tensors) if ctx.keeps or call.spends(is_there) else []
        except RuntimeError as error:
            # It may have been kept for outputs alone that have no gradients.
            is_spent = call.spends(is_there) if "second time" in str(error) else all(is_there)
            if is_spent or not call.runs_again():
                raise
            return None, None, None, *_again(call, ctx.versions, gradients, create_graph=False)
        if torch.is_grad_enabled():
            return None, None, None, *_again(call, ctx.versions, gradients, create_graph=True)
        # What nothing else holds goes while the plan runs.
        ctx.maybe_clear_saved_tensors()
        device = next(gradient.device for gradient in gradients if gradient is not None)
        pairs = zip(gradients, call.layouts(), strict=True)
        taken = [_laid_out(gradient, dtype, size, stride, device) for gradient, (dtype, size, stride) in pairs]
        _undefined.met = False
        given = call.backward(kept, taken)
        if isinstance(given, str):
            why, given = given, _again(call, ctx.versions, gradients, create_graph=False)
            if all(is_there):
                call.say_failed(why)
        elif call.runs_again() and (_undefined.met or not (all(is_there) or _is_finite(given))):
            # An output without a gradient has no part in eager's; here it gets zeros, and zero times infinity is none.
            given = _again(call, ctx.versions, gradients, create_graph=False)
        if not all(is_there):
            reached = zip(given, call.reached_by(), strict=True)
            given = [made if any(is_there[at] for at in places) else None for made, places in reached]
        return None, None, None, *given


class FlambeauOutput(Function):
    """One of several outputs of a node: hooks on it run only where a gradient comes to it, as in eager."""

    @staticmethod
    def forward(ctx: FunctionCtx, output: torch.Tensor) -> torch.Tensor:
        """The same memory, and the same count of changes."""
        ctx.set_materialize_grads(False)
        return output.detach()

    @staticmethod
    def backward(ctx: FunctionCtx, gradient: torch.Tensor | None) -> torch.Tensor | None:
        """Passes it on; autograd comes by without one, too."""
        return gradient


def attach(seen: tuple[bool, ...], *args: Any) -> Any:
    """The outputs of a part of a graph as those of a node: `call, outputs, kept, *inputs`. `seen`: which of them leave
    the graph."""
    outputs = Flambeau.apply(*args)
    if len(outputs) == 1:
        return outputs
    return [FlambeauOutput.apply(output) if own else output for output, own in zip(outputs, seen, strict=True)]


def gradients(
    of: torch.Tensor, gradient: torch.Tensor | None, leaves: list[torch.Tensor], keeps: bool
) -> list[torch.Tensor]:
    """What `of.backward(gradient)` adds to these leaves, laid out as torch accumulates it. It runs where the graph of a
    step runs op by op. `keeps`: `retain_graph=True`."""
    given = torch.autograd.grad(of, leaves, gradient, retain_graph=keeps)
    own = set()

    def accumulated(leaf: torch.Tensor, grad: torch.Tensor) -> torch.Tensor:
        grad = grad.detach()
        made = torch.empty_like(leaf, requires_grad=False)
        storage = grad.untyped_storage().data_ptr()
        if grad.stride() != made.stride() or storage in own or gradient is not None:
            return made.copy_(grad)
        own.add(storage)
        return grad

    with torch.no_grad():
        return [accumulated(leaf, grad) for leaf, grad in zip(leaves, given, strict=True)]


def asked(
    of: list[torch.Tensor],
    seeds: list[torch.Tensor | None],
    inputs: list[torch.Tensor],
    keeps: bool,
    creates: bool,
) -> tuple[torch.Tensor, ...]:
    """What `torch.autograd.grad` gives for these `inputs`, where a graph runs op by op."""
    return torch.autograd.grad(of, inputs, seeds, retain_graph=keeps, create_graph=creates)


def trains_together() -> bool:
    """Whether processes train together, which have hooks on gradients that only C++ sees."""
    return torch.distributed.is_available() and torch.distributed.is_initialized()


class Ended(Function):
    """The node of an output of a graph that held `backward()`: torch keeps nothing for a second one."""

    @staticmethod
    def forward(ctx: FunctionCtx, output: torch.Tensor, leaf: torch.Tensor) -> torch.Tensor:
        """The same memory."""
        return output.detach()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """Says what torch says."""
        raise RuntimeError(
            "Trying to backward through the graph a second time (or directly access saved tensors after they have "
            "already been freed). Saved intermediate values of the graph are freed when you call .backward() or "
            "autograd.grad(). Specify retain_graph=True if you need to backward through the graph a second time or if "
            "you need to access saved tensors after calling backward."
        )


def _version(value: Any) -> int | None:
    return value._version if isinstance(value, torch.Tensor) and not value.is_inference() else None


def _laid_out(
    gradient: torch.Tensor | None, dtype: str, size: list[int], stride: list[int], device: torch.device
) -> torch.Tensor:
    """A gradient in the layout that the plan is for."""
    if gradient is not None and list(gradient.stride()) == stride:
        return gradient
    made = torch.empty_strided(size, stride, dtype=getattr(torch, dtype), device=device)
    return made.zero_() if gradient is None else made.copy_(gradient)


def _is_finite(gradients: list[torch.Tensor]) -> bool:
    return all(bool(gradient.sum().isfinite()) for gradient in gradients)


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
                _taken_again(value, at in written) if isinstance(value, torch.Tensor) else value
                for at, value in enumerate(takes)
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


def _taken_again(tensor: torch.Tensor, is_written: bool) -> torch.Tensor:
    if tensor.requires_grad:
        return tensor.view_as(tensor)
    return tensor.clone() if is_written else tensor


_keeps_graph: Callable[[], bool] = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", lambda: True)
"""Whether the present backward pass is one after which the graph is used again; older versions of torch do not say."""


class _Undefined(threading.local):
    """`met`: a taped op gave no gradient where the plan takes zeros for it. Eager's own may be `None` then."""

    met = False


_undefined = _Undefined()


class Tape:
    """What torch's autograd knows of one call of an op. The memory of results is not kept."""

    def __init__(self, outputs: list[torch.Tensor], inputs: list[torch.Tensor]):
        self.outputs = [get_gradient_edge(output) if output.requires_grad else None for output in outputs]
        self.inputs = inputs


def taped(op: str, overload: str, wanted: list[bool], strides: list[list[int]], *args: Any) -> list[torch.Tensor]:
    """Calls an op of `torch.ops` (`NAMESPACE::NAME`) under autograd: its results, and a tensor that holds the tape.

    Or what `called` calls, named as an op. `wanted` says of each tensor among the arguments, in lists too, whether its
    gradient will be asked for; `strides` those that the results get, where they are not torch's own choice.
    """
    function = _ready(op, overload)
    flags, inputs = iter(wanted), []

    def followed(arg: Any) -> Any:
        if isinstance(arg, list):
            return [followed(item) for item in arg]
        if not isinstance(arg, torch.Tensor) or not next(flags):
            return arg
        inputs.append(arg.detach().requires_grad_())
        return inputs[-1]

    with torch.enable_grad():
        made = function(*[followed(arg) for arg in args])
    outputs = [made] if isinstance(made, torch.Tensor) else list(made)
    holder = torch.empty(0, dtype=torch.uint8, device=outputs[0].device)
    holder.tape = Tape(outputs, inputs)  # type: ignore[attr-defined]
    given = [output.detach() for output in outputs]
    for at, stride in enumerate(strides):
        if list(given[at].stride()) != stride:
            copied = torch.empty_strided(given[at].shape, stride, dtype=given[at].dtype, device=given[at].device)
            given[at] = copied.copy_(given[at])
    return [*given, holder]


def taped_backward(holder: torch.Tensor, gradients: list[torch.Tensor | None]) -> list[torch.Tensor]:
    """The gradients of a taped call's arguments, contiguous, from those of its results."""
    tape: Tape = holder.tape  # type: ignore[attr-defined]
    pairs = [
        (output, gradient)
        for output, gradient in zip(tape.outputs, gradients, strict=True)
        if gradient is not None and output is not None
    ]
    if not pairs:
        _undefined.met = True
        return [torch.zeros_like(taken, memory_format=torch.contiguous_format) for taken in tape.inputs]
    given: tuple[torch.Tensor | None, ...]
    try:
        given = torch.autograd.grad(
            [output for output, _ in pairs],
            tape.inputs,
            [gradient for _, gradient in pairs],
            retain_graph=_keeps_graph(),
            allow_unused=True,
        )
    except RuntimeError:
        # Torch asks no gradients of a call whose results have none. Here they are zeros then.
        if any(bool(gradient.any()) for _, gradient in pairs):
            raise
        given = (None,) * len(tape.inputs)
    _undefined.met |= any(gradient is None for gradient in given)
    known = {id(gradient) for gradient in gradients}
    return [
        torch.zeros_like(taken, memory_format=torch.contiguous_format) if gradient is None else _own(gradient, known)
        for taken, gradient in zip(tape.inputs, given, strict=True)
    ]


def _own(gradient: torch.Tensor, known: set[int]) -> torch.Tensor:
    """A gradient, contiguous, in memory that nothing else has: autograd hands on what it was given. `known`: the
    identities of tensors that have an owner; this one is added."""
    storage = gradient.untyped_storage()
    # Two are the tensor itself and `storage`.
    if id(gradient) in known or torch._C._storage_Use_Count(storage._cdata) > 2:
        return gradient.clone(memory_format=torch.contiguous_format)
    known.add(id(gradient))
    return gradient.contiguous()


@functools.cache
def _ready(op: str, overload: str) -> Callable[..., Any]:
    """What calls an op with its arguments in the order of its schema."""
    if op == "flambeau::called":
        return called
    namespace, name = op.split("::")
    function: Callable[..., Any] = getattr(getattr(getattr(torch.ops, namespace), name), overload)
    arguments = function._schema.arguments  # type: ignore[attr-defined]
    positional = sum(not argument.kwarg_only for argument in arguments)
    by_keyword = [argument.name for argument in arguments if argument.kwarg_only]
    if not by_keyword:
        return function
    return lambda *args: function(*args[:positional], **dict(zip(by_keyword, args[positional:], strict=False)))


def subgradients() -> dict[str, bool]:
    """Derivatives that versions of torch choose differently where a function has none."""
    # Modes of the program are not to see it.
    with torch._C.DisableTorchFunction(), _disable_current_modes(), torch.inference_mode(False), torch.enable_grad():
        # Its node is called by itself: autograd's engine is not started, after which a process with GPUs may not fork.
        node: Any = torch.ones((), requires_grad=True).clamp(min=1.0).grad_fn
        return {"clamp_at_limits": bool(node(torch.ones(())))}
