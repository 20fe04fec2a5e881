"""`torch.autograd.Function.apply` in compiled functions: its `forward` is traced, and where a gradient is asked for,
the graph calls `apply`."""

import pytest
import torch
from mode import COUNTED, PROCESS
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


WHOLE = [scaled, several, with_setup, identity, pytest.param(asks_for_type, marks=PROCESS), asks_for_missing]


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


class Reverses(Function):
    """Gradient reversal, as domain adaptation writes it."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.weight = weight
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return grad.neg() * ctx.weight, None


class Rounds(Function):
    """A straight-through estimator."""

    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, grad):
        return grad


class Turns(Doubling):
    @staticmethod
    def forward(ctx, x):
        return x.mul(2).flip(0).view(1, -1)

    @staticmethod
    def backward(ctx, grad):
        return grad.view(-1).flip(0) * 2


class Largest(Function):
    """Two outputs, one of them whole numbers."""

    @staticmethod
    def forward(ctx, x, k):
        values, places = x.topk(k)
        ctx.save_for_backward(places)
        ctx.mark_non_differentiable(places)
        ctx.shape = x.shape
        return values, places

    @staticmethod
    def backward(ctx, grad, _):
        (places,) = ctx.saved_tensors
        return torch.zeros(ctx.shape).scatter(0, places, grad), None


class Cubes(Function):
    """Differentiable twice."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * 3 * x**2


class Linear(Function):
    """With a module and a list among its arguments."""

    @staticmethod
    def forward(ctx, x, module, factors):
        ctx.module = module
        return torch.nn.functional.linear(x, module.weight) * factors[0]

    @staticmethod
    def backward(ctx, grad):
        return grad @ ctx.module.weight, None, None


class Jumps(Rounds):
    @staticmethod
    def forward(ctx, x):
        return x + torch.rand(2)


class Counts(Rounds):
    made = 0

    @staticmethod
    def forward(ctx, x):
        Counts.made += 1
        return x * Counts.made


class Inner(Rounds):
    @staticmethod
    def forward(ctx, x):
        with torch.enable_grad():
            y = x.detach().clone().requires_grad_()
            z = Cubes.apply(y)
        return z.detach()


class Local:
    factor = 1


class ReadsState(Rounds):
    @staticmethod
    def forward(ctx, x):
        return x * Local.factor


MODULE = torch.nn.Linear(2, 2)


def reverses(x, y):
    return Reverses.apply(x * 2, 0.5) * y


def reverses_in_place(x, y):
    z = Reverses.apply(x * 2, 0.5)
    try:
        z.add_(1)
    except RuntimeError as e:
        return z * 1, type(e)
    return z * y


def rounds(x, y):
    return Rounds.apply(x * 1.4) * y + Rounds.apply(y)


def turns(x, y):
    return Turns.apply(x) + 1, Turns.apply(y) + 1


def largest(x, y):
    values, places = Largest.apply(x * 3, 1)
    return values + y[places], places


def cubes(x, y):
    return Cubes.apply(x + y)


def linear(x, y):
    return Linear.apply(x * 1, MODULE, [2.0, 3.0]) + y, Linear.apply(x, MODULE, (1.0,))


def jumps(x, y):
    return Jumps.apply(x) + torch.rand(2)


def counts(x, y):
    Counts.made = 3
    return Counts.apply(x) + Counts.apply(x), Counts.made


def inner(x, y):
    return Inner.apply(x) * y


def reads_state(x, y):
    Local.factor += 1
    return ReadsState.apply(x), Local.factor


def in_a_loop(x, y):
    for i in range(3):
        x = Rounds.apply(Cubes.apply(x) + i)
    return x.sum() + y


TRAINED = [reverses, rounds, turns, largest, cubes, linear, inner, in_a_loop]
OTHERS = [reverses_in_place, jumps, counts, reads_state]


@pytest.mark.parametrize("program", TRAINED + OTHERS, ids=lambda p: p.__name__)
def test_gradients(program):
    """Once and twice."""
    compiled = flambeau.compile(program)
    for seed in range(3):
        results = []
        for fn in (program, compiled):
            Local.factor = seed
            torch.manual_seed(seed)
            x, y = torch.rand(2, requires_grad=True), torch.ones(2)
            made = fn(x, y)
            made = made if isinstance(made, tuple) else (made,)
            found = [torch.autograd.grad(made[0].square().sum(), x, create_graph=True, allow_unused=True)[0]]
            if found[0].requires_grad:
                found += torch.autograd.grad(found[0].sum(), x, allow_unused=True)
            # Without leaves that nobody asked for.
            results.append((str([described(m) for m in made] + found), type(made[0].grad_fn).__name__))
        (expected, node), (actual, own) = results
        assert actual == expected
        # A graph that became a plan has one node of its own.
        assert own in (node, "FlambeauBackward")


@pytest.mark.plain_only("counts frames")
@pytest.mark.parametrize("program", [scaled, with_setup, *TRAINED], ids=lambda p: p.__name__)
def test_captured_whole_with_gradients(program):
    compiled = flambeau.compile(program)
    for size in (2, 2):
        compiled(torch.rand(size, requires_grad=True), torch.ones(size))
    counts = flambeau.counters()
    assert counts["graph_breaks"] == {} and counts["graphs"] == 1, counts


def test_a_local_class():
    """A class that each call makes anew is another one."""

    def made(factor):
        class Scales(Function):
            @staticmethod
            def forward(ctx, x):
                return x * factor

            @staticmethod
            def backward(ctx, grad):
                return grad * factor * 10

        def run(x):
            return Scales.apply(x).sum()

        return run

    for factor in (2, 3, 2):
        run = made(factor)
        x = torch.ones(2, requires_grad=True)
        flambeau.compile(run)(x).backward()
        assert x.grad.tolist() == [factor * 10.0] * 2


def test_frees_what_it_kept():
    """The node keeps what `forward` saved until it goes."""
    import weakref

    compiled = flambeau.compile(lambda x: Scaled.apply(x * 1, 3))
    x = torch.ones(2, requires_grad=True)
    y = compiled(x)
    kept = weakref.ref(y.grad_fn)
    y.sum().backward()
    with pytest.raises(RuntimeError, match="second time"):
        y.sum().backward()
    del y
    assert kept() is None
