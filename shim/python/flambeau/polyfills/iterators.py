"""Iterators of module `itertools` (CPython's `Modules/itertoolsmodule.c`)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

from flambeau.polyfills._table import Kind, Lazy, instead_of, refuse, same


class TakeWhile(Kind):
    """State: predicate, iterator, whether an item failed."""

    made_by = itertools.takewhile

    @staticmethod
    def step(state: list[Any]) -> Any:
        predicate, iterator, ended = state
        if ended:
            raise StopIteration
        item = next(iterator)
        if predicate(item):
            return item
        state[2] = True
        raise StopIteration

    @staticmethod
    def rebuild(state: list[Any]) -> tuple[Any, ...] | None:
        predicate, iterator, ended = state
        return "itertools.takewhile", predicate, () if ended else iterator


@instead_of("itertools.takewhile")
def takewhile(predicate: Any, iterable: Any, /) -> Any:
    return Lazy(TakeWhile, [predicate, iter(iterable), False])


def _falls(_item: Any) -> bool:
    return False


class DropWhile(Kind):
    """State: predicate, iterator, whether an item failed."""

    made_by = itertools.dropwhile

    @staticmethod
    def step(state: list[Any]) -> Any:
        predicate, iterator, begun = state
        item = next(iterator)
        if begun:
            return item
        while predicate(item):
            item = next(iterator)
        state[2] = True
        return item

    @staticmethod
    def rebuild(state: list[Any]) -> tuple[Any, ...] | None:
        predicate, iterator, begun = state
        return "itertools.dropwhile", _falls if begun else predicate, iterator


@instead_of("itertools.dropwhile")
def dropwhile(predicate: Any, iterable: Any, /) -> Any:
    return Lazy(DropWhile, [predicate, iter(iterable), False])


class Compress(Kind):
    """State: iterators over items and over what selects them."""

    made_by = itertools.compress

    @staticmethod
    def step(state: list[Any]) -> Any:
        data, selectors = state
        while True:
            item = next(data)
            if next(selectors):
                return item

    @staticmethod
    def rebuild(state: list[Any]) -> tuple[Any, ...] | None:
        return "itertools.compress", *state


@instead_of("itertools.compress")
def compress(data: Any, selectors: Any) -> Any:
    return Lazy(Compress, [iter(data), iter(selectors)])


class StarMap(Kind):
    """State: function, iterator."""

    made_by = itertools.starmap

    @staticmethod
    def step(state: list[Any]) -> Any:
        function, iterator = state
        args = next(iterator)
        return function(*(args if type(args) is tuple else tuple(args)))

    @staticmethod
    def rebuild(state: list[Any]) -> tuple[Any, ...] | None:
        return "itertools.starmap", *state


@instead_of("itertools.starmap")
def starmap(function: Any, iterable: Any, /) -> Any:
    return Lazy(StarMap, [function, iter(iterable)])


class Cycle(Kind):
    """State: iterator or `None`, the items that it gave, the next of these."""

    made_by = itertools.cycle

    @staticmethod
    def step(state: list[Any]) -> Any:
        iterator, saved, at = state
        if iterator is not None:
            for item in iterator:
                saved.append(item)
                return item
            state[0] = None
        if not saved:
            raise StopIteration
        state[2] = at + 1 if at + 1 < len(saved) else 0
        return saved[at]

    @staticmethod
    def rebuild(state: list[Any]) -> tuple[Any, ...] | None:
        iterator, saved, at = state
        return "flambeau.polyfills.iterators.cycle_from", iterator, tuple(saved), at


def cycle_from(iterator: Iterator[Any] | None, saved: tuple[Any, ...], at: int) -> Iterator[Any]:
    """`cycle` that was given `saved`, and has more to come or is at item `at` of a later round."""
    made = itertools.cycle(saved if iterator is None else itertools.chain(saved, iterator))
    for _ in range(len(saved) if iterator is not None else at):
        next(made)
    return made


@instead_of("itertools.cycle")
def cycle(iterable: Any, /) -> Any:
    return Lazy(Cycle, [iter(iterable), [], 0])


class GroupBy(Kind):
    """State: iterator, key function, and each as a tuple that may be empty: the key of the last group, the key and the
    value of the item that was read last; at last the state of the group that may still read."""

    made_by = itertools.groupby

    @staticmethod
    def read(state: list[Any]) -> None:
        value = next(state[0])
        key = value if state[1] is None else state[1](value)
        state[3], state[4] = (key,), (value,)

    @staticmethod
    def step(state: list[Any]) -> Any:
        state[5] = None
        while True:
            _, _, target, key, _, _ = state
            if key and (not target or not same(target[0], key[0])):
                break
            GroupBy.read(state)
        state[2] = key
        group = [state, key[0]]
        state[5] = group
        return key[0], Lazy(Group, group)

    @staticmethod
    def rebuild(state: list[Any]) -> tuple[Any, ...] | None:
        iterator, key, target, current, _, _ = state
        return None if target or current else ("itertools.groupby", iterator, key)


class Group(Kind):
    """State: the state of `groupby`, and the group's key."""

    made_by = itertools._grouper  # type: ignore[attr-defined]

    @staticmethod
    def step(state: list[Any]) -> Any:
        parent, target = state
        if parent[5] is not state:
            raise StopIteration
        if not parent[4]:
            GroupBy.read(parent)
        if not same(target, parent[3][0]):
            raise StopIteration
        value = parent[4][0]
        parent[3] = parent[4] = ()
        return value

    @staticmethod
    def rebuild(state: list[Any]) -> tuple[Any, ...] | None:
        return None


