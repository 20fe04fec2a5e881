"""Iterators of `itertools` that leave a compiled frame after they have begun: what no single call of theirs makes. And
the types of built-in iterators, which have no import paths of their own."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter
from typing import Any

list_iterator: type = type(iter([]))
list_reverseiterator: type = type(reversed([]))
tuple_iterator: type = type(iter(()))
str_ascii_iterator: type = type(iter("a"))
str_iterator: type = type(iter("\u00df"))
bytes_iterator: type = type(iter(b""))
set_iterator: type = type(iter(set()))
range_iterator: type = type(iter(range(0)))
callable_iterator: type = type(iter(int, None))


def advanced(iterator: Iterator[Any], count: int) -> Iterator[Any]:
    """An iterator over what was taken when it was made, `count` items on."""
    for _ in range(count):
        next(iterator, None)
    return iterator


def accumulate_from(iterable: Iterable[Any], func: Callable[[Any, Any], Any] | None, initial: Any) -> Iterator[Any]:
    """`accumulate` with `initial`."""
    return itertools.accumulate(iterable, func, initial=initial)


def accumulate_on(iterable: Iterable[Any], func: Callable[[Any, Any], Any] | None, total: Any) -> Iterator[Any]:
    """`accumulate` that has given `total`. To give an initial value takes and calls nothing."""
    if total is None:  # no initial value
        return advanced(itertools.accumulate(itertools.chain((None,), iterable), func), 1)
    return advanced(itertools.accumulate(iterable, func, initial=total), 1)


class _Empty:
    """A sequence by `[0]`, `[1]`, ... alone."""

    def __getitem__(self, index: int) -> Any:
        raise IndexError(index)


def ended_sequence() -> Iterator[Any]:
    """An iterator over a sequence that was at its end."""
    return advanced(iter(_Empty()), 1)


def ended_calls() -> Iterator[Any]:
    """`iter(callable, sentinel)` that has met its sentinel."""
    return advanced(iter(lambda: None, None), 1)


def zip_longest(fillvalue: Any, *iterables: Iterable[Any]) -> Iterator[Any]:
    """`zip_longest`, with its keyword argument first."""
    return itertools.zip_longest(*iterables, fillvalue=fillvalue)


def hash_seed() -> int:
    """A number that is another one where strings have other hashes."""
    return hash("flambeau")


def set_order(made: tuple[Any, ...], sets: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """The elements of a set in their order: whether it is frozen, by a call of what it was made, and what changed it.
    `sets` have a part in that. `None` where it cannot be done again."""
    try:
        return tuple(_set(made, sets))
    except (KeyError, TypeError, ValueError):
        return None


def _set(made: Any, sets: tuple[Any, ...]) -> Any:
    if type(made) is int:
        return sets[made]

    def operand(part: tuple[bool, Any]) -> Any:
        is_set, value = part
        return _set(value, sets) if is_set else value

    frozen, path, operands, changes = made
    if path is None and frozen:
        return frozenset([operand(added) for _, (added,) in changes])
    if path is None:
        found: Any = set()
    else:
        module, _, name = path.partition(".")
        if module not in ("builtins", "operator", "_operator"):
            raise ValueError(path)
        found = attrgetter(name)(importlib.import_module(module))(*map(operand, operands))
    for method, args in changes:
        getattr(found, method)(*map(operand, args))
    return found
