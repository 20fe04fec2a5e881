"""Frames that plain Python calls below a graph break, or below an eager function, are compiled as their own."""

import contextvars
import functools
import threading

import pytest
import torch
from support import assert_same

import flambeau

pytestmark = pytest.mark.plain_only("what is compiled for a back end that is a callable is not stored", "warm")


class Graphs:
    """A back end that keeps the ops of each graph."""

    def __init__(self):
        self.ops = []

    def __call__(self, module, inputs):
        self.ops.append([node.name for node in module.graph.nodes if node.op.startswith("call")])
        return module.forward


def run(fn, *args, **options):
    """The graphs' ops; checks two calls against eager."""
    graphs = Graphs()
    compiled = flambeau.compile(fn, backend=graphs, **options)
    for _ in range(2):
        assert_same(compiled(*args), fn(*args))
    return graphs.ops


def inner(v):
    """One graph of its own when it is reached through plain Python."""
    return v.sin().cos()


def test_callback_of_c_code():
    """A C function calls what compiled code hands it."""

    def fn(v):
        return contextvars.copy_context().run(inner, v + 1) * 2

    assert run(fn, torch.rand(4)) == [["add"], ["sin", "cos"], ["mul"]]


def count(number):
    return number + 1


def test_what_comes_late_is_compiled():
    """Below a frame where nothing was found to compile in many calls, not every call looks."""

    def fn(v, late):
        try:
            raise ValueError
        except ValueError:
            flambeau.graph_break()
        number = 0
        for _ in range(40):
            number = count(number)
        return inner(v) if late else v + number

    graphs, v = Graphs(), torch.rand(4)
    compiled = flambeau.compile(fn, backend=graphs)
    for late in [False] * 40 + [True] * 16:
        assert_same(compiled(v, late), fn(v, late))
    assert graphs.ops == [["sin", "cos"]]
    for late in [False, True] * 8:
        assert_same(compiled(v, late), fn(v, late))


def test_callee_of_an_eager_frame():
    """The frame breaks while it handles an exception, where it is not taken up again; the function that it calls is
    compiled."""

    def fn(v):
        try:
            raise ValueError
        except ValueError:
            flambeau.graph_break()
        return inner(v)

    assert run(fn, torch.rand(4)) == [["sin", "cos"]]


def test_nested_off():
    def leaf(v):
        v = v.sin()
        flambeau.graph_break()
        return v.cos()

    def fn(v, w):
        return leaf(v + w) * w

    with flambeau.config.patch(nested_graph_breaks=False):
        assert run(fn, torch.rand(4), torch.rand(4)) == [["add"], ["sin"], ["cos"], ["mul"]]


def test_all_kinds_of_arguments():
    def leaf(v, /, w, *more, k=2, **rest):
        v = v + w + sum(more) * k
        flambeau.graph_break()
        return v * rest["scale"]

    def fn(v):
        return leaf(v, v + 1, v, v, k=3, scale=2) + leaf(v, w=v, scale=3)

    with flambeau.config.patch(nested_graph_breaks=False):
        assert len(run(fn, torch.rand(4))) >= 5


def test_disabled_is_left_alone():
    """Nothing below `flambeau.disable` is compiled."""

    @flambeau.disable
    def plain(v):
        return inner(v)

    assert run(lambda v: plain(v + 1) * 2, torch.rand(4)) == [["add"], ["mul"]]


def test_exceptions_and_effects():
    seen = []

    def leaf(v, bad):
        seen.append(v.shape)
        flambeau.graph_break()
        if bad:
            raise KeyError("bad")
        return v + 1

    def fn(v, bad):
        try:
            return leaf(v, bad)
        except KeyError as error:
            return v * len(error.args)

    with flambeau.config.patch(nested_graph_breaks=False):
        compiled = flambeau.compile(fn, backend="eager")
        v = torch.rand(3)
        for bad in (False, True, False):
            seen.clear()
            assert_same(compiled(v, bad), v if bad else v + 1)
            assert seen == [v.shape]


def test_recursion_and_closures():
    def fn(v, depth):
        scale = depth + 1

        def scaled(w):
            flambeau.graph_break()
            return w * scale

        return scaled(v) if depth == 0 else fn(v + 1, depth - 1) + scaled(v)

    with flambeau.config.patch(nested_graph_breaks=False):
        run(fn, torch.rand(3), 3)


def test_hook_is_gone_afterwards():
    """Functions called outside compiled code are not looked at."""

    def fn(v):
        flambeau.graph_break()
        return inner(v)

    graphs = Graphs()
    compiled = flambeau.compile(fn, backend=graphs)
    v = torch.rand(4)
    compiled(v)
    count = len(graphs.ops)
    assert_same(inner(v.reshape(2, 2)), v.reshape(2, 2).sin().cos())
    functools.reduce(lambda a, b: inner(a + b), [v, v, v])
    assert len(graphs.ops) == count


def test_threads_look_for_themselves():
    """One thread waits below a break; another one's plain calls are not compiled for it."""
    entered, leave = threading.Event(), threading.Event()

    def wait():
        entered.set()
        assert leave.wait(30)

    def fn(v):
        v = v + 1
        flambeau.graph_break()
        wait()
        return v * 2

    graphs = Graphs()
    compiled = flambeau.compile(fn, backend=graphs)
    v, results = torch.rand(4), []
    thread = threading.Thread(target=lambda: results.append(compiled(v)))
    thread.start()
    assert entered.wait(30)
    assert_same(inner(v), v.sin().cos())
    leave.set()
    thread.join(30)
    assert_same(results[0], (v + 1) * 2)
    assert ["sin", "cos"] not in graphs.ops


@pytest.mark.parametrize("nested", [True, False])
def test_checkpoint_runs_as_a_whole(nested):
    """What activation checkpointing runs twice is compiled in neither run."""
    from torch.utils.checkpoint import checkpoint

    def fn(v):
        return checkpoint(inner, v + 1, use_reentrant=False) * 2

    v = torch.rand(4, requires_grad=True)
    graphs = Graphs()
    with flambeau.config.patch(nested_graph_breaks=nested):
        compiled = flambeau.compile(fn, backend=graphs)
        result = compiled(v)
    assert_same(result, fn(v))
    (actual,), (expected,) = torch.autograd.grad(result.sum(), v), torch.autograd.grad(fn(v).sum(), v)
    assert_same(actual, expected)
    assert ["sin", "cos"] not in graphs.ops
