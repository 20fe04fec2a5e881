"""Calls that no kernel computes and no schema describes are steps of a plan, in training too: nothing runs op by op."""

import pytest
import torch
import torch.nn.functional as F
from mode import COUNTED
from support import assert_same
from torch import nn

import flambeau


class Reversal(torch.autograd.Function):
    """What it gives is a view of what it is given."""

    @staticmethod
    def forward(ctx, x, rate):
        ctx.rate = rate
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return -ctx.rate * gradient, None


class StraightThrough(torch.autograd.Function):
    """A derivative that is not the function's."""

    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class Products(torch.autograd.Function):
    """Two results, and what autograd keeps."""

    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * y, x + y

    @staticmethod
    def backward(ctx, product, total):
        x, y = ctx.saved_tensors
        return product * y + total, product * x + total


def rotary(x):
    steps = torch.polar(torch.ones(5, 2), torch.arange(10.0).view(5, 2))
    turned = torch.view_as_complex(x.reshape(3, 5, 2, 2)) * steps
    return torch.view_as_real(turned).flatten(2) * 2


def complex_twice(x):
    z = torch.view_as_complex(x.reshape(3, 5, 2, 2).sin())
    return torch.view_as_real(z * (1 + 2j) + z * z).flatten(2).cos()


def products(x):
    product, total = Products.apply(x * 3, x.sin())
    return (product * total.sin()).relu()


def clamped_unseen(x):
    value = x.exp() * 2
    value.detach().clamp_(max=2.5)
    return value * 3 + value.sin()


def distinct_tensors(x):
    noise = torch.empty(3, 5, 4).normal_(0.5, 2.0)
    return x.sin() * noise + torch.empty_like(x).cauchy_().atan()


CALLS = {
    "normal_": distinct_tensors,
    "dropout1d": lambda x: F.dropout1d(x.sin(), 0.5, training=True) * 2,
    "alpha_dropout": lambda x: F.alpha_dropout(x.sin(), 0.5, training=True) * 2,
    "feature_alpha_dropout": lambda x: F.feature_alpha_dropout(x.sin(), 0.5, training=True) * 2,
    "dropout in another layout": lambda x: F.dropout(x.sin().transpose(1, 2), 0.5, training=True) * 2,
    "dirichlet": lambda x: torch.distributions.Dirichlet(x.sigmoid() + 0.1, validate_args=False).rsample() * 2,
    "gamma": lambda x: torch.distributions.Gamma(x.sigmoid() + 1, x.exp(), validate_args=False).rsample() * 2,
    "antialias": lambda x: F.interpolate(x.sin()[None], (3, 2), mode="bilinear", antialias=True) * 2,
    "rotary": rotary,
    "complex twice": complex_twice,
    "real part": lambda x: torch.complex(x.sin(), x.cos()).real * 2 + torch.complex(x, x).imag,
    "reversal": lambda x: (Reversal.apply(x.sin(), 0.5) * 2).relu(),
    "straight through": lambda x: (StraightThrough.apply(x * 3) * 2).relu(),
    "result of a Function": lambda x: StraightThrough.apply((x * 3).sin() * 2),
    "products": products,
    "unseen write": clamped_unseen,
}


def assert_whole():
    """No graph ran op by op, and no frame broke."""
    if COUNTED:
        counters = flambeau.counters()
        assert counters["graphs"]
        assert not counters["eager_graph_reasons"], counters["eager_graph_reasons"]
        assert not counters["graph_breaks"], counters["graph_breaks"]


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("trains", [True, False], ids=["training", "inference"])
def test_a_call_is_a_step(name, trains):
    x = torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(1))
    found = []
    compiled = flambeau.compile(CALLS[name])
    for function in (CALLS[name], compiled, compiled):
        torch.manual_seed(7)
        given = x.clone().requires_grad_(trains)
        result = function(given)
        seen = [result.detach(), torch.rand(2), torch.tensor(result.stride())]
        if trains:
            result.square().sum().backward()
            seen.append(given.grad)
        found.append(seen)
    assert_same(found[1], found[0])
    assert_same(found[2], found[0])
    assert_whole()


