"""Parts of tensors that tensors without dimensions choose: `table[t]` shows a part of `table`."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import flambeau


def table() -> Tensor:
    return torch.arange(35.0).reshape(5, 7).sin()


def written_after(x, t):
    part = x[t]
    kept = part + 1
    x.add_(1)
    return kept + part


def stored(x, t):
    x = x.clone()
    x[t] = 5.0
    x[:, t] += 1
    x[t, t] = x[t - 1, t]
    return x * 2


def in_place(x, t):
    part = x[t]
    part.mul_(2)
    return x + part


def steps(x, t):
    total = 0
    for i in range(3):
        total = total + x[(t + i) % 5].exp()
    return total


WHOLE = {
    "row": lambda x, t: x[t] * 2,
    "column": lambda x, t: x[:, t] * 2 + x[..., t - 1],
    "negative": lambda x, t: x[t - 4].exp(),
    "both": lambda x, t: x[t, t] + x[t, -1] + x[-2, t],
    "of a slice": lambda x, t: (x[1:, t] * x[None, :4, t]).sum(),
    "a view of it": lambda x, t: x[t].view(7, 1).expand(7, 2)[1:] + 1,
    "int32": lambda x, t: x[t.int()].cos(),
    "steps": steps,
    "metadata": lambda x, t: (x[:, t] * x[:, t].stride(0), x[t].is_contiguous()),
}


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("with_gradients", [False, True])
def test_whole(name, with_gradients, backend):
    function, t = WHOLE[name], torch.tensor(1)
    x, y = table().requires_grad_(with_gradients), table().requires_grad_(with_gradients)
    expected, found = function(x, t), flambeau.compile(function, fullgraph=True, backend=backend)(y, t)
    torch.testing.assert_close(found, expected)
    if with_gradients:
        (expected[0] if isinstance(expected, tuple) else expected).sum().backward()
        (found[0] if isinstance(found, tuple) else found).sum().backward()
        torch.testing.assert_close(y.grad, x.grad)


@pytest.mark.parametrize("function", [written_after, stored, in_place, lambda x, t: (x[t], x[t] * 2)])
def test_writes_and_what_leaves(function, backend):
    x, y, t = table(), table(), torch.tensor(3)
    compiled = flambeau.compile(function, backend=backend)
    for _ in range(2):
        torch.testing.assert_close(compiled(y, t), function(x, t))
        torch.testing.assert_close(y, x)


def test_what_leaves_is_a_view(backend):
    x, t = table(), torch.tensor(2)
    part, twice = flambeau.compile(lambda x, t: (x[t], x[t] * 2), backend=backend)(x, t)
    assert part._base is x
    part.zero_()
    assert not x[2].any() and twice.any()


@pytest.mark.parametrize("at", [5, -6])
def test_outside(at, backend):
    for function in (lambda x, t: x[t] * 2, stored):
        with pytest.raises(IndexError, match=f"index {at} is out of bounds for dimension 0 with size 5"):
            flambeau.compile(function, backend=backend)(table(), torch.tensor(at))


def test_numbers_of_no_class(backend):
    def f(t):
        return torch.nn.functional.one_hot(t, 4).float() * 2

    compiled = flambeau.compile(f, backend=backend)
    t = torch.tensor([[0, 3], [1, 2]])
    assert torch.equal(compiled(t), f(t))
    with pytest.raises(RuntimeError, match="Class values must be smaller than num_classes"):
        compiled(t + 1)
    with pytest.raises(RuntimeError, match="Class values must be non-negative"):
        compiled(t - 1)
