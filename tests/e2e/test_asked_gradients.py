"""`torch.autograd.grad` in a compiled function, to any order, and leaves that it makes: all are parts of the graph."""

import copy
import json

import pytest
import torch
import torch.nn.functional as F
from mode import COUNTED
from support import assert_same

import flambeau
from flambeau import _native


def leaf(*sizes, seed=0):
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed + len(sizes))).requires_grad_()


def net(*between):
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(2, 16), *between, torch.nn.Linear(16, 1))


def whole(compiled):
    """No frame broke, and none ran op by op."""
    if COUNTED:
        breaks = json.loads(_native.explain_data(compiled))["breaks"]
        assert not breaks, [found["text"] for found in breaks]
        assert not flambeau.counters()["eager_fallbacks"], flambeau.counters()


def seen(value):
    """What is compared of a tensor beside its values."""
    if isinstance(value, torch.Tensor):
        return value.requires_grad, value.is_leaf, value.stride()
    if isinstance(value, dict):
        return {key: seen(item) for key, item in value.items()}
    return [seen(item) for item in value] if isinstance(value, (tuple, list)) else value


def grad_of(a, b, x):
    return torch.autograd.grad((a * b * x).sum(), a)


def of_two(a, b, x):
    return torch.autograd.grad([(a * x).sum(), (a * b).sin()], [a, b], [None, x])


def one_unused(a, b, x):
    return torch.autograd.grad((a * x).sum(), [a, b], allow_unused=True)


def zeros_for_unused(a, b, x):
    return torch.autograd.grad((a * x).sum(), [a, b], materialize_grads=True)


def by_name(a, b, x):
    return torch.autograd.grad((a * b).sum(), {"a": a, "b": b})


def of_the_middle(a, b, x):
    middle, twin = a * x, a * x
    loss = (middle * twin * b).sum()
    return torch.autograd.grad(loss, middle, retain_graph=True), torch.autograd.grad(loss, [middle, a])


def of_ties(a, b, x):
    y = torch.maximum(F.relu(a * 0), b * 0).abs().sum() + a.clamp(0, 0).sum() + (a * 0).norm()
    return torch.autograd.grad(y, [a, b], allow_unused=True)


def then_used(a, b, x):
    (grad,) = torch.autograd.grad((a * a * x).sum(), a)
    return (grad * b).sum()


def second(a, b, x):
    (grad,) = torch.autograd.grad((a.pow(3) * x).sum(), a, create_graph=True)
    return torch.autograd.grad(grad.square().sum(), a)


def third(a, b, x):
    (one,) = torch.autograd.grad((a.sin() * b).sum(), a, create_graph=True)
    (two,) = torch.autograd.grad((one * x).sum(), a, create_graph=True)
    return torch.autograd.grad(two.sum(), [a, b])


def needs_no_more(a, b, x):
    """A gradient that requires no grad, though the graph is made."""
    return torch.autograd.grad((a * x).sum(), a, create_graph=True)


def relu_twice(a, b, x):
    (grad,) = torch.autograd.grad(F.relu(a).pow(2).sum() + F.leaky_relu(b).sum(), a, create_graph=True)
    return grad, (grad * b).sum()


def outside_sees_it(a, b, x):
    """The loss leaves, and autograd goes back through the gradient outside."""
    (grad,) = torch.autograd.grad((a.tanh() * b).sum(), a, create_graph=True)
    return grad.square().sum() + b.sum()


def vector_products(a, b, x):
    v = torch.ones_like(x, requires_grad=True)
    (back,) = torch.autograd.grad(a.exp() * b, a, v, create_graph=True)
    return torch.autograd.grad(back, v, x)


def hessian_product(a, b, x):
    loss = (a * b).sin().sum()
    (grad,) = torch.autograd.grad(loss, a, create_graph=True)
    return torch.autograd.grad((grad * x).sum(), a)[0].detach(), grad.detach()


def without_grad_mode(a, b, x):
    y = (a * b).sum()
    with torch.no_grad():
        return torch.autograd.grad(y, a)


def written_between(a, b, x):
    y = a * 2
    y.mul_(b)
    return torch.autograd.grad(y.sum(), [a, b])


def by_what_was_written(a, b, x):
    y = a * 2
    y.mul_(b)
    return torch.autograd.grad(y.exp().sum(), y)


def sgd(a, b, x):
    grads = torch.autograd.grad((a * b * x).pow(2).sum(), [a, b])
    with torch.no_grad():
        for one, grad in zip([a, b], grads, strict=True):
            one.sub_(grad, alpha=0.1)


def ordinary_backward(a, b, x):
    (grad,) = torch.autograd.grad((a * b).pow(2).sum(), a, create_graph=True)
    (grad.square().sum() + (a * x).sum()).backward()


