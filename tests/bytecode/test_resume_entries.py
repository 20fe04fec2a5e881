"""Single properties of resume and thin functions."""

import gc
import sys
import types
import warnings

import pytest
from assembler import AssembleError, Assembler


@pytest.fixture(scope="module")
def assembler():
    made = Assembler()
    yield made
    made.close()


def place(assembler, function, operation, nth=0):
    """Offsets of the nth such instruction and of the one behind it."""
    facts = assembler.facts(function.__code__)
    found = [i for i, f in enumerate(facts) if f[1].startswith(operation)][nth]
    return facts[found][0], facts[found + 1][0]


def callee():
    """A callable and the null of its call."""
    return ["Value", "Null"] if sys.version_info >= (3, 13) else ["Null", "Value"]


def made(function, code):
    return types.FunctionType(code, function.__globals__, function.__name__, None, function.__closure__)


class Point:
    def __init__(self, x):
        self.x = x


def constructs(x):
    try:
        point = Point(x)
    except ValueError as error:
        return "caught", str(error), x
    return point.x


def test_dropped_result(assembler):
    at, behind = place(assembler, constructs, "Call {")
    resume = made(constructs, assembler.resume(constructs.__code__, at, behind, [0], ["Value"], ["ChildDropped"]))

    def child(state, value):
        point, fails = state
        if fails:
            raise ValueError(value)
        point.x = value

    point = object.__new__(Point)
    assert resume((3, point, child, (point, False)), 5) == 5
    assert resume((3, point, child, (point, True)), 5) == ("caught", "5", 3)


def branches(a, b, c):
    if a:
        d = b
    else:
        d = 0
    for e in c:
        f = e
        d += f
    del b
    return d


def guarded(a, b):
    try:
        c = a()
        b = c
    except ValueError:
        return b
    return c


def cells(a, b):
    x = a
    y = b  # noqa: F841
    read = lambda: x
    z = x
    del z
    return read


def by_name(a, b):
    return a, eval("b")


@pytest.mark.parametrize(
    ("function", "operation", "nth", "entry", "live"),
    [
        (branches, "LoadFast(0)", 0, "Nothing", "bc"),
        (branches, "PopJumpIf", 0, "Nothing", "bc"),
        (branches, "StoreFast(3)", 0, "Nothing", "bcd"),
        (branches, "GetIter", 0, "Nothing", "bd"),
        (branches, "StoreFast(4)", 0, "Nothing", "bde"),
        (branches, "DeleteFast(1)", 0, "Nothing", "d"),
        (guarded, "Call", 0, "Value", "b"),
        (guarded, "Call", 0, "Raise", "b"),
        (guarded, "StoreFast(1)", 0, "Nothing", "c"),
        (guarded, "StoreFast(1)", 0, "Child", "bc"),
        (cells, "StoreDeref", 0, "Nothing", "bx"),
        (cells, "StoreFast(2)", 0, "Nothing", "x"),
        (cells, "MakeFunction", 0, "Nothing", "x"),
        (cells, "StoreFast(3)", 0, "Nothing", "rx"),
        (cells, "DeleteFast", 0, "Nothing", "r"),
        (by_name, "LoadFast(0)", 0, "Nothing", "ab"),
    ],
)
def test_live(assembler, function, operation, nth, entry, live):
    code = function.__code__
    found = assembler.live(code, *place(assembler, function, operation, nth), [entry])
    names = [*code.co_varnames, *(c for c in code.co_cellvars if c not in code.co_varnames)]
    assert "".join(sorted(n[0] for n, is_live in zip(names, found, strict=True) if is_live)) == live


# fmt: off
# fmt: off
def outer(f):
    return [
        inner(f)
    ]


def inner(f):
    return f(1,
             2)
# fmt: on


