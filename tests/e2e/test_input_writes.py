"""Writes to parts of arguments: a plan does them where they lie, in the program's order with all that reads them."""

import pytest
import torch
from mode import COUNTED
from support import check

import flambeau


def row(x, v, at):
    x[:, 3] = v
    return x.sum(-1)


def row_and_itself(x, v, at):
    x[:, 3] += v
    return x * 2


def read_before_and_after(x, v, at):
    before, part = x * 2, x[:, 2:4]
    x[:, 3] = v
    return before + x, part + 1, part


def copied_before(x, v, at):
    before, reshaped = x.clone(), x.transpose(0, 1).reshape(-1)
    x[:, 3] = v
    return before, before + x, reshaped


def shifted(x, v, at):
    x[:, 1:] = x[:, :-1]
    x[1:].copy_(x.flip(0)[1:])
    return x + 1


def in_between(x, v, at):
    x[:, 3] = v
    first = x.sum(1)
    x[:, 4] = v * 2
    return first, x.sum(1)


def then_calls(x, v, at):
    x[:, 3] = v
    return torch.matmul(x, x.transpose(1, 2)).softmax(-1)


def after_calls(x, v, at):
    made = torch.matmul(x, x.transpose(1, 2))
    x[:, 3] += v
    return made


def between_calls(x, v, at):
    x[:, 3] += v
    return torch.matmul(x, x.transpose(1, 2))


def index_copy(x, v, at):
    x.index_copy_(1, at, v[:, None].expand(-1, 2, -1))
    return torch.matmul(x, x.transpose(1, 2)).relu()


def by_indices(x, v, at):
    x[:, at] = v[:, None]
    x[2, at] = v[:2]
    return x + 1


def scattered(x, v, at):
    where = at[None, :, None].expand(4, 2, 6)
    x.scatter_(1, where, v[:, None].expand(4, 2, 6))
    x.scatter_(1, where + 1, 0.25)
    return x + 1


def added_up(x, v, at):
    x.index_add_(1, at, v[:, None].expand(-1, 2, -1))
    x.scatter_add_(1, at[None, :, None].expand(4, 2, 6), x[:, 5:7])
    return x + 1


def with_itself(x, v, at):
    x.index_copy_(1, at, x[:, 5:7])
    x[:, at] = x.reshape(-1)[:6]
    return x.sum(-1)


def whole_then_part(x, v, at):
    x.mul_(2)
    x[:, 3] = v
    x.index_copy_(1, at, v[:, None].expand(-1, 2, -1))
    return x.sum(-1)


def part_then_whole(x, v, at):
    x[:, 3] = v
    x.mul_(2)
    return x.sum(-1)


def views(x, v, at):
    x.diagonal(0, 1, 2).fill_(3.0)
    x[:, ::5] = v[:, None]
    x[:, 1::5, ::2] = 1.5
    x.view(-1)[7:30] = 9.0
    x[:, :6].transpose(1, 2).copy_(x[:, 2:8])
    return x[:, 2:5]


def two_arguments(x, v, at):
    x[:, 3] = v
    y = x + 1
    v.mul_(2)
    v[:2] = x[:2, 3] + 1
    return y, v + 1


def reduced(x, v, at):
    x[:, 3] = x.amax((0, 1))
    x[:, :, 5].zero_()
    return x.mean((1, 2))


def drawn(x, v, at):
    torch.manual_seed(1)
    x[:, 3] = torch.rand(4, 6)
    return x.sum(-1) + torch.rand(4, 8)


def fails_after(x, v, at):
    x[:, 3] = v
    return torch.ones(3)[at + 5] + x.sum()


def fails_inside(x, v, at):
    x[:, 3] = v
    x.index_copy_(1, at + 7, v[:, None].expand(-1, 2, -1))
    return x.sum(-1)


def caught(x, v, at):
    said = []
    try:
        x[:, 3] = v * 2
        return torch.ones(3)[at + 5] + x.sum()
    except IndexError:
        said.append("caught")
        x[:, 4] += v
    return said, x + 1


def caught_between(x, v, at):
    try:
        x[:, 3] += v
        return torch.ones(3)[at + 5] + x.sum()
    except IndexError:
        return x + 1


PROGRAMS = [
    row,
    row_and_itself,
    read_before_and_after,
    copied_before,
    shifted,
    in_between,
    then_calls,
    after_calls,
    between_calls,
    index_copy,
    by_indices,
    scattered,
    added_up,
    with_itself,
    whole_then_part,
    part_then_whole,
    views,
    two_arguments,
    reduced,
    drawn,
    fails_after,
    fails_inside,
    caught,
    caught_between,
]


def arguments(columns=8, dtype=torch.float32):
    torch.manual_seed(0)
    return torch.randn(4, columns, 6).to(dtype), torch.randn(4, 6).to(dtype), torch.tensor([4, 1])


@pytest.mark.parametrize("dynamic", [None, True], ids=["fixed", "dynamic"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_parts_of_arguments(program, dynamic, backend):
    check(program, arguments(), backend=backend, graphs=None, dynamic=dynamic)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_parts_of_views(program):
    """Arguments whose memory is larger than they are."""
    x, v, at = arguments(16)
    check(program, (x[:, ::2], v.t().contiguous().t(), at), graphs=None)


@pytest.mark.parametrize("size", [8, 4096])
@pytest.mark.parametrize("program", [row, index_copy, by_indices, then_calls, scattered, views])
def test_they_are_plans(program, size):
    check(program, arguments(size), graphs=None)
    counts = flambeau.counters()
    assert not COUNTED or not counts["eager_graph"], counts["eager_graph_reasons"]


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.int64, torch.complex64], ids=str)
def test_types(dtype):
    check(two_arguments, arguments(dtype=dtype), graphs=None)


def test_changes_are_counted():
    compiled = flambeau.compile(row)
    for _ in range(3):
        x, v, at = arguments()
        before = x._version
        compiled(x, v, at)
        assert x._version > before


def test_a_change_that_autograd_minds():
    w = torch.ones(4, 6, requires_grad=True)
    x, v, at = arguments()
    lost = (w * x[:, 3]).sum()
    flambeau.compile(row)(x, v, at)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        lost.backward()


def test_elements_that_share_memory():
    def program(x, v):
        x[1:, 2] = v
        return x + 1

    shared = torch.arange(12.0)
    check(program, (shared.as_strided((4, 6), (2, 1)), torch.ones(3)), graphs=None)
