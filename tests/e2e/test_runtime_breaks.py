"""Frames that end in a graph break: the action, the ways to go on, exceptions, the loop that drives resumes."""

import argparse
import ast
import asyncio
import dataclasses
import gc
import inspect
import sys
import threading
import traceback
import types
import typing
import weakref

import pytest
import torch
from frames import Frame, const

import flambeau
from flambeau._native import _testing

pytestmark = pytest.mark.plain_only("frames are made by hand")


def function(x):
    """Something to call."""
    return x


def broken(then, action, *args, catch=None):
    """A frame over `x` that doubles it, calls `action(*args)` and goes on; `args` of None stand for the double."""
    frame = Frame()
    x = frame.placeholder(frame.source({"Arg": 0}))
    double = frame.call("_operator.mul", x, 2)
    frame.outputs = [int(double)]
    live = frame.build({"Output": 0})
    args = [live if a is None else frame.build({"Const": const(a)}) for a in args]
    catch = catch and catch(frame, live)
    frame.breaks(frame.function(action), args, then(frame, live), catch)
    return frame


def resumed(state, value):
    return "resumed", state[0], value


def other(state, value):
    return "other", state[0], value


def to_resumed(frame, live):
    return {"Resume": frame.resume(resumed, live)}


def test_the_value_of_the_action_goes_to_the_resume_function():
    def action(a, b):
        return a, b

    x = torch.ones(2)
    kind, live, (a, b) = broken(to_resumed, action, None, 7).install(function, x)(x)
    assert kind == "resumed" and b == 7 and a is live and live.tolist() == [2, 2]


def test_the_value_of_the_action_may_be_the_frames():
    x = torch.ones(2)
    assert broken(lambda *_: "Return", lambda a: a + 1, 4).install(function, x)(x) == 5


@pytest.mark.parametrize("truth", [True, False])
def test_branches(truth):
    def then(frame, live):
        return {"Branch": {"yes": frame.resume(resumed, live), "no": frame.resume(other, live)}}

    x = torch.ones(2)
    kind, live, value = broken(then, lambda a: bool(a), truth).install(function, x)(x)
    assert (kind, live.tolist(), value) == ("resumed" if truth else "other", [2, 2], None)
    with pytest.raises(SystemError):
        broken(then, lambda a: 1, truth).install(function, x)(x)


def test_iterators():
    def then(frame, live):
        return {"Iterate": {"body": frame.resume(resumed, live), "done": frame.resume(other, live)}}

    x = torch.ones(2)
    assert broken(then, lambda: ((1, 2),)).install(function, x)(x)[::2] == ("resumed", (1, 2))
    assert broken(then, lambda: None).install(function, x)(x)[::2] == ("other", None)


def fails(a):
    raise KeyError(a)


def test_an_exception_leaves_where_nothing_handles_it():
    x = torch.ones(2)
    with pytest.raises(KeyError, match="why") as caught:
        broken(to_resumed, fails, "why").install(function, x)(x)
    assert [entry.name for entry in traceback.extract_tb(caught.tb)][1:] == ["fails"]


@pytest.mark.parametrize("frames", [0, 1, 5])
def test_a_handler_gets_the_exception_without_the_entries_of_thin_frames(frames):
    def handler(state, value):
        raise value[0]

    def outer(a):
        fails(a)

    def catch(frame, live):
        return {"resume": frame.resume(handler, live), "frames": frames}

    globals()["outer"] = outer
    x = torch.ones(2)
    with pytest.raises(KeyError, match="why") as caught:
        broken(to_resumed, outer, "why", catch=catch).install(function, x)(x)
    names = [entry.name for entry in traceback.extract_tb(caught.tb)][1:]
    assert names == ["handler", *["outer", "fails"][frames:]]
    assert caught.value.__context__ is None


def test_effects_come_before_the_action():
    seen = []
    table = {}

    def action(table, seen):
        seen.append(dict(table))

    frame = Frame()
    x = frame.placeholder(frame.source({"Arg": 0}))
    frame.outputs = [int(frame.call("_operator.mul", x, 2))]
    double = frame.build({"Output": 0})
    held, log = (frame.build({"Source": frame.source({"Arg": i})}) for i in (1, 2))
    key = frame.build({"Const": const("double")})
    frame.effects.append({"SetItem": [held, key, double]})
    frame.breaks(frame.function(action), [held, log], "Return")
    x = torch.ones(2)
    frame.install(function, x, table, seen)(x, table, seen)
    assert seen[0]["double"] is table["double"]


