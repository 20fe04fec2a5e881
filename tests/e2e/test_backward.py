"""`backward()` in a compiled function: gradients are part of the graph, and leaves, hooks and errors are eager's."""

import contextlib
import copy
import json
import sys

import pytest
import torch
import torch.nn.functional as F
from mode import COUNTED
from support import assert_same

import flambeau
from flambeau import _native


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm = torch.nn.Linear(8, 16), torch.nn.LayerNorm(16)
        self.last, self.unused = torch.nn.Linear(16, 4), torch.nn.Linear(2, 2)

    def forward(self, x):
        return self.last(self.norm(F.relu(self.first(x), inplace=True)))


def net():
    torch.manual_seed(0)
    return Net()


def batch(seed, count=5):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, 8, generator=generator), torch.randint(0, 4, (count,), generator=generator)


def leaf(*sizes):
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(len(sizes))).requires_grad_()


def assert_same_grads(actual, expected):
    for one, other in zip(actual, expected, strict=True):
        assert (one.grad is None) == (other.grad is None)
        assert_same(one, other, slack=20)
        if one.grad is not None:
            assert_same(one.grad, other.grad, slack=20)
            assert one.grad.stride() == other.grad.stride()
            assert not one.grad.requires_grad


def whole(compiled):
    """No frame broke."""
    if COUNTED:
        breaks = json.loads(_native.explain_data(compiled))["breaks"]
        assert not breaks, [found["text"] for found in breaks]
        assert not flambeau.counters()["eager_fallbacks"], flambeau.counters()


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, weight_decay=0.01),
    "adamw": lambda p: torch.optim.AdamW(p, 0.01),
    "rmsprop": lambda p: torch.optim.RMSprop(p, 0.01),
}


@pytest.mark.parametrize("clip", [False, True])
@pytest.mark.parametrize("to_none", [True, False])
@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_steps(kind, to_none, clip, backend):
    def make():
        model = net()
        optimizer = OPTIMIZERS[kind](model.parameters())

        def step(x, y):
            optimizer.zero_grad(set_to_none=to_none)
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            if clip:
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            return loss

        return model, step

    (ours, step), (theirs, plain), (_, first) = make(), make(), make()
    # Fills the caches of `typing` that optimizers ask: a first call breaks where they keep nothing yet.
    first(*batch(0))
    step = flambeau.compile(step, backend=backend)
    for i in range(4):
        loss, expected = step(*batch(i)), plain(*batch(i))
        assert_same(loss, expected, slack=20)
        assert loss.requires_grad and not loss.is_leaf
        assert_same_grads(ours.parameters(), theirs.parameters())
    # From 3.12 on it depends on what `typing` has cached whether `zero_grad` breaks.
    if to_none or sys.version_info < (3, 12):
        whole(step)
    for each in (loss, expected):
        with pytest.raises(RuntimeError, match="backward through the graph a second time"):
            each.backward()


def test_gradients_are_added_up(backend):
    ours, theirs = net(), net()

    def run(model, x, y):
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        return loss.detach()

    compiled = flambeau.compile(run, backend=backend)
    held = None
    for i in range(4):
        assert_same(compiled(ours, *batch(i)), run(theirs, *batch(i)), slack=20)
        assert_same_grads(ours.parameters(), theirs.parameters())
        # In place: who holds the gradient sees it.
        assert held is None or held is ours.first.weight.grad
        held = ours.first.weight.grad
    whole(compiled)


def two_losses(a, b, x):
    (a * x).sum().backward()
    (a * b).sin().sum().backward()


def kept(a, b, x):
    loss = (a * b * x).sum()
    loss.backward(retain_graph=True)
    loss.backward()


def given(a, b, x):
    (a * b).backward(x)


def one_for_two(a, b, x):
    (a + b).sum().backward()


def parts(a, b, x):
    with torch.no_grad():
        c = a * 2
    ((a[1:] * x[1:]).sum() + (b.detach() * c).sum()).backward()


def no_grad_mode(a, b, x):
    loss = (a * b).exp().sum()
    with torch.no_grad():
        loss.backward()


def written(a, b, x):
    y = a * x
    y.mul_(b)
    y[0].add_(1.0)
    y.sum().backward()


