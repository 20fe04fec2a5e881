"""Iterators of `itertools` that leave a compiled frame after they have begun: what no single call of theirs makes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any


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


def zip_longest(fillvalue: Any, *iterables: Iterable[Any]) -> Iterator[Any]:
    """`zip_longest`, with its keyword argument first."""
    return itertools.zip_longest(*iterables, fillvalue=fillvalue)
