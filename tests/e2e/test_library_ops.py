"""Ops that a library registers with torch's dispatcher, called by each of their names."""

import pytest
import torch
from support import assert_same

import flambeau

LIBRARY = torch.library.Library("flambeau_tests", "DEF")
LIBRARY.define("product(Tensor a, Tensor b) -> Tensor")
LIBRARY.impl("product", lambda a, b: a @ b, "CompositeExplicitAutograd")
CALLS = []


@torch.library.register_fake("flambeau_tests::product", lib=LIBRARY)
def _(a, b):
    return a.new_empty(a.shape[0], b.shape[1])


@torch.library.custom_op("flambeau_tests::doubled", mutates_args=())
def doubled(a: torch.Tensor, times: int) -> torch.Tensor:
    CALLS.append(times)
    return a * times


@doubled.register_fake
def _(a, times):
    return torch.empty_like(a)


@torch.library.custom_op("flambeau_tests::count_up", mutates_args=("a",))
def count_up(a: torch.Tensor) -> None:
    a.add_(1)


@torch.library.custom_op("flambeau_tests::unknown", mutates_args=())
def unknown(a: torch.Tensor) -> torch.Tensor:
    return a + 1


@torch.library.custom_op("flambeau_tests::halves", mutates_args=())
def halves(parts: list[torch.Tensor], at: list[int], how: str = "up, down") -> tuple[torch.Tensor, torch.Tensor]:
    CALLS.append(how)
    return parts[0] * at[0], parts[1] / at[1]


@halves.register_fake
def _(parts, at, how=""):
    return torch.empty_like(parts[0]), torch.empty_like(parts[1])


@torch.library.custom_op("flambeau_tests::turned", mutates_args=())
def turned(a: torch.Tensor) -> torch.Tensor:
    CALLS.append("turned")
    return (a * 2).t().contiguous().t()


@turned.register_fake
def _(a):  # these are not the strides
    return torch.empty_like(a)


PACKET, OVERLOAD = torch.ops.flambeau_tests.product, torch.ops.flambeau_tests.product.default
_ = torch.ops.flambeau_tests.doubled, torch.ops.flambeau_tests.count_up, torch.ops.flambeau_tests.unknown


def by_name(x):
    return torch.ops.flambeau_tests.product(x, x) + 1


def by_packet(x):
    return PACKET(x, x) + 1


def by_overload(x):
    return OVERLOAD(x, x) + 1


def of_python(x):
    return torch.ops.flambeau_tests.doubled(x, 3) + 1


def unused_result(x):
    torch.ops.flambeau_tests.doubled(x, 4)
    return x + 1


def writes(x):
    y = x + 0
    view = y[0]
    torch.ops.flambeau_tests.count_up(y)
    return y * 2, view


def writes_input(x):
    torch.ops.flambeau_tests.count_up(x)
    return x * 2


def without_fake(x):
    return torch.ops.flambeau_tests.unknown(x) * 2


def among_kernels(x):
    torch.ops.flambeau_tests.doubled((x * 2).relu(), 2)
    a, b = torch.ops.flambeau_tests.halves([x + 1, x.exp()], [2, 3])
    c, _ = torch.ops.flambeau_tests.halves([a, b], [4, 5], how="down")
    return torch.ops.flambeau_tests.doubled(c, times=5).sigmoid() + a


def of_torch(x):
    y = torch.ops.aten.relu(x) + torch.ops.aten.add.Tensor(x, x, alpha=2)
    return torch.ops.aten.native_layer_norm.default(y, [x.shape[-1]], None, None, 1e-5)[0] + torch.ops.aten.mm(x, x)


WHOLE = [by_name, by_packet, by_overload, of_python, unused_result, among_kernels, of_torch]


@pytest.mark.parametrize("fn", [*WHOLE, writes, writes_input, without_fake], ids=lambda f: f.__name__)
def test_as_eager(fn):
    compiled = flambeau.compile(fn)
    for n in (2, 3, 2):
        inputs, results = torch.randn(n, n), []
        for each in (fn, compiled):
            CALLS.clear()
            given = inputs.clone()
            results.append((each(given), given, list(CALLS)))
        assert_same(results[1], results[0])


