"""Ways a graph leaves: as FX for torch's back ends and the user's, and Dynamo's graphs coming in."""

import functools

import pytest
import torch
from mode import PROCESS
from support import assert_same, inputs
from torch._dynamo.backends.registry import lookup_backend

import flambeau


def gated(a, b):
    c = torch.sigmoid(a) * b
    return c.sum(-1), c


@pytest.mark.parametrize("name", ["aot_eager", "inductor"])
def test_torch_backends(name):
    before = flambeau.counters()["graphs"]
    assert_same(flambeau.compile(gated, backend=name)(*inputs()), gated(*inputs()))
    assert flambeau.counters()["graphs"] - before == 1


def test_callable_receives_a_graph_module():
    seen = []

    def backend(gm, example_inputs):
        seen.append((gm, example_inputs))
        return gm.forward

    compiled = flambeau.compile(gated, backend=backend)
    for _ in range(2):
        assert_same(compiled(*inputs()), gated(*inputs()))
    assert len(seen) == 1
    gm, example_inputs = seen[0]
    assert isinstance(gm, torch.fx.GraphModule)
    assert [tuple(t.shape) for t in example_inputs] == [(4, 6), (4, 6)]
    assert {node.op for node in gm.graph.nodes} >= {"placeholder", "output"}


# The name of a graph module's file counts those that the process made.
@PROCESS
def test_torch_compile_takes_our_backend():
    before = flambeau.counters()["graphs"]
    compiled = torch.compile(gated, backend="flambeau")
    assert_same(compiled(*inputs()), gated(*inputs()))
    assert flambeau.counters()["graphs"] - before == 1


@PROCESS
@pytest.mark.parametrize("mode", ["default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"])
def test_modes_of_torch_compile_are_taken(mode):
    for compiled in flambeau.compile(gated, mode=mode), torch.compile(gated, backend="flambeau", mode=mode):
        before = flambeau.counters()["eager_fallbacks"]
        assert_same(compiled(*inputs()), gated(*inputs()))
        assert flambeau.counters()["eager_fallbacks"] == before


def test_other_modes_and_options_are_refused_in_a_sentence():
    with pytest.raises(ValueError, match="mode='fast' is none of default, reduce-overhead, max-autotune, "):
        flambeau.compile(gated, mode="fast")
    # What `torch.compile` calls; it loses count of Python's recursion on 3.12 where that raises.
    from_torch = functools.partial(lookup_backend("flambeau"), example_inputs=[])
    for compile in flambeau.compile, from_torch:
        with pytest.raises(NotImplementedError, match="options= is not available yet; set what you need on"):
            compile(gated, options={"max_autotune": True})


def test_unknown_backend_is_named():
    with pytest.raises(ValueError, match="no back end is called 'nonsense'; there are cpu, cuda, eager, opencl, and"):
        flambeau.compile(gated, backend="nonsense")


@pytest.mark.plain_only("breaks would be errors, so fullgraph is off", "leaf")
def test_fullgraph_says_where_and_why():
    def broken(a):
        return a + 1 if a.sum() > 0 else a

    with pytest.raises(Exception, match="data_dependent_jump") as raised:
        flambeau.compile(broken, fullgraph=True)(torch.ones(2))
    assert "test_backends.py" in str(raised.value)


def test_frames_that_take_turns_stay_in_use():
    class Switched(torch.nn.Linear):
        switch = False

        def forward(self, x):
            return super().forward(x) + 1 if self.switch else super().forward(x)

    net = torch.nn.Sequential(*[torch.nn.Linear(4, 4) for _ in range(30)], Switched(4, 4))
    compiled, x = flambeau.compile(net), torch.randn(2, 4)
    with torch.no_grad():
        for i in range(12):
            net[-1].switch = i % 3 == 0
            if i == 7:
                net[3].weight = torch.nn.Parameter(torch.randn(4, 4))
            torch.testing.assert_close(compiled(x), net(x))
    counters = flambeau.counters()
    assert (counters["graphs"], counters["cache"]["hits"]["process"]) == (2, 10)


def test_looking_for_a_frame_runs_no_code_of_tensors():
    calls = []

    class Noisy(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            calls.append(getattr(func, "__name__", str(func)))
            return super().__torch_function__(func, types, args, kwargs or {})

    def graded(x):
        return x * 2 if x.grad is None else x * 3

    compiled = flambeau.compile(graded)
    plain, other = torch.ones(2), torch.ones(2, requires_grad=True)
    other.grad = torch.ones(2)
    noisy = torch.ones(2).as_subclass(Noisy)
    for x in (plain, other, plain, other):
        assert torch.equal(compiled(x), graded(x))
    for _ in range(3):
        calls.clear()
        graded(noisy)
        expected = list(calls)
        calls.clear()
        compiled(noisy)
        assert calls == expected


@pytest.mark.plain_only("the frame inside has a limit of its own, and says so too", "wrap")
@pytest.mark.passes_recompile_limit("what is said at it")
def test_recompile_limit_is_said_once():
    def count(a, n):
        return a + n

    compiled = flambeau.compile(count)
    with flambeau.config.patch(recompile_limit=3), pytest.warns(RuntimeWarning, match="recompile_limit") as caught:
        for n in range(8):
            assert torch.equal(compiled(torch.zeros(2), str(n) == "x" or n * 1.5), torch.full((2,), n * 1.5))
    assert len([w for w in caught if "recompile_limit" in str(w.message)]) == 1
