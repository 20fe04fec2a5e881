"""Outputs of which one is computed of another, and writes in place to what autograd follows: hooks on each output, and
gradients with respect to it, see what they see in eager."""

import json

import pytest
import torch
from mode import MODE
from support import assert_same

import flambeau
from flambeau import _native


def residual(x):
    y = (x * 2).sin()
    y += x
    z = y.cos()
    z.mul_(2)
    return y, z


def before_and_after(x):
    y = (x * 2).sin()
    before = y.cos() + 1
    y.add_(1)
    after = y.tanh() * 2
    return y, before, after


def into_a_buffer(x):
    y = (x * 2).sin()
    buffer = torch.zeros(2, *x.shape)
    buffer[0] = y
    buffer[1].copy_(x.exp())
    return y, buffer.sum(0).tanh(), buffer


def into_one_another(x):
    y = (x * 2).sin()
    z = y.cos() * 2
    y.add_(z)
    return y, z, (y * z).tanh()


def by_way_of_a_view(x):
    y = (x * 2).sin()
    y[1:].mul_(3)
    z = y.t().cos()
    z[0] += 1
    return z, y


def chained(x):
    y = (x * 2).sin().relu_()
    z = (y + x).relu_()
    w = (z * y).add_(1).relu_()
    return w, z, y, w.sum(0)


def written_last(x):
    y = (x * 2).sin()
    z = y.cos() * 3
    w = z + 1
    y.mul_(z.detach())
    return y, z, w


PROGRAMS = [residual, before_and_after, into_a_buffer, into_one_another, by_way_of_a_view, chained, written_last]


def seen(call, hooked):
    """What a call gives; the gradients that come by hooks on its outputs; those with respect to each output."""
    torch.manual_seed(0)
    leaf = torch.randn(4, 4, requires_grad=True)
    try:
        outputs = call(leaf * 1)
    except RuntimeError as error:
        return type(error)
    came = {}
    for at in hooked:
        outputs[at].register_hook(lambda gradient, at=at: came.setdefault(at, gradient.clone()) * (at + 2))
    total = sum((output * torch.linspace(1, 2, output.numel()).view(output.shape)).sum() for output in outputs)
    found = []
    for of in [total, *[output.sum() for output in outputs]]:
        try:
            given = torch.autograd.grad(of, [leaf, *outputs], retain_graph=True, allow_unused=True)
            # An expanded gradient between two outputs is a whole one here.
            found.append([gradient if gradient is None else gradient.contiguous() for gradient in given])
        except RuntimeError as error:
            found.append(type(error))
    return [[output.detach().clone() for output in outputs], came, found]


@pytest.mark.parametrize("hooked", [(), (0,), (0, 1)], ids=["unhooked", "one", "two"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_each_output_has_its_own_way_back(program, hooked):
    compiled = flambeau.compile(program)
    for _ in range(2):
        assert_same(seen(compiled, hooked), seen(program, hooked), slack=4)


@pytest.mark.parametrize("program", [residual, by_way_of_a_view, chained])
def test_they_are_plans(program):
    compiled = flambeau.compile(program)
    seen(compiled, ())
    if MODE != "leaf":
        native = getattr(compiled, "_flambeau_compiled", None) or compiled
        frames = json.loads(_native.explain_data(native))["frames"]
        assert [(frame["body"], frame["fallback"]) for frame in frames] == [("native", None)]
