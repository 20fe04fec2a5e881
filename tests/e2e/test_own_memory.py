"""A back end with memory of its own: what kernels take is brought there, what the host needs is brought back."""

import resource

import models
import pytest
import torch
from support import assert_same, check, native

import flambeau
import plugins

pytestmark = [pytest.mark.plain_only("plug-ins are chosen by folder, whatever the frames are"), pytest.mark.slow]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path):
    """Its kernels see copies only."""
    plugins.install(tmp_path, "elsewhere", "elsewhere")
    plugins.install(tmp_path, "template", "template")
    with flambeau.config.patch(plugin_path=[str(tmp_path)]):
        flambeau.reset()
        yield
    flambeau.reset()


def changes_inputs(a, b):
    a.add_(b)
    b[1:].mul_(a[:1])
    return a.exp()


def gives_views(a, b):
    c = a + b
    return c.t(), c[1:], c, a[0]


def calls_torch(a, b):
    c = torch.sort(a + b, descending=True)[0]
    d = (c @ (b * 2).t()).relu()
    e = torch.empty(5, 5)
    torch.mm(c, a.t(), out=e)
    return d + e, torch.cumsum(d, 0) * 2


def writes_parts(a, b):
    c = torch.zeros(5, 14)
    c[:, :7] = a
    c[:, 7:] = b * 2
    return torch.cat([c, c.flip(0)]), c.sum(1)


@pytest.mark.parametrize("fn", [changes_inputs, gives_views, calls_torch, writes_parts], ids=lambda fn: fn.__name__)
def test_functions(fn):
    check(fn, (torch.randn(5, 7), torch.randn(5, 7)), backend="elsewhere")


def test_arguments_that_are_views():
    whole = torch.randn(6, 9)
    before = whole.clone()

    def f(a, b):
        a.mul_(b)
        return a.sum()

    assert_same(
        native(flambeau.compile(f, backend="elsewhere"), whole[1:, ::2], whole.new_ones(5, 5) * 2),
        f(before[1:, ::2], 2),
    )
    assert_same(whole, before)


def test_sizes_that_are_not_known_and_none():
    def f(a):
        return torch.softmax(a, -1), a * 2

    compiled = flambeau.compile(f, backend="elsewhere", dynamic=True)
    for sizes in ((3, 5), (4, 50), (0, 7), (2, 0), (30, 7)):
        a = torch.randn(sizes)
        assert_same(native(compiled, a), f(a))


def test_a_model():
    fn, args = models.build("transformer_encoder", 1)
    with torch.no_grad():
        compiled = flambeau.compile(fn, backend="elsewhere")
        for _ in range(2):
            assert_same(native(compiled, *args), fn(*args))


def test_memory_is_given_back():
    def f(a):
        return (a * 2).sort()[0] + a

    compiled, a = flambeau.compile(f, backend="elsewhere"), torch.randn(1 << 16)
    for _ in range(5):
        compiled(a)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(50):
        native(compiled, a)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000, "kB; one call brings 1,000 there"


@pytest.mark.provokes_internal("the device's memory is full")
def test_memory_that_is_full():
    def f(a):
        return a + 1

    compiled, a = flambeau.compile(f, backend="elsewhere"), torch.zeros((1 << 24) + 1)
    with pytest.warns(RuntimeWarning, match="back end elsewhere: the device's memory is full"):
        assert torch.equal(compiled(a), f(a))
