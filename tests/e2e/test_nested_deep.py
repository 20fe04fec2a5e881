"""Containers that hold themselves, and deep nests: eager's results and exceptions, and a daemon that goes on."""

import copy

import pytest
import torch
from support import assert_same, daemon_pid

import flambeau


def of_itself():
    items = [0]
    items.append(items)
    return items


def nest(levels):
    items = []
    for _ in range(levels):
        items = [items]
    return items


def text(x, levels):
    items = of_itself()
    table = {"items": items}
    table["table"] = table
    return str(items), repr(table), f"{[items, table]}", x + 1


def equal(x, levels):
    try:
        return of_itself() == of_itself()
    except RecursionError:
        return x + 1


def tensor(x, levels):
    try:
        return torch.tensor(of_itself())
    except (RecursionError, TypeError, ValueError) as error:
        return type(error).__name__, x + 1


def copied(x, levels):
    made = copy.deepcopy(of_itself())
    return made[1] is made, made[0], x + 1


def across_a_break(x, levels):
    items = of_itself()
    flambeau.graph_break()
    return len(items), items[1] is items, x + 1


def deep_text(x, levels):
    try:
        return len(str(nest(levels))), x + 1
    except RecursionError:
        return x + 2


def deep_comparison(x, levels):
    try:
        return nest(levels) == nest(levels), x + 1
    except RecursionError:
        return x + 2


def deep_tensor(x, levels):
    try:
        return torch.tensor(nest(levels)).shape, x + 1
    except (RecursionError, TypeError, ValueError) as error:
        return type(error).__name__, x + 2


def deep_key(x, levels):
    key = ()
    for _ in range(levels):
        key = (key,)
    try:
        return {key: 1}[key], x + 1
    except RecursionError:
        return x + 2


@pytest.mark.parametrize("levels", [3, 500, 20_000])
@pytest.mark.parametrize(
    "fn",
    [text, equal, tensor, copied, across_a_break, deep_text, deep_comparison, deep_tensor, deep_key],
    ids=lambda f: f.__name__,
)
def test_as_eager(fn, levels):
    flambeau.compile(lambda x: x + 1)(torch.ones(2))
    before, x = daemon_pid(), torch.ones(2)
    compiled = flambeau.compile(fn)
    for _ in range(2):
        assert_same(compiled(x, levels), fn(x, levels))
    assert daemon_pid() == before
    assert not {name for name in flambeau.counters()["eager_fallbacks"] if name.startswith("daemon")}