def with_a_write(x):
    shown = x.reshape(3, 5, 2, 2).sin()
    torch.view_as_complex(shown).mul_(2)
    return shown * 2


def of_an_input(x):
    return torch.view_as_complex(x.view(3, 5, 2, 2))


def with_its_base(x):
    base = x.view(3, 5, 2, 2).sin()
    return base, torch.view_as_complex(base)


@pytest.mark.parametrize("function", [with_a_write, of_an_input, with_its_base])
def test_memory_that_is_seen_to_be_shared_stays_so(function):
    x = torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(1))
    compiled = flambeau.compile(function)
    results = []
    for call in (function, compiled, compiled):
        given = x.clone()
        result = call(given)
        results.append([result, given])
        for tensor in result if isinstance(result, tuple) else [result]:
            tensor.mul_(2)
        results[-1] = [[t.clone() for t in result] if isinstance(result, tuple) else result.clone(), given]
    assert_same(results[1], results[0])
    assert_same(results[2], results[0])


def encoder_layer():
    torch.manual_seed(0)
    return nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)


def test_an_encoder_layer_trains_as_one_plan():
    found = []
    for compiles in (False, True):
        model = encoder_layer()
        run = flambeau.compile(model) if compiles else model
        torch.manual_seed(3)
        for _ in range(2):
            run(torch.linspace(-1, 1, 80).view(2, 5, 8)).sin().sum().backward()
        found.append([parameter.grad for parameter in model.parameters()])
    assert_same(found[1], found[0])
    assert_whole()


def langevin(x):
    x = x.clone().detach().requires_grad_(True)
    for _ in range(3):
        gradient = torch.autograd.grad((x**4).sum(), [x])[0]
        x.data += -0.1 * gradient
    return x.detach()


def adversarial(x):
    y = x.clone().detach().requires_grad_(True)
    (y @ torch.ones(4, 2)).tanh().sum().backward()
    return (x + 0.1 * y.grad.sign()).clamp(-1, 1)


def adversarial_of_the_same_memory(x):
    y = x.detach().requires_grad_(True)
    (y @ torch.ones(4, 2)).tanh().sum().backward()
    return x + 0.1 * y.grad


@pytest.mark.parametrize("function", [langevin, adversarial, adversarial_of_the_same_memory])
def test_leaves_of_what_was_detached(function):
    x = torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(1))
    compiled = flambeau.compile(function)
    expected = function(x.clone())
    assert_same(compiled(x.clone()), expected)
    assert_same(compiled(x.clone()), expected)
    assert_whole()


def written_after(x):
    y = x.detach().requires_grad_(True)
    x.mul_(2)
    y.square().sum().backward()
    return y.grad


def written_through(x):
    y = x.detach().requires_grad_(True)
    with torch.no_grad():
        y.mul_(2)
    return x + 1


@pytest.mark.parametrize("function", [written_after, written_through])
def test_a_detached_leaf_shares_memory(function):
    x = torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(1))
    compiled = flambeau.compile(function)
    given, other = x.clone(), x.clone()
    assert_same([compiled(given), given], [function(other), other])


def averaged(buffer, x):
    hidden = x.sin() * 2
    buffer.data.mul_(0.9).add_(hidden.detach().mean(0), alpha=0.1)
    return hidden.relu() * 3


def descent(weight, x):
    loss = (x @ weight).square().mean()
    loss.backward()
    weight.data.add_(weight.grad.data, alpha=-0.1)
    weight.grad = None
    return loss.detach()


def counted_too(buffer, x):
    buffer.data.mul_(0.9)
    buffer.add_(1)
    return x * 2


