"""Control flow where a tracer is easily wrong: generators, exceptions, `finally`, `with`. PYTEST_DONT_REWRITE."""

# ruff: noqa

import contextlib
import functools
import itertools
import math
import operator
from collections import ChainMap, Counter, OrderedDict, defaultdict, deque, namedtuple

import pytest
import torch
from support import check, inputs

import flambeau


def generators(a, b):
    def gen(n):
        got = yield n
        while got is not None:
            got = yield got * 2
        return "end"

    def outer():
        result = yield from gen(1)
        yield result

    g = outer()
    values = [next(g), g.send(5), g.send(6), next(g)]
    try:
        next(g)
    except StopIteration as stop:
        values.append(stop.value)
    return values, a + 1


def generator_laziness(a, b):
    seen = []

    def gen():
        for i in range(4):
            seen.append(i)
            yield i

    g = gen()
    first = next(g)
    second = any(x > 0 for x in g)
    g.close()
    return first, second, seen, list(g), a + len(seen)


def generator_throw(a, b):
    seen = []

    def gen():
        try:
            yield 1
        except ValueError as error:
            seen.append(str(error))
            yield 2
        finally:
            seen.append("finally")

    g = gen()
    next(g)
    got = g.throw(ValueError("x"))
    rest = list(g)
    return got, rest, seen, a + 1


def iterators_shared(a, b):
    it = iter([1, 2, 3, 4, 5])
    pairs = list(zip(it, it))
    return pairs, list(it), next(it, "done"), a + 1


def itertools_mix(a, b):
    return (
        list(itertools.chain([1], (2, 3))),
        list(itertools.islice(itertools.count(3, 2), 3)),
        list(itertools.product([1, 2], "ab")),
        list(itertools.zip_longest([1], [2, 3], fillvalue=0)),
        list(itertools.accumulate([1, 2, 3])),
        list(itertools.combinations(range(3), 2)),
        list(itertools.repeat(1, 2)),
        list(itertools.starmap(operator.add, [(1, 2)])),
        list(itertools.takewhile(lambda x: x < 2, [1, 2, 1])),
        list(itertools.pairwise([1, 2, 3])),
        a + 1,
    )


def finally_order(a, b):
    log = []

    def f(n):
        for i in range(3):
            try:
                if i == n:
                    return i
                if i == 1:
                    continue
                log.append(("body", i))
            except ValueError:
                log.append("never")
            else:
                log.append(("else", i))
            finally:
                log.append(("finally", i))
        return None

    return f(0), f(1), f(5), log, a + 1


def finally_overrides(a, b):
    def f():
        try:
            raise ValueError("lost")
        finally:
            return 3  # noqa: B012

    return f(), a + 1


def exception_chain(a, b):
    try:
        try:
            raise KeyError("first")
        except KeyError as error:
            raise ValueError("second") from error
    except ValueError as error:
        return type(error.__cause__).__name__, str(error.__cause__), a + 1


def exception_context(a, b):
    try:
        try:
            raise KeyError("first")
        except KeyError:
            raise ValueError("second")  # noqa: B904
    except ValueError as error:
        return type(error.__context__).__name__, a + 1


def exception_traceback(a, b):
    try:
        raise KeyError("x")
    except KeyError as error:
        return error.__traceback__ is None, a + 1


def exception_after_effects(items, a):
    items.append(a + 1)
    raise RuntimeError(f"after {len(items)}")


def exception_after_mutation(a, b):
    a.add_(1)
    b[0] = 9
    return [1][a.dim() + 5]


def reraise(a, b):
    log = []
    try:
        try:
            1 / 0  # noqa: B018
        except ZeroDivisionError:
            log.append("inner")
            raise
    except ArithmeticError as error:
        log.append(str(error))
    return log, a + 1


def builtin_errors(a, b):
    results = []
    for f in (
        lambda: [1][5],
        lambda: {}["x"],
        lambda: int("q"),
        lambda: (1).nope,
        lambda: "a" + 1,
        lambda: 1 // 0,
        lambda: 1 % 0,
        lambda: len(3),
        lambda: [].pop(),
        lambda: iter(3),
        lambda: "abc".index("z"),
        lambda: [1, 2].index(5),
        lambda: (1, 2).index(5),
        lambda: float("x"),
        lambda: undefined_name,  # noqa: F821
        lambda: math.sqrt(-1),
        lambda: next(iter([])),
        lambda: sorted([1, "a"]),
        lambda: min([]),
        lambda: chr(-1),
        lambda: [] < 1,
        lambda: 1.5 << 2,
        lambda: -"a",
        lambda: {1: 2}[[]],
        lambda: None[0],
        lambda: None(),
        lambda: [1, 2, 3]["a"],
        lambda: (1, 2) + [1],
        lambda: 10**400 * 1.0,
        lambda: getattr(3, "x"),  # noqa: B009
        lambda: setattr(3, "x", 1),
        lambda: dict([1]),
        lambda: "%d" % "x",
        lambda: "{}".format(),
        lambda: "a".join([1]),
    ):
        try:
            results.append(f())
        except Exception as error:
            results.append((type(error).__name__, str(error)))
    return results, a + 1