def test_what_nothing_needs_is_gone_when_the_action_runs():
    def action(ref):
        gc.collect()
        return ref()

    frame = Frame()
    x = frame.placeholder(frame.source({"Arg": 0}))
    frame.outputs = [int(frame.call("_operator.mul", x, 2))]
    frame.build({"Output": 0})
    made = frame.build({"Set": []})
    ref = frame.build({"Call": ["weakref.ref", [made]]})
    frame.breaks(frame.function(action), [ref], "Return")
    x = torch.ones(2)
    assert frame.install(function, x)(x) is None


STEPS = 10_000


def step(iterator):
    for item in iterator:
        return (item,)
    return None


def body(state, value):
    raise AssertionError("only its compiled frame runs")


def depth():
    """Frames on the stack."""
    frame, count = sys._getframe(), 0
    while frame:
        frame, count = frame.f_back, count + 1
    return count


def done(state, value):
    return state[1], depth()


def iterating(frame, iterator, total):
    """Ends the frame at a FOR_ITER."""
    then = {"body": frame.resume(body, iterator, total), "done": frame.resume(done, iterator, total)}
    frame.breaks(frame.function(step), [iterator], {"Iterate": then})


def loop(iterator, total):
    """Adds up what an iterator gives."""
    for item in iterator:
        total = total + item
    return total, depth()


def looping():
    """`loop`, compiled by hand."""
    compiled = flambeau.compile(loop, backend="eager")
    total = torch.zeros(())
    root = Frame()
    iterating(root, *(root.build({"Source": root.source({"Arg": i})}) for i in range(2)))
    _testing.put(compiled, root.json(), loop, iter(()), total)
    again = Frame()
    item, before = again.placeholder(again.source({"Arg": 1})), again.placeholder(again.path({"Arg": 0}, {"Index": 1}))
    again.outputs = [int(again.call("_operator.add", before, item))]
    iterating(again, again.build({"Source": again.path({"Arg": 0}, {"Index": 0})}), again.build({"Output": 0}))
    _testing.put(compiled, again.json(), body, (iter(()), total), 1)
    return compiled


def test_loops_run_at_constant_depth():
    found = []
    threading.stack_size(1 << 20)
    try:
        thread = threading.Thread(target=lambda: found.append(looping()(iter(range(STEPS)), torch.zeros(()))))
        thread.start()
        thread.join()
    finally:
        threading.stack_size(0)
    expected, deep = loop(iter(range(STEPS)), torch.zeros(()))
    assert found[0][0] == expected and found[0][1] <= deep


def test_a_resume_function_without_a_frame_runs_as_plain_python():
    compiled = flambeau.compile(loop, backend="eager")
    root = Frame()
    iterating(root, *(root.build({"Source": root.source({"Arg": i})}) for i in range(2)))
    total = torch.zeros(())
    _testing.put(compiled, root.json(), loop, iter(()), total)
    assert compiled(iter(()), total)[0] is total
    with pytest.raises(AssertionError, match="only its compiled frame"):
        compiled(iter([1]), total)


@pytest.mark.provokes_internal("the frame's graph is wrong")
def test_what_was_done_is_not_done_again():
    """A resume function whose frame fails runs as plain Python; the action before it is not repeated."""
    calls = []

    def root(calls, x):
        raise AssertionError("only its compiled frame runs")

    def action(calls):
        calls.append(1)

    def rest(state, value):
        return state[0] + 1

    compiled = flambeau.compile(root, backend="eager")
    frame = Frame()
    log, x = (frame.build({"Source": frame.source({"Arg": i})}) for i in range(2))
    frame.breaks(frame.function(action), [log], {"Resume": frame.resume(rest, x)})
    x = torch.ones(2, 3)
    _testing.put(compiled, frame.json(), root, calls, x)
    wrong = Frame()
    x_there = wrong.placeholder(wrong.path({"Arg": 0}, {"Index": 0}))
    wrong.returns(wrong.call("torch.mm", x_there, x_there))
    _testing.put(compiled, wrong.json(), rest, (x,), None)
    with pytest.warns(RuntimeWarning, match="ran eagerly"):
        torch.testing.assert_close(compiled(calls, x), x + 1)
    assert calls == [1]
    assert flambeau.counters()["eager_fallbacks"] == {"run_failed": 1}


