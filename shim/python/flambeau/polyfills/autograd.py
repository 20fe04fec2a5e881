"""Autograd's own functions.

`Tensor.backward` gives leaves their gradients in the graph, as the engine accumulates them.

`torch.autograd.grad` gives gradients in the graph, too; with `create_graph=True` the graph goes on from them.

`torch.autograd.Function.apply`: where no gradient is asked for, its `forward` is called, and nothing is recorded;
else its `forward` is traced for its outputs, and the graph calls `apply`, so that autograd has the function's own node.

The state of a context is `[needs_input_grad, outputs that are not differentiable]`. It does not leave the call.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.function import Function

from flambeau.polyfills._table import Kind, asked_gradients, gradients, instead_of, made, one_call, refuse, state_of


@instead_of("torch.Tensor.backward")
def backward(
    self: Any, gradient: Any = None, retain_graph: Any = None, create_graph: Any = False, inputs: Any = None
) -> None:
    if create_graph or inputs is not None:
        refuse()
    for leaf, given in gradients(self, gradient, bool(retain_graph)):
        if leaf.grad is None:
            leaf.grad = given
        elif leaf.grad.requires_grad or leaf.grad is given:
            refuse()
        else:
            leaf.grad.add_(given)


@instead_of("torch.autograd.grad")
def grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: Any = None,
    create_graph: Any = False,
    only_inputs: Any = True,
    allow_unused: Any = None,
    is_grads_batched: Any = False,
    materialize_grads: Any = False,
) -> Any:
    if is_grads_batched or not only_inputs or (materialize_grads and allow_unused is False):
        refuse()
    of = (outputs,) if isinstance(outputs, torch.Tensor) else tuple(outputs)
    if isinstance(inputs, torch.Tensor):
        asked: tuple[Any, ...] = (inputs,)
    else:
        asked = tuple(inputs.values() if type(inputs) is dict else inputs)
    if grad_outputs is None:
        seeds: tuple[Any, ...] = (None,) * len(of)
    else:
        seeds = (grad_outputs,) if isinstance(grad_outputs, torch.Tensor) else tuple(grad_outputs)
    if not asked or not of:
        refuse()
    creates = bool(create_graph)
    keeps = creates if retain_graph is None else bool(retain_graph)
    given = asked_gradients(of, seeds, asked, keeps, creates)
    if any(gradient is None for gradient in given):
        if not (allow_unused or materialize_grads) or (materialize_grads and creates):
            refuse()
        if materialize_grads:
            pairs = zip(given, asked, strict=True)
            given = tuple([torch.zeros_like(of) if one is None else one for one, of in pairs])
    if type(inputs) is dict:
        return dict(zip(inputs.keys(), given, strict=True))
    return given


class Context(Kind):
    """What `forward` is given, an object of the function's `_backward_cls`."""

    made_by = torch._C._FunctionBase

    @staticmethod
    def rebuild(state: list[Any]) -> None:
        return None


@instead_of("torch._C._FunctionBase.needs_input_grad")
def needs_input_grad(self: Any) -> Any:
    return state_of(self)[0]


@instead_of("torch._C._FunctionBase.to_save.__set__", "torch._C._FunctionBase.saved_for_forward.__set__")
def keep_tensors(self: Any, tensors: Any, /) -> None:
    for tensor in tensors:
        if tensor is not None and not isinstance(tensor, torch.Tensor):
            refuse()


@instead_of("torch._C._FunctionBase.non_differentiable.__set__")
def set_non_differentiable(self: Any, tensors: Any, /) -> None:
    for tensor in tensors:
        if not isinstance(tensor, torch.Tensor):
            refuse()
    state_of(self)[1] = tuple(tensors)


@instead_of("torch._C._FunctionBase.materialize_grads.__set__")
def set_materialize_grads(self: Any, value: Any, /) -> None:
    if type(value) is not bool:
        refuse()


@instead_of("torch._C._FunctionBase.apply")
def apply(cls: Any, /, *args: Any) -> Any:
    needs_grad = []
    for arg in args:
        is_tensor = isinstance(arg, torch.Tensor)
        if is_tensor and type(arg) not in (torch.Tensor, torch.nn.Parameter):
            refuse()
        needs_grad.append(is_tensor and arg.requires_grad)
    if torch.is_grad_enabled() and any(needs_grad):
        return one_call("flambeau._function.apply", (cls, *args), _forward, (cls, args, tuple(needs_grad)))
    outputs, _ = _forward(cls, args, tuple(needs_grad))
    if isinstance(outputs, tuple):
        return tuple([_output(output, args) for output in outputs])
    return _output(outputs, args)


def _forward(cls: Any, args: tuple[Any, ...], needs_grad: tuple[bool, ...]) -> tuple[Any, tuple[Any, ...]]:
    """What `forward` gives, and which tensors of that it says are not differentiable."""
    state = [needs_grad, ()]
    context = made(Context, state, cls._backward_cls)
    grad_mode = torch.is_grad_enabled()
    torch._C._set_grad_enabled(False)
    try:
        if cls.setup_context is Function.setup_context:
            outputs = cls.forward(context, *args)
        else:
            outputs = cls.forward(*args)
            cls.setup_context(context, args, outputs)
    finally:
        torch._C._set_grad_enabled(grad_mode)
    return outputs, state[1]


def _output(output: Any, args: tuple[Any, ...]) -> Any:
    """What `apply` makes of an output of `forward`: an input is given as a view of itself."""
    if not isinstance(output, torch.Tensor):
        return output
    if output.requires_grad:
        refuse()
    return output.view_as(output) if any(output is arg for arg in args) else output
