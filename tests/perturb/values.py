"""What a value can be changed to, by its type: `replacements` are other values, `alterations` change it in place."""

from __future__ import annotations

import collections
import copy
import functools
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch

Replacement = tuple[str, Callable[[Any], Any]]
Alteration = tuple[str, Callable[[Any], Callable[[], Any]]]


class Number(int):
    """An int of another type."""


class Text(str):
    """A str of another type."""


class Items(list):
    """A list of another type, that is longer than it is."""

    def __len__(self):
        return list.__len__(self) + 1


class Queue(collections.deque):
    """A deque of another type, that begins with another item."""

    def popleft(self):
        return super().popleft() + 1


class Table(dict):
    """A dict of another type, that gives what it does not have."""

    def __missing__(self, key):
        return 2


class Loud(torch.Tensor):
    """A tensor that changes what operators give."""

    @classmethod
    def __torch_function__(cls, func, kinds, args=(), kwargs=None):
        made = super().__torch_function__(func, kinds, args, kwargs or {})
        return made * 2 if isinstance(made, torch.Tensor) and func is torch.Tensor.add else made


class Quiet(torch.Tensor):
    """A tensor of another type and nothing else."""


def constants(value: Any) -> Iterator[Replacement]:
    """Other constants: another value, another type, nothing."""
    match value:
        case bool():
            yield "not", lambda v: not v
            yield "as int", int
        case int():
            yield "more", lambda v: v + 1
            yield "less", lambda v: v - 1
            yield "none of it", lambda v: 0 if v else 3
            yield "as float", float
            yield "as bool", bool
            yield "subclass", Number
            yield "huge", lambda v: v + (1 << 70)
        case float():
            yield "more", lambda v: v + 0.5
            yield "negative", lambda v: -v
            yield "nan", lambda v: float("nan")
            yield "as int", lambda v: int(v) if v == v and abs(v) < 1e9 else 0
            yield "tensor", torch.tensor
        case str():
            yield "other", lambda v: v + "x"
            yield "empty", lambda v: "" if v else "y"
            yield "subclass", Text
        case torch.dtype():
            yield "float64", lambda v: torch.float64 if v != torch.float64 else torch.float32
        case None:
            yield "a number", lambda v: 2
            yield "a tensor", lambda v: torch.ones(3)
            yield "False", lambda v: False
    if value is not None:
        yield "None", lambda v: None


def tensors(value: torch.Tensor) -> Iterator[Replacement]:
    """Tensors that differ in one fact of metadata, or in values alone."""
    leaf = value.is_leaf and value.requires_grad

    def kept(make: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[torch.Tensor], torch.Tensor]:
        """With the same flag and kind as before, where the dtype can."""

        def made(v: torch.Tensor) -> torch.Tensor:
            new = make(v.detach())
            new = torch.nn.Parameter(new, False) if isinstance(v, torch.nn.Parameter) else new
            return new.requires_grad_() if leaf and new.is_floating_point() else new

        return made

    yield "values", kept(lambda v: v.clone() + 1 if v.dtype != torch.bool else ~v)
    yield "equal copy", kept(lambda v: v.clone())
    for kind in (torch.float64, torch.bfloat16, torch.int64, torch.complex64, torch.bool):
        yield str(kind), kept(lambda v, kind=kind: v.to(kind) if v.dtype != kind else v.to(torch.float32))
    yield "requires_grad", lambda v: v.detach().clone().requires_grad_(not v.requires_grad)
    yield "no leaf", lambda v: v.detach().clone().requires_grad_() * 1
    yield "one more row", kept(lambda v: torch.cat([v, v[:1]]) if v.dim() else v[None])
    yield "one row", kept(lambda v: v[:1].clone() if v.dim() else v[None])
    yield "no rows", kept(lambda v: v[:0].clone() if v.dim() else v[None])
    yield "one more dim", kept(lambda v: v[None].clone())
    yield "one less dim", kept(lambda v: v[0].clone() if v.dim() and len(v) else v)
    yield "strides", kept(lambda v: v.mT.contiguous().mT if v.dim() > 1 else torch.stack([v, v], -1)[..., 0])
    yield "expanded", kept(lambda v: v[:1].expand(v.shape) if v.dim() and len(v) else v)
    yield "offset", kept(lambda v: torch.cat([v.reshape(-1)[:1], v.reshape(-1)])[1:].view(v.shape))
    yield "parameter", lambda v: torch.nn.Parameter(v.detach().clone(), v.requires_grad)
    yield "subclass", lambda v: v.detach().clone().as_subclass(Quiet)
    yield "subclass with a function", lambda v: v.detach().clone().as_subclass(Loud)
    yield "negated view", lambda v: torch._neg_view(-v.detach())
    yield "sparse", lambda v: v.detach().to_sparse()
    yield "number", lambda v: 2.0
    yield "None", lambda v: None


