"""The exception that is handled: what a bare `raise` raises, `sys.exc_info()`, `__context__` and `__cause__`."""

import contextlib
import sys

import pytest
import torch
from mode import COUNTED

import flambeau

X = torch.arange(3.0)


def links(error):
    """The exceptions that an exception leads to, as texts."""
    found = []
    while error is not None and len(found) < 9:
        found.append((type(error).__name__, str(error), repr(error.__cause__), error.__suppress_context__))
        error = error.__context__
    return found


def said(error):
    return type(error).__name__, str(error)


def within():
    try:
        try:
            raise KeyError("first")
        except KeyError:
            raise ValueError("second")  # noqa: B904
    except ValueError as error:
        return links(error)


def from_another():
    found = []
    for cause in (None, KeyError, KeyError("given")):
        try:
            try:
                1 / 0  # noqa: B018
            except ZeroDivisionError:
                raise ValueError("second") from cause
        except ValueError as error:
            found.append(links(error))
    return found


def keeps_its_cause():
    """Raised again without `from`."""
    try:
        try:
            raise ValueError("a") from KeyError("b")
        except ValueError as error:
            raise error
    except ValueError as error:
        return links(error)


def in_a_circle():
    try:
        try:
            raise KeyError("a")
        except KeyError as first:
            try:
                raise ValueError("b")
            except ValueError:
                raise first  # noqa: B904
    except KeyError as error:
        return links(error)


def through_frames():
    def below():
        raise TypeError("below")

    def between():
        try:
            below()
        finally:
            [].pop()

    try:
        try:
            raise KeyError("outer")
        except KeyError:
            between()
    except IndexError as error:
        return links(error)


def handled_by_a_generator():
    def generator():
        try:
            raise KeyError("inside")
        except KeyError:
            yield sys.exc_info()[0]
            yield said(sys.exception())

    waiting = generator()
    found = [next(waiting), sys.exc_info()[0], str(sys.exception())]
    try:
        raise
    except Exception as error:
        found.append(said(error))
    try:
        raise ValueError("outside")
    except ValueError as error:
        found += [next(waiting), said(sys.exception()), links(error)]
    return found, list(waiting)


def thrown_into_a_generator():
    def generator():
        try:
            yield 1
        except KeyError as error:
            try:
                raise ValueError("answer")
            except ValueError as answer:
                yield links(answer), links(error)

    waiting = generator()
    next(waiting)
    try:
        raise IndexError("handled")
    except IndexError:
        return waiting.throw(KeyError("thrown"))


def thrown_into_delegates():
    told = []

    def inner(name):
        try:
            for i in range(3):
                try:
                    yield name, i
                except KeyError as error:
                    told.append(links(error))
                    yield "caught", str(error)
        except IndexError:
            return "ended"
        finally:
            told.append(f"{name} over")

    def outer():
        for name in ("a", "b", "c"):
            try:
                told.append((yield from inner(name)))
            except ValueError as error:
                told.append(("outer", links(error)))
                yield "again"

    waiting = outer()
    found = [next(waiting), waiting.throw(KeyError("k")), next(waiting), waiting.throw(IndexError), next(waiting)]
    found += [waiting.throw(ValueError("v")), next(waiting), next(waiting)]
    closes = outer()
    next(closes)
    closes.close()
    try:
        waiting.throw(TypeError("t"))
    except TypeError as error:
        found.append(links(error))
    return found, told, list(waiting), list(closes)


def stops_within_a_generator():
    def generator():
        yield 1
        raise StopIteration(3)

    try:
        return list(generator())
    except RuntimeError as error:
        return links(error)


def of_managers():
    @contextlib.contextmanager
    def told(found):
        try:
            yield
        except ValueError as error:
            found.append(links(error))
            raise KeyError("from the manager")  # noqa: B904

    found = []
    try:
        with told(found), contextlib.suppress(TypeError):
            raise ValueError("from the block")
    except KeyError as error:
        found.append(links(error))
    return found


def of_a_stack():
    found = []

    def callback(*args):
        found.append([None if a is None else getattr(a, "__name__", "object") for a in args[:1]])
        return True

    with contextlib.ExitStack() as stack:
        stack.push(callback)
        raise ValueError("from the block")
    with contextlib.ExitStack() as stack:
        stack.callback(found.append, 3)
    return found


def set_by_hand():
    try:
        raise ValueError("a")
    except ValueError as error:
        error.__cause__ = KeyError("b")
        before = links(error)
        error.__suppress_context__ = False
        return before, links(error)


def raised_again():
    def again():
        raise

    try:
        try:
            raise KeyError("a")
        except KeyError:
            again()
    except KeyError as error:
        return links(error), sys.exc_info()[1] is error, sys.exc_info()[0]


PROGRAMS = [
    *(within, from_another, keeps_its_cause, in_a_circle, through_frames, handled_by_a_generator),
    *(
        thrown_into_a_generator,
        thrown_into_delegates,
        stops_within_a_generator,
        of_managers,
        of_a_stack,
        set_by_hand,
        raised_again,
    ),
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
@pytest.mark.parametrize("where", ["alone", "handled"])
def test_as_eager(program, where):
    def called(x):
        return x + 1, program()

    def call(fn):
        if where == "alone":
            return fn(X)
        try:
            raise LookupError("of the caller")
        except LookupError:
            return fn(X)

    compiled = flambeau.compile(called)
    for _ in range(2):
        (tensor, got), (expected_tensor, expected) = call(compiled), call(called)
        assert torch.equal(tensor, expected_tensor)
        assert got == expected


@pytest.mark.parametrize("program", [within, from_another, keeps_its_cause, in_a_circle, through_frames, raised_again])
def test_whole(program):
    compiled = flambeau.compile(lambda x: (x + 1, program()))
    compiled(X)
    assert not COUNTED or flambeau.counters()["graph_breaks"] == {}


def test_callers_that_handle_now_and_then():
    def called(x):
        try:
            raise
        except RuntimeError:
            return x + 1, "none"
        except KeyError as error:
            return x * 2, str(error)

    def context(x):
        try:
            raise ValueError
        except ValueError as error:
            return x + 1, type(error.__context__)

    for fn in (called, context):
        compiled = flambeau.compile(fn)
        for _ in range(2):
            assert str(compiled(X)) == str(fn(X))
            try:
                raise KeyError("of the caller")
            except KeyError:
                assert str(compiled(X)) == str(fn(X))


@pytest.mark.parametrize(
    "kinds", [int, (ValueError, list), (list, ValueError), BaseException, (), (KeyError, Exception)]
)
def test_what_is_caught_is_an_exception(kinds):
    def program(x):
        try:
            try:
                raise ValueError("first")
            except kinds:
                return x + 1, "caught"
        except Exception as error:
            return x + 2, type(error), str(error), str(error.__context__)

    compiled = flambeau.compile(program)
    for _ in range(2):
        assert str(compiled(torch.ones(1))) == str(program(torch.ones(1)))
