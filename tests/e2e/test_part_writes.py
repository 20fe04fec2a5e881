"""Writes to parts of tensors that the function makes: where the tensor lies, if nobody reads what was there before."""

import pytest
import torch
from support import assert_same, check

import flambeau


def borders(x, y):
    h = x.clone()
    h[1:-1, 1:-1] = x[1:-1, 1:-1] + y[1:-1, 2:] - y[1:-1, :-2]
    h[0], h[-1] = h[1], h[-2]
    h[:, 0], h[:, -1] = h[:, 1], h[:, -2]
    return h


def recurrence(x, y):
    c = torch.zeros_like(x)
    c[..., 0] = x[..., 0] / (y[..., 0].abs() + 1)
    for i in range(1, x.shape[-1]):
        c[..., i] = (x[..., i] - c[..., i - 1]) / (y[..., i].abs() + 1)
    for i in range(x.shape[-1] - 2, -1, -1):
        c[..., i] += c[..., i + 1] * 0.5
    return c


def moved_within(x, y):
    h = x * 2
    before = h[1:] - h[:-1]
    h[1:] = before
    g = h.clone()
    g[:-1] += h[1:]
    return g


def two_of_one(x, y):
    a = x.cumsum(0)
    b = a.clone()
    a[0], b[0] = 1.5, 2.5
    a[1] += b[1]
    b[:, 1] = a[:, 0]
    return a, b


def kept(x, y):
    h = torch.zeros_like(x)
    h[0] = y[0]
    first = h * 1
    h[0] = x[0]
    second = h.clone()
    h[1:3] = second[0:2] + first[0:2]
    return first, second, h


def accumulated(x, y):
    out, total = torch.zeros(*x.shape, 2), torch.zeros_like(x)
    for i in range(2):
        part = torch.tanh(x[1:-1, i:-1] * y[1:-1, i:-1])
        total[1:-1, : part.shape[1]] += part
        out[1:-1, : part.shape[1], i] = part * 2
    return out, total


def ends(x, y):
    h = x.clone()
    h[-1] = h[-2]
    h[1:-1] += h[-1]
    h[:-2, 0] = h[-1, 1] + y[0, 0]
    h[2:] *= h[:1]
    return h


def permuted(x, y):
    h = torch.zeros(x.shape[1], 2, x.shape[0])
    h.transpose(0, 2)[:, 0] = x
    h[:, 1].t().copy_(y)
    h.permute(2, 0, 1)[0, :, 1] = x[1]
    return torch.stack([h, torch.cat([h[:1], h[1:]])], -1)


def joined_of_joined(x, y):
    pair = torch.stack([x, y], 1)
    wide = torch.cat([pair.transpose(1, 2), torch.cat([x[..., None], pair.mT], -1)], 2)
    return torch.cat([wide, wide], 2), pair


def called_between(x, y):
    h = torch.zeros_like(x)
    h[0] = y[0]
    product = h @ y.t()
    h[1] = product[0, 0]
    return h, product, h.cumsum(1)


def joined_with_an_argument(x, y):
    y[1:, 1:2] = x[1:, :1] - y[2:3, :1] * 0.5
    return torch.cat([y, x], -1)


PROGRAMS = [
    borders,
    recurrence,
    moved_within,
    two_of_one,
    kept,
    accumulated,
    ends,
    permuted,
    joined_of_joined,
    called_between,
    joined_with_an_argument,
]


def arguments(rows=5):
    torch.manual_seed(0)
    return torch.randn(rows, 4), torch.randn(rows, 4)


@pytest.mark.parametrize("dynamic", [None, True], ids=["fixed", "dynamic"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_parts_of_new_tensors(program, dynamic, backend):
    check(program, arguments(), backend=backend, dynamic=dynamic)


def gradients(fn):
    leaves = [tensor.requires_grad_() for tensor in arguments()]
    made = fn(*leaves)
    parts = made if isinstance(made, tuple) else (made,)
    sum(part.square().sum() for part in parts).backward()
    return [leaf.grad for leaf in leaves]


DIFFERENTIABLE = [program for program in PROGRAMS if program not in (called_between, ends, joined_with_an_argument)]


@pytest.mark.parametrize("program", DIFFERENTIABLE, ids=lambda f: f.__name__)
def test_gradients_of_parts(program):
    compiled = flambeau.compile(program)
    for _ in range(2):
        assert_same(gradients(compiled), gradients(program))
