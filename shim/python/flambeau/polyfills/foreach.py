"""`torch._foreach_*`: one call after another, with the items of the lists that each is given.

What torch's kernels for many tensors at once compute is the same. Whatever the lists have that these calls do not take
is left to torch.
"""

from __future__ import annotations

from typing import Any

import torch

from flambeau.polyfills._table import instead_of, refuse


def _lists(first: Any, others: tuple[Any, ...]) -> int:
    """The length of all lists."""
    if type(first) not in (list, tuple) or not first:
        refuse()
    for other in others:
        if type(other) in (list, tuple) and len(other) != len(first):
            refuse()
    for tensor in first:
        if not isinstance(tensor, torch.Tensor):
            refuse()
    return len(first)


@instead_of("torch._C._group_tensors_by_device_and_dtype")
def group(lists: Any, with_indices: Any, /) -> dict[Any, Any]:
    """Several groups are left to torch: their order is that of a hash table of C++."""
    if type(with_indices) is not bool or not lists or not lists[0]:
        refuse()
    of = (lists[0][0].device, lists[0][0].dtype)
    for tensor in lists[0]:
        if tensor is None or of != (tensor.device, tensor.dtype):
            refuse()
    for tensors in lists[1:]:
        if len(tensors) != len(lists[0]):
            refuse()
    return {of: ([list(tensors) for tensors in lists], list(range(len(lists[0]))) if with_indices else [])}


def _item(other: Any, at: int) -> Any:
    """What one call takes of an argument: scalars may be a tensor of as many."""
    if type(other) in (list, tuple) or (isinstance(other, torch.Tensor) and other.dim() == 1):
        return other[at]
    return other


def _each(name: str, tensors: Any, others: tuple[Any, ...], keywords: dict[str, Any]) -> list[Any]:
    made = []
    for at in range(_lists(tensors, others)):
        made.append(getattr(tensors[at], name)(*[_item(other, at) for other in others], **keywords))
    return made


def _new(name: str) -> Any:
    def foreach(self: Any, *others: Any, **keywords: Any) -> Any:
        return tuple(_each(name, self, others, keywords))

    return foreach


def _in_place(name: str) -> Any:
    def foreach(self: Any, *others: Any, **keywords: Any) -> Any:
        _each(name, self, others, keywords)
        return self

    return foreach


for _name in (
    "abs acos add asin atan ceil clamp_max clamp_min cos cosh div erf erfc exp expm1 floor frac lerp "
    "lgamma log log10 log1p log2 mul neg reciprocal round rsqrt sigmoid sign sin sinh sqrt sub tan tanh trunc"
).split():
    instead_of(f"torch._foreach_{_name}")(_new(_name))
    instead_of(f"torch._foreach_{_name}_")(_in_place(f"{_name}_"))
instead_of("torch._foreach_pow_")(_in_place("pow_"))
instead_of("torch._foreach_clone")(_new("clone"))
instead_of("torch._foreach_copy_")(_in_place("copy_"))
instead_of("torch._foreach_zero_")(_in_place("zero_"))


def _fractions(name: str, tensors: Any, first: Any, second: Any, value: Any) -> list[Any]:
    made = []
    for at in range(_lists(tensors, (first, second, value))):
        made.append(getattr(tensors[at], name)(first[at], second[at], value=_item(value, at)))
    return made


def _new_fractions(name: str) -> Any:
    def foreach(self: Any, tensor1: Any, tensor2: Any, value: Any = 1) -> Any:
        return tuple(_fractions(name, self, tensor1, tensor2, value))

    return foreach


def _fractions_in_place(name: str) -> Any:
    def foreach(self: Any, tensor1: Any, tensor2: Any, value: Any = 1) -> Any:
        _fractions(name, self, tensor1, tensor2, value)
        return self

    return foreach


for _name in ("addcdiv", "addcmul"):
    instead_of(f"torch._foreach_{_name}")(_new_fractions(_name))
    instead_of(f"torch._foreach_{_name}_")(_fractions_in_place(f"{_name}_"))


@instead_of("torch._foreach_pow")
def power(self: Any, exponent: Any) -> Any:
    if type(self) in (list, tuple):
        return tuple(_each("pow", self, (exponent,), {}))
    _lists(exponent, ())
    return tuple([torch.pow(self, tensor) for tensor in exponent])


@instead_of("torch._foreach_norm")
def norm(self: Any, ord: Any = 2, dtype: Any = None) -> Any:
    _lists(self, ())
    return tuple([torch.linalg.vector_norm(tensor, ord, dtype=dtype) for tensor in self])


def _bounded(name: str, by_number: str, tensors: Any, other: Any) -> list[Any]:
    made = []
    for at in range(_lists(tensors, (other,))):
        bound = _item(other, at)
        made.append(getattr(tensors[at], name if isinstance(bound, torch.Tensor) else by_number)(bound))
    return made


@instead_of("torch._foreach_maximum")
def maximum(self: Any, other: Any) -> Any:
    return tuple(_bounded("maximum", "clamp_min", self, other))


@instead_of("torch._foreach_minimum")
def minimum(self: Any, other: Any) -> Any:
    return tuple(_bounded("minimum", "clamp_max", self, other))
