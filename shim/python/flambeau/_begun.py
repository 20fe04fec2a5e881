"""Iterators of `itertools` that leave a compiled frame after they have begun: what no single call of theirs makes. And
the types of built-in iterators, which have no import paths of their own."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
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
