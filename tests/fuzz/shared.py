"""What all programs share and some change: classes with their attributes, members of enums, and what is registered with
abstract classes. Each run starts from what they were when this was imported."""

from __future__ import annotations

import _abc
import collections.abc
import enum
from typing import Any

from . import objects, world

OWN = (world.__name__, objects.__name__)
#: What the interpreter keeps in a class for itself.
KEPT = ("__dict__", "__weakref__", "__abstractmethods__", "_abc_impl", "__doc__")


def namespace(owner: Any) -> dict[str, Any]:
    """Attributes of its own that a program can change."""
    return {name: value for name, value in vars(owner).items() if name not in KEPT}


class Shared:
    """Classes that programs see, as they are now."""

    def __init__(self) -> None:
        classes = [value for value in world.names().values() if isinstance(value, type) and value.__module__ in OWN]
        members = [member for cls in classes if issubclass(cls, enum.Enum) for member in cls]
        self.owners = [(owner, namespace(owner)) for owner in (*classes, *members)]
        abstract = {cls for cls in (*classes, *vars(collections.abc).values()) if hasattr(cls, "_abc_impl")}
        self.registered = [(cls, len(self.registry(cls)), self.registry(cls)) for cls in abstract]

    @staticmethod
    def registry(cls: Any) -> list[Any]:
        """What is registered with an abstract class."""
        return [found for ref in _abc._get_dump(cls)[0] if (found := ref()) is not None]

    def restore(self) -> None:
        """Takes back what programs changed."""
        for owner, known in self.owners:
            store, drop = (type.__setattr__, type.__delattr__) if isinstance(owner, type) else (setattr, delattr)
            now = namespace(owner)
            for name in now.keys() - known.keys():
                drop(owner, name)
            for name, value in known.items():
                if now.get(name, self) is not value:
                    store(owner, name, value)
        for cls, count, known in self.registered:
            if len(_abc._get_dump(cls)[0]) != count:
                _abc._reset_registry(cls)
                _abc._reset_caches(cls)
                for found in known:
                    cls.register(found)