class Tracker:
    def __init__(self, log, name, swallow=False):
        self.log, self.name, self.swallow = log, name, swallow

    def __enter__(self):
        self.log.append(("enter", self.name))
        return self

    def __exit__(self, kind, error, trace):
        self.log.append(("exit", self.name, kind and kind.__name__, str(error), trace is None))
        return self.swallow


def with_statements(a, b):
    log = []
    with Tracker(log, "a") as t, Tracker(log, "b", True):
        log.append(t.name)
    return log, a + 1


def with_exception(a, b):
    log = []
    try:
        with Tracker(log, "a"), Tracker(log, "b", True):
            raise ValueError("x")
        log.append("after")
        with Tracker(log, "c"):
            raise ValueError("y")
    except ValueError as error:
        log.append(str(error))
    return log, a + 1


def with_return(a, b):
    log = []

    def f():
        with Tracker(log, "a"):
            for i in range(3):
                with Tracker(log, i):
                    if i == 1:
                        return i

    return f(), log, a + 1


@contextlib.contextmanager
def managed(log):
    log.append("before")
    try:
        yield len(log)
    except KeyError:
        log.append("caught")
    finally:
        log.append("after")


def context_manager(a, b):
    log = []
    with managed(log) as n:
        log.append(n)
    with managed(log):
        raise KeyError("x")
    return log, a + 1


def suppress_and_stack(a, b):
    with contextlib.suppress(KeyError):
        {}["x"]
    with contextlib.nullcontext(5) as five:
        pass
    log = []
    with contextlib.ExitStack() as stack:
        stack.enter_context(Tracker(log, "s"))
        stack.callback(log.append, 1)
    return five, log, a + 1


ALL = [
    generators, generator_laziness, generator_throw, iterators_shared, itertools_mix, finally_order,
    finally_overrides, exception_chain, exception_context, exception_traceback, reraise, builtin_errors,
    with_statements, with_exception, with_return, context_manager, suppress_and_stack, exception_after_mutation,
]  # fmt: skip
# These may run eagerly as a whole; what counts is that they are right.
BREAKS = {
    builtin_errors,
    exception_after_mutation,
    exception_context,
    exception_traceback,
    itertools_mix,
    suppress_and_stack,
}


@pytest.mark.parametrize("fn", ALL, ids=lambda f: f.__name__)
def test_semantics(fn, backend):
    check(fn, inputs(), backend=backend, graphs=None if fn in BREAKS else 1)


def test_effects_before_an_exception(backend):
    check(exception_after_effects, ([1], torch.randn(3)), backend=backend, graphs=None)


def one_key(x, *, key):
    return x


MISTAKES = {
    "an argument too many": lambda: one_key(1, 2, key=3),
    "a missing argument": lambda: one_key(1),
    "an unknown argument": lambda: one_key(1, key=2, other=3),
    "an argument twice": lambda: one_key(1, x=2, key=3),
    "a method of a built-in type": lambda: "hello".capitalize(42),
    "an operator": lambda: [] + {},
    "merged keywords": lambda: one_key(1, **{"key": 1}, **{"key": 2}),
    "a property without setter": lambda: setattr(contextlib.nullcontext, "__dict__", 1),
    "an instance of a built-in type": lambda: setattr(3, "name", 1),
}


@pytest.mark.parametrize("kind", MISTAKES)
def test_messages_that_python_words(kind, backend):
    """What raised is left to plain Python once its message is read: before and after that the frame is compiled."""
    mistake = MISTAKES[kind]

    def read(log):
        try:
            log.append("before")
            mistake()
        except Exception as error:
            return type(error).__name__, str(error), error.args
        finally:
            log.append("after")

    def f(a, b):
        c = a * 2
        log = []
        told = read(log)
        log.append(len(told[1]))
        return told, log, c + b

    before = flambeau.counters()["graphs"]
    check(f, inputs(), backend=backend, graphs=None)
    assert flambeau.counters()["graphs"] > before


def test_messages_of_several_mistakes(backend):
    def f(a, b):
        told = []
        for mistake in MISTAKES.values():
            try:
                mistake()
            except Exception as error:
                a = a + 1
                told.append(str(error))
        return told, a + b

    check(f, inputs(), backend=backend, graphs=None)


def missing_halves_of_managers(x):
    class OnlyEnter:
        def __enter__(self):
            return self

    class OnlyExit:
        def __exit__(self, *args):
            return None

    said = []
    for make in (OnlyEnter, OnlyExit, int):
        try:
            with make():
                x = x + 1
        except Exception as error:
            said.append((type(error).__name__, str(error)))
    return x, said


def thrown_that_is_no_exception(x):
    class Odd(Exception):
        def __new__(cls, *args):
            return cls

    def numbers():
        yield 1

    said = []
    for give in (lambda: numbers().throw(Odd), lambda: [].throw):
        try:
            give()
        except Exception as error:
            said.append(type(error).__name__)
    return x, said


def tee_that_enters_itself(x):
    class Again:
        def __iter__(self):
            return self

        def __next__(self):
            return next(self.other)

    again = Again()
    first, again.other = itertools.tee(again)
    try:
        next(first)
    except RuntimeError as error:
        return x, str(error)
    return x


@pytest.mark.parametrize("f", [missing_halves_of_managers, thrown_that_is_no_exception, tee_that_enters_itself])
def test_exceptions_are_those_of_python(f):
    assert str(flambeau.compile(f)(torch.ones(1))) == str(f(torch.ones(1)))
