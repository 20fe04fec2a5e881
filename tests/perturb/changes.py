"""Every change of one fact of a world: values near the function, new names, who is who, the library, the thread."""

from __future__ import annotations

import builtins
import contextlib
import copy
import functools
import itertools
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from fuzz import world as names

from . import values
from .absence import appearances
from .places import CONSTANTS, MISSING, Neighbourhood, Path, Undo, follow, read, user_class, write
from .world import Around, World


@dataclass(frozen=True)
class Change:
    """One change: `apply` makes it in a world and gives what takes it back, or raises if Python does not allow it."""

    name: str
    path: Path
    apply: Callable[[World], Undo]


def shown(path: Path) -> str:
    """A place in words."""
    return ".".join(":".join(str(part) for part in step) for step in path)


def every(world: World) -> list[Change]:
    """All changes of a world like this one."""
    near = Neighbourhood(world)
    made = [_shared(near, change) for path in near.paths for change in at(near, path)]
    return [*made, *arguments(), *identities(near), *patches(near), *ambient()]


def absences(world: World) -> list[Change]:
    """Changes of a world like this one in which something appears that was not there."""
    near = Neighbourhood(world)
    return [_shared(near, Change(*made)) for made in appearances(near)]


def arguments() -> Iterator[Change]:
    """One argument more, one less; another name of the program."""

    def more(world: World) -> Undo:
        world.args.append(1)
        return world.args.pop

    def less(world: World) -> Undo:
        last = world.args.pop()
        return lambda: world.args.append(last)

    yield Change("one argument more", (), more)
    yield Change("one argument less", (), less)
    yield Change("program renamed", (), lambda world: write(world, (("program", "__name__"),), "other"))


def _shared(near: Neighbourhood, change: Change) -> Change:
    """A change of what the harness uses too, a library or the fuzzer's world, is in force for the call alone."""
    before = [near.values.get(change.path[:k]) for k in range(1, len(change.path) + 1)]
    shared = any(isinstance(value, types.ModuleType) for value in before[:-1])
    shared |= any(isinstance(value, type) and value.__module__ == names.__name__ for value in before)
    if not shared and all(step[0] != "global" for step in change.path):
        return change

    @contextlib.contextmanager
    def during(world: World) -> Iterator[None]:
        undo = change.apply(world)
        try:
            yield
        finally:
            undo()

    def apply(world: World) -> Undo:
        change.apply(world)()  # what Python refuses it refuses here
        return around(world, lambda: during(world))

    return Change(change.name, change.path, apply)


def around(world: World, enter: Around) -> Undo:
    """Calls are made inside of what `enter` gives."""
    old, world.around = world.around, enter
    return lambda: setattr(world, "around", old)


def at(near: Neighbourhood, path: Path) -> Iterator[Change]:
    """Changes of what is at a place."""
    value, name = near.values[path], shown(path)
    if _of_module(near, path):
        # Hooks, children and parameters are changed through the module; here only the dict itself.
        yield Change(f"{name} = copy", path, _replace(path, copy.copy))
        yield Change(f"{name} = None", path, _replace(path, lambda v: None))
        yield Change(f"{name} deleted", path, lambda world: write(world, path, MISSING))
        return
    in_library = isinstance(value, types.ModuleType) or (len(path) == 1 and path[0][0] == "program" and value is torch)
    if in_library or (path == (("program", "f"),) and not isinstance(value, types.FunctionType)):
        pass
    elif isinstance(value, type) and path[-1][0] == "class":
        for kind, make in values.subclasses(value):
            yield Change(f"{name} {kind}", path, _replace(path, make))
    else:
        for kind, make in values.replacements(value):
            yield Change(f"{name} = {kind}", path, _replace(path, make))
    if path[-1][0] in ("program", "global", "attr", "item", "slot", "own", "cell"):
        yield Change(f"{name} deleted", path, lambda world: write(world, path, MISSING))
    for kind, change in values.alterations(value):
        yield Change(f"{name} {kind}", path, lambda world, change=change: change(read(world, path)))
    if isinstance(value, types.FunctionType):
        yield from _function(path, name)
    if isinstance(value, type) and user_class(value):
        yield from _class(near, path, name, value)
    if not isinstance(value, (*CONSTANTS, type, types.ModuleType, types.FunctionType)) and hasattr(value, "__dict__"):
        yield from _object(near, path, name, value)


