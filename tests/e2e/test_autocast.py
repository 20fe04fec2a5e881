"""Autocast that compiled functions switch: results, what is left to the caller, and when it costs nothing."""

import contextlib
import functools

import pytest
import torch
from mode import COUNTED

import flambeau

BF16, F16 = torch.bfloat16, torch.float16


def state():
    """All that the managers change."""
    kinds = [(torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in ("cpu", "cuda")]
    torch.autocast_increment_nesting()
    return kinds, torch.is_autocast_cache_enabled(), torch.autocast_decrement_nesting()


def region(net, x):
    with torch.autocast("cpu", BF16):
        y = net(x)
        seen = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu"), torch.is_autocast_cache_enabled()
    return y, y.float() @ x.mT, seen


def off_inside_of_on(net, x):
    with torch.autocast("cpu", BF16):
        y = net(x)
        with torch.autocast("cpu", enabled=False):
            z = net(x)
        return y, z, net(x)


def other_type_inside(net, x):
    with torch.autocast("cpu", BF16), torch.autocast("cpu", F16):
        y = x @ x.mT
    return y


def without_cache(net, x):
    with torch.autocast("cpu", BF16, cache_enabled=False):
        return net(x), torch.is_autocast_cache_enabled()


@torch.autocast("cpu", BF16)
def decorated(net, x):
    return net(x) * 2


def returns_within(net, x):
    with torch.autocast("cpu", BF16):
        if x.dim() == 2:
            return net(x)
    return x


def raises_within(net, x):
    try:
        with torch.autocast("cpu", BF16):
            y = net(x)
            raise ValueError(str(y.dtype))
    except ValueError as error:
        return net(x), str(error), torch.is_autocast_enabled("cpu")


def breaks_within(net, x):
    with torch.autocast("cpu", BF16):
        y = net(x)
        flambeau.graph_break()
        z = net(x)
    return y, z, net(x), torch.is_autocast_enabled("cpu")


def breaks_within_idle(net, x):
    with torch.autocast("cpu", enabled=False):
        y = net(x)
        flambeau.graph_break()
        z = net(x)
    return y, z


def left_to_the_caller(net, x):
    manager = torch.autocast("cpu", BF16)
    manager.__enter__()
    return net(x), manager


def entered_before(net, x):
    y = net(x)
    manager = torch.autocast("cpu", BF16)
    manager.__enter__()
    z = net(x)
    manager.__exit__(None, None, None)
    return y, z, manager.prev, manager.prev_fastdtype, manager.prev_cache_enabled


def older_names(net, x):
    with torch.cpu.amp.autocast(dtype=BF16):
        return net(x)


def switches(net, x):
    torch.set_autocast_enabled("cpu", True)
    torch.set_autocast_dtype("cpu", BF16)
    torch.set_autocast_cache_enabled(False)
    y = net(x)
    torch.set_autocast_cache_enabled(True)
    torch.set_autocast_enabled("cpu", False)
    return y, torch.autocast_increment_nesting(), torch.autocast_decrement_nesting()


def weights_that_change(net, x):
    with torch.autocast("cpu", BF16):
        y = net(x)
        with torch.no_grad():
            net.weight.mul_(2)
        return y, net(x)


def trained(net, x):
    with torch.autocast("cpu", BF16):
        loss = net(x).float().square().mean()
    return loss


PROGRAMS = [
    region, off_inside_of_on, other_type_inside, without_cache, decorated, returns_within, raises_within, breaks_within,
    breaks_within_idle, left_to_the_caller, entered_before, older_names, switches, weights_that_change, trained,
]  # fmt: skip


def outside(kind):
    """What the call is in."""
    return {
        "nothing": contextlib.nullcontext,
        "on": lambda: torch.autocast("cpu", BF16),
        "off": lambda: torch.autocast("cpu", enabled=False),
    }[kind]()


@functools.cache
def weights():
    torch.manual_seed(0)
    return torch.randn(4, 4), torch.randn(4), torch.randn(3, 4)


def run(call, kind, grad):
    """What two calls give, gradients, and the thread's state in between and afterwards."""
    weight, bias, x = (part.clone() for part in weights())
    net = torch.nn.Linear(4, 4).requires_grad_(grad)
    with torch.no_grad():
        net.weight.copy_(weight)
        net.bias.copy_(bias)
    told = []
    for _ in range(2):
        with outside(kind):
            made = call(net, x)
            told.append((state(), parts(made)))
            if isinstance(made, tuple) and isinstance(made[-1], torch.autocast):
                made[-1].__exit__(None, None, None)
                made = made[0]
            first = made[0] if isinstance(made, tuple) else made
            if grad and first.requires_grad:
                told.append([part.clone() for part in torch.autograd.grad(first.float().sum(), net.parameters())])
    return told, state()


def parts(value):
    """A value with its managers by what they keep; autograd's nodes have other names in graphs."""
    if isinstance(value, torch.Tensor):
        return value.detach(), value.requires_grad
    if isinstance(value, torch.autocast):
        return {name: kept for name, kept in vars(value).items() if name != "custom_device_mod"}
    return [parts(part) for part in value] if isinstance(value, tuple) else value


@pytest.mark.parametrize("grad", [False, True], ids=["", "grad"])
@pytest.mark.parametrize("kind", ["nothing", "on", "off"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_switched_inside(program, kind, grad, backend):
    expected = run(program, kind, grad)
    actual = run(flambeau.compile(program, backend=backend), kind, grad)
    assert str(actual) == str(expected)


@pytest.mark.plain_only("counts graphs")
@pytest.mark.parametrize("program", [p for p in PROGRAMS if p is not older_names], ids=lambda p: p.__name__)
def test_a_region_is_no_break(program):
    """But for one that warns of its name."""
    net, x = torch.nn.Linear(4, 4), torch.randn(3, 4)
    made = flambeau.compile(program)(net, x)
    if program is left_to_the_caller:
        made[1].__exit__(None, None, None)
    breaks = flambeau.counters()["graph_breaks"]
    assert not breaks or ("breaks_within" in program.__name__ and breaks == {"user_break": 1})


@torch.autocast("cpu", enabled=False)
@torch.autocast("cuda", enabled=False)
def idle(x):
    return (x * 2).sin() + 1


@pytest.mark.plain_only("counts graphs")
def test_a_region_that_changes_nothing_is_compiled():
    x = torch.randn(5)
    compiled = flambeau.compile(idle)

    def call(depth):
        torch.testing.assert_close(compiled(x), idle(x))
        assert state()[2] == depth

    call(0)
    found = flambeau.counters()
    assert (found["graph_breaks"] == {} and found["eager_graph"] == 0) or not COUNTED
    # It is another program where a region is entered already.
    with torch.autocast("cpu", BF16):
        call(1)
    with torch.autocast("cpu", enabled=False):
        call(1)


def test_a_failure_inside_is_undone():
    """The compiled frame fails within the region, runs again as plain Python, and nothing is left switched."""

    def program(net, x, n):
        with torch.autocast("cpu", BF16):
            return net(x).view(n, -1)

    net, x = torch.nn.Linear(4, 4), torch.randn(3, 4)
    compiled = flambeau.compile(program)
    before = state()
    for n in (3, 2, 5, 3, 7):
        told = []
        for call in (program, compiled):
            try:
                told.append(str(call(net, x, n).detach()))
            except RuntimeError as error:
                told.append(str(error))
            assert state() == before
        assert told[0] == told[1]


EQUATIONS = [
    "ij,jk->ik", "ij,jk->ki", "ij,ij->", "bij,bkj->bik", "i,j->ij", "ij,kl->ijkl", "ij,jk->i", "ii,ij->j", "ij,jk",
    "ij,jk,kl->il", "...i,...j->...ij", "ij->ji", "ab,bc->ac",
]  # fmt: skip


@pytest.mark.parametrize("equation", EQUATIONS)
@pytest.mark.parametrize("size", [1, 3])
def test_einsum(equation, size, backend):
    operands = equation.split("->")[0].split(",")
    tensors = [torch.randn([size] * len(labels.replace("...", "xy"))) for labels in operands]

    def program(*tensors):
        return torch.einsum(equation, *tensors)

    with torch.autocast("cpu", BF16):
        expected, actual = program(*tensors), flambeau.compile(program, backend=backend)(*tensors)
    assert actual.dtype == expected.dtype
    torch.testing.assert_close(actual, expected)


class Net(torch.nn.Module):
    """The layers of vision and language models."""

    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.batch = torch.nn.BatchNorm2d(8)
        self.group = torch.nn.GroupNorm(2, 8)
        self.embedding = torch.nn.Embedding(10, 8)
        self.norm = torch.nn.LayerNorm(8)
        self.lead, self.head = torch.nn.Linear(8, 24), torch.nn.Linear(8, 5)

    def forward(self, image, words):
        image = self.group(torch.relu(self.batch(self.conv(image))))
        hidden = self.norm(
            self.embedding(words) + torch.nn.functional.adaptive_avg_pool2d(image, 1).flatten(1)[:, None]
        )
        q, k, v = self.lead(hidden).chunk(3, -1)
        weights = torch.einsum("bid,bjd->bij", q, k).softmax(-1)
        hidden = (
            hidden
            + weights @ v
            + torch.nn.functional.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None])[:, 0]
        )
        return self.head(torch.cat([hidden, torch.nn.functional.gelu(hidden)], 1))


@pytest.mark.plain_only("counts graphs")
@pytest.mark.parametrize("dtype", [BF16, F16], ids=["bf16", "f16"])
@pytest.mark.parametrize("trains", [False, True], ids=["", "trains"])
def test_layers_run_as_plans(trains, dtype):
    torch.manual_seed(0)
    net, image, words = Net().train(trains), torch.randn(2, 3, 6, 6), torch.randint(10, (2, 4))
    targets = torch.randint(5, (2, 8))

    def loss(call):
        with torch.autocast("cpu", dtype):
            scores = call(image, words)
            return scores, torch.nn.functional.cross_entropy(scores.flatten(0, 1), targets.flatten())

    def run(step):
        net.zero_grad()
        with torch.set_grad_enabled(trains):
            scores, error = step()
        if trains:
            error.backward()
        return scores.detach(), error.detach(), [p.grad.clone() for p in net.parameters()] if trains else []

    expected = run(lambda: loss(net))
    compiled = flambeau.compile(net)
    for step in (flambeau.compile(lambda: loss(net)), lambda: loss(compiled)):
        actual = run(step)
        torch.testing.assert_close(actual, expected, rtol=3e-2, atol=3e-2)
    assert not flambeau.counters()["eager_fallbacks"]