def inferred(value: torch.Tensor) -> torch.Tensor:
    """An inference tensor."""
    with torch.inference_mode():
        return value.detach().clone()


def functions(value: types.FunctionType) -> Iterator[Replacement]:
    """Other functions in its place."""

    def other(value: Any) -> Any:
        @functools.wraps(value)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            made = value(*args, **kwargs)
            return made + 1 if isinstance(made, (int, float, torch.Tensor)) and not isinstance(made, bool) else made

        return wrapper

    def copied(value: Any, **changed: Any) -> Any:
        parts = {"globals": value.__globals__, "defaults": value.__defaults__} | changed
        made = types.FunctionType(
            value.__code__, parts["globals"], value.__name__, parts["defaults"], value.__closure__
        )
        made.__kwdefaults__ = value.__kwdefaults__
        made.__dict__.update(value.__dict__)
        return made

    def elsewhere(value: Any) -> Any:
        """Its globals are others: numbers in them are one more."""
        scope = dict(value.__globals__)
        for name, it in value.__globals__.items():
            if type(it) in (int, float):
                scope[name] = it + 1
        return copied(value, globals=scope)

    yield "wrapped", other
    yield "copy", copied
    yield "other globals", elsewhere
    if value.__defaults__:
        yield "fewer defaults", lambda v: copied(v, defaults=v.__defaults__[1:])
        yield "no defaults", lambda v: copied(v, defaults=None)
    yield "callable object", functools.partial
    yield "None", lambda v: None


def instances(value: Any) -> Iterator[Replacement]:
    """Equal copies, and copies of a subclass of its type."""
    yield "copy", copy.copy
    yield "deep copy", copy.deepcopy
    yield "None", lambda v: None


def subclasses(kind: type) -> Iterator[Replacement]:
    """Classes to give an object instead of its own: the same in all but identity; with odd protocol methods."""
    slots: dict[str, Any] = {"__slots__": ()} if not hasattr(kind, "__dict__") or "__slots__" in kind.__dict__ else {}

    def derived(**members: Any) -> Callable[[type], type]:
        return lambda k: type(k)(k.__name__, (k,), {**slots, "__module__": k.__module__, **members})

    yield "subclass of the same name", derived()
    yield "subclass that is false", derived(__bool__=lambda self: False)
    yield "subclass with a getattr", derived(__getattribute__=loud_getattribute)


def loud_getattribute(self: Any, name: str) -> Any:
    """Numbers are one more than they are."""
    found = object.__getattribute__(self, name)
    return found + 1 if type(found) in (int, float) else found