@pytest.mark.parametrize("function", [averaged, descent, counted_too])
def test_writes_to_data_count_as_no_change(function):
    trains = function is descent
    found = []
    compiled = flambeau.compile(function)
    for call in (function, compiled):
        torch.manual_seed(0)
        first = torch.randn(4).requires_grad_(trains)
        results = [call(first, torch.randn(5, 4)) for _ in range(3)]
        found.append([results, first.detach(), first._version])
    if function is not counted_too:
        assert found[0][2] == found[1][2] == 0
    assert_same(found[1][:2], found[0][:2])
    assert_whole()


def test_a_function_is_called_with_its_class():
    """The class is an object that the plan is given at each call: another one is another function."""

    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            return gradient * 3

    def apply(x, kind):
        return (kind.apply(x.sin()) + 1).relu()

    compiled = flambeau.compile(apply)
    for kind in (Doubled, StraightThrough, Doubled):
        found = []
        for call in (apply, compiled):
            x = torch.linspace(-1, 1, 12).requires_grad_()
            result = call(x, kind)
            result.sum().backward()
            found.append([result.detach(), x.grad])
        assert_same(found[1], found[0])


def one_view(w, x):
    with torch.no_grad():
        part = w.unbind(0)[-1]
    return torch.logcumsumexp(w, 0) * part + x


def other_view(w, x):
    with torch.no_grad():
        part = w.t()
    return (x @ part).sin()


@pytest.mark.parametrize("function", [one_view, other_view])
def test_a_view_made_with_grad_mode_off_is_a_leaf(function):
    found = []
    for call in (function, flambeau.compile(function)):
        torch.manual_seed(0)
        w, x = torch.randn(4, 4, requires_grad=True), torch.randn(4, 4, requires_grad=True)
        result = call(w, x)
        result.sin().sum().backward()
        found.append([result.detach(), w.grad, x.grad])
    assert_same(found[1], found[0])


@pytest.mark.parametrize("trains", [True, False], ids=["training", "inference"])
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("ends", [False, True], ids=["begins", "ends"])
def test_bags_of_embeddings(mode, trains, ends):
    indices, bags = torch.arange(24) % 7, torch.arange(0, 25 if ends else 24, 4)
    seen = []
    for wrap in (lambda call: call, flambeau.compile):
        torch.manual_seed(0)
        bag, linear = nn.EmbeddingBag(7, 4, mode=mode, include_last_offset=ends), nn.Linear(4, 3)
        call = wrap(lambda i, o, bag=bag, linear=linear: linear(bag(i, o) * 2).relu())
        with torch.set_grad_enabled(trains):
            made = [call(indices, bags) for _ in range(3)]
        if trains:
            sum(part.square().sum() for part in made).backward()
        seen.append((made, bag.weight.grad, linear.weight.grad))
    assert_same(seen[1], seen[0])
    assert_whole()


def test_sparse_gradients_stay_sparse():
    torch.manual_seed(0)
    bag = nn.EmbeddingBag(7, 4, mode="sum", sparse=True)
    flambeau.compile(lambda i, o: bag(i, o) * 2)(torch.arange(12) % 7, torch.arange(0, 12, 4)).sum().backward()
    assert bag.weight.grad.is_sparse
    assert bag.weight.grad.to_dense().sum().item() == 12 * 4 * 2
    assert not flambeau.counters()["eager_fallbacks"]


def test_spectral_norm_trains_as_one_plan():
    found = []
    for compiles in (False, True):
        torch.manual_seed(0)
        model = nn.utils.parametrizations.spectral_norm(nn.Linear(4, 3))
        run = flambeau.compile(model) if compiles else model
        for _ in range(2):
            run(torch.linspace(-1, 1, 20).view(5, 4)).square().sum().backward()
        found.append([parameter.grad for parameter in model.parameters()] + list(model.buffers()))
    assert_same(found[1], found[0])
    assert_whole()
