"""Writes into one view of a tensor from another that shows other elements."""

import itertools

import pytest
import torch
from mode import COUNTED

import flambeau

PARTS = [
    (slice(None), slice(0, 4)),
    (slice(None), slice(4, 8)),
    (slice(None), slice(0, None, 2)),
    (slice(None), slice(1, None, 2)),
    (slice(None), slice(2, 6)),
    (slice(0, 2), slice(-4, None)),
    (slice(2, 4), slice(None, -4)),
    (..., slice(3, 7)),
    (0,),
    (-1,),
    (1, slice(0, 4)),
    (slice(None), slice(6, 99, 1)),
]


def stored(x, into, of):
    y = x * 1
    y[into] = y[of]
    return y


def copied(x, into, of):
    y = x + 0
    y[into].copy_(y[of] * 1 if of == into else y[of])
    return y


def of_rows(x, into, of):
    y = x * 2
    row = y[into[0]] if into[0] is not Ellipsis else y
    row[..., 1::3] = y[of[0]][..., 1::3] if of[0] is not Ellipsis else y[..., 1::3]
    return y


def called(fn, *args):
    try:
        return str(fn(*args))
    except (RuntimeError, IndexError) as error:
        return type(error).__name__


@pytest.mark.parametrize("program", [stored, copied, of_rows], ids=lambda p: p.__name__)
@pytest.mark.parametrize("into", PARTS, ids=str)
@pytest.mark.passes_recompile_limit("each pair of parts is a recompile")
def test_all_pairs(program, into):
    for of in PARTS:
        compiled = flambeau.compile(program)
        for rows, columns in itertools.product([4, 5], [8]):
            x = torch.arange(float(rows * columns)).view(rows, columns)
            assert called(compiled, x, into, of) == called(program, x, into, of), of


def interleaved(x):
    """As rotary embeddings of several axes are put together."""
    first = x[0]
    for axis in (1, 2):
        part = slice(axis, 6, 3)
        first[..., part] = x[axis, ..., part]
    return first


def test_captured_whole():
    compiled = flambeau.compile(interleaved)
    for length in (3, 4, 5):
        x = torch.arange(3.0 * length * 8).view(3, length, 8)
        assert torch.equal(compiled(x.clone()), interleaved(x.clone()))
    assert not COUNTED or flambeau.counters()["graph_breaks"] == {}


def test_shapes_that_change_in_place():
    def program(x):
        y = x * 1
        row = y[0]
        y.t_()
        y[0] = row
        return y

    x = torch.arange(16.0).view(4, 4)
    assert called(flambeau.compile(program), x) == called(program, x)


def test_elements_at_one_place():
    def program(x):
        y = (x * 1).as_strided((4, 4), (1, 1))
        y[0] = y[1] * 1
        y[2] = y[3]
        return y

    x = torch.arange(16.0).view(4, 4)
    assert called(flambeau.compile(program), x) == called(program, x)
