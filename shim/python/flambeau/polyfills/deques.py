"""`collections.deque` (CPython's `Modules/_collectionsmodule.c`).

The state of one is `[items, maxlen, changes]`: a list, an int or `None`, and how often its length changed, which
iterators compare with what it was.
"""

from __future__ import annotations

import sys
from collections import deque
from typing import Any

from flambeau.polyfills._table import Kind, Lazy, instead_of, made, refuse, same, state_of

ITERATOR: Any = type(iter(deque()))
REVERSED: Any = type(reversed(deque()))
MUTATED = "deque mutated during iteration"
LARGE = 2000
"""Longer deques are left to C."""


class Deque(Kind):
    """A deque itself."""

    made_by = deque

    @staticmethod
    def rebuild(state: list[Any]) -> tuple[Any, ...] | None:
        return ("collections.deque", state[0], state[1])


def _items(self: Any) -> list[Any]:
    return state_of(self)[0]  # type: ignore[no-any-return]


def _index(i: Any) -> Any:
    if type(i) is not int:
        refuse()
    return i


@instead_of("collections.deque")
def new(iterable: Any = (), maxlen: Any = None) -> Any:
    if maxlen is not None and (type(maxlen) is not int or maxlen < 0):
        refuse()
    result = made(Deque, [[], maxlen, 0])
    extend(result, iterable)
    return result


@instead_of("collections.deque.maxlen")
def maxlen(self: Any) -> Any:
    return state_of(self)[1]


@instead_of("collections.deque.append")
def append(self: Any, item: Any, /) -> None:
    state = state_of(self)
    state[0].append(item)
    state[2] += 1
    if state[1] is not None and len(state[0]) > state[1]:
        del state[0][0]


@instead_of("collections.deque.appendleft")
def appendleft(self: Any, item: Any, /) -> None:
    state = state_of(self)
    state[0].insert(0, item)
    state[2] += 1
    if state[1] is not None and len(state[0]) > state[1]:
        del state[0][-1]


@instead_of("collections.deque.extend")
def extend(self: Any, iterable: Any, /) -> None:
    for item in list(iterable) if iterable is self else iterable:
        append(self, item)


@instead_of("collections.deque.extendleft")
def extendleft(self: Any, iterable: Any, /) -> None:
    for item in list(iterable) if iterable is self else iterable:
        appendleft(self, item)


@instead_of("collections.deque.__iadd__")
def iadd(self: Any, iterable: Any, /) -> Any:
    # Objects of other types may have an `__radd__`, which goes first.
    if type(iterable) not in (list, tuple, deque, set, dict, str, range):
        refuse()
    extend(self, iterable)
    return self


@instead_of("collections.deque.pop")
def pop(self: Any, /) -> Any:
    state = state_of(self)
    if not state[0]:
        raise IndexError("pop from an empty deque")
    state[2] += 1
    return state[0].pop()


@instead_of("collections.deque.popleft")
def popleft(self: Any, /) -> Any:
    state = state_of(self)
    if not state[0]:
        raise IndexError("pop from an empty deque")
    state[2] += 1
    return state[0].pop(0)


@instead_of("collections.deque.clear")
def clear(self: Any, /) -> None:
    state = state_of(self)
    if state[0]:
        state[2] += 1
    state[0].clear()


@instead_of("collections.deque.copy", "collections.deque.__copy__")
def copy(self: Any, /) -> Any:
    items, longest, _ = state_of(self)
    return made(Deque, [list(items), longest, 0])


@instead_of("collections.deque.rotate")
def rotate(self: Any, n: Any = 1, /) -> None:
    state = state_of(self)
    items = state[0]
    _index(n)
    if len(items) > 1:
        state[2] += 1
        n %= len(items)
        items[:] = items[len(items) - n :] + items[: len(items) - n]


@instead_of("collections.deque.reverse")
def reverse(self: Any, /) -> None:
    _items(self).reverse()


@instead_of("collections.deque.count")
def count(self: Any, value: Any, /) -> int:
    state = state_of(self)
    before, found = state[2], 0
    for item in list(state[0]):
        found += same(item, value)
        if state[2] != before:
            raise RuntimeError(MUTATED)
    return found


@instead_of("collections.deque.__contains__")
def contains(self: Any, value: Any, /) -> bool:
    state = state_of(self)
    before = state[2]
    for item in list(state[0]):
        found = same(item, value)
        if state[2] != before:
            raise RuntimeError(MUTATED)
        if found:
            return True
    return False


@instead_of("collections.deque.index")
def index(self: Any, value: Any, start: Any = 0, stop: Any = sys.maxsize, /) -> int:
    state = state_of(self)
    length, before = len(state[0]), state[2]
    if _index(start) < 0:
        start = max(start + length, 0)
    if _index(stop) < 0:
        stop = max(stop + length, 0)
    for i in range(start, min(stop, length)):
        found = same(state[0][i], value)
        if found:
            return i
        if state[2] != before:
            raise RuntimeError(MUTATED)
    raise ValueError(f"{value!r} is not in deque")


@instead_of("collections.deque.insert")
def insert(self: Any, i: Any, item: Any, /) -> None:
    state, at = state_of(self), _index(i)
    if state[1] is not None and len(state[0]) >= state[1]:
        raise IndexError("deque already at its maximum size")
    state[0].insert(at, item)
    state[2] += 1