def alias_of_the_seed(a, b, x):
    grads = torch.autograd.grad(a + b.expand_as(a), [a], x)
    return grads[0].add_(1.0), x


PROGRAMS = [
    grad_of, of_two, one_unused, zeros_for_unused, by_name, of_the_middle, of_ties, then_used, second, third,
    needs_no_more, relu_twice, outside_sees_it, vector_products, hessian_product, without_grad_mode, written_between,
    by_what_was_written, sgd, ordinary_backward, alias_of_the_seed,
]  # fmt: skip
BREAK = [by_what_was_written, alias_of_the_seed]


@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda fn: fn.__name__)
def test_programs(fn, backend):
    ours = [leaf(3, 4), leaf(3, 4, seed=7), torch.randn(3, 4)]
    theirs = copy.deepcopy(ours)
    compiled = flambeau.compile(fn, backend=backend)
    for _ in range(3):
        actual, expected = compiled(*ours), fn(*theirs)
        assert seen(actual) == seen(expected)
        if isinstance(expected, torch.Tensor) and expected.requires_grad:
            actual.sum().backward()
            expected.sum().backward()
        assert_same(actual, expected, slack=20)
        assert_same(ours, theirs, slack=20)
        assert_same([one.grad for one in ours], [one.grad for one in theirs], slack=20)
    if fn not in BREAK:
        whole(compiled)


@pytest.mark.parametrize("wanted", [{}, {"allow_unused": False}, {"is_grads_batched": True}])
def test_errors_are_torchs(wanted, backend):
    def run(a, b):
        return torch.autograd.grad((a * 2).sum(), b, **wanted)

    def of_no_scalar(a, b):
        return torch.autograd.grad(a * 2, a, **wanted)

    for fn in (run, of_no_scalar):
        said = []
        for one in (flambeau.compile(fn, backend=backend), fn):
            with pytest.raises(Exception) as raised:
                one(leaf(3), leaf(3, seed=1))
            said.append((type(raised.value), str(raised.value)))
        assert said[0] == said[1]


def test_what_is_freed(backend):
    def run(a, b):
        c = a.exp()
        d = (c * b).sin()
        return torch.autograd.grad(d.sum(), b), c, d

    said = []
    for fn in (flambeau.compile(run, backend=backend), run):
        a, b = leaf(3), leaf(3, seed=1)
        _, c, d = fn(a, b)
        # Autograd did not go by `exp`, and freed nothing of it.
        c.sum().backward()
        with pytest.raises(RuntimeError, match="backward through the graph a second time"):
            d.sum().backward()
        said.append(a.grad)
    assert_same(*said)


def test_hooks_are_run(backend):
    def run(a, x):
        return torch.autograd.grad((a * x).sum(), a)

    compiled, x = flambeau.compile(run, backend=backend), torch.randn(3)
    results = []
    for fn in (compiled, run):
        a, seen = leaf(3), []
        fn(a, x)
        a.register_hook(lambda grad, seen=seen: seen.append(1) or grad * 2)
        results.append((fn(a, x), seen))
    assert_same(*results)


def test_behind_what_is_no_leaf(backend):
    """Of two tensors from outside one may be made of the other."""

    def run(a, b):
        return torch.autograd.grad((a * b).sum(), [a, b], allow_unused=True)

    compiled = flambeau.compile(run, backend=backend)
    for make in (
        lambda: (leaf(3), leaf(3, seed=1)),
        lambda: (c := leaf(3), c.exp()),
        lambda: (leaf(3), leaf(3) * 2),
    ):
        assert_same(compiled(*make()), run(*make()))


@pytest.mark.parametrize("between", [torch.nn.Tanh, torch.nn.SiLU, torch.nn.Softplus, torch.nn.GELU, torch.nn.ReLU])
def test_physics(between, backend):
    """A residual of a differential equation: derivatives by the inputs, trained by the parameters."""

    def residual(model, x, t):
        u = model(torch.stack([x, t], -1))[..., 0]
        ux, ut = torch.autograd.grad(u.sum(), (x, t), create_graph=True)
        (uxx,) = torch.autograd.grad(ux.sum(), x, create_graph=True)
        return ut + u * ux - 0.1 * uxx

    ours, theirs = net(between()), net(between())
    compiled = flambeau.compile(residual, backend=backend)
    for seed in range(3):
        for model, fn in ((ours, compiled), (theirs, residual)):
            x, t = leaf(9, seed=seed), leaf(9, seed=seed + 5)
            fn(model, x, t).pow(2).mean().backward()
        # How sums of gradients of single rows lie is as may be.
        grads = [[one.grad.contiguous().flatten() for one in model.parameters()] for model in (ours, theirs)]
        assert_same(*grads, slack=200)
    if between is not torch.nn.ReLU:
        whole(compiled)


