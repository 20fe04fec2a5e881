"""Places in a world: steps from its arguments and globals to a value, reading and writing there, and finding all places
near a function. What changes are made there is in `changes.py`.
"""

from __future__ import annotations

import collections
import functools
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch
from fuzz import world as fuzzed

from .world import World

Step = tuple[Any, ...]
Path = tuple[Step, ...]
Undo = Callable[[], Any]

CONSTANTS = (int, float, str, bytes, bool, type(None), complex, torch.dtype, torch.device, torch.Size)
MISSING = object()
#: Of classes: what says nothing to a program, and what `abc` keeps for itself.
SKIPPED = ("__dict__", "__weakref__", "__module__", "__doc__", "__qualname__", "__annotations__", "_abc_impl")
#: Modules whose names may be changed for the time of a call, as a user's own patches would.
PATCHED = {"torch", "math", "operator", "torch.nn.functional"}


def user_file(file: str) -> bool:
    """Whether code in it is a program's or that of the world of random programs."""
    return file.startswith("<perturbed") or file == fuzzed.__file__


def user_class(kind: type) -> bool:
    """Whether a program made it, or the world of random programs."""
    return kind.__module__ in ("program", fuzzed.__name__)


def read(world: World, path: Path) -> Any:
    """The value at a place."""
    value: Any = None
    for step in path:
        value = follow(world, value, step)
    return value


def follow(world: World, value: Any, step: Step) -> Any:
    """One step. Raises if there is nothing."""
    match step:
        case ("arg", i):
            return world.args[i]
        case ("program", name):
            return world.module.__dict__[name]
        case ("global", name):
            return value.__globals__[name]
        case ("attr", name):
            return value.__dict__[name]
        case ("item" | "index", key):
            return value[key] if not isinstance(value, dict) else dict.__getitem__(value, key)
        case ("slot", name):
            return object.__getattribute__(value, name)
        case ("class",):
            return type(value)
        case ("base", i):
            return value.__mro__[i]
        case ("own", name):
            return value.__dict__[name]
        case ("cell", i):
            return value.__closure__[i].cell_contents
        case ("part", name):
            return getattr(value, name)
    raise AssertionError(step)


def write(world: World, path: Path, new: Any) -> Undo:
    """Puts `new` at a place (`MISSING`: nothing), and gives what undoes it. Raises where Python does."""
    *base, step = path
    parent = read(world, tuple(base)) if base else None
    match step:
        case ("arg", i):
            return _store(world.args.__getitem__, functools.partial(_list_store, world.args), i, new)
        case ("program", name):
            return _dict(world.module.__dict__, name, new)
        case ("global", name):
            return _dict(parent.__globals__, name, new)
        case ("attr", name):
            return _dict(parent.__dict__, name, new)
        case ("item", key):
            return _dict(parent, key, new)
        case ("index", i) if isinstance(parent, (list, collections.deque)):
            return _store(parent.__getitem__, functools.partial(_list_store, parent), i, new)
        case ("index", i):
            items = (*parent[:i], *(() if new is MISSING else (new,)), *parent[i + 1 :])
            made = type(parent)._make(items) if hasattr(parent, "_make") else type(parent)(items)
            return write(world, tuple(base), made)
        case ("slot", name):
            return _attribute(object, parent, name, new)
        case ("class",):
            old = type(parent)
            object.__setattr__(parent, "__class__", new)
            return lambda: object.__setattr__(parent, "__class__", old)
        case ("own", name):
            old = parent.__dict__.get(name, MISSING)
            type.__delattr__(parent, name) if new is MISSING else type.__setattr__(parent, name, new)
            if old is MISSING:
                return lambda: type.__delattr__(parent, name)
            return lambda: type.__setattr__(parent, name, old)
        case ("cell", i):
            cell = parent.__closure__[i]
            return _attribute(types.CellType, cell, "cell_contents", new)
        case ("part", name):
            return _part(world, tuple(base), parent, name, new)
    raise TypeError(f"nothing can be stored at {step}")


def _part(world: World, base: Path, parent: Any, name: str, new: Any) -> Undo:
    """A field of a function, or another object with one part replaced."""
    match parent:
        case types.FunctionType():
            return _attribute(type(parent), parent, name, new)
        case torch.Tensor():
            return _attribute(torch.Tensor, parent, name, new)
        case types.MethodType():
            parts = {"__func__": parent.__func__, "__self__": parent.__self__} | {name: new}
            made: Any = types.MethodType(parts["__func__"], parts["__self__"])
        case property():
            parts = {"fget": parent.fget, "fset": parent.fset, "fdel": parent.fdel} | {name: new}
            made = property(**parts)
        case staticmethod() | classmethod():
            made = type(parent)(new)
        case functools.partial():
            parts = {"func": parent.func, "args": parent.args, "keywords": parent.keywords} | {name: new}
            made = functools.partial(parts["func"], *parts["args"], **parts["keywords"])
        case _:
            raise TypeError(f"no parts of {type(parent)}")
    return write(world, base, made)


def _list_store(items: Any, i: int, value: Any) -> None:
    items[i] = value


def _store(get: Callable[[Any], Any], put: Callable[[Any, Any], None], key: Any, new: Any) -> Undo:
    if new is MISSING:
        raise TypeError("an item of a list is not left out; its length is changed")
    old = get(key)
    put(key, new)
    return lambda: put(key, old)


