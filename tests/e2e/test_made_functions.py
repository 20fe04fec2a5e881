"""Functions that compiled code makes: their attributes in the trace, and after they left the frame."""

import functools
import inspect

import pytest
import torch
from mode import COUNTED
from support import check

import flambeau

#: From 3.12 on `functools.wraps` reads the type parameters of a function from outside, which is a break.
COPIES_TYPE_PARAMETERS = "__type_params__" in functools.WRAPPER_ASSIGNMENTS


def outside(x, scale: float = 2.0) -> torch.Tensor:
    """Scales."""
    return x * scale


def facts(function):
    """All that a user sees of a function."""
    return (
        function.__name__,
        function.__qualname__,
        function.__module__,
        function.__doc__,
        function.__annotations__,
        sorted(name for name in function.__dict__ if name != "__wrapped__"),
        getattr(function, "__type_params__", ()),
    )


def wraps_a_new_one(x):
    def add(x: int, y=1) -> "some":  # noqa: F821
        "adds"
        return x + y

    add.kind = "binary"

    @functools.wraps(add)
    def wrapped(*args):
        return add(*args) * 2

    return wrapped(x), facts(wrapped), wrapped.__wrapped__ is add, wrapped.kind


def wraps_an_outside_one(x):
    @functools.wraps(outside)
    def wrapped(*args):
        return outside(*args) + 1

    return wrapped(x), facts(wrapped), wrapped.__wrapped__ is outside


def wraps_twice(x):
    def tagged(tag):
        def decorate(fn):
            @functools.wraps(fn)
            def inner(*args):
                return fn(*args) + tag

            inner.tags = (*getattr(fn, "tags", ()), tag)
            return inner

        return decorate

    @tagged(1)
    @tagged(2)
    def f(x):
        return x

    return f(x), f.tags, f.__name__, f.__wrapped__.tags, hasattr(f.__wrapped__.__wrapped__, "tags")


def names_and_docs(x):
    def f():
        "says"

    g = lambda: 0
    before = facts(f), facts(g)
    f.__name__, f.__qualname__, f.__module__, f.__doc__ = "named", "a.named", None, ["any"]
    g.__doc__ = "text"
    g.__module__ = 3
    after = facts(f), facts(g)
    del f.__doc__
    del g.__module__
    return x + 1, before, after, f.__doc__, g.__module__


def annotations(x):
    def plain(a):
        pass

    def noted(a: int, *b: float, c: torch.Tensor = None) -> list:
        pass

    same = plain.__annotations__ is plain.__annotations__
    plain.__annotations__["a"] = str
    kept = noted.__annotations__
    noted.__annotations__ = None
    return x + 1, same, plain.__annotations__, kept, noted.__annotations__, kept is noted.__annotations__


def attributes(x):
    def f():
        f.calls += 1
        return f.calls

    stored = [f]
    f.calls = 0
    f.__custom__ = "c"
    f.__dict__["direct"] = 1
    f.__dict__.update(more=2, calls=5)
    stored[0].by_list = 3
    f()
    had = hasattr(f, "direct")
    del f.direct
    return x + f.calls, dict(f.__dict__), had, hasattr(f, "direct"), getattr(f, "gone", "default"), stored[0].calls


def data_descriptors_come_first(x):
    def f():
        pass

    f.__dict__["__name__"] = "other"
    f.__dict__["__call__"] = 1
    return x + 1, f.__name__, dict(f.__dict__), f.__call__


@pytest.mark.parametrize(
    "fn",
    [
        wraps_a_new_one,
        wraps_an_outside_one,
        wraps_twice,
        names_and_docs,
        annotations,
        attributes,
        data_descriptors_come_first,
    ],
    ids=lambda f: f.__name__,
)
def test_attributes_in_the_trace(fn):
    check(fn, (torch.ones(3),), (torch.zeros(2),), graphs=None)
    assert flambeau.counters()["graph_breaks"] == {} or not COUNTED or COPIES_TYPE_PARAMETERS


def errors(x):
    def f():
        pass

    said = []
    for name, value in [
        ("__name__", 1),
        ("__qualname__", None),
        ("__annotations__", 1),
        ("__annotations__", ()),
        ("__name__", b"n"),
    ]:
        try:
            setattr(f, name, value)
        except TypeError as error:
            said.append(str(error))
    for name in ("__name__", "__qualname__"):
        try:
            delattr(f, name)
        except TypeError as error:
            said.append(str(error))
    for act in (lambda: f.missing, lambda: delattr(f, "missing")):
        try:
            act()
        except AttributeError as error:
            said.append(type(error))
    return x + 1, said, facts(f)


