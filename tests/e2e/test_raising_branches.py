"""A branch on what a tensor holds, of which one side only raises, is no graph break: the graph checks it, and a call
for which that fails is run again as plain Python."""

import pytest
import torch
import torch.nn.functional as F
from mode import COUNTED
from samples import asserts
from support import assert_same
from torch.distributions import Categorical, Normal, kl_divergence

import flambeau


def raises(x):
    if (x > 100).any():
        raise ValueError("too large")
    return x.sin() * 2


def names_what_is_wrong(x):
    y = x * 2
    if not (y < 100).all():
        raise RuntimeError(f"too large: {tuple(y.shape)} {type(y).__name__}")
    y.relu_()
    if torch.isnan(y).any():
        raise AssertionError
    return y + 1


def handles_it(x):
    try:
        if (x > 100).any():
            raise ValueError("too large")
        return x.sin() * 2
    except ValueError:
        return x.cos()


def draws_before(x):
    noise = torch.rand_like(x)
    if (x > 100).any():
        raise ValueError("too large")
    return x.sin() * noise


def writes_behind(x):
    y = x * 2
    if (y > 100).any():
        raise ValueError("too large")
    x.add_(1)
    return y.sin() * 2


def returned(x):
    def is_fine(value):
        return bool((value < 100).all())

    def is_wrong(value):
        return not is_fine(value)

    if is_wrong(x):
        raise ValueError("too large")
    if not is_fine(x + 1) or (x > 90).any().item():
        raise ValueError("nearly too large")
    return x.sin() * 2


SEEN = []


def changes_objects(x):
    SEEN.append(x.shape[0])
    if (x > 100).any():
        raise ValueError("too large")
    return x.sin() * len(SEEN)


BRANCHES = [raises, asserts, names_what_is_wrong, handles_it, draws_before, writes_behind, returned, changes_objects]


def outcome(function, x):
    torch.manual_seed(0)
    try:
        return function(x)
    except Exception as error:
        return type(error).__name__, str(error)


@pytest.mark.parametrize("function", BRANCHES)
def test_the_other_side_is_taken_where_it_is_true(function):
    values = [torch.linspace(-1, 1, 12), torch.tensor([1.0, 200.0] * 6), torch.tensor([1.0, float("nan")] * 6)]
    found = []
    for call in (function, flambeau.compile(function)):
        SEEN.clear()
        given = [x.clone() for x in [*values, *values]]
        results = [outcome(call, x) for x in given]
        found.append([results, given, list(SEEN), torch.rand(2)])
    assert_same(found[1], found[0])


@pytest.mark.parametrize("function", BRANCHES)
def test_it_is_no_break(function):
    compiled = flambeau.compile(function)
    for _ in range(2):
        SEEN.clear()
        compiled(torch.linspace(-1, 1, 12))
    if COUNTED:
        counters = flambeau.counters()
        assert counters["graphs"] == 1 and not counters["graph_breaks"], counters
        assert not counters["eager_fallbacks"] and not counters["eager_graph_reasons"], counters


def writes_before(x):
    x.add_(1)
    if (x > 100).any():
        raise ValueError("too large")
    return x.sin()


def takes_both_sides(x):
    if x.sum() > 0:
        return x.sin()
    return x.cos()


def keeps_it(x):
    is_large = bool((x > 100).any())
    if is_large:
        raise ValueError("too large")
    return x.sin(), is_large


def turns_many(x):
    for is_large in map(bool, [x.max() > 100, x.min() > 100]):
        if is_large:
            raise ValueError("too large")
    return x.sin()


@pytest.mark.parametrize("function", [writes_before, takes_both_sides, keeps_it, turns_many])
def test_other_branches_break(function):
    compiled = flambeau.compile(function)
    for value in (-1.0, 1.0, 200.0, 1.0):
        x, y = torch.full((4,), value), torch.full((4,), value)
        assert_same([outcome(compiled, x), x], [outcome(function, y), y])
    if COUNTED:
        assert flambeau.counters()["graph_breaks"]


def policy(mean, spread):
    distribution = Normal(mean, spread.exp())
    action = distribution.rsample()
    return distribution.log_prob(action).sum() + action.tanh().sum()


def divergence(mean, spread):
    prior = Normal(torch.zeros_like(mean), torch.ones_like(spread))
    return kl_divergence(Normal(mean, spread.exp()), prior).sum()


def choices(logits, values):
    distribution = Categorical(logits=logits)
    chosen = distribution.sample()
    return (distribution.log_prob(chosen) * values[:, 0]).sum() + distribution.entropy().sum()


def likelihood(mean, target):
    return F.gaussian_nll_loss(mean.sin(), target.detach(), mean.square().detach() + 1)


@pytest.mark.parametrize("function", [policy, divergence, choices, likelihood])
def test_distributions_that_check_their_arguments_train_whole(function):
    found = []
    for call in (function, flambeau.compile(function)):
        torch.manual_seed(1)
        given = [torch.randn(5, 4, requires_grad=True), torch.randn(5, 4, requires_grad=True)]
        results = []
        for _ in range(2):
            loss = call(*given)
            loss.backward()
            results.append(loss.detach())
        found.append([results, [x.grad for x in given], torch.rand(2)])
    assert_same(found[1], found[0])
    if COUNTED:
        counters = flambeau.counters()
        assert not counters["graph_breaks"] and not counters["eager_graph_reasons"], counters


def test_wrong_arguments_of_a_distribution_raise():
    compiled = flambeau.compile(policy)
    good = torch.zeros(3, requires_grad=True)
    compiled(good, good)
    bad = torch.full((3,), float("nan"), requires_grad=True)
    with pytest.raises(ValueError, match="Expected parameter loc"):
        compiled(bad, good)
    assert torch.isfinite(compiled(good, good))
