"""Frames that plain Python calls below a break, and what the hook gives in place of running them."""

import gc
import sys
import traceback
import weakref

import pytest
import torch
from frames import Frame

import flambeau
from flambeau._native import _testing

pytestmark = pytest.mark.plain_only("frames are made by hand")


def root(x):
    raise AssertionError("only its compiled frame runs")


def rest(state, value):
    return value


def gathering(x, *others, key=None, **more):
    raise AssertionError("only its compiled frame runs")


def failing(x):
    raise AssertionError("only its compiled frame runs")


def deep(n, x):
    return deep(n - 1, x) if n else gathering(x)


class Note:
    """Something that can be referred to weakly."""


NOTES = []


def breaking(action):
    """Compiled by hand: breaks, calls `action(x)` as plain Python, returns what that gives."""
    compiled = flambeau.compile(root, backend="eager")
    frame = Frame()
    x = frame.build({"Source": frame.source({"Arg": 0})})
    frame.breaks(frame.function(action), [x], {"Resume": frame.resume(rest, x)})
    _testing.put(compiled, frame.json(), root, torch.ones(2))
    ten_times = Frame()
    ten_times.returns(ten_times.call("_operator.mul", ten_times.placeholder(ten_times.source({"Arg": 0})), 10))
    _testing.put_below(compiled, ten_times.json(), gathering, torch.ones(2), None, (), {})
    again = Frame()
    again.breaks(again.function(raises), [], {"Resume": again.resume(rest)})
    _testing.put_below(compiled, again.json(), failing, torch.ones(2))
    return compiled


def raises():
    raise ValueError("from below")


def test_what_a_compiled_frame_gives_is_its_value():
    def action(x):
        return gathering(x), gathering(x, 1, 2, key=3, more=4)

    compiled = breaking(action)
    for _ in range(100):
        assert [y.tolist() for y in compiled(torch.ones(2))] == [[10, 10], [10, 10]]


@pytest.mark.provokes_internal("functions whose code raises have frames that do not")
def test_arguments_are_given_up_once():
    def action(x):
        note = Note()
        NOTES.append(weakref.ref(note))
        given = gathering(x, note, more=note)
        try:
            failing(x)
        except ValueError:
            return given

    compiled = breaking(action)
    x = torch.ones(2)
    compiled(x)
    gc.collect()
    counted = [x, gathering, gathering.__code__, failing, failing.__code__]
    before = [sys.getrefcount(each) for each in counted]
    for _ in range(500):
        compiled(x)
    assert [sys.getrefcount(each) for each in counted] == before
    assert len(NOTES) == 501 and all(note() is None for note in NOTES)


def test_what_a_compiled_frame_raises_is_its_exception():
    def action(x):
        return failing(x)

    compiled = breaking(action)
    for _ in range(100):
        with pytest.raises(ValueError, match="from below") as caught:
            compiled(torch.ones(2))
        names = [entry.name for entry in traceback.extract_tb(caught.value.__traceback__)]
        assert names[-2:] == ["action", "raises"]


def test_frames_end_wherever_they_are_on_the_stack():
    """Also where the frames of a thread go on in another piece of memory."""

    def action(x):
        return [deep(n, x) for n in range(200)]

    assert all(y.tolist() == [10, 10] for y in breaking(action)(torch.ones(2)))


def count_down(n):
    return count_down(n - 1) if n else sys._getframe().f_code.co_name


def test_programs_may_be_as_recursive_as_without_a_hook():
    def action(x):
        return count_down(600), count_down(20_000), gathering(x)

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(30_000)
    try:
        found = breaking(action)(torch.ones(2))
    finally:
        sys.setrecursionlimit(limit)
    assert found[:2] == ("count_down", "count_down")
    assert found[2].tolist() == [10, 10]


def test_frames_end_while_they_are_watched():
    """By a profiler: under a tracer of lines nothing compiled runs (`test_frame_readers.py`)."""
    seen = []

    def watch(frame, event, arg):
        seen.append((frame.f_code.co_name, event))
        return watch

    def action(x):
        try:
            failing(x)
        except ValueError:
            return gathering(x)

    compiled = breaking(action)
    sys.setprofile(watch)
    try:
        found = compiled(torch.ones(2))
    finally:
        sys.setprofile(None)
    assert found.tolist() == [10, 10]
    assert ("action", "call") in seen and ("action", "return") in seen
