"""What a graph break must find as eager code does: exceptions being handled, callees that are left alone."""

import sys

import pytest
import torch

import flambeau

X = torch.arange(4.0)


@pytest.fixture(params=["eager", "cpu"])
def backend(request):
    return request.param


def test_handled_exceptions(backend, capsys):
    def f(x):
        y = x + 1
        try:
            raise KeyError("k")
        except LookupError as error:
            print(sys.exc_info()[0], error)
            y = y * 2
        return y

    compiled = flambeau.compile(f, backend=backend)
    for _ in range(2):
        want, printed = f(X), capsys.readouterr().out
        assert torch.equal(compiled(X), want) and capsys.readouterr().out == printed


def test_disabled_functions_run_as_plain_python(backend):
    seen = []

    @flambeau.disable
    def alone(x):
        seen.append(flambeau.is_compiling())
        return x * 3

    def f(x):
        return alone(x + 1) - 1

    before = flambeau.counters()["graph_breaks"].get("disabled", 0)
    assert torch.equal(flambeau.compile(f, backend=backend)(X), (X + 1) * 3 - 1)
    assert seen == [False]
    assert flambeau.counters()["graph_breaks"]["disabled"] == before + 1


def test_classes_without_arguments(backend):
    class Empty:
        pass

    def f(x):
        Empty(2)
        return x

    with pytest.raises(TypeError, match=r"Empty\(\) takes no arguments"):
        flambeau.compile(f, backend=backend)(X)


def test_compiled_functions_are_inlined(backend):
    inner = flambeau.compile(lambda x: x * 2, backend=backend)
    linear = flambeau.compile(torch.nn.Linear(4, 4), backend=backend)

    def f(x):
        return linear(inner(x + 1))

    before = flambeau.counters()
    with torch.no_grad():
        torch.testing.assert_close(flambeau.compile(f, backend=backend)(X), f(X))
    after = flambeau.counters()
    assert after["graph_breaks"] == before["graph_breaks"]


def test_expressions_of_ints_stay_small(backend):
    def f(x, n):
        for _ in range(20):
            n = (n * n + n) % 7
        items = [n]
        for _ in range(16):
            items.insert(0, max([n, *items]) % 9)
        return x * 0.5, n, items

    compiled = flambeau.compile(f, backend=backend)
    for n in (1, 2, 3, 5, 9, 20):
        assert compiled(X, n)[1:] == f(X, n)[1:]
