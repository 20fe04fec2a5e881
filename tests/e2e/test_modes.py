"""The mode of this run is what its name says."""

import torch
from mode import MODE
from support import check

import flambeau


def inner(x):
    return x * 2


def outer(x):
    return inner(x + 1) - 3


def broken(x):
    x = x + 1
    flambeau.graph_break()
    return x * 2


def above(x):
    return broken(x * 3) - 1


def made(fn):
    """Ops of each graph and how many breaks, of two calls."""
    compiled = check(fn, (torch.ones(3),), backend="eager", graphs=None)
    data = flambeau._report.explanation(compiled).data
    return [frame["ops"] for frame in data["frames"]], flambeau.counters()["graph_breaks"].get("user_break", 0)


def test_leaf_returns():
    assert made(outer) == {"leaf": ([2, 1], 1)}.get(MODE, ([3], 0))


def test_nested_breaks():
    expected = {"flat": ([1, 1], 1), "leaf": ([2, 1, 1], 2)}.get(MODE, ([2, 2], 1))
    assert made(above) == expected


def test_one_more_frame():
    compiled = flambeau.compile(outer, backend="eager")
    compiled(torch.ones(3))
    assert compiled.__name__ == "outer"
    first = flambeau._report.explanation(compiled).data["frames"][0]
    assert any("_wrapped" in guard for guard in first["guards"]) == (MODE == "wrap")