@instead_of("itertools.groupby")
def groupby(iterable: Any, key: Any = None) -> Any:
    return Lazy(GroupBy, [iter(iterable), key, (), (), (), None])


class Tee(Kind):
    """State: the iterator, the items that it gave and whether it is giving one, which all that came of one call share;
    how many this one gave."""

    made_by = itertools._tee  # type: ignore[attr-defined]

    @staticmethod
    def step(state: list[Any]) -> Any:
        (iterator, items, giving), at = state
        if at == len(items):
            if giving:
                raise RuntimeError("cannot re-enter the tee iterator")
            giving.append(True)
            try:
                items.append(next(iterator))
            finally:
                giving.pop()
        state[1] = at + 1
        return items[at]

    @staticmethod
    def rebuild(state: list[Any]) -> tuple[Any, ...] | None:
        return None


@instead_of("itertools.tee")
def tee(iterable: Any, n: Any = 2, /) -> Any:
    if type(n) is not int:
        refuse()
    if n < 0:
        raise ValueError("n must be >= 0")
    if n == 0:
        return ()
    iterator = iter(iterable)
    if hasattr(iterator, "__copy__"):
        refuse()
    shared = (iterator, [], [])  # type: ignore[var-annotated]
    return tuple([Lazy(Tee, [shared, 0]) for _ in range(n)])


class Combinations(Kind):
    """State: the items, how many are taken at a time, the indices of the last row, whether it was given."""

    made_by = itertools.combinations_with_replacement

    @staticmethod
    def step(state: list[Any]) -> Any:
        pool, count, indices, given = state
        if indices is None:
            raise StopIteration
        if not given:
            state[3] = True
            return tuple([pool[0] for _ in indices])
        at = count - 1
        while at >= 0 and indices[at] == len(pool) - 1:
            at -= 1
        if at < 0:
            state[2] = None
            raise StopIteration
        indices[at:] = [indices[at] + 1] * (count - at)
        return tuple([pool[i] for i in indices])

    @staticmethod
    def rebuild(state: list[Any]) -> tuple[Any, ...] | None:
        pool, count, indices, given = state
        if indices is None:
            return "itertools.combinations_with_replacement", (), 1
        return None if given else ("itertools.combinations_with_replacement", pool, count)


@instead_of("itertools.combinations_with_replacement")
def combinations_with_replacement(iterable: Any, r: Any) -> Any:
    pool = tuple(iterable)
    if type(r) is not int:
        refuse()
    if r < 0:
        raise ValueError("r must be non-negative")
    return Lazy(Combinations, [pool, r, [0] * r if pool or not r else None, False])


class Batched(Kind):
    """State: iterator, length of a batch, whether each must be whole."""

    made_by = getattr(itertools, "batched", object)

    @staticmethod
    def step(state: list[Any]) -> Any:
        iterator, count, strict = state
        batch: list[Any] = []
        if iterator is not None:
            for item in iterator:
                batch.append(item)
                if len(batch) == count:
                    return tuple(batch)
            state[0] = None
        if not batch:
            raise StopIteration
        if strict:
            raise ValueError("batched(): incomplete batch")
        return tuple(batch)

    @staticmethod
    def rebuild(state: list[Any]) -> tuple[Any, ...] | None:
        iterator, count, strict = state
        if strict:
            return None
        return "itertools.batched", () if iterator is None else iterator, count


def _batched(iterable: Any, n: Any, strict: Any) -> Any:
    if type(n) is not int or type(strict) is not bool:
        refuse()
    if n < 1:
        raise ValueError("n must be at least one")
    return Lazy(Batched, [iter(iterable), n, strict])


def _enter_batched(batched: Callable[..., Any] | None) -> None:
    """Only later versions of Python have it, and only those after the first take `strict`."""
    if batched is None:
        return
    try:
        batched((), 1, strict=False)
    except TypeError:
        instead_of("itertools.batched")(lambda iterable, n: _batched(iterable, n, False))
    else:
        instead_of("itertools.batched")(lambda iterable, n, *, strict=False: _batched(iterable, n, strict))


_enter_batched(getattr(itertools, "batched", None))
