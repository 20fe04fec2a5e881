"""`torch.autograd.Function.apply` in compiled functions: its `forward` is traced where no gradient is asked for."""

import pytest
import torch
from mode import COUNTED
from torch.autograd import Function
from torch.autograd.function import FunctionCtx

import flambeau


class PassingOn(Function):
    @staticmethod
    def backward(ctx, grad):
        return grad


class Doubling(Function):
    @staticmethod
    def backward(ctx, grad):
        return grad * 2


class Scaled(Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        ctx.save_for_backward(x, x * 2)
        ctx.set_materialize_grads(False)
        return x * factor * (1 if torch.is_grad_enabled() else 3)

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.factor, None


class Several(Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.mark_non_differentiable(y)
        return x, x[1:], y + 1, ctx.needs_input_grad, [x]

    @staticmethod
    def backward(ctx, *grads):
        return grads[0], None


class WithSetup(Function):
    @staticmethod
    def forward(x, y=2.0):
        return x * y

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.shape, ctx.count = output.shape, len(inputs)
        ctx.save_for_backward(*inputs[:1])

    @staticmethod
    def backward(ctx, grad):
        return grad * 2, None


class Dirty(PassingOn):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.add_(1)


class Identity(Function):
    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, grad):
        return -grad


ASKED = []
CONTEXTS = []


class Kept(Doubling):
    @staticmethod
    def forward(ctx, x):
        CONTEXTS.append(ctx)
        ctx.note = 3
        return x * 2


class Asks(Function):
    @staticmethod
    def forward(ctx, x):
        found = hasattr(ctx, "absent"), ctx.name(), type(ctx).__name__, len(ctx.saved_tensors)
        return x * len(found)

    @staticmethod
    def backward(ctx, grad):
        return grad * 4


class AsksForType(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.factor = 3
        cls = type(ctx)
        found = cls.__name__, ctx.__class__ is cls, cls._forward_cls is AsksForType, isinstance(ctx, FunctionCtx)
        found += sorted(vars(ctx)), ctx.__dict__["factor"], hasattr(cls, "backward"), ctx == ctx, cls is ctx
        del ctx.factor
        ASKED.append((*found, hasattr(ctx, "factor"), ctx.needs_input_grad))
        return x * len(cls.__mro__)

    @staticmethod
    def backward(ctx, grad):
        return grad * 5


class NoTensors(PassingOn):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_non_differentiable(3)
        return x * 2


class AsksForMissing(PassingOn):
    @staticmethod
    def forward(ctx, x):
        try:
            return x * ctx.absent
        except AttributeError as e:
            return x * len(str(e))


class Breaks(Doubling):
    @staticmethod
    def forward(ctx, x):
        ctx.before = x + 1
        flambeau.graph_break()
        return ctx.before * 2


class MakesLeaf(PassingOn):
    @staticmethod
    def forward(ctx, x):
        return torch.ones(2, requires_grad=True)


def described(x):
    if not isinstance(x, torch.Tensor):
        return x
    base = x._base
    return x.detach().clone(), x.requires_grad, x.is_leaf, x._is_view(), None if base is None else base.shape


def scaled(x, y):
    return Scaled.apply(x, 3) + Scaled.apply(y, 2), torch.is_grad_enabled()


def several(x, y):
    return Several.apply(x, y)


def with_setup(x, y):
    return WithSetup.apply(x), WithSetup.apply(y, 3)


def dirty(x, y):
    z = x * 1
    return Dirty.apply(z) is z, z, y


def identity(x, y):
    z = Identity.apply(x)
    return z is x, z, Identity.apply(y.sin()) + 0


def kept(x, y):
    z = Kept.apply(x) + y
    return z, CONTEXTS.pop().note


def asks(x, y):
    return Asks.apply(x) + y


def asks_for_type(x, y):
    ASKED.clear()
    return AsksForType.apply(x) + y, str(ASKED)


def no_tensors(x, y):
    try:
        return NoTensors.apply(x)
    except RuntimeError as e:
        return str(e), x + y


def asks_for_missing(x, y):
    return AsksForMissing.apply(x) + y


def breaks(x, y):
    return Breaks.apply(x) - y


def makes_leaf(x, y):
    return MakesLeaf.apply(x)


def raises(x, y):
    try:
        Scaled.apply(x, "a")
    except TypeError:
        return torch.is_grad_enabled(), x + 1
    return y


PROGRAMS = [scaled, several, with_setup, dirty, identity, kept, asks, asks_for_missing, breaks, makes_leaf]
PROGRAMS += [raises, asks_for_type, no_tensors]


WHOLE = [scaled, several, with_setup, identity, asks_for_type, asks_for_missing]


@pytest.mark.parametrize("grad", ["none", "asked for", "switched off"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_results(program, grad):
    compiled = flambeau.compile(program)
    for _ in range(3):
        results = []
        for fn in (program, compiled):
            x, y = torch.arange(2.0, requires_grad=grad != "none"), torch.ones(2)
            with torch.set_grad_enabled(grad != "switched off"):
                made = fn(x, y)
            made = made if isinstance(made, tuple) else (made,)
            gradient = None
            if (
                made[0] is not True
                and isinstance(made[0], torch.Tensor)
                and made[0].requires_grad
                and not made[0].is_leaf
            ):
                gradient = torch.autograd.grad(made[0].sum(), x)[0]
            results.append((str([described(m) for m in made]), str(gradient)))
        assert results[0] == results[1]


@pytest.mark.parametrize("program", WHOLE, ids=lambda p: p.__name__)
def test_captured_whole(program):
    compiled = flambeau.compile(program)
    with torch.no_grad():
        compiled(torch.arange(2.0), torch.ones(2))
    assert not COUNTED or flambeau.counters()["graph_breaks"] == {}