@pytest.mark.plain_only("counts breaks")
@pytest.mark.parametrize("fn", WHOLE, ids=lambda f: f.__name__)
def test_is_captured_whole(fn):
    flambeau.compile(fn, fullgraph=True)(torch.randn(2, 2))
    assert not flambeau.counters()["eager_graph"], flambeau.counters()["eager_graph_reasons"]


def views(x):
    y = x + 1
    torch.ops.aten.view.default(y, [-1]).add_(1)
    return y, torch.ops.aten.t(x)


def draws(x):
    return torch.ops.aten.bernoulli.default(x.sigmoid()), torch.ops.aten.dropout(x, 0.5, True) * 2, torch.rand(2)


def adds(x):
    y = x * 2
    torch.ops.aten.add_.Tensor(y, x)
    return torch.ops.aten.mul_(y, 2) + y


@pytest.mark.parametrize("fn", [views, draws, adds], ids=lambda f: f.__name__)
def test_ops_of_torch_that_do_more_than_compute(fn):
    compiled, x = flambeau.compile(fn), torch.randn(3, 3)
    for _ in range(2):
        torch.manual_seed(3)
        expected = fn(x)
        torch.manual_seed(3)
        assert_same(compiled(x), expected)


STATISTICS = {
    "native": lambda x, mean, var: torch.ops.aten.native_batch_norm(x, None, None, mean, var, True, 0.1, 1e-5)[0],
    "native.default": lambda x, mean, var: torch.ops.aten.native_batch_norm.default(
        x, None, None, mean, var, True, 0.1, 1e-5
    )[0],
    "batch_norm": lambda x, mean, var: torch.ops.aten.batch_norm(x, None, None, mean, var, True, 0.1, 1e-5, False),
    "instance_norm": lambda x, mean, var: torch.ops.aten.instance_norm(
        x, None, None, mean, var, True, 0.1, 1e-5, False
    ),
    "legit": lambda x, mean, var: torch.ops.aten._native_batch_norm_legit(x, None, None, mean, var, True, 0.1, 1e-5)[0],
}


@pytest.mark.parametrize("name", STATISTICS)
def test_ops_of_torch_whose_schemas_do_not_say_what_they_write_to(name):
    def fn(x, mean, var, at):
        before = mean * 2
        result = STATISTICS[name](x, mean, var) + 1
        return result, before, mean * 2 + var, (x + 1)[at]

    compiled, x = flambeau.compile(fn), torch.randn(4, 3, 5)
    for at in (0, 1, 9, 2):
        seen = []
        for each in (fn, compiled):
            mean, var = torch.zeros(3), torch.ones(3)
            try:
                result = each(x, mean, var, torch.tensor([at]))
            except IndexError as error:
                result = str(error)
            seen.append((result, mean, var))
        assert_same(seen[1], seen[0])


@pytest.mark.provokes_internal("a fake kernel that is wrong")
def test_a_fake_kernel_with_other_strides():
    def fn(x):
        y = torch.ops.flambeau_tests.turned(x + 1)
        return y, y.sin()

    compiled, x = flambeau.compile(fn), torch.randn(3, 3)
    for _ in range(3):
        assert_same(compiled(x), fn(x))


class Other:
    """Takes the place of an op."""

    def __call__(self, a, b):
        return a - b


def through(op, x):
    return op(x, x)


def test_another_op():
    compiled, x = flambeau.compile(through), torch.randn(2, 2)
    for op in (PACKET, OVERLOAD, Other(), torch.add, PACKET):
        assert_same(compiled(op, x), through(op, x))


def below(x):
    count_up(x)
    return x


def test_an_op_that_raises_in_a_discovered_frame():
    def above(x):
        try:
            eval("below(x)")  # nothing is traced across it
        except RuntimeError as error:
            return str(error)

    x = torch.ones(3, requires_grad=True)
    before = flambeau.counters()["eager_fallbacks"].get("run_failed", 0)
    assert flambeau.compile(above)(x) == above(x)
    assert flambeau.counters()["eager_fallbacks"].get("run_failed", 0) == before