def _replace(path: Path, make: Callable[[Any], Any]) -> Callable[[World], Undo]:
    return lambda world: write(world, path, make(read(world, path)))


def _function(path: Path, name: str) -> Iterator[Change]:
    """Other code or names in the same function object."""

    def other_code(world: World) -> Undo:
        function = read(world, path)
        old = function.__code__
        numbers = [c + 1 if type(c) in (int, float) else c for c in old.co_consts]
        function.__code__ = old.replace(co_consts=tuple(numbers))
        return lambda: setattr(function, "__code__", old)

    def renamed(world: World) -> Undo:
        function = read(world, path)
        old = function.__name__
        function.__name__ = "renamed"
        return lambda: setattr(function, "__name__", old)

    yield Change(f"{name} other code", path, other_code)
    yield Change(f"{name} renamed", path, renamed)


#: Methods whose presence on a class changes what operators, truth and attribute reads do.
_PROTOCOL: dict[str, Callable[..., Any]] = {
    "__getattr__": lambda self, name: 2,
    "__getattribute__": values.loud_getattribute,
    "__setattr__": lambda self, name, value: object.__setattr__(self, name, values.doubled(value)),
    "__bool__": lambda self: False,
    "__len__": lambda self: 0,
    "__eq__": lambda self, other: True,
    "__iter__": lambda self: iter([1, 2]),
    "__contains__": lambda self, item: True,
    "__getitem__": lambda self, key: 1,
    "__call__": lambda self, *args, **kwargs: args[0],
    "__add__": lambda self, other: 3,
    "__enter__": lambda self: self,
    "__exit__": lambda self, *error: True,
    "__torch_function__": classmethod(lambda cls, *args, **kwargs: 5),
}


def _class(near: Neighbourhood, path: Path, name: str, kind: type) -> Iterator[Change]:
    """Names that a class does not have itself: protocol methods, and what hides attributes of its instances."""
    for attribute, method in _PROTOCOL.items():
        if attribute not in kind.__dict__:
            yield _new(path, ("own", attribute), name, method)
    for attribute in near.names:
        if attribute not in kind.__dict__ and not attribute.startswith("__"):
            yield _new(path, ("own", attribute), name, 4)
            yield _new(path, ("own", attribute), f"{name} property", property(lambda self: 6))

    def other_base(world: World) -> Undo:
        cls = read(world, path)
        bases = cls.__bases__
        extra = type("Extra", (), {"__module__": "program", "extra": 1} | {n: 9 for n in near.names if n[:2] != "__"})
        cls.__bases__ = (extra, *(b for b in bases if b is not object)) if bases != (object,) else (extra,)
        return lambda: setattr(cls, "__bases__", bases)

    yield Change(f"{name} other bases", path, other_base)
    own = [n for n in kind.__dict__ if not n.startswith("__")]
    for first, second in itertools.pairwise(own):
        swap = functools.partial(_swap, path, first, second)
        yield Change(f"{name} swaps {first} and {second}", path, swap)


def _swap(path: Path, first: str, second: str, world: World) -> Undo:
    kind = read(world, path)
    a, b = kind.__dict__[first], kind.__dict__[second]
    type.__setattr__(kind, first, b)
    type.__setattr__(kind, second, a)

    def undo() -> None:
        type.__setattr__(kind, first, a)
        type.__setattr__(kind, second, b)

    return undo


def _object(near: Neighbourhood, path: Path, name: str, value: Any) -> Iterator[Change]:
    """Attributes of the instance that its class had until now, or that nothing had."""
    for attribute in near.names:
        if attribute in value.__dict__ or attribute.startswith("__"):
            continue
        if isinstance(value, torch.nn.Module) or user_class(type(value)) or isinstance(value, (types.SimpleNamespace,)):
            yield _new(path, ("attr", attribute), name, 4)
            if callable(getattr(type(value), attribute, None)):
                yield _new(path, ("attr", attribute), f"{name} function", lambda *args, **kwargs: args[0])


def _new(path: Path, step: Any, name: str, value: Any) -> Change:
    where = (*path, step)
    kind = "" if callable(value) or isinstance(value, (property, classmethod)) else f" = {value}"
    return Change(f"{name} new {step[1]}{kind}", where, lambda world: write(world, where, value))