def penalty(model, real, fake, mix):
    between = (mix * real + (1 - mix) * fake).requires_grad_(True)
    out = model(between)
    (grad,) = torch.autograd.grad(out, between, torch.ones_like(out), create_graph=True, retain_graph=True)
    return ((grad.norm(2, dim=1) - 1) ** 2).mean()


def test_gradient_penalty(backend):
    def step(model, optimizer, real, fake, mix):
        optimizer.zero_grad()
        loss = model(fake).mean() - model(real).mean() + 10 * penalty(model, real, fake, mix)
        loss.backward()
        optimizer.step()
        return loss.detach()

    models = [net(torch.nn.LeakyReLU(0.2)), net(torch.nn.LeakyReLU(0.2))]
    optimizers = [torch.optim.SGD(model.parameters(), 0.1) for model in models]
    compiled = flambeau.compile(step, backend=backend)
    for seed in range(3):
        data = [leaf(6, 2, seed=seed + i).detach() for i in range(2)]
        data.append(torch.linspace(0, 1, 6)[:, None])
        # Eager first: from then on `typing` has cached what the optimizer asks it.
        losses = [fn(*of, *data) for fn, *of in zip((step, compiled), models, optimizers, strict=True)]
        assert_same(*reversed(losses), slack=50)
        assert_same(*[list(model.parameters()) for model in reversed(models)], slack=100)
    whole(compiled)


def attacked(model, x, y):
    x = x.detach().clone().requires_grad_(True)
    F.cross_entropy(model(x), y).backward()
    return x.detach() + 0.1 * x.grad.sign()


def attacked_at_once(model, x, y):
    x.requires_grad = True
    F.cross_entropy(model(x), y).backward()
    return x + 0.1 * x.grad.sign()


def made_by_a_factory(model, x, y):
    delta = torch.zeros_like(x, requires_grad=True)
    for _ in range(3):
        (grad,) = torch.autograd.grad(F.cross_entropy(model(x + delta), y), delta)
        delta = (delta + 0.1 * grad.sign()).clamp(-0.2, 0.2).detach().clone().requires_grad_()
    return delta.detach()


def stepped_leaf(model, x, y):
    delta = torch.zeros_like(x).requires_grad_()
    for _ in range(2):
        F.cross_entropy(model(x + delta), y).backward()
        with torch.no_grad():
            delta += 0.1 * delta.grad
            delta.grad.zero_()
    return (x + delta).detach()


def leaves_with_a_gradient(model, x, y):
    delta = torch.zeros_like(x).requires_grad_()
    F.cross_entropy(model(x + delta), y).backward()
    return delta


def leaves_alone(model, x, y):
    delta = (x * 2).requires_grad_()
    return delta, F.cross_entropy(model(delta), y)


@pytest.mark.parametrize(
    "fn", [attacked, attacked_at_once, made_by_a_factory, stepped_leaf, leaves_with_a_gradient, leaves_alone]
)
def test_leaves_of_the_frame(fn, backend):
    def model():
        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 3))

    results = []
    compiled = flambeau.compile(fn, backend=backend)
    for one, of in ((compiled, model()), (fn, model())):
        x, y = leaf(5, 4).detach(), torch.tensor([0, 1, 2, 1, 0])
        made = one(of, x, y)
        after = [one.grad for one in made] if isinstance(made, tuple) else [made.grad if made.is_leaf else None]
        results.append((seen(made), made, after, x.requires_grad, x.grad, [p.grad for p in of.parameters()]))
    assert results[0][0] == results[1][0]
    assert_same(*[result[1:] for result in results], slack=50)
    if fn not in (leaves_with_a_gradient, leaves_alone, attacked_at_once):
        whole(compiled)


def test_inner_loop(backend):
    """Gradients of steps of gradient descent."""

    def run(w, b, x, y):
        one, other = w, b
        for _ in range(2):
            loss = F.mse_loss(x @ one + other, y)
            grads = torch.autograd.grad(loss, [one, other], create_graph=True)
            one, other = one - 0.1 * grads[0], other - 0.1 * grads[1]
        return F.mse_loss(x @ one + other, y)

    results = []
    compiled = flambeau.compile(run, backend=backend)
    for fn in (compiled, run):
        w, b = leaf(4, 2), leaf(2)
        fn(w, b, leaf(5, 4, seed=3).detach(), leaf(5, 2, seed=4).detach()).backward()
        results.append((w.grad, b.grad))
    assert_same(*results, slack=50)
    whole(compiled)
