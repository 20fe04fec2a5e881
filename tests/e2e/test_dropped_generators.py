"""Generators that are left half-way: closing them runs what eager runs, when it runs it."""

import pytest
import torch
from support import assert_same

import flambeau

SEEN = []


def silent(items):
    """As `collections.abc.Sequence.__iter__`: closing it does nothing."""
    try:
        for item in items:
            yield item + 1
    except IndexError:
        return


def with_a_local_end(items):
    done = 0
    try:
        for item in items:
            yield item * 2
    finally:
        done += 1


def seen(items):
    try:
        yield from items
    finally:
        SEEN.append("closed")


def caught(items):
    try:
        for item in items:  # noqa: UP028
            yield item
    except GeneratorExit:
        SEEN.append("exit")


def ignored(items):
    try:
        yield items[0]
    except GeneratorExit:
        yield items[1]


def first(make):
    def fn(x, y):
        for item in make([x, y]):
            made = item + 1
            break
        SEEN.append("after")
        return made

    fn.__name__ = f"first_of_{make.__name__}"
    return fn


def unpacked(x, y):
    both = silent([x, y, x])
    a = next(both)
    b = next(both)
    return a + b


def found(x, y):
    return any(item.shape[0] == 2 for item in silent([x, y])), x + y


def kept(x, y):
    items = silent([x, y])
    return next(items), items


WHOLE = [first(silent), first(with_a_local_end), unpacked, found]
ALL = [*WHOLE, first(seen), first(caught), kept]


@pytest.mark.parametrize("fn", ALL, ids=lambda f: f.__name__)
def test_as_eager(fn):
    compiled, results = flambeau.compile(fn), []
    for each in (fn, compiled, compiled):
        SEEN.clear()
        made = each(torch.ones(2), torch.zeros(2))
        if fn is kept:
            made = made[0], list(made[1])
        results.append((made, list(SEEN)))
    assert_same(results[1], results[0])
    assert_same(results[2], results[0])


@pytest.mark.plain_only("counts breaks")
@pytest.mark.parametrize("fn", WHOLE, ids=lambda f: f.__name__)
def test_is_captured_whole(fn):
    flambeau.compile(fn, fullgraph=True)(torch.ones(2), torch.zeros(2))
