"""Functions of `operator`, `functools` and `collections`, and methods of built-in types."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flambeau.polyfills._table import instead_of, refuse, same


def _iterator(iterable: Any) -> Iterator[Any]:
    """`iter(iterable)`; what C says of a value that cannot be iterated over is left to C."""
    try:
        return iter(iterable)
    except TypeError:
        refuse()


@instead_of("_operator.countOf")
def count_of(a: Any, b: Any, /) -> int:
    count = 0
    for item in _iterator(a):
        if same(item, b):
            count += 1
    return count


@instead_of("_operator.indexOf")
def index_of(a: Any, b: Any, /) -> int:
    for at, item in enumerate(_iterator(a)):
        if same(item, b):
            return at
    raise ValueError("sequence.index(x): x not in sequence")


@instead_of("_operator.concat")
def concat(a: Any, b: Any, /) -> Any:
    if type(a) is not type(b) or type(a) not in (list, tuple, str, bytes):
        refuse()
    return a + b


@instead_of("_operator.delitem")
def delitem(a: Any, b: Any, /) -> None:
    del a[b]


@instead_of("_operator.length_hint")
def length_hint(obj: Any, default: Any = 0, /) -> int:
    if type(default) is not int or not any("__len__" in vars(cls) for cls in type(obj).__mro__):
        refuse()
    try:
        return len(obj)
    except TypeError:
        refuse()


@instead_of("_collections._count_elements")
def count_elements(mapping: Any, iterable: Any, /) -> None:
    get = mapping.get
    for element in iterable:
        mapping[element] = get(element, 0) + 1


@instead_of("builtins.set.intersection_update")
def intersection_update(self: Any, /, *others: Any) -> None:
    kept = self.intersection(*others)
    self.clear()
    self.update(kept)


@instead_of("builtins.range.count")
def range_count(self: range, value: Any, /) -> int:
    if type(value) is not int:
        refuse()
    return int(value in self)


@instead_of("builtins.range.index")
def range_index(self: range, value: Any, /) -> int:
    if type(value) is not int:
        refuse()
    if value not in self:
        raise ValueError(f"{value} is not in range")
    return (value - self.start) // self.step


class KeyWrapper:
    """What `cmp_to_key` makes (`keyobject` in CPython's `Modules/_functoolsmodule.c`): a function of keys, or a key."""

    __slots__ = ("compare", "key")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, compare: Any, key: Any):
        self.compare = compare
        self.key = key

    def __call__(self, obj: Any) -> KeyWrapper:
        return KeyWrapper(self.compare, obj)

    def __lt__(self, other: Any) -> Any:
        return _compared(self, other) < 0

    def __gt__(self, other: Any) -> Any:
        return _compared(self, other) > 0

    def __eq__(self, other: Any) -> Any:
        return _compared(self, other) == 0

    def __le__(self, other: Any) -> Any:
        return _compared(self, other) <= 0

    def __ge__(self, other: Any) -> Any:
        return _compared(self, other) >= 0

    def __ne__(self, other: Any) -> Any:
        return _compared(self, other) != 0


def _compared(a: KeyWrapper, b: Any) -> Any:
    if type(b) is not KeyWrapper:
        refuse()
    return a.compare(a.key, b.key)


@instead_of("_functools.cmp_to_key")
def cmp_to_key(mycmp: Any) -> Any:
    return KeyWrapper(mycmp, None)