def cleared_between(a, b, x):
    (a * b).sum().backward()
    a.grad = None
    (a * x).sum().backward()


def read(a, b, x):
    (a * b).sum().backward()
    return a.grad * 2, b.grad.norm()


def stepped(a, b, x):
    (a * b).sum().backward()
    with torch.no_grad():
        a.sub_(a.grad, alpha=0.1)
        b -= 0.1 * b.grad
    ((a * b) ** 2).sum().backward()


def saves_nothing(a, b, x):
    loss = (a + b).sum()
    loss.backward()
    loss.backward()
    return loss


def scaled(a, b, x):
    loss = (a * b).mean()
    (loss * 1024.0).backward()
    return loss


PROGRAMS = [two_losses, kept, given, one_for_two, parts, no_grad_mode, written, cleared_between, read, stepped]


@pytest.mark.parametrize("fn", [*PROGRAMS, saves_nothing, scaled], ids=lambda fn: fn.__name__)
def test_programs(fn, backend):
    ours = [leaf(3, 4), leaf(4), torch.randn(3, 4)]
    theirs = copy.deepcopy(ours)
    compiled = flambeau.compile(fn, backend=backend)
    for _ in range(3):
        actual, expected = compiled(*ours), fn(*theirs)
        assert_same(actual, expected, slack=20)
        assert_same_grads(ours, theirs)
        grads = [one.grad.data_ptr() for one in ours if one.grad is not None]
        assert len(set(grads)) == len(grads)


def again(compiled):
    """What a second `backward()` says of what the function gave."""
    a, b = leaf(3), leaf(3)
    made = compiled(a, b)
    try:
        made.backward()
    except RuntimeError as error:
        return str(error).partition("(")[0]
    return a.grad, b.grad


def test_what_is_freed(backend):
    def product(a, b):
        loss = (a * b).sum()
        loss.backward()
        return loss

    def later(a, b):
        c = a * b
        c.sum().backward()
        return (c * 2).sum()

    def apart(a, b):
        (a * b).sum().backward()
        return (a * 2).sum()

    def twice(a, b):
        loss = (a * b).sum()
        loss.backward()
        loss.backward()

    for fn in (product, later, apart):
        assert_same(again(flambeau.compile(fn, backend=backend)), again(fn))
    for run in (twice, flambeau.compile(twice, backend=backend)):
        with pytest.raises(RuntimeError, match="backward through the graph a second time"):
            run(leaf(3), leaf(3))


def hooked(kind, seen):
    def hook(a):
        if kind == "tensor":
            return a.register_hook(lambda grad: seen.append("hook") or grad * 2)
        return a.register_post_accumulate_grad_hook(lambda a: seen.append("hook") or (a.grad.mul_(2), None)[1])

    return hook


@pytest.mark.parametrize("kind", ["tensor", "accumulated"])
def test_hooks_on_leaves_run(kind, backend):
    def run(a, b):
        (a * b).sum().backward()

    compiled = flambeau.compile(run, backend=backend)
    results = []
    for fn in (compiled, run):
        a, b, seen = leaf(3), leaf(3), []
        fn(a, b)
        handle = hooked(kind, seen)(a)
        fn(a, b)
        handle.remove()
        fn(a, b)
        results.append((a.grad, b.grad, seen))
    assert_same(*results)
    assert results[0][2] == ["hook"]


def test_what_is_left_to_autograd(backend):
    """Each of these needs the engine."""
    a, x = leaf(3), torch.randn(3)

    def run(a, x):
        (a * x).sum().backward()

    def of_no_leaf(fn):
        one, seen = a.detach().requires_grad_(), []
        middle = one * 3
        middle.register_hook(seen.append)
        fn(middle, x)
        return one.grad, seen

    def saved(fn):
        packed = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t) or t, lambda t: t):
            fn(a.detach().requires_grad_(), x)
        return len(packed)

    def anomaly(fn):
        with torch.autograd.detect_anomaly(check_nan=True), pytest.raises(RuntimeError, match="nan"):
            fn(torch.full((3,), torch.nan).sqrt().detach().requires_grad_(), x * torch.nan)

    def no_scalar(fn):
        with pytest.raises(RuntimeError, match="implicitly created only for scalar") as raised:
            fn(a, x)
        return str(raised.value)

    compiled = flambeau.compile(run, backend=backend)
    assert_same(of_no_leaf(compiled), of_no_leaf(run))
    assert saved(compiled) == saved(run) == 1
    anomaly(compiled)

    def whole_tensor(a, x):
        (a * x).backward()

    assert no_scalar(flambeau.compile(whole_tensor, backend=backend)) == no_scalar(whole_tensor)