def test_reset_forgets_resume_functions_and_nothing_keeps_objects_alive():
    model = torch.nn.Linear(2, 2)
    ref = weakref.ref(model)

    def root(model, x):
        raise AssertionError("only its compiled frame runs")

    def rest(state, value):
        return state[0](state[1])

    compiled = flambeau.compile(root, backend="eager")
    frame = Frame()
    parts = [frame.build({"Source": frame.source({"Arg": i})}) for i in range(2)]
    frame.breaks(frame.function(lambda: None), [], {"Resume": frame.resume(rest, *parts)})
    x = torch.ones(2)
    _testing.put(compiled, frame.json(), root, model, x)
    for _ in range(3):
        torch.testing.assert_close(compiled(model, x), model(x))
    assert len(flambeau._report.explanation(compiled).data["frames"]) == 2
    del model
    gc.collect()
    assert ref() is None
    flambeau.reset()
    with pytest.raises(AssertionError, match="only its compiled frame"):
        compiled(torch.nn.Linear(2, 2), x)
    assert flambeau._report.explanation(compiled).data["frames"] == []


def test_breaks_are_explained_once_per_line_with_how_often_they_were_reached():
    items = list(range(5))
    compiled = looping()
    compiled(iter(items), torch.zeros(()))
    found = flambeau._report.explanation(compiled)
    reached = [(b["reason"], b["count"], b["resumed"]) for b in found.data["breaks"] if b["detail"] == "made by a test"]
    assert reached == [("user_break", 6, True)]
    assert "graph break (6 times): user_break: made by a test." in str(found)


def test_ints_deep_in_arguments_become_symbolic():
    def scale(state, x):
        first, (second, [third]) = state
        return x * first * second * third

    compiled = flambeau.compile(scale, backend="eager")
    x = torch.ones(3)
    before = flambeau.counters()["frames_traced"]
    for n in range(5, 10):
        assert torch.equal(compiled((2, (3, [n])), x), scale((2, (3, [n])), x))
    assert flambeau.counters()["frames_traced"] - before == 2


def every_code(module):
    """The code objects of a module's functions and classes, nested ones included."""
    found, seen = [], set()

    def add(code):
        found.append(code)
        for part in code.co_consts:
            if isinstance(part, types.CodeType):
                add(part)

    def walk(thing):
        if id(thing) in seen:
            return
        seen.add(id(thing))
        if isinstance(thing, types.FunctionType):
            add(thing.__code__)
        elif isinstance(thing, type):
            for part in vars(thing).values():
                walk(getattr(part, "__func__", part))

    for thing in vars(module).values():
        if getattr(thing, "__module__", None) == module.__name__:
            walk(thing)
    return found


@pytest.mark.parametrize(
    "module", [argparse, ast, asyncio.tasks, dataclasses, inspect, traceback, typing, torch.nn.modules.module]
)
def test_a_code_object_made_anew_is_the_same(module):
    codes = every_code(module)
    assert len(codes) > 20
    for code in codes:
        made = _testing.same_code(code)
        assert made is not None and made is not code
        assert _testing.code_hash(made) == _testing.code_hash(code), code
        for name in (n for n in dir(code) if n.startswith("co_") and n not in ("co_consts", "co_lnotab")):
            there, here = getattr(made, name), getattr(code, name)
            assert (list(there()), name) == (list(here()), name) if callable(here) else there == here


def test_the_order_of_a_constant_set_is_no_part_of_a_code_object():
    def member(x):
        return x in {0, 8}

    codes = [member.__code__.replace(co_consts=(None, frozenset(items))) for items in ((0, 8), (8, 0))]
    assert list(codes[0].co_consts[1]) != list(codes[1].co_consts[1])
    assert _testing.code_hash(codes[0]) == _testing.code_hash(codes[1])


def test_a_parameter_that_is_a_cell_keeps_its_place():
    def outer(a, b, *c, d=1):
        e = a

        def inner():
            return a, c, e

        return inner, b, d

    made = _testing.same_code(outer.__code__)
    assert _testing.code_hash(made) == _testing.code_hash(outer.__code__)
    again = types.FunctionType(made, globals(), None, (4,), None)
    again.__kwdefaults__ = {"d": 1}
    assert again(1, 2, 3)[0]() == (1, (3,), 1)
    assert sys.getrefcount(made) > 1
