"""Where a frame stops at what no break can leave, what came before is compiled; the rest of it runs in plain Python."""

import gc
import time
import traceback
import weakref

import pytest
import torch
from mode import COUNTED
from support import assert_same, check
from test_discovery import Graphs, inner

import flambeau


def in_a_handler(v):
    v = v.exp() * 2
    try:
        raise ValueError("seen")
    except ValueError as error:  # noqa: F841
        v = v + len(eval("str(error)"))
    return v - 1


def in_a_handler_below(v):
    return in_a_handler(v + 1).neg()


def in_a_finally(v):
    v = v.exp()
    try:
        try:
            raise KeyError
        finally:
            v = v * eval("2")
    except KeyError:
        return v + 1


def with_a_list_of_itself(v):
    v = v.exp()
    loop = [v]
    loop.append(loop)
    v = v * eval("2")
    return v + len(loop[1])


def with_nan(v):
    v = v.exp()
    nan = float("nan")
    return v * eval("2"), [nan].index(nan)


def after_a_loop(v):
    for k in range(4):
        v = v * k + 1
    try:
        raise ValueError
    except ValueError:
        for _ in range(2):
            v = v + eval("1")
    return v


def in_a_loop(v):
    total = v.exp()
    for k in range(4):
        total = total + v * k
        try:
            if k == 2:
                raise ValueError
        except ValueError:
            total = total * eval("2")
    return total


def without_grad(v):
    with torch.no_grad():
        a = v.exp()
        try:
            raise ValueError
        except ValueError:
            a = a + eval("1")
        b = v * 2
    return a, b, v * 3, torch.is_grad_enabled()


def after_effects(v, seen):
    seen.append(v + 1)
    seen[0].add_(1)
    w = v.view(-1)
    w.mul_(2)
    try:
        raise ValueError
    except ValueError:
        seen.append(eval("len(seen)"))
    seen.append(w.sum())
    return w


@pytest.mark.parametrize(
    "fn",
    [
        in_a_handler,
        in_a_handler_below,
        in_a_finally,
        with_a_list_of_itself,
        with_nan,
        after_a_loop,
        in_a_loop,
        without_grad,
    ],
)
def test_alike(fn, backend):
    check(fn, (torch.rand(4),), (torch.rand(5, 2),), (torch.rand(3, requires_grad=True),), backend=backend, graphs=None)


def test_effects_happen_once(backend):
    check(after_effects, (torch.rand(2, 3), []), (torch.rand(2, 3), []), backend=backend, graphs=None)


@pytest.mark.plain_only("counts graphs")
@pytest.mark.parametrize(
    ("fn", "ops"),
    [
        (in_a_handler, ["exp", "mul"]),
        (in_a_finally, ["exp"]),
        (with_a_list_of_itself, ["exp"]),
        (with_nan, ["exp"]),
        (after_a_loop, ["mul", "add", "mul_1", "add_1", "mul_2", "add_2", "mul_3", "add_3"]),
    ],
)
def test_what_came_before_is_one_graph(fn, ops):
    graphs = Graphs()
    compiled = flambeau.compile(fn, backend=graphs)
    v = torch.rand(4)
    for _ in range(3):
        assert_same(compiled(v), fn(v))
    assert graphs.ops == [ops]


@pytest.mark.plain_only("counts graphs")
def test_what_the_rest_calls_is_compiled():
    def fn(v):
        v = v.exp()
        try:
            raise ValueError
        except ValueError:
            v = inner(v) + eval("1")
        return inner(v)

    graphs = Graphs()
    compiled = flambeau.compile(fn, backend=graphs)
    v = torch.rand(4)
    for _ in range(3):
        assert_same(compiled(v), fn(v))
    assert graphs.ops == [["exp"], ["sin", "cos"]]