def test_errors():
    check(errors, (torch.ones(3),))
    assert flambeau.counters()["graph_breaks"] == {} or not COUNTED


def leaves_with_all(x):
    def add(a: int, b: "text" = 1, *, c: float = 2.0) -> torch.Tensor:  # noqa: F821
        "adds"
        return x + a + b + c

    add.calls = {"n": 0}
    add.self = add
    add.__name__ = "sum_up"
    return x + 1, add


def leaves_wrapped(x):
    def decorate(fn):
        @functools.wraps(fn)
        def inner(*args):
            inner.calls += 1
            return fn(*args) * 2

        inner.calls = 0
        return inner

    @decorate
    def base(y):
        "doubles"
        return y + x

    base(x)
    return [base, {"again": base}, decorate(outside)]


def test_leaving_the_frame():
    x = torch.ones(3)
    for fn in (leaves_with_all, leaves_wrapped):
        compiled = flambeau.compile(fn)
        for _ in range(2):
            got, want = compiled(x), fn(x)
            if fn is leaves_with_all:
                pairs = [(got[1], want[1])]
                assert got[1].self is got[1]
                assert got[1].calls == {"n": 0}
                assert torch.equal(got[1](1), want[1](1))
            else:
                pairs = [(got[0], want[0]), (got[2], want[2]), (got[0].__wrapped__, want[0].__wrapped__)]
                assert got[1]["again"] is got[0]
                assert (got[0].calls, got[2].calls) == (1, 0)
                assert torch.equal(got[0](x), want[0](x))
                assert got[0].calls == want[0].calls == 2
                assert got[2].__wrapped__ is outside
            for a, b in pairs:
                assert facts(a) == facts(b)
                assert inspect.signature(a) == inspect.signature(b)
                assert repr(a).split(" at ")[0] == repr(b).split(" at ")[0]
    assert flambeau.counters()["graph_breaks"] == {} or not COUNTED or COPIES_TYPE_PARAMETERS


def test_seen_across_a_break():
    """What plain Python gets at a break has the attributes, and what it sets is seen after."""
    seen = []

    @flambeau.disable
    def look(function):
        seen.append(facts(function))
        function.__name__ = function.__name__ + "'"
        function.count += 1

    def f(x):
        def inner(y: int):
            "doc"
            return y * 2

        inner.count = 1
        inner.__qualname__ = "renamed"
        kept = [inner]
        look(inner)
        inner.count += 1
        return inner(x), facts(inner), kept[0].count

    x = torch.ones(2)
    got, want = flambeau.compile(f)(x), f(x)
    assert torch.equal(got[0], want[0])
    assert got[1:] == want[1:]
    assert seen[0] == seen[1]


def test_names_of_generators():
    """A generator has the names that its function had when it was called."""

    def f(x):
        def numbers():
            yield x
            yield x + 1

        first = numbers()
        numbers.__name__ = "renamed"
        second = numbers()
        numbers.__qualname__ = "again"
        next(second)
        return first, second, numbers

    x = torch.ones(2)
    got, want = flambeau.compile(f)(x), f(x)
    assert [g.__name__ for g in got] == [g.__name__ for g in want] == ["numbers", "renamed", "renamed"]
    assert [g.__qualname__ for g in got] == [g.__qualname__ for g in want]
    for a, b in zip(got[:2], want[:2], strict=True):
        assert all(torch.equal(m, n) for m, n in zip(a, b, strict=True))


def test_identity_of_what_was_set():
    def f(x, text, notes):
        def inner():
            pass

        inner.__doc__ = text
        inner.__annotations__ = notes
        inner.__name__ = text
        notes["later"] = 1
        return x + 1, inner, inner.__annotations__ is notes

    text, notes = "".join(["a", "b"]), {"x": 1}
    result = flambeau.compile(f)(torch.ones(1), text, notes)
    assert result[1].__doc__ is text
    assert result[1].__annotations__ is notes
    assert result[2] and notes == {"x": 1, "later": 1}
    assert flambeau.counters()["graph_breaks"] == {} or not COUNTED


def test_names_of_functions_from_outside_are_taken_over_as_they_are():
    def given():
        pass

    def f(x, fn):
        def inner():
            pass

        inner.__name__, inner.__qualname__, inner.__module__ = fn.__name__, fn.__qualname__, fn.__module__
        return x, inner

    for _ in range(2):
        inner = flambeau.compile(f)(torch.ones(1), given)[1]
        assert inner.__name__ is given.__name__ and inner.__qualname__ is given.__qualname__
        assert inner.__module__ is given.__module__
