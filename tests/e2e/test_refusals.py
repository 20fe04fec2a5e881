"""Built-ins that refuse what they are given, and what the versions of CPython do differently: as eager says it."""

import abc
import itertools
import typing
import warnings

import pytest
import torch
from support import check

import flambeau

X = torch.arange(3.0)


class Slotted:
    __slots__ = ("u",)


class FormatsWrongly:
    def __format__(self, spec):
        return 3


class Formats:
    def __format__(self, spec):
        return spec + "!"


class GivesBack:
    def __init__(self, value):
        return value


def delete_empty(x):
    made = Slotted()
    del made.u
    return x


def delete_twice(x):
    made = Slotted()
    made.u = 1
    del made.u
    del made.u
    return x


def traceback_of_another_kind(x):
    error = ValueError()
    error.__traceback__ = 1
    return x


def numbered(x):
    return x + 1, "{} {}".format("a", 2), "{1} {0}".format("a", 2)  # noqa: UP030


REFUSED = {
    "sum of bytes": lambda x: sum([b"a"], b""),
    "sum of strings": lambda x: sum(["a"], ""),
    "sum into a bytearray": lambda x: sum([], bytearray()),
    "sum asks for the iterator first": lambda x: sum(1, ""),
    "format": lambda x: format(FormatsWrongly(), "x"),
    "f-string": lambda x: f"{FormatsWrongly()}",
    "format of its own": lambda x: (f"{Formats():abc}", format(Formats())),
    "numbers and none": lambda x: "{} {1}".format(1, 2),  # noqa: F525
    "none and numbers": lambda x: "{1} {}".format(1, 2),  # noqa: F525
    "a name that is no number": lambda x: "{+1}".format(1, 2),  # noqa: F523, F524
    "sorted by None": lambda x: sorted([2, 1], reverse=None),
    "sort by None": lambda x: [2, 1].sort(reverse=None),
    "sorted by an int": lambda x: sorted([1, 2], reverse=1),
    "list by name": lambda x: list(iterable=[]),
    "object takes nothing": lambda x: object.__init__(Formats(), 1),
    "strip of an int": lambda x: "a".strip(1),
    "islice by nothing": lambda x: itertools.islice([1], 0, None, 0),
    "islice by name": lambda x: itertools.islice([1], stop=2),
    "product of less than nothing": lambda x: itertools.product([1], repeat=-1),
    "init gives back": lambda x: GivesBack(1),
    "init gives nothing": lambda x: type(GivesBack(None)).__name__,
    "an empty slot": delete_empty,
    "a slot twice": delete_twice,
    "a traceback": traceback_of_another_kind,
    "numbered": numbered,
}


@pytest.mark.parametrize("program", REFUSED.values(), ids=REFUSED)
def test_refused(program):
    check(program, (X,), graphs=None)


def closes(x):
    def returns():
        try:
            yield 1
        except GeneratorExit:
            return 5

    def plain():
        yield 1

    found = [x + 1]
    for make in (returns, plain):
        for steps in range(3):
            made = make()
            for _ in range(steps):
                next(made, None)
            found.append(made.close())
            found.append(made.close())
    return found


def throws(x):
    def made():
        try:
            yield 1
        except ValueError as error:
            yield str(error)

    found = [x + 1]
    for parts in ((ValueError,), (ValueError("a"),), (ValueError, ValueError("b")), (ValueError, None)):
        generator = made()
        next(generator)
        found.append(generator.throw(*parts))
    return found


@pytest.mark.parametrize("program", [closes, throws])
def test_generators(program):
    def noted(fn):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            value = fn(X)
        return [str(part) for part in value], [str(warning.message) for warning in caught]

    assert noted(flambeau.compile(program)) == noted(program)


class Reads(type):
    def __getattribute__(cls, name):
        if name.startswith("k"):
            return name + "!"
        return super().__getattribute__(name)

    def __getattr__(cls, name):
        return name + "?"


class Read(metaclass=Reads):
    k = 1
    other = 2


class Checks(abc.ABCMeta):
    def __instancecheck__(cls, instance):
        cls.asked.append(instance)
        return super().__instancecheck__(instance)

    def __subclasscheck__(cls, of):
        cls.asked.append(of)
        return super().__subclasscheck__(of)


def test_metaclasses():
    check(lambda x: (x + 1, Read.k, Read.kk, Read.other, Read.zz, Read().k), (X,), graphs=None)
    check(lambda x: (x + 1, getattr(Read, "k", 5), hasattr(Read, "zz")), (X,), graphs=None)

    def checked():
        """Anew for each run: what a check has found the class remembers."""

        class Checked(metaclass=Checks):
            asked: typing.ClassVar[list[object]] = []

        # The path of a class is no promise about its metaclass.
        Checked.__module__, Checked.__qualname__ = "collections.abc", "Hashable"

        def fn(x):
            return isinstance(1, Checked), isinstance(Checked(), Checked), issubclass(int, Checked)

        return fn, Checked

    fn, first = checked()
    want = fn(X)
    fn, second = checked()
    assert flambeau.compile(fn)(X) == want
    assert len(second.asked) == len(first.asked)
    assert [kind for kind in second.asked if kind is not second] == [kind for kind in first.asked if kind is not first]


class Key:
    """As a name of a class, it is compared when any name with the same hash is looked up."""

    asked = 0

    def __init__(self, name):
        self.name = name

    def __hash__(self):
        return hash(self.name)

    def __eq__(self, other):
        Key.asked += 1
        return False


def test_names_that_user_code_compares():
    class Base:
        k = 1

        def scaled(self, x):
            return x * self.k

    def function():
        """Anew for each run: what a look-up has found the type remembers."""
        made = type("made", (Base,), {Key("k"): 5, Key("scaled"): 6})

        def fn(x):
            return made().scaled(x), made.k, getattr(made, "zz", None)

        return fn

    Key.asked = 0
    want, asked = function()(X), Key.asked
    assert asked
    fn = function()
    Key.asked = 0
    got = flambeau.compile(fn)(X)
    assert torch.equal(got[0], want[0]) and got[1:] == want[1:]
    assert Key.asked == asked
