"""Outputs that are views of inputs or of other outputs which autograd follows: torch makes them, beside a plan."""

import json

import pytest
import torch
from mode import MODE
from support import assert_same

import flambeau
from flambeau import _native


def reshaped(x):
    return x.view(6, 4), (x.sin() * 2).exp()


def transposed_and_sliced(x):
    y = x.transpose(0, 1)
    return y[1:3, ::2], x[0], torch.tanh(x).sin() + x.sum()


def repeated(x):
    return x[:, :1].expand(4, 5), x.sin().cos().tanh()


def only_views(x):
    return x[0].view(2, 3), x.t(), x.diagonal(), x.squeeze(0)


def same_sizes(x):
    return x.view(4, 6), x.sin().cos().tanh()


def of_another_output(x):
    y = (x.sin() * 2).exp()
    return y, y[1:, 2], y.t(), (x.cos() + 1).tanh()


def of_an_end(x):
    y = (x.sin() * 2).exp()
    return y[0], y, (y + 1).square().mean(0)


def both_of_a_third(x):
    y = (x.sin() * 2).exp()
    return y[0], y[1:]


def one_is_made_of_another(x):
    y = x.view(-1)
    return y, (y.sin() * 2).exp()


def several(x):
    a, b = x.chunk(2)
    return a, (b.sin() * 2).exp()


def views_of_several(x):
    return x.unbind(1)[2].view(2, 2), (x.sin() * 2).exp()


def written(x):
    y = x * 1
    z = y.view(-1)
    y.mul_(2)
    return z, y.sin().cos()


PROGRAMS = [
    reshaped,
    transposed_and_sliced,
    repeated,
    only_views,
    same_sizes,
    of_another_output,
    of_an_end,
    both_of_a_third,
    one_is_made_of_another,
    several,
    views_of_several,
    written,
]
NATIVE = [reshaped, transposed_and_sliced, repeated, same_sizes, of_another_output, of_an_end]


def seen(call, make):
    """What a call gives, what is true of that, and the gradients by way of it."""
    torch.manual_seed(0)
    start = torch.randn(4, 6, requires_grad=True)
    x = make(start)
    outputs = call(x)
    facts = [(o.shape, o.stride(), o.storage_offset(), o.requires_grad, o.is_leaf, o._is_view()) for o in outputs]
    values = [o.detach().clone() for o in outputs]
    bases = [o._base is x or (o._base is not None and o._base is x._base) for o in outputs]
    gradients = torch.autograd.grad([o.square().sum() for o in outputs], [start, *outputs], retain_graph=True)
    try:
        with torch.no_grad():
            outputs[0].mul_(3)
        changed = [x.detach().clone()]
        outputs[0].mul_(2)
        changed += torch.autograd.grad(x.sum(), start)
    except RuntimeError as error:
        changed = type(error)
    return [values, facts, bases, gradients, changed]


@pytest.mark.parametrize("make", [lambda x: x, lambda x: x * 1, lambda x: x[:]], ids=["leaf", "result", "view"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_they_are_torchs_views(program, make):
    compiled = flambeau.compile(program)
    for _ in range(2):
        assert_same(seen(compiled, make), seen(program, make))


@pytest.mark.parametrize("program", NATIVE)
def test_the_rest_is_a_plan(program):
    compiled = flambeau.compile(program)
    seen(compiled, lambda x: x * 1)
    if MODE != "leaf":
        native = getattr(compiled, "_flambeau_compiled", None) or compiled
        frames = json.loads(_native.explain_data(native))["frames"]
        assert [(frame["body"], frame["fallback"]) for frame in frames] == [("native", None)]