def _dict(where: dict[Any, Any], key: Any, new: Any) -> Undo:
    """A raw item of a dict: what instance dicts, namespaces and the user's own dicts have in common."""
    old = dict.get(where, key, MISSING)
    kind = type(where) if not isinstance(where, types.MappingProxyType) else dict
    kind.__delitem__(where, key) if new is MISSING else kind.__setitem__(where, key, new)
    if old is MISSING:
        return lambda: kind.pop(where, key, None)
    return lambda: kind.__setitem__(where, key, old)


def _attribute(through: type, value: Any, name: str, new: Any) -> Undo:
    try:
        old = through.__getattribute__(value, name)
    except (AttributeError, ValueError):
        old = MISSING

    def put(it: Any) -> None:
        through.__delattr__(value, name) if it is MISSING else through.__setattr__(value, name, it)

    put(new)
    return lambda: put(old)


def names_of(code: types.CodeType) -> list[str]:
    """Names that a code object and the code in it use: globals, attributes, and strings that may name attributes."""
    inner = [c for c in code.co_consts if isinstance(c, types.CodeType)]
    texts = [c for c in code.co_consts if isinstance(c, str) and c.isidentifier()]
    return list(dict.fromkeys([*code.co_names, *texts, *(n for c in inner for n in names_of(c))]))


class Neighbourhood:
    """All places that a call could read, breadth first, each object once: what one change each is made at."""

    def __init__(self, world: World):
        self.world = world
        self.seen: set[int] = set()
        self.paths: list[Path] = []
        self.names: dict[str, None] = {}
        self.kept: list[Any] = []
        self.values: dict[Path, Any] = {}
        waiting: list[Path] = [(("program", "f"),)] + [(("arg", i),) for i in range(len(world.args))]
        while waiting:
            path = waiting.pop(0)
            try:
                value = read(world, path)
            except (KeyError, AttributeError, ValueError, TypeError, IndexError):
                continue
            if path in self.values:
                continue
            self.paths.append(path)
            self.values[path] = value
            if len(path) > world.entry.reach or isinstance(value, CONSTANTS) or id(value) in self.seen:
                continue
            self.seen.add(id(value))
            self.kept.append(value)
            waiting += self.children(path, value)

    def children(self, path: Path, value: Any) -> Iterator[Path]:
        """Places one step on."""
        match value:
            case types.FunctionType():
                yield from self.function(path, value)
            case types.ModuleType():
                if value.__name__ in PATCHED:
                    yield from (
                        (*path, ("attr", n)) for n in self.names if n in value.__dict__ and n not in ("nn", "ops")
                    )
            case types.MethodType():
                yield from ((*path, ("part", n)) for n in ("__func__", "__self__"))
            case property():
                yield from ((*path, ("part", n)) for n in ("fget", "fset") if getattr(value, n))
            case staticmethod() | classmethod():
                yield (*path, ("part", "__func__"))
            case functools.partial():
                yield from ((*path, ("part", n)) for n in ("func", "args", "keywords"))
            case type():
                if user_class(value):
                    yield from ((*path, ("own", n)) for n in value.__dict__ if n not in SKIPPED)
                    yield from ((*path, ("base", i)) for i, b in enumerate(value.__mro__) if i and user_class(b))
            case list() | tuple() | collections.deque():
                yield from ((*path, ("index", i)) for i in range(min(len(value), 8)))
                yield from self.object(path, value)
            case dict():
                plain = [k for k in dict.keys(value) if isinstance(k, CONSTANTS)]
                yield from ((*path, ("item", k)) for k in plain[:12])
                yield from self.object(path, value)
            case _:
                yield from self.object(path, value)
                if isinstance(value, torch.nn.Module):
                    self.names.update(dict.fromkeys(["_call_impl", "_compiled_call_impl", "forward"]))
                if isinstance(value, torch.Tensor) and value.is_leaf:
                    yield (*path, ("part", "grad"))

    def function(self, path: Path, value: types.FunctionType) -> Iterator[Path]:
        """Defaults, cells and the globals that its code names."""
        if not user_file(value.__code__.co_filename):
            return
        names = names_of(value.__code__)
        self.names.update(dict.fromkeys(names))
        yield from ((*path, ("part", n)) for n in ("__defaults__", "__kwdefaults__", "__dict__"))
        yield from ((*path, ("cell", i)) for i in range(len(value.__closure__ or ())))
        mine = value.__globals__ is self.world.module.__dict__
        for name in names:
            if name in value.__globals__:
                yield (("program", name),) if mine else (*path, ("global", name))

    def object(self, path: Path, value: Any) -> Iterator[Path]:
        """Instance dict, slots, class."""
        kind = type(value)
        if isinstance(value, torch.nn.Module) or user_class(kind) or kind in (types.SimpleNamespace,):
            attributes = getattr(value, "__dict__", {})
            yield from ((*path, ("attr", n)) for n in attributes)
        for base in kind.__mro__:
            if user_class(base):
                yield from ((*path, ("slot", n)) for n in base.__dict__.get("__slots__", ()) if n != "__dict__")
        if user_class(kind):
            yield (*path, ("class",))