def identities(near: Neighbourhood) -> Iterator[Change]:
    """Two places that hold one object, or tensors with memory in common."""

    def kind(value: Any) -> Any:
        return next((k for k in (torch.Tensor, list, dict, set) if isinstance(value, k)), type(value))

    mutable = [p for p in near.paths if _has_identity(near.values[p]) and not _of_module(near, p)]
    for i, first in enumerate(mutable):
        for second in mutable[i + 1 :]:
            a, b = near.values[first], near.values[second]
            if kind(a) != kind(b) or second[: len(first)] == first:
                continue
            name = f"{shown(second)} = {shown(first)}"
            if a is not b:
                yield Change(f"{name} itself", second, lambda w, f=first, s=second: write(w, s, read(w, f)))
            if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
                for how, make in _OVERLAPS:
                    yield Change(
                        f"{name} {how}",
                        second,
                        lambda w, f=first, s=second, make=make: write(w, s, make(read(w, f), read(w, s))),
                    )


def _has_identity(value: Any) -> bool:
    kinds = (torch.Tensor, list, dict, set, torch.nn.Module)
    return isinstance(value, kinds) or (user_class(type(value)) and not isinstance(value, type))


def _of_module(near: Neighbourhood, path: Path) -> bool:
    """Whether it is one of the dicts that every module has; what they hold is enough."""
    return path[-1][0] == "attr" and path[-1][1][:1] == "_" and isinstance(near.values.get(path[:-1]), torch.nn.Module)


_OVERLAPS: list[tuple[str, Callable[[torch.Tensor, torch.Tensor], Any]]] = [
    ("as a view", lambda a, b: a.view(a.shape)),
    ("detached", lambda a, b: a.detach()),
    ("shifted in its memory", lambda a, b: a.detach().reshape(-1).roll(0)[: b.numel()].view(b.shape)),
    ("in its memory", lambda a, b: torch.as_strided(a.detach(), b.shape, b.stride(), 0)),
]


def patches(near: Neighbourhood) -> Iterator[Change]:
    """Names that were found in builtins, and methods of library classes, replaced for all."""
    for name in near.names:
        found = getattr(builtins, name, None)
        if found is not None and name not in near.world.module.__dict__ and not name.startswith("__"):
            other = _patched(found)
            yield _new((), ("program", name), "shadowed builtin", other)
            yield Change(
                f"builtin {name} patched", (), lambda w, name=name, new=other: around(w, lambda: _builtin(name, new))
            )
        if isinstance(torch.Tensor.__dict__.get(name, getattr(torch._C.TensorBase, name, None)), _METHODS):
            yield Change(f"torch.Tensor.{name} patched", (), lambda w, name=name: _patch(torch.Tensor, name))
    classes = {type(m) for v in near.values.values() if isinstance(v, torch.nn.Module) for m in v.modules()}
    for cls in sorted(classes, key=lambda c: c.__qualname__):
        if not user_class(cls) and "forward" in cls.__dict__:
            yield Change(f"{cls.__qualname__}.forward patched", (), lambda w, cls=cls: _patch(cls, "forward"))
    for name in ("Tensor", "relu", "_C"):
        yield Change(f"torch.{name} replaced", (), lambda w, name=name: around(w, lambda: _replaced(torch, name)))
    yield Change("sys.modules['torch'] replaced", (), lambda w: around(w, _other_torch))
    if classes:
        yield Change("Module.__call__ patched", (), lambda w: _patch(torch.nn.Module, "__call__"))
        yield Change("Module._call_impl patched", (), lambda w: _patch(torch.nn.Module, "_call_impl"))
        hooks = torch.nn.modules.module
        for name in (n for n in dir(hooks) if n.startswith("_global_") and isinstance(getattr(hooks, n), dict)):
            yield Change(f"{name} replaced", (), lambda w, name=name: around(w, lambda: _replaced(hooks, name, dict)))
        names = [f"_{a}{b}" for a in ("forward", "backward") for b in ("_hooks", "_pre_hooks")]
        for name in (*names, "_compiled_call_impl"):
            made = lambda module, *args: args[0] * 3
            yield Change(
                f"Module.{name} new", (), lambda w, name=name, made=made: _attribute(torch.nn.Module, name, made)
            )
        yield Change("global hook", (), lambda w: hooks.register_module_forward_hook(_double_output).remove)
        yield Change("global hook before", (), lambda w: hooks.register_module_forward_pre_hook(_double_input).remove)
        yield Change(
            "global hook before backward", (), lambda w: hooks.register_module_full_backward_pre_hook(_nothing).remove
        )
        yield Change(
            "torch._C._is_tracing patched", (), lambda w: around(w, lambda: _replaced(torch._C, "_is_tracing"))
        )
        yield Change("torch of modules replaced", (), lambda w: around(w, lambda: _replaced(hooks, "torch")))
        yield Change("global hook behind", (), lambda w: hooks.register_module_full_backward_hook(_nothing).remove)