def test_thin_frames(assembler):
    """A callee sees its callers' names, lines and columns."""

    def seen(*args):
        frame, found = sys._getframe(1), []
        while frame.f_code.co_name in ("inner", "outer"):
            place = list(frame.f_code.co_positions())[frame.f_lasti // 2]
            found.append((frame.f_code.co_qualname, frame.f_lineno, frame.f_code.co_filename, place))
            frame = frame.f_back
        warnings.warn("here", stacklevel=3)
        return args, found

    def thin():
        at = place(assembler, inner, "Call {")[0]
        leaf = made(inner, assembler.thin_instr(inner.__code__, at, [*callee(), "Value", "Value"], ["Value"]))
        at = place(assembler, outer, "Call {")[0]
        return made(outer, assembler.thin_call(outer.__code__, at))(leaf, (seen, 1, 2))

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert outer(seen) == [thin()]
    first, second = caught
    assert first.lineno == second.lineno == outer.__code__.co_firstlineno + 2


# fmt: off
def generator(n):
    got = yield n
    print(abs(got))


def test_thin_frame_of_a_generator(assembler):
    at, _ = place(assembler, generator, "Call {")
    thin = made(generator, assembler.thin_instr(generator.__code__, at, [*callee(), "Value"], ["Value"]))
    assert thin(abs, -3) == 3
    assert made(generator, assembler.thin_call(generator.__code__, at))(thin, (abs, -4)) == 4


def steps(n):
    total = 0
    for i in range(n):
        total += abs(i)
        if i == 1:
            continue
        total -= 1
    return total


def lines(call):
    found = []

    def trace(frame, event, arg):
        if frame.f_code.co_name != "steps":
            return None
        found.append((event, frame.f_lineno - steps.__code__.co_firstlineno))
        return trace

    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(None)
    return found


def test_tracing(assembler):
    """Trace functions are told of one call and of the lines that follow."""
    whole = lines(lambda: steps(3))
    at, behind = place(assembler, steps, "Call {", 1)
    resume = made(steps, assembler.resume(steps.__code__, at, behind, [1, 2], ["Value", "Value"], ["Value"]))
    iterator = iter(range(3))
    next(iterator)
    found = lines(lambda: resume((0, 0, iterator, 0), 0))
    assert found[:2] == [("call", 0), ("line", 3)]
    assert found[2:] == whole[-len(found) + 2 :]
    assert len(found) > 10


def pairs(a, b):
    c, d = a
    e = c + b
    return e * d


def test_second_halves(assembler):
    """Versions with opcodes for two slots can be taken up between them."""
    at, _ = place(assembler, pairs, "StoreFast(3)")
    assert made(pairs, assembler.resume(pairs.__code__, at, at, [1, 2], ["Value"], ["Nothing"]))((3, 4, 5), None) == 35
    at, _ = place(assembler, pairs, "LoadFast(4)")
    assert made(pairs, assembler.resume(pairs.__code__, at, at, [3, 4], [], ["Nothing"]))((5, 7), None) == 35


def truths(a, b):
    try:
        if a < b:
            return "true"
        c = not a < b
    except ValueError as error:
        return str(error), error.__traceback__.tb_lineno - truths.__code__.co_firstlineno
    return c


@pytest.mark.parametrize(("operation", "line"), [("PopJumpIf", 2), ("Unary", 4)])
def test_truths(assembler, operation, line):
    """What a comparison gave, whose truth is still to be taken."""

    class Unclear:
        def __bool__(self):
            raise ValueError("unclear")

    at, _ = place(assembler, truths, operation)
    resume = made(truths, assembler.resume(truths.__code__, at, at, [0, 1], ["Value"], ["Nothing"]))
    assert resume((1, 2, [0]), None) == ("true" if operation == "PopJumpIf" else False)
    assert resume((2, 1, []), None) is True
    assert resume((2, 1, Unclear()), None) == ("unclear", line)
    code = assembler.thin_instr(truths.__code__, at, ["Value"], ["Truth" if operation == "PopJumpIf" else "Value"])
    assert made(truths, code)([0]) is (operation == "PopJumpIf")


def test_super(assembler):
    """`super()` finds the first parameter in its slot, even one that the function rebinds or shows."""

    class Base:
        def f(self):
            return self.name

    class Derived(Base):
        def __init__(self, name, other=None):
            self.name, self.other = name, other

        def f(self):
            self = self.other
            return super().f()

        def g(self):
            return super().f(), locals()

    one = Derived("one", Derived("two"))
    at, behind = place(assembler, Derived.f, "LoadAttr")
    resume = made(Derived.f, assembler.resume(Derived.f.__code__, at, behind, [0], [], ["Value"]))
    assert resume((one,), one.other) == "two"
    at, _ = place(assembler, Derived.g, "LoadGlobal")
    resume = made(Derived.g, assembler.resume(Derived.g.__code__, at, at, [0], [], ["Nothing"]))
    assert resume((one,), None)[1]["self"] is one


def test_refusals(assembler):
    at, behind = place(assembler, steps, "Call {")
    with pytest.raises(AssembleError, match="Slot"):
        assembler.resume(steps.__code__, at, behind, [7], [], ["Value"])
    with pytest.raises(AssembleError, match="Alone"):
        assembler.thin_instr(steps.__code__, at, [*reversed(callee()), "Value"], ["Value"])
    with pytest.raises(AssembleError, match="Alone"):
        assembler.thin_instr(steps.__code__, behind, ["Value"], ["None"])
    body = compile("f(x)\nf(y)", "file", "exec")
    with pytest.raises(AssembleError, match="NoFunction"):
        assembler.resume(body, *place(assembler, steps, "Call {"), [], [], ["Value"])
    resume = assembler.resume(steps.__code__, at, behind, [0, 1], [], ["Value"])
    with pytest.raises(AssembleError, match="InPrologue"):
        assembler.resume(resume, 0, place(assembler, made(steps, resume), "BinarySubscr")[0], [], [], ["Nothing"])


def holds(a, b):
    with a as c:
        for d in b:
            try:
                d(c, key=b)
            except KeyError as error:
                c = error
    return c


@pytest.mark.parametrize("entry", ["Value", "Child", "Raise"])
def test_references(assembler, entry):
    """A resume function keeps nothing of what it was given."""

    class Swallowing:
        def __enter__(self):
            return self

        def __exit__(self, *error):
            return True

    def fails(*args, **kwargs):
        raise (KeyError, ValueError)[len(calls) % 2]("fails")

    calls = []
    at, behind = place(assembler, holds, "Call")
    resume = made(holds, assembler.resume(holds.__code__, at, behind, [0, 1, 2], ["Value"] * 2, [entry]))
    manager, items = Swallowing(), [fails] * 3
    counts = None
    for _ in range(8):
        calls.append(1)
        more = (fails, (1,)) if entry == "Child" else ()
        value = (KeyError("given"), None) if entry == "Raise" else 1
        resume((manager, items, manager, manager.__exit__, iter(items), *more), value)
        del more, value
        gc.collect()
        now = [sys.getrefcount(o) for o in (manager, items, fails)]
        assert counts in (None, now)
        counts = now


def test_docstring(assembler):
    def documented(a, /, *args, b=1, **kwargs):
        "Text."
        return a(args, kwargs, b)

    at, behind = place(assembler, documented, "Call {")
    resume = made(documented, assembler.resume(documented.__code__, at, behind, [], [], ["Value"]))
    assert resume.__doc__ == "Text."
    assert resume((), 7) == 7
