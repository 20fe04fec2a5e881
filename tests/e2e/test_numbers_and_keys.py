"""Numbers of C beside their subclasses, what is equal as a key, what asks for lengths, and exhausted iterators."""

import datetime
import itertools
import operator
import types

import pytest
import torch
from mode import PROCESS

import flambeau

X = torch.arange(3.0)


def asked(name):
    def method(self, *others):
        return name

    return method


REFLECTED = ["radd", "rsub", "rmul", "rtruediv", "rfloordiv", "rmod", "rpow", "rlshift", "rand", "lt", "gt", "eq", "ne"]
METHODS = {f"__{n}__": asked(n) for n in REFLECTED} | {"__hash__": None}
Whole = type("Whole", (int,), dict(METHODS))
Real = type("Real", (float,), dict(METHODS))
OPERATORS = "add sub mul truediv floordiv mod pow lshift and_ lt gt eq ne".split()


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("left", [2.5, 1j, 2, True, Whole(3), Real(1.5)], ids=lambda v: type(v).__name__)
@pytest.mark.parametrize("right", [Whole(3), Real(1.5)], ids=lambda v: type(v).__name__)
def test_a_number_of_c_answers_before_what_is_no_subclass_of_it(name, left, right):
    apply = getattr(operator, name)

    def f(x):
        try:
            return apply(left, right), x + 1
        except TypeError as error:
            return str(error), x + 1

    expected, got = f(X)[0], flambeau.compile(f)(X)[0]
    assert (
        type(got) is type(expected) and int.__repr__(got) == int.__repr__(expected)
        if isinstance(got, int)
        else (got == expected)
    )


A, B = datetime.date(2020, 1, 1), datetime.date(2020, 1, 1)
NAMESPACE = types.SimpleNamespace(a=1)


class Own(dict):
    def keys(self):
        return ["z"]

    def __iter__(self):
        return iter(["z"])

    def __getitem__(self, key):
        return key


OWN = Own(a=1)


def digits(n):
    return round(2.567, n)


class Counted:
    def __init__(self):
        self.log = []
        self.at = 0

    def __iter__(self):
        self.log.append("iter")
        return self

    def __next__(self):
        self.log.append("next")
        self.at += 1
        if self.at > 3:
            raise StopIteration
        return self.at

    def __length_hint__(self):
        self.log.append("hint")
        return 3


def consumed(consume):
    counted = Counted()
    return consume(counted), counted.log


def unpacked(it):
    a, *b = it
    return a, b


def refused(call):
    try:
        return call()
    except Exception as error:
        return type(error).__name__, str(error)


def exhausted(make):
    it = make()
    for _ in it:
        pass
    return it


PROGRAMS = {
    "dates": lambda: (len({A, B}), {A: 1}.get(B), B in [A]),
    "unhashable": lambda: refused(lambda: {NAMESPACE: 1}),
    "built-ins are no text": lambda: ("builtins.len" in {len: 1}, {"builtins.len": 1}.get(len), len in {len: 1}),
    "copy of an own dict": lambda: OWN.copy(),
    "views": lambda: [(k is k, k == k) for k in [{1: 2}.values()]],
    "super of a class": lambda: (super(type, int).__repr__()[:5], super(type, dict).__str__()[:5]),
    "ragged": lambda: refused(lambda: torch.tensor([1, [2]]).shape),
    "iterators are no data": lambda: refused(lambda: torch.tensor(iter([1, 2])).shape),
    "list": lambda: consumed(list),
    "extend": lambda: consumed(lambda it: [0].extend(it)),
    "stars": lambda: consumed(lambda it: [*it]),
    "arguments": lambda: consumed(lambda it: max(*it)),
    "unpacked": lambda: consumed(unpacked),
    "combinations": lambda: consumed(lambda it: list(itertools.combinations(it, 2))),
    "product": lambda: consumed(lambda it: list(itertools.product(it, repeat=2))),
}


@pytest.mark.parametrize(
    "program",
    [pytest.param(p, marks=PROCESS if name == "super of a class" else (), id=name) for name, p in PROGRAMS.items()],
)
def test_as_eager(program):
    def f(x):
        return program(), x + 1

    assert flambeau.compile(f)(X)[0] == program()


@pytest.mark.parametrize(
    "make",
    [
        lambda: iter([1]),
        lambda: iter({1: 2}),
        lambda: iter({1: 2}.items()),
        lambda: iter((1,)),
        lambda: iter("a"),
        lambda: iter(range(1)),
        lambda: reversed([1]),
        lambda: itertools.chain([1]),
        lambda: itertools.islice([1, 2], 1),
        lambda: itertools.permutations([1, 2]),
    ],
)
def test_an_exhausted_iterator_keeps_its_type(make):
    def f(x):
        return exhausted(make), x + 1

    got, _ = flambeau.compile(f)(X)
    assert type(got) is type(make()) and list(got) == []


def test_digits_may_vary():
    def f(x, n):
        return digits(n), x + 1

    compiled = flambeau.compile(f)
    for n in (1, 2, 0, None, 1):
        assert compiled(X, n)[0] == digits(n)
