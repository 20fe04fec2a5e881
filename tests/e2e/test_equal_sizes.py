"""Symbolic sizes that a guard ties to a number or to each other: what is computed with them goes by that."""

import pytest
import torch
from mode import COUNTED
from support import check

import flambeau


def added(x, y):
    return x[: x.shape[0] - 3] + y


def expanded(x, y):
    return x[: x.shape[0] - 3].expand(5) * 2


def stored(x, y):
    z = y.clone()
    z[:] = x[: x.shape[0] - 3]
    return z


def added_in_place(x, y):
    return y.add_(x[: x.shape[0] // 4])


def repeated(x, y):
    return x[: x.shape[0] // 4].expand_as(y) - y


def of_a_remainder(x, y):
    return torch.where(y > 0, x[: x.shape[0] % 3 + 0], y)


def summed(x, y):
    return (x[: x.shape[0] - 3].expand(5) * y).sum(0, keepdim=True).expand(2, 1)


PROGRAMS = [added, expanded, stored, added_in_place, repeated, of_a_remainder, summed]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("lengths", [(6, 4, 8), (4, 7, 4), (8, 5, 4)], ids=str)
def test_parts_of_size_one_are_repeated(program, lengths, backend):
    y = torch.arange(5.0) - 2
    calls = [(torch.arange(float(n)) + 1, y) for n in lengths]
    check(program, *calls, backend=backend, graphs=None, dynamic=True)


def cached(cache, k, n):
    cache[:, :n] = k
    cache[:, n:] = 0
    return cache[:, :n] * 2 + k


def rows(x, y):
    x[1] = y.sum(0)
    return x[: y.shape[0]] + y


def test_sizes_of_several_tensors_agree():
    calls = [(torch.zeros(2, 9, 3), torch.randn(2, n, 3), n) for n in (3, 5, 7)]
    check(cached, *calls, graphs=None, dynamic=True)
    check(rows, *[(torch.zeros(n, 4), torch.randn(n, 4)) for n in (3, 6)], graphs=None, dynamic=True)
    counts = flambeau.counters()
    assert not COUNTED or not counts["eager_graph"], counts["eager_graph_reasons"]