def containers(value: Any) -> Iterator[Replacement]:
    """Equal containers, other types of them, other lengths."""
    match value:
        case list():
            yield "copy", list
            yield "as tuple", tuple
            yield "subclass", Items
        case tuple():
            yield "as list", list
            yield "longer", lambda v: (*v, 1)
            yield "shorter", lambda v: tuple(v[:-1])
            yield "reversed", lambda v: tuple(v[::-1])
        case dict():
            yield "copy", dict
            yield "ordered", collections.OrderedDict
            yield "subclass", Table
            yield "reversed", lambda v: dict(reversed(list(v.items())))
        case collections.deque():
            yield "copy", copy.copy
            yield "shorter", lambda v: collections.deque(v, 1)
            yield "bounded", lambda v: collections.deque(v, len(v) + 1)
            yield "unbounded", collections.deque
            yield "as list", list
            yield "subclass", Queue
        case set():
            yield "copy", set
            yield "frozen", frozenset
    yield "None", lambda v: None


def replacements(value: Any) -> Iterator[Replacement]:
    """Other values."""
    if isinstance(value, torch.Tensor):
        yield from tensors(value)
        yield "inference tensor", inferred
    elif type(value) in (bool, int, float, str, type(None), torch.dtype):
        yield from constants(value)
    elif isinstance(value, (list, tuple, dict, set, collections.deque)):
        yield from containers(value)
    elif isinstance(value, types.FunctionType):
        yield from functions(value)
    elif isinstance(value, (types.BuiltinFunctionType, type(torch.ops.aten.add), type(torch.ops.aten.add.Tensor))):
        yield "wrapped", lambda v: lambda *args, **kwargs: doubled(v(*args, **kwargs))
    elif isinstance(value, (types.MethodType, property, staticmethod, classmethod, functools.partial)):
        yield "None", lambda v: None
    elif not isinstance(value, (type, types.ModuleType)):
        yield from instances(value)


def doubled(value: Any) -> Any:
    """Another result."""
    return value * 2 if isinstance(value, (int, float, torch.Tensor)) and not isinstance(value, bool) else value


def alterations(value: Any) -> Iterator[Alteration]:
    """Changes in place, each giving what takes it back."""
    match value:
        case list():
            yield from ((name, _list(change)) for name, change in _LISTS)
        case collections.deque():
            yield from ((name, _deque(change)) for name, change in _DEQUES)
        case dict():
            yield from ((name, _held(dict, change)) for name, change in _DICTS)
        case set():
            yield "one more", _held(set, lambda v: v.add("new"))
            yield "one less", _held(set, lambda v: v and v.remove(sorted(v, key=repr)[0]))
        case torch.Tensor():
            yield from ((name, _tensor(change)) for name, change in _TENSORS)
        case torch.nn.Module():
            yield from ((name, _module(change)) for name, change in _MODULES)


def _list(change: Callable[[Any], Any]) -> Callable[[Any], Callable[[], Any]]:
    def apply(value: Any) -> Callable[[], Any]:
        old = value[:]
        change(value)
        return lambda: value.__setitem__(slice(None), old)

    return apply


def _deque(change: Callable[[Any], Any]) -> Callable[[Any], Callable[[], Any]]:
    def apply(value: Any) -> Callable[[], Any]:
        old = list(value)

        def undo() -> None:
            value.clear()
            value.extend(old)

        change(value)
        return undo

    return apply


def _held(kind: type, change: Callable[[Any], Any]) -> Callable[[Any], Callable[[], Any]]:
    """Of a dict or a set."""

    def apply(value: Any) -> Callable[[], Any]:
        old = kind(value)

        def undo() -> None:
            value.clear()
            value.update(old)

        change(value)
        return undo

    return apply


def _tensor(change: Callable[[torch.Tensor], Any]) -> Callable[[Any], Callable[[], Any]]:
    def apply(value: torch.Tensor) -> Callable[[], Any]:
        data, flag, attributes = value.data, value.requires_grad, dict(value.__dict__)
        before = data.clone()

        def undo() -> None:
            value.data = data
            value.data.copy_(before)
            if value.is_leaf:
                value.requires_grad_(flag)
            value.__dict__.clear()
            value.__dict__.update(attributes)

        change(value)
        return undo

    return apply


