"""The mode of this run is what its name says."""

import pytest
import torch
from support import check

import flambeau


@pytest.fixture
def mode(pytestconfig):
    """As it was asked for."""
    return pytestconfig.getoption("--flambeau-mode")


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
    return [frame["ops"] for frame in data["frames"] if frame["ops"]], flambeau.counters()["graph_breaks"].get(
        "user_break", 0
    )


def test_leaf_returns(mode):
    assert made(outer) == {"leaf": ([2, 1], 1)}.get(mode, ([3], 0))


def test_nested_breaks(mode):
    expected = {"flat": ([1, 1, 1, 1], 2), "leaf": ([2, 1, 1], 2)}.get(mode, ([2, 2], 1))
    assert made(above) == expected


def test_one_more_frame(mode):
    compiled = flambeau.compile(outer, backend="eager")
    compiled(torch.ones(3))
    assert compiled.__name__ == "outer"
    first = flambeau._report.explanation(compiled).data["frames"][0]
    assert any("_wrapped" in guard for guard in first["guards"]) == (mode == "wrap")
