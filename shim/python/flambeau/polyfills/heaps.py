"""Module `heapq` (CPython's `Modules/_heapqmodule.c`), which compares with `<` alone."""

from __future__ import annotations

from typing import Any

from flambeau.polyfills._table import instead_of, refuse

LARGE = 2500
"""Above this length `heapify` goes through the items in another order."""


def _checked(heap: Any) -> list[Any]:
    if type(heap) is not list:
        refuse()
    return heap


def _less(heap: list[Any], a: Any, b: Any) -> bool:
    """`a < b`; a comparison that changes the heap is an exception in C."""
    length = len(heap)
    less = bool(a < b)
    if len(heap) != length:
        refuse()
    return less


def _towards_root(heap: list[Any], start: int, at: int, largest: bool) -> None:
    item = heap[at]
    while at > start:
        parent = (at - 1) >> 1
        above = heap[parent]
        if not (_less(heap, above, item) if largest else _less(heap, item, above)):
            break
        heap[parent], heap[at] = heap[at], heap[parent]
        at = parent


def _towards_leaves(heap: list[Any], at: int, largest: bool) -> None:
    start, end = at, len(heap)
    while at < end >> 1:
        child = 2 * at + 1
        if child + 1 < end:
            left, right = heap[child], heap[child + 1]
            if not (_less(heap, right, left) if largest else _less(heap, left, right)):
                child += 1
        heap[child], heap[at] = heap[at], heap[child]
        at = child
    _towards_root(heap, start, at, largest)


def _pop(heap: list[Any], largest: bool) -> Any:
    if not heap:
        raise IndexError("index out of range")
    last = heap.pop()
    if not heap:
        return last
    first = heap[0]
    heap[0] = last
    _towards_leaves(heap, 0, largest)
    return first


def _replace(heap: list[Any], item: Any, largest: bool) -> Any:
    if not heap:
        raise IndexError("index out of range")
    first = heap[0]
    heap[0] = item
    _towards_leaves(heap, 0, largest)
    return first


def _heapify(heap: list[Any], largest: bool) -> None:
    if len(_checked(heap)) > LARGE:
        refuse()
    for at in range(len(heap) // 2 - 1, -1, -1):
        _towards_leaves(heap, at, largest)


@instead_of("_heapq.heappush")
def heappush(heap: Any, item: Any, /) -> None:
    _checked(heap).append(item)
    _towards_root(heap, 0, len(heap) - 1, False)


@instead_of("_heapq.heappop")
def heappop(heap: Any, /) -> Any:
    return _pop(_checked(heap), False)


@instead_of("_heapq._heappop_max")
def heappop_max(heap: Any, /) -> Any:
    return _pop(_checked(heap), True)


@instead_of("_heapq.heapreplace")
def heapreplace(heap: Any, item: Any, /) -> Any:
    return _replace(_checked(heap), item, False)


@instead_of("_heapq._heapreplace_max")
def heapreplace_max(heap: Any, item: Any, /) -> Any:
    return _replace(_checked(heap), item, True)


@instead_of("_heapq.heappushpop")
def heappushpop(heap: Any, item: Any, /) -> Any:
    if not _checked(heap) or not _less(heap, heap[0], item):
        return item
    return _replace(heap, item, False)


@instead_of("_heapq.heapify")
def heapify(heap: Any, /) -> None:
    _heapify(heap, False)


@instead_of("_heapq._heapify_max")
def heapify_max(heap: Any, /) -> None:
    _heapify(heap, True)