def test_nothing_came_before(backend):
    def fn(v, flag):
        try:
            if flag:
                raise ValueError
        except ValueError:
            return v.exp() + eval("1")
        return v.exp() * 2

    v = torch.rand(4)
    check(fn, (v, True), (v, False), (v, True), backend=backend, graphs=None)


@pytest.mark.plain_only("counts graphs")
def test_the_way_that_can_be_traced_stays_whole():
    """What decided that the end cannot be reached is guarded."""

    def fn(v, flag):
        v = v.exp()
        if flag:
            try:
                raise ValueError
            except ValueError:
                return v + eval("1")
        return v * 2 - 1

    graphs = Graphs()
    compiled = flambeau.compile(fn, backend=graphs)
    v = torch.rand(4)
    for flag in (True, False, True, False):
        assert_same(compiled(v, flag), fn(v, flag))
    assert graphs.ops == [["exp"], ["exp", "mul", "sub"]]


@pytest.mark.skipif(not COUNTED, reason="counts traces")
def test_numbers_that_only_the_rest_reads():
    def fn(v):
        now = time.time()
        v = v.exp()
        try:
            raise ValueError
        except ValueError:
            return v + eval("1"), now > 5

    compiled = flambeau.compile(fn)
    v = torch.rand(4)
    before = flambeau.counters()["frames_traced"]
    for _ in range(100):
        assert_same(compiled(v), fn(v))
    assert flambeau.counters()["frames_traced"] - before <= 4


def test_sizes_that_only_the_rest_reads(backend):
    def fn(v, w):
        v = v.exp() * v.shape[0]
        try:
            raise ValueError
        except ValueError:
            w = w.neg() * w.shape[0]
            if w.shape[0] > 3:
                w = w * eval("2")
        return v.sum(), w

    cases = [(torch.rand(a, 2), torch.rand(b)) for a, b in [(2, 2), (3, 4), (4, 3), (5, 6), (2, 7)]]
    check(fn, *cases, backend=backend, graphs=None)


def test_traceback(backend):
    def fn(v):
        v = v.exp()
        try:
            raise ValueError("first")
        except ValueError:
            eval("v.nothing", {"v": v})

    def lines(f):
        with pytest.raises(AttributeError) as caught:
            f(torch.rand(4))
        found = [(frame.name, frame.lineno) for frame in traceback.extract_tb(caught.value.__traceback__)]
        context = caught.value.__context__
        return [entry for entry in found if entry[0] in ("fn", "<module>")], str(context), str(caught.value)

    compiled = flambeau.compile(fn, backend=backend)
    for _ in range(3):
        assert lines(compiled) == lines(fn)


class Held:
    pass


def test_ends_of_objects(backend):
    """The rest holds what the frame holds, and no more."""

    def fn(v, note):
        held = Held()
        other = Held()
        note(weakref.ref(held), weakref.ref(other))
        v = v.exp()
        try:
            raise ValueError
        except ValueError:
            v = v + eval("1")
        other = None
        note()
        return v

    def watched(f):
        seen = []

        def note(*refs):
            seen.extend(refs)
            gc.collect()
            seen.append([ref() is None for ref in seen if isinstance(ref, weakref.ref)])

        value = f(torch.ones(3), note)
        return value, [entry for entry in seen if isinstance(entry, list)]

    compiled = flambeau.compile(fn, backend=backend)
    for _ in range(3):
        assert_same(watched(compiled), watched(fn))


def test_gradients(backend):
    v = torch.rand(4, requires_grad=True)
    compiled = flambeau.compile(in_a_handler_below, backend=backend)
    for _ in range(2):
        expected, actual = (torch.autograd.grad(f(v).sum(), v)[0] for f in (in_a_handler_below, compiled))
        torch.testing.assert_close(actual, expected)


@pytest.mark.plain_only("a break of the mode comes first")
def test_whole_or_an_error():
    with pytest.raises(RuntimeError, match="eval"):
        flambeau.compile(in_a_handler, fullgraph=True)(torch.rand(4))
