"""What a call looked for and did not find appears: at each place of a look-up's path, for each name of a program.

Places: an instance, its class, bases, the metaclass, a module, a function, a tensor, a dict, a set, an ABC's registry.
"""

from __future__ import annotations

import _abc
import abc
import collections.abc
import functools
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch

from .places import Neighbourhood, Path, Undo, read, user_class, write
from .world import World

Change = tuple[str, Path, Callable[[World], Undo]]


class Data:
    """A data descriptor."""

    def __get__(self, owner: Any, kind: Any = None) -> int:
        return 31

    def __set__(self, owner: Any, value: Any) -> None:
        owner.__dict__["stored"] = value


class NonData:
    """A descriptor that an instance's own attribute hides."""

    def __get__(self, owner: Any, kind: Any = None) -> int:
        return 32


class OnlySet:
    """Only stores."""

    def __set__(self, owner: Any, value: Any) -> None:
        owner.__dict__["stored"] = value


def _refused(self: Any) -> int:
    raise AttributeError("refused")


#: What an attribute of a class may be.
KINDS: dict[str, Callable[[], Any]] = {
    "number": lambda: 4,
    "function": lambda: lambda *args, **kwargs: 5,
    "property": lambda: property(lambda self: 6),
    "property that refuses": lambda: property(_refused),
    "data descriptor": Data,
    "descriptor": NonData,
    "descriptor that only stores": OnlySet,
    "static method": lambda: staticmethod(lambda *args: 7),
    "class method": lambda: classmethod(lambda *args: 8),
    "None": lambda: None,
}

#: Methods that change what operators, truth, calls, attribute reads and checks of types do, and what they are.
PROTOCOL: dict[str, Any] = {
    "__getattr__": lambda self, name: 2,
    "__setattr__": lambda self, name, value: None,
    "__delattr__": lambda self, name: None,
    "__bool__": lambda self: False,
    "__len__": lambda self: 0,
    "__length_hint__": lambda self: 1,
    "__eq__": lambda self, other: True,
    "__ne__": lambda self, other: True,
    "__lt__": lambda self, other: True,
    "__gt__": lambda self, other: False,
    "__hash__": lambda self: 1,
    "__iter__": lambda self: iter([1, 2]),
    "__next__": lambda self: 3,
    "__reversed__": lambda self: iter([2, 1]),
    "__contains__": lambda self, item: True,
    "__getitem__": lambda self, key: [5][key] if isinstance(key, int) else 1,
    "__setitem__": lambda self, key, value: None,
    "__delitem__": lambda self, key: None,
    "__missing__": lambda self, key: 3,
    "__call__": lambda self, *args, **kwargs: 9,
    "__add__": lambda self, other: 3,
    "__radd__": lambda self, other: 4,
    "__iadd__": lambda self, other: 5,
    "__neg__": lambda self: 6,
    "__index__": lambda self: 1,
    "__int__": lambda self: 1,
    "__float__": lambda self: 1.5,
    "__get__": lambda self, owner, kind=None: 7,
    "__set__": lambda self, owner, value: None,
    "__delete__": lambda self, owner: None,
    "__set_name__": lambda self, owner, name: None,
    "__enter__": lambda self: self,
    "__exit__": lambda self, *error: True,
    "__str__": lambda self: "text",
    "__repr__": lambda self: "shown",
    "__format__": lambda self, form: "formatted",
    "__class_getitem__": classmethod(lambda cls, item: 8),
    "__init_subclass__": classmethod(lambda cls, **options: None),
    "__subclasshook__": classmethod(lambda cls, kind: True),
    "__instancecheck__": lambda self, value: True,
    "__subclasscheck__": lambda self, kind: True,
    "__class__": property(lambda self: int),
    "__torch_function__": classmethod(lambda cls, *args, **kwargs: 5),
}


def appearances(near: Neighbourhood) -> Iterator[Change]:
    """All of them in a world like this one."""
    for path in near.paths:
        yield from _at(near, path, near.values[path])
    for path in _metaclasses(near):
        yield from _of_class(near, path, read(near.world, path))
    yield from _modules(near)
    yield from _registrations(near)


def _shown(path: Path) -> str:
    return ".".join(":".join(str(part) for part in step) for step in path)


def _put(where: Path, make: Callable[[], Any]) -> Callable[[World], Undo]:
    return lambda world: write(world, where, make())