@instead_of("collections.deque.remove")
def remove(self: Any, value: Any, /) -> None:
    state = state_of(self)
    length, before = len(state[0]), state[2]
    for i in range(length):
        found = same(state[0][i], value)
        if state[2] != before:
            raise IndexError("deque mutated during remove().")
        if found:
            del state[0][i]
            state[2] += 1
            return
    raise ValueError(f"{value!r} is not in deque")


def _at(items: list[Any], i: Any) -> Any:
    if not -len(items) <= _index(i) < len(items):
        raise IndexError("deque index out of range")
    return i


@instead_of("collections.deque.__getitem__")
def getitem(self: Any, i: Any, /) -> Any:
    items = _items(self)
    return items[_at(items, i)]


@instead_of("collections.deque.__setitem__")
def setitem(self: Any, i: Any, item: Any, /) -> None:
    items = _items(self)
    items[_at(items, i)] = item


@instead_of("collections.deque.__delitem__")
def delitem(self: Any, i: Any, /) -> None:
    state = state_of(self)
    del state[0][_at(state[0], i)]
    state[2] += 1


@instead_of("collections.deque.__len__")
def length(self: Any, /) -> int:
    return len(_items(self))


@instead_of("collections.deque.__add__")
def add(self: Any, other: Any, /) -> Any:
    if type(other) is not deque:
        refuse()
    result = copy(self)
    extend(result, other)
    return result


@instead_of("collections.deque.__mul__", "collections.deque.__rmul__")
def multiply(self: Any, n: Any, /) -> Any:
    items, longest, _ = state_of(self)
    if len(items) * _index(n) > LARGE:
        refuse()
    result = made(Deque, [[], longest, 0])
    extend(result, items * n)
    return result


@instead_of("collections.deque.__imul__")
def multiply_in_place(self: Any, n: Any, /) -> Any:
    state = state_of(self)
    if n == 1 or len(state[0]) * _index(n) > LARGE:
        refuse()
    items = state[0] * n
    state[0][:] = items if state[1] is None else items[max(len(items) - state[1], 0) :]
    state[2] += 1
    return self


@instead_of("collections.deque.__eq__")
def eq(self: Any, other: Any, /) -> Any:
    if not isinstance(other, deque):
        return NotImplemented
    return self is other or list(_items(self)) == list(_items(other))


@instead_of("collections.deque.__ne__")
def ne(self: Any, other: Any, /) -> Any:
    if not isinstance(other, deque):
        return NotImplemented
    return self is not other and list(_items(self)) != list(_items(other))


@instead_of("collections.deque.__lt__")
def lt(self: Any, other: Any, /) -> Any:
    if not isinstance(other, deque):
        return NotImplemented
    return list(_items(self)) < list(_items(other))


@instead_of("collections.deque.__le__")
def le(self: Any, other: Any, /) -> Any:
    if not isinstance(other, deque):
        return NotImplemented
    return list(_items(self)) <= list(_items(other))


@instead_of("collections.deque.__gt__")
def gt(self: Any, other: Any, /) -> Any:
    if not isinstance(other, deque):
        return NotImplemented
    return list(_items(self)) > list(_items(other))


@instead_of("collections.deque.__ge__")
def ge(self: Any, other: Any, /) -> Any:
    if not isinstance(other, deque):
        return NotImplemented
    return list(_items(self)) >= list(_items(other))


@instead_of("collections.deque.__repr__")
def represent(self: Any, /) -> str:
    items, longest, _ = state_of(self)
    text = repr(list(items))
    return f"deque({text})" if longest is None else f"deque({text}, maxlen={longest})"


def _begin(self: Any) -> list[Any]:
    return [self, 0, state_of(self)[2]]


def _advance(state: list[Any]) -> int:
    items, _, changes = state_of(state[0])
    if state[2] != changes:
        raise RuntimeError(MUTATED)
    if state[1] == len(items):
        raise StopIteration
    state[1] += 1
    return state[1]  # type: ignore[no-any-return]


def _remake(path: str, state: list[Any]) -> tuple[Any, ...] | None:
    made_of, given, changes = state
    return (path, made_of, given) if changes == state_of(made_of)[2] else None


class Forwards(Kind):
    """The state is `[deque, how many items were given, its changes before the first]`."""

    made_by = ITERATOR

    @staticmethod
    def step(state: list[Any]) -> Any:
        return _items(state[0])[_advance(state) - 1]

    @staticmethod
    def rebuild(state: list[Any]) -> tuple[Any, ...] | None:
        return _remake("_collections._deque_iterator", state)


class Backwards(Kind):
    """As forwards, from the other end."""

    made_by = REVERSED

    @staticmethod
    def step(state: list[Any]) -> Any:
        return _items(state[0])[-_advance(state)]

    @staticmethod
    def rebuild(state: list[Any]) -> tuple[Any, ...] | None:
        return _remake("_collections._deque_reverse_iterator", state)


@instead_of("collections.deque.__iter__")
def iterate(self: Any, /) -> Any:
    return Lazy(Forwards, _begin(self))


@instead_of("collections.deque.__reversed__")
def iterate_backwards(self: Any, /) -> Any:
    return Lazy(Backwards, _begin(self))