def _module(change: Callable[[torch.nn.Module], Any]) -> Callable[[Any], Callable[[], Any]]:
    def apply(value: torch.nn.Module) -> Callable[[], Any]:
        dicts = {k: (v, v.copy()) for k, v in value.__dict__.items() if isinstance(v, (dict, collections.OrderedDict))}
        plain, flags = dict(value.__dict__), [(p, p.requires_grad) for p in value.parameters()]
        children = [(m, m.training) for m in value.modules()]

        def undo() -> None:
            value.__dict__.clear()
            value.__dict__.update(plain)
            for where, old in dicts.values():
                where.clear()
                where.update(old)
            for parameter, flag in flags:
                parameter.requires_grad_(flag)
            for module, training in children:
                module.training = training

        change(value)
        return undo

    return apply


def _rotate(value: Any) -> None:
    first = next(iter(value), None)
    if first is not None:
        value[first] = value.pop(first)


_DEQUES: list[tuple[str, Callable[[Any], Any]]] = [
    ("one more", lambda v: v.append(1)),
    ("one more in front", lambda v: v.appendleft(1)),
    ("one less", lambda v: v and v.pop()),
    ("none", lambda v: v.clear()),
    ("rotated", lambda v: v.rotate(1)),
    ("another item", lambda v: v and v.__setitem__(0, 5)),
]
_LISTS: list[tuple[str, Callable[[Any], Any]]] = [
    ("one more", lambda v: v.append(1)),
    ("one like it more", lambda v: v.append(v[-1])),
    ("one less", lambda v: v.pop()),
    ("reversed", lambda v: v.reverse()),
    ("empty", lambda v: v.clear()),
]
_DICTS: list[tuple[str, Callable[[Any], Any]]] = [
    ("one more", lambda v: v.update(new=1)),
    ("one number more", lambda v: v.update({7: 1})),
    ("first is last", _rotate),
    ("one less", lambda v: v.pop(next(iter(v)))),
    ("empty", lambda v: v.clear()),
]
_TENSORS: list[tuple[str, Callable[[Any], Any]]] = [
    ("values in place", lambda v: v.data.mul_(2)),
    ("other data", lambda v: setattr(v, "data", v.data.clone() + 1)),
    ("data of another size", lambda v: setattr(v, "data", torch.cat([v.data, v.data]))),
    ("data of other strides", lambda v: setattr(v, "data", v.data.mT.contiguous().mT)),
    ("flag", lambda v: v.requires_grad_(not v.requires_grad)),
    ("attribute", lambda v: setattr(v, "extra", 1)),
    ("hook", lambda v: v.register_hook(lambda g: g * 3)),
]
_MODULES: list[tuple[str, Callable[[Any], Any]]] = [
    ("eval", lambda m: m.eval()),
    ("train", lambda m: m.train()),
    ("hook", lambda m: m.register_forward_hook(lambda m, args, out: doubled(out))),
    ("hook with keywords", lambda m: m.register_forward_hook(lambda m, a, k, out: doubled(out), with_kwargs=True)),
    ("hook always", lambda m: m.register_forward_hook(lambda m, args, out: doubled(out), always_call=True)),
    ("hook before", lambda m: m.register_forward_pre_hook(lambda m, args: tuple(map(doubled, args)))),
    ("hook before with keywords", lambda m: m.register_forward_pre_hook(lambda m, a, k: (a, k), with_kwargs=True)),
    ("hook behind", lambda m: m.register_full_backward_hook(lambda m, given, made: None)),
    ("hook before backward", lambda m: m.register_full_backward_pre_hook(lambda m, made: None)),
    ("own forward", lambda m: setattr(m, "forward", lambda *args, **kwargs: args[0] * 3)),
    ("frozen", lambda m: m.requires_grad_(False)),
    ("new buffer", lambda m: m.register_buffer("fresh", torch.ones(1))),
    ("new child", lambda m: m.add_module("fresh", torch.nn.ReLU())),
    ("half as precise", lambda m: m.bfloat16()),
]