def _at(near: Neighbourhood, path: Path, value: Any) -> Iterator[Change]:
    plain = [n for n in near.names if not n.startswith("__")]
    match value:
        case type():
            if user_class(value):
                yield from _of_class(near, path, value)
        case types.FunctionType():
            for name in (n for n in plain if n not in value.__dict__):
                yield f"{_shown(path)} appears {name}", path, functools.partial(_attribute, path, name)
        case torch.Tensor():
            for name in (n for n in plain if not hasattr(value, n)):
                yield f"{_shown(path)} appears {name}", path, functools.partial(_attribute, path, name)
        case dict():
            keys = [*near.names, *range(4)]
            for key in (k for k in keys if not dict.__contains__(value, k)):
                yield f"{_shown(path)} appears item {key}", path, _put((*path, ("item", key)), lambda: 4)
        case set():
            for key in (k for k in [*near.names, *range(4)] if k not in value):
                yield f"{_shown(path)} appears element {key}", path, functools.partial(_element, path, key)
        case types.ModuleType():
            pass
        case _ if hasattr(value, "__dict__") and user_class(type(value)):
            for name in (n for n in plain if n not in value.__dict__):
                for kind in ("number", "function", "None"):
                    where = (*path, ("attr", name))
                    yield f"{_shown(path)} appears {name}, a {kind}", where, _put(where, KINDS[kind])


def _of_class(near: Neighbourhood, path: Path, kind: type) -> Iterator[Change]:
    for name, method in PROTOCOL.items():
        if name not in kind.__dict__:
            where = (*path, ("own", name))
            yield f"{_shown(path)} appears {name}", where, _put(where, lambda method=method: method)
            if name in ("__iter__", "__contains__", "__hash__", "__eq__", "__len__", "__bool__", "__call__"):
                yield f"{_shown(path)} appears {name}, None", where, _put(where, lambda: None)
    for name in (n for n in near.names if not n.startswith("__") and n not in kind.__dict__):
        for what, make in KINDS.items():
            where = (*path, ("own", name))
            yield f"{_shown(path)} appears {name}, a {what}", where, _put(where, make)


def _metaclasses(near: Neighbourhood) -> Iterator[Path]:
    seen: set[int] = set()
    for path in near.paths:
        value = near.values[path]
        if isinstance(value, type) and user_class(type(value)) and id(type(value)) not in seen:
            seen.add(id(type(value)))
            yield (*path, ("class",))


def _attribute(path: Path, name: str, world: World) -> Undo:
    value = read(world, path)
    setattr(value, name, 4)
    return lambda: delattr(value, name)


def _element(path: Path, key: Any, world: World) -> Undo:
    value = read(world, path)
    set.add(value, key)
    return lambda: set.discard(value, key)


def _modules(near: Neighbourhood) -> Iterator[Change]:
    """Modules that an import would find, and attributes of modules."""

    def loaded(name: str, world: World) -> Undo:
        sys.modules[name] = types.ModuleType(name)
        return lambda: sys.modules.pop(name, None)

    def attribute(module: types.ModuleType, name: str, world: World) -> Undo:
        setattr(module, name, 4)
        return lambda: delattr(module, name)

    for name in (n for n in near.names if n.startswith("absent") and n not in sys.modules):
        yield f"module {name} appears", (), functools.partial(loaded, name)
    modules = [v for v in near.values.values() if isinstance(v, types.ModuleType)]
    for module in modules:
        for name in (n for n in near.names if n.startswith("absent") and not hasattr(module, n)):
            yield f"{module.__name__} appears {name}", (), functools.partial(attribute, module, name)


def _registrations(near: Neighbourhood) -> Iterator[Change]:
    """Classes become virtual subclasses of ABCs of the program and of the standard library's."""

    def register(path: Path, registry: Callable[[World], Any], world: World) -> Undo:
        base, kind = registry(world), read(world, path)
        before = [ref() for ref in _abc._get_dump(base)[0]]
        base.register(kind)

        def undo() -> None:
            _abc._reset_registry(base)
            _abc._reset_caches(base)
            for old in filter(None, before):
                base.register(old)

        return undo

    kinds = [p for p in near.paths if isinstance(near.values[p], type) and user_class(near.values[p])]
    for path in kinds:
        for other in kinds:
            if isinstance(near.values[other], abc.ABCMeta) and other != path:
                found = functools.partial(lambda where, world: read(world, where), other)
                yield f"{_shown(path)} registers with {_shown(other)}", path, functools.partial(register, path, found)
        for name in (n for n in near.names if isinstance(getattr(collections.abc, n, None), abc.ABCMeta)):
            found = functools.partial(lambda n, world: getattr(collections.abc, n), name)
            yield f"{_shown(path)} registers with {name}", path, functools.partial(register, path, found)