def _replaced(
    owner: Any, name: str, make: Callable[[Any], Any] = lambda old: _patched(old)
) -> contextlib.AbstractContextManager[Any]:
    """An attribute of a library module is another, for the time of a call."""
    return _setting(lambda: getattr(owner, name), lambda value: setattr(owner, name, value), make(getattr(owner, name)))


def _other_torch() -> contextlib.AbstractContextManager[Any]:
    made = types.ModuleType("torch")
    made.__dict__.update(torch.__dict__)
    return _setting(lambda: sys.modules["torch"], lambda value: sys.modules.__setitem__("torch", value), made)


def _attribute(owner: type, name: str, value: Any) -> Undo:
    old = owner.__dict__.get(name, MISSING)
    setattr(owner, name, value)
    return (lambda: delattr(owner, name)) if old is MISSING else (lambda: setattr(owner, name, old))


def _builtin(name: str, new: Any) -> contextlib.AbstractContextManager[Any]:
    return _setting(lambda: getattr(builtins, name), lambda value: setattr(builtins, name, value), new)


_METHODS = (type(torch._C.TensorBase.add), types.FunctionType, property, types.GetSetDescriptorType)


def _nothing(*_: Any) -> None:
    """A hook."""


def _double_output(module: Any, args: Any, made: Any) -> Any:
    return values.doubled(made)


def _double_input(module: Any, args: Any) -> Any:
    return tuple(map(values.doubled, args))


def _patched(found: Any) -> Any:
    """What stands in for a function or a class: gives another result, or is another class."""
    if isinstance(found, types.ModuleType):
        made = types.ModuleType(found.__name__)
        made.__dict__.update(found.__dict__)
        return made
    if isinstance(found, type):
        try:
            return type(found)(found.__name__, (found,), {})
        except TypeError:  # `range` and its like have no subclasses
            pass

    def patched(*args: Any, **kwargs: Any) -> Any:
        return values.doubled(found(*args, **kwargs))

    return patched


def _patch(owner: type, name: str) -> Undo:
    found = getattr(owner, name)
    made = _patched(found) if callable(found) else property(lambda self: values.doubled(found.__get__(self)))
    return _attribute(owner, name, made)


class _Mode(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        return made + 1 if func is torch.Tensor.mul else made


class _Dispatch(torch.utils._python_dispatch.TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        return made + 1 if func is torch.ops.aten.mul.Tensor else made


@contextlib.contextmanager
def _setting(get: Callable[[], Any], put: Callable[[Any], Any], value: Any) -> Iterator[None]:
    old = get()
    put(value)
    try:
        yield
    finally:
        put(old)


_AMBIENT: dict[str, Callable[[], contextlib.AbstractContextManager[Any]]] = {
    "no_grad": torch.no_grad,
    "inference mode": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "autocast to half": lambda: torch.autocast("cpu", torch.float16),
    "autocast off": lambda: torch.autocast("cpu", enabled=False),
    "default dtype": lambda: _setting(torch.get_default_dtype, torch.set_default_dtype, torch.float64),
    "default device": lambda: torch.device("meta"),
    "deterministic": lambda: _setting(
        torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms, True
    ),
    "function mode": _Mode,
    "dispatch mode": _Dispatch,
    "saved tensor hooks": lambda: torch.autograd.graph.saved_tensors_hooks(lambda t: t * 2, lambda t: t),
    "saved on the CPU": torch.autograd.graph.save_on_cpu,
    "anomaly": lambda: torch.autograd.set_detect_anomaly(True),
    "no torch functions": torch._C.DisableTorchFunctionSubclass,
    "forward mode": torch.autograd.forward_ad.dual_level,
    "matmul precision": lambda: _setting(
        torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "medium"
    ),
}


def ambient() -> Iterator[Change]:
    """States of the thread, each round the whole call."""
    for name, enter in _AMBIENT.items():
        yield Change(f"in {name}", (), lambda world, enter=enter: around(world, enter))


__all__ = ["Change", "every", "follow", "shown"]
