"""Sets leave a frame as CPython left them: the order of their elements follows from what was done to them."""

import pytest
import torch

import flambeau

X = torch.arange(3.0)


def fresh():
    return {7, 15, 23}


def added(s):
    s.add(31)
    return s


def discarded(s):
    s.discard(7)
    s.add(31)
    return s


def combined(s):
    return s | {31, 39}, s - {15}, s & {23, 7}, s ^ {23, 39}, s.copy(), set(s), frozenset(s)


def in_place(s):
    s |= {31, 39}
    s ^= {31, 7}
    s &= {39, 15, 23}
    s -= {39}
    return s


def updated(s):
    s.update([31], {39, 47}, {55: 1})
    return s


def of_dicts(s):
    d = dict.fromkeys([7, 15, 23, 31, 39, 47])
    return set(d), d.keys() | {55}, d.keys() & {7}, set(d.keys()), {*d}


def displays(s):
    return {v for v in [39, 31, 23, 15, 7]}, {*s, 31, 39}, {39, *s}, {16, 1, 2, 3, 4}


def of_changed(s):
    made = {39, 31}
    made |= s
    made.discard(39)
    made.add(47)
    s.add(55)
    return made, made | s


def cleared(s):
    s.clear()
    s.add(64)
    s.add(1)
    return s


@pytest.mark.parametrize(
    "program",
    [added, discarded, combined, in_place, updated, of_dicts, displays, of_changed, cleared],
    ids=lambda p: p.__name__,
)
def test_the_order_is_the_eager_one(program):
    def f(x, s):
        return program(s), x + 1

    def listed(value):
        return [list(v) for v in value] if isinstance(value, tuple) else list(value)

    ours, theirs = fresh(), fresh()
    expected, got = f(X, theirs)[0], flambeau.compile(f)(X, ours)[0]
    assert listed(got) == listed(expected)
    assert list(ours) == list(theirs)
