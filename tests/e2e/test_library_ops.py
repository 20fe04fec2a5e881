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


WHOLE = [by_name, by_packet, by_overload, of_python, unused_result]


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
