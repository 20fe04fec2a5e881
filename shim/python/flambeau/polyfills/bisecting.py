"""Module `bisect` (CPython's `Modules/_bisectmodule.c`), which compares with `<` alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau.polyfills._table import instead_of, refuse


def _place(a: Any, x: Any, lo: Any, hi: Any, key: Callable[[Any], Any] | None, right: bool) -> int:
    if type(lo) is not int or (hi is not None and type(hi) is not int):
        refuse()
    if lo < 0:
        raise ValueError("lo must be non-negative")
    if hi is None or hi == -1:
        hi = len(a)
    while lo < hi:
        middle = (lo + hi) // 2
        item = a[middle]
        if key is not None:
            item = key(item)
        if right:
            if x < item:
                hi = middle
            else:
                lo = middle + 1
        elif item < x:
            lo = middle + 1
        else:
            hi = middle
    return int(lo)


def _insert(a: Any, x: Any, lo: Any, hi: Any, key: Callable[[Any], Any] | None, right: bool) -> None:
    place = _place(a, x if key is None else key(x), lo, hi, key, right)
    a.insert(place, x)


@instead_of("_bisect.bisect_left")
def bisect_left(a: Any, x: Any, lo: Any = 0, hi: Any = None, *, key: Any = None) -> int:
    return _place(a, x, lo, hi, key, False)


@instead_of("_bisect.bisect_right")
def bisect_right(a: Any, x: Any, lo: Any = 0, hi: Any = None, *, key: Any = None) -> int:
    return _place(a, x, lo, hi, key, True)


@instead_of("_bisect.insort_left")
def insort_left(a: Any, x: Any, lo: Any = 0, hi: Any = None, *, key: Any = None) -> None:
    _insert(a, x, lo, hi, key, False)


@instead_of("_bisect.insort_right")
def insort_right(a: Any, x: Any, lo: Any = 0, hi: Any = None, *, key: Any = None) -> None:
    _insert(a, x, lo, hi, key, True)
