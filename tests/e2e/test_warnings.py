"""`warnings.warn` is no graph break: the graph warns, where and as eager code does."""

# ruff: noqa: B028 (warnings without a level are what is tested)

import warnings

import pytest
import torch
import torch.nn.functional as F
from mode import COUNTED
from support import assert_same

import flambeau


class OwnWarning(UserWarning):
    pass


def here(x):
    y = x.sin()
    warnings.warn("here")
    return y * 2


def from_a_callee(x):
    def inner(value):
        warnings.warn(f"sizes {tuple(value.shape)}", DeprecationWarning, stacklevel=2)
        return value.cos()

    return inner(x) + inner(x + 1)


def of_an_own_class(x):
    for _ in range(3):
        warnings.warn(message="own", category=OwnWarning)
    return x.tanh() + x


def caught(x):
    try:
        warnings.warn("caught", RuntimeWarning)
    except RuntimeWarning:
        return x.cos()
    return x.sin()


def without_a_tensor(x):
    warnings.warn("nothing else")
    return 3


def by_torch(x):
    return F.kl_div(x.log_softmax(-1), x.softmax(-1) * 0.5)


SEEN = []


def around_effects(x):
    SEEN.append(x.shape[0])
    warnings.warn("between")
    SEEN.append(len(SEEN))
    noise = torch.rand_like(x)
    return x.sin() * noise


WARNING = [here, from_a_callee, of_an_own_class, caught, without_a_tensor, by_torch, around_effects]


def outcome(function, x, action):
    torch.manual_seed(0)
    SEEN.clear()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter(action)
        results = []
        for _ in range(3):
            try:
                results.append(function(x))
            except Warning as warning:
                results.append((type(warning), str(warning)))
    said = [(str(w.message), w.category, w.filename, w.lineno) for w in said]
    return [results, [w for w in said if not w[0].startswith("flambeau ")], list(SEEN), torch.rand(2)]


@pytest.mark.parametrize("function", WARNING)
@pytest.mark.parametrize("action", ["default", "always", "once", "ignore", "error"])
def test_it_is_said_as_in_eager_code(function, action):
    compiled = flambeau.compile(function)
    x = torch.linspace(-1, 1, 12).reshape(3, 4)
    outcome(compiled, x, "always")
    assert_same(outcome(compiled, x, action), outcome(function, x, action))


@pytest.mark.parametrize("function", WARNING)
def test_it_is_no_break(function):
    compiled = flambeau.compile(function)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(3):
            SEEN.clear()
            compiled(torch.linspace(-1, 1, 12).reshape(3, 4))
    if COUNTED:
        counters = flambeau.counters()
        assert counters["graphs"] == 1 and not counters["graph_breaks"], counters
        assert not counters["eager_fallbacks"] and not counters["eager_graph_reasons"], counters


def test_a_step_that_warns_trains_whole():
    def step(x, target):
        loss = F.kl_div((x * 2).log_softmax(-1), target)
        loss.backward()
        return loss.detach()

    compiled = flambeau.compile(step)
    found = []
    for call in (step, compiled):
        torch.manual_seed(1)
        x, target = torch.randn(5, 4, requires_grad=True), torch.rand(5, 4)
        with warnings.catch_warnings(record=True):
            warnings.simplefilter("always")
            found.append([call(x, target), call(x, target), x.grad])
    assert_same(found[1], found[0])
    if COUNTED:
        counters = flambeau.counters()
        assert not counters["graph_breaks"] and not counters["eager_graph_reasons"], counters


@pytest.mark.plain_only("the caller is the test", "wrap")
def test_a_level_above_the_frame_is_of_the_caller():
    def function(x):
        warnings.warn("of the caller", stacklevel=2)
        return x.sin()

    compiled = flambeau.compile(function)
    x = torch.linspace(-1, 1, 4)
    found = []
    for call in (function, compiled, compiled):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            call(x)
        found.append([(str(w.message), w.category, w.filename, w.lineno) for w in said])
    assert found[0] == found[1] == found[2]


def test_filters_that_the_frame_changes_hold_there():
    def function(x):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            try:
                warnings.warn("made an error")
            except UserWarning:
                x = x + 1
        warnings.warn("outside")
        return x.sin()

    x = torch.linspace(-1, 1, 4)
    compiled = flambeau.compile(function)
    for action in ("always", "ignore"):
        assert_same(outcome(compiled, x, action), outcome(function, x, action))
