"""Code that reads frames of Python's stack sees the user's frames with the user's locals; a debugger or a coverage tool
sees user lines as in eager."""

import contextlib
import inspect
import io
import logging
import pdb
import re
import sys
import traceback
import warnings
from collections import namedtuple

import pytest
import torch

import flambeau


def said(f, *args):
    """What a call prints, without addresses, and its result."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        result = f(*args)
    return re.sub(r"0x[0-9a-f]+", "0x", out.getvalue()), result.tolist()


def names_of(depth):
    return sorted(sys._getframe(depth).f_locals)


def own_locals(x):
    a = x + 1
    print(sorted(sys._getframe().f_locals))
    return a


def by_another_name(x):
    a = x + 1
    get = sys._getframe
    print(sorted(get(0).f_locals), get().f_code.co_name, get().f_lineno)
    return a


def of_the_caller(x):
    a = x + 1
    b = 5
    print(names_of(1), names_of(0))
    return a + b


def two_below(x):
    c = x * 2

    def below():
        d = 3
        print(names_of(1), names_of(2))
        return d

    return c + below()


def current_frame(x):
    a = x + 1
    frame = inspect.currentframe()
    print(sorted(frame.f_locals), frame.f_code.co_name, frame.f_lineno)
    return a


def whole_stack(x):
    a = x + 1
    stack = inspect.stack()
    print([(entry.function, entry.lineno) for entry in stack[:1]], sorted(stack[0].frame.f_locals))
    return a


def in_a_method(x):
    class Holder:
        def method(self, y):
            q = y + 3
            print(sorted(inspect.currentframe().f_locals))
            return q

    return Holder().method(x)


def summary_with_locals(x):
    a = x + 1
    summary = traceback.StackSummary.extract(traceback.walk_stack(None), limit=1, capture_locals=True)
    print(sorted(summary[0].locals))
    return a


def exception_with_locals(x):
    a = x + 1
    try:
        raise ValueError("told")
    except ValueError as error:
        told = traceback.TracebackException.from_exception(error, capture_locals=True)
        print("".join(told.format()))
    return a


def in_a_debugger(x):
    a = x + 1
    b = 7
    commands = io.StringIO("p b\nn\np sorted(locals())\nw\nc\n")
    pdb.Pdb(stdin=commands, stdout=sys.stdout, nosigint=True, readrc=False).set_trace()
    c = a + b
    return c + x


def at_a_breakpoint(x):
    b = 9
    before = sys.breakpointhook
    sys.breakpointhook = lambda *_: print(sorted(sys._getframe(1).f_locals))
    try:
        breakpoint()
    finally:
        sys.breakpointhook = before
    return x + b


READERS = [
    own_locals,
    by_another_name,
    of_the_caller,
    two_below,
    current_frame,
    whole_stack,
    in_a_method,
    summary_with_locals,
    exception_with_locals,
    pytest.param(in_a_debugger, marks=pytest.mark.plain_only("it shows the frame of the mode", "wrap")),
    at_a_breakpoint,
]


@pytest.mark.parametrize("reader", READERS, ids=lambda f: f.__name__)
def test_readers_see_the_users_locals(reader):
    x = torch.arange(3.0)
    compiled = flambeau.compile(reader, backend="eager")
    # One line for all: the walk up the stack goes by it.
    expected, *found = [said(fn, x) for fn in (reader, compiled, compiled)]
    assert found == [expected, expected]


@pytest.mark.parametrize("reader", READERS, ids=lambda f: f.__name__)
def test_readers_below_a_compiled_caller(reader):
    def caller(x):
        above = x * 2
        return reader(above) + above

    x = torch.arange(3.0)
    expected = said(caller, x)
    compiled = flambeau.compile(caller, backend="eager")
    for _ in range(2):
        found = said(compiled, x)
        assert found[1] == expected[1]
        assert [n for n in found[0].splitlines() if n.startswith("[")] == [
            n for n in expected[0].splitlines() if n.startswith("[")
        ]


@pytest.mark.plain_only("counts frames that are traced", "warm")
def test_who_reads_no_locals_is_compiled(caplog):
    """Loggers, warnings and named tuples look for names, files and lines."""

    def logs(x):
        y = x + 1
        logging.getLogger("frames").warning("seen")
        warnings.warn("told", stacklevel=2)
        Pair = namedtuple("Pair", "a b")
        return Pair(y, y).a * 2

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert flambeau.compile(logs, backend="eager")(torch.ones(2)).tolist() == [4, 4]
    assert [str(w.message) for w in caught if w.category is UserWarning] == ["told"]
    assert [(r.funcName, r.message) for r in caplog.records] == [("logs", "seen")]
    assert flambeau.counters()["frames_traced"] > 0


def test_a_tracer_sees_the_lines():
    def f(x):
        y = x + 1
        z = y * 2
        return z

    compiled = flambeau.compile(f)
    compiled(torch.ones(2))

    def lines(call):
        seen = []

        def trace(frame, event, _):
            if frame.f_code is f.__code__:
                seen.append((event, frame.f_lineno))
                return trace
            return None

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            call(torch.ones(2))
        finally:
            sys.settrace(before)
        return seen

    assert lines(compiled) == lines(f)
    hits = flambeau.counters()["cache"]["hits"]
    compiled(torch.ones(2))
    assert flambeau.counters()["cache"]["hits"] != hits, "once nobody watches, compiled frames run again"


if sys.version_info >= (3, 12):

    def test_a_coverage_tool_sees_the_lines():
        def f(x):
            y = x + 1
            return y * 2

        compiled = flambeau.compile(f)
        compiled(torch.ones(2))

        def lines(call):
            seen = []
            monitoring = sys.monitoring
            tool, line = monitoring.COVERAGE_ID, monitoring.events.LINE
            monitoring.use_tool_id(tool, "test")
            try:
                monitoring.register_callback(tool, line, lambda code, number: seen.append((code.co_name, number)))
                monitoring.set_events(tool, line)
                call(torch.ones(2))
            finally:
                monitoring.set_events(tool, 0)
                monitoring.register_callback(tool, line, None)
                monitoring.free_tool_id(tool)
            return [entry for entry in seen if entry[0] == "f"]

        assert lines(compiled) == lines(f)