def test_write_to_what_was_saved(backend):
    def run(a, x):
        y = a.exp()
        loss = (y * x).sum()
        y.zero_()
        loss.backward()

    for fn in (run, flambeau.compile(run, backend=backend)):
        a = leaf(3)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            fn(a, torch.randn(3))
        assert a.grad is None


def test_double_backward(backend):
    def run(a, x):
        loss = (a * x).pow(3).sum()
        (grad,) = torch.autograd.grad(loss, a, create_graph=True)
        (loss + grad.square().sum()).backward()

    ours, theirs, x = leaf(3), leaf(3), torch.randn(3)
    flambeau.compile(run, backend=backend)(ours, x)
    run(theirs, x)
    assert_same_grads([ours], [theirs])


def test_two_optimizers(backend):
    """A discriminator and a generator that it judges."""

    def make():
        torch.manual_seed(0)
        maker, judge = (
            torch.nn.Linear(3, 6),
            torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1)),
        )
        of_maker, of_judge = torch.optim.Adam(maker.parameters(), 0.01), torch.optim.Adam(judge.parameters(), 0.01)

        def step(noise, real):
            of_judge.zero_grad()
            fake = maker(noise)
            real_loss = F.binary_cross_entropy_with_logits(judge(real), torch.ones(4, 1))
            real_loss.backward()
            fake_loss = F.binary_cross_entropy_with_logits(judge(fake.detach()), torch.zeros(4, 1))
            fake_loss.backward()
            of_judge.step()
            of_maker.zero_grad()
            loss = F.binary_cross_entropy_with_logits(judge(fake), torch.ones(4, 1))
            loss.backward()
            of_maker.step()
            return loss.detach(), (real_loss + fake_loss).detach()

        return [*maker.parameters(), *judge.parameters()], step

    (ours, step), (theirs, plain) = make(), make()
    step = flambeau.compile(step, backend=backend)
    for i in range(3):
        generator = torch.Generator().manual_seed(i)
        given = torch.randn(4, 3, generator=generator), torch.randn(4, 6, generator=generator)
        assert_same(step(*given), plain(*given), slack=20)
        assert_same_grads(ours, theirs)
    whole(step)


def test_tied_weights_and_dropout(backend):
    class Tied(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.out = torch.nn.Embedding(10, 6), torch.nn.Linear(6, 10, bias=False)
            self.out.weight = self.embed.weight

        def forward(self, ids):
            return self.out(F.dropout(self.embed(ids), 0.5, self.training))

    def make():
        torch.manual_seed(0)
        model = Tied()

        def step(ids):
            F.cross_entropy(model(ids).flatten(0, 1), ids.flatten()).backward()

        return model, step

    (ours, step), (theirs, plain) = make(), make()
    step = flambeau.compile(step, backend=backend)
    ids = torch.randint(0, 10, (2, 5))
    for fn in (step, plain):
        torch.manual_seed(3)
        fn(ids)
        fn(ids)
    assert_same_grads(ours.parameters(), theirs.parameters())
    whole(step)


def test_autocast_is_left_to_autograd(backend):
    def run(model, x, y, inside):
        with torch.autocast("cpu", torch.bfloat16):
            loss = F.cross_entropy(model(x), y)
            with torch.autocast("cpu", enabled=False) if not inside else contextlib.nullcontext():
                loss.backward()

    compiled = flambeau.compile(run, backend=backend)
    for inside in (False, True):
        ours, theirs = net(), net()
        compiled(ours, *batch(0), inside)
        run(theirs, *batch(0), inside)
        for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(one.grad, other.grad, rtol=2e-2, atol=2e-2)
