"""Operators, conversions and text of objects whose classes define them: whose method is asked, in which order."""

import abc
import enum
import operator
import warnings
import weakref

import pytest
import torch
from support import check

import flambeau

X = torch.arange(3.0)


class Power(int):
    def __pow__(self, other, modulus=None):
        return ("pow", int(self), int(other), modulus)

    def __rpow__(self, other, modulus=None):
        return ("rpow", int(self), int(other), modulus)


class Left:
    def __floordiv__(self, other):
        return "left"

    def __rfloordiv__(self, other):
        return "left reflected"

    def __add__(self, other):
        return NotImplemented

    def __radd__(self, other):
        return "reflected add"

    def __le__(self, other):
        return "left le"

    def __ge__(self, other):
        return "left ge"

    def __lt__(self, other):
        return NotImplemented

    def __gt__(self, other):
        return "left gt"

    def __rmod__(self, other):
        return "rmod"

    def __repr__(self):
        return "Left()"


class Overrides(Left):
    def __rfloordiv__(self, other):
        return "overridden"

    def __ge__(self, other):
        return "overridden ge"


class Inherits(Left):
    pass


class Text(str):
    def __rmod__(self, other):
        return "text rmod"


class Indexed(int):
    def __index__(self):
        return 42


class Truncated(float):
    def __index__(self):
        return 42


class Converts:
    def __init__(self, value):
        self.value = value

    def __int__(self):
        return self.value

    def __float__(self):
        return self.value

    def __complex__(self):
        return 3j


class Colour(enum.Enum):
    RED = 1


class Word(str, enum.Enum):  # noqa: UP042 - its text is not that of a StrEnum
    RED = "red"


class Shouting(type):
    def __repr__(cls):
        return f"<{cls.__name__}!>"

    def __format__(cls, spec):
        return f"{cls.__name__}:{spec}"


class Loud(metaclass=Shouting):
    pass


def power(x):
    three = pow(Power(2), Power(3), Power(5))
    return x + 1, three, pow(2, Power(3)), pow(Power(2), 3), 2 ** Power(3), Power(2) ** 3, pow(2, 3, 5)


def reflected(x):
    subclasses = Left() // Overrides(), Overrides() // Left(), Left() // Inherits(), Inherits() // Left()
    return x + 1, subclasses, 1 // Left(), Left() // 1


def same_class(x):
    try:
        return x + 1, Left() + Left()
    except TypeError:
        return x + 2, "TypeError"


def other_class(x):
    return x + 1, Left() + Inherits(), 1 + Left(), operator.add(Left(), Overrides())


def compared(x):
    return x + 1, Left() <= Overrides(), Overrides() <= Left(), Left() <= Left(), Left() < Left(), Left() < Overrides()


def formatted(x):
    form = "%s"
    return (
        x + 1,
        form % Left(),
        form % Text("a"),
        b"%a" % Left(),
        form % Word.RED,
        form % Colour.RED,
        form % (Word.RED,),
    )


def converted(x):
    ints = int(Indexed(7)), int(Truncated(2.5)), int(Converts(3)), [1, 2][Converts.__int__(Converts(1))]
    return x + 1, ints, float(Converts(2.5)), complex(Converts(1)), complex(Indexed(7))


def bad_conversion(x, kind, value):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return x + 1, kind(Converts(value))
        except TypeError as error:
            return x + 2, str(error)


def warned(x):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        results = int(Converts(True)), bool(NotImplemented), not NotImplemented
    return x + 1, results, [str(w.message) for w in seen]


def text_of_classes(x):
    return x + 1, repr(Loud), str(Loud), f"{Loud:3}", f"{Loud!r}", format(Loud), repr(Colour), str(Colour), f"{Colour}"


class Agreeable(type):
    def __eq__(cls, other):
        return f"eq {other}"

    def __lt__(cls, other):
        return "lt"

    __hash__ = type.__hash__


class Agrees(metaclass=Agreeable):
    pass


class Shape(abc.ABC):
    @abc.abstractmethod
    def area(self): ...


class Square(Shape):
    def area(self):
        return 4


class Unfinished(Shape):
    pass


def compared_classes(x):
    found = (
        Agrees == 2,
        operator.eq(2, Agrees),
        Agrees < Agrees,
        Agrees > Loud,
        Agrees in [1],
        Loud == Loud,
        Loud != Agrees,
    )
    return x + 1, found, operator.eq(int, int), operator.eq(Square, Shape)


def abstract(x):
    made = []
    for kind in (Shape, Square, Unfinished):
        try:
            made.append(kind().area())
        except TypeError:
            made.append("TypeError")
    return x + 1, made


@pytest.mark.parametrize(
    "program",
    [
        power,
        reflected,
        same_class,
        other_class,
        compared,
        formatted,
        converted,
        warned,
        text_of_classes,
        compared_classes,
        abstract,
    ],
    ids=lambda p: p.__name__,
)
def test_own_methods(program):
    check(program, (X,), graphs=None)


@pytest.mark.parametrize(("kind", "value"), [(int, "a"), (int, 2.5), (int, True), (float, 1), (float, "a")])
def test_conversions_of_the_wrong_type(kind, value):
    check(lambda x: bad_conversion(x, kind, value), (X,), graphs=None)


class Holder:
    def __init__(self):
        self.items = []


def grown_after_the_break(x):
    """What an outside list gets, an iterator that leaves the frame has passed."""
    holder = Holder()
    flambeau.graph_break()
    holder.items.append(x)
    holder.items.append(x + 1)
    seen = []
    for item in holder.items:
        flambeau.graph_break()
        seen.append(item * 2)
    return seen


def passed_and_grown(x):
    holder = Holder()
    flambeau.graph_break()
    holder.items += [x, x + 1, x + 2]
    iterator = iter(holder.items)
    first, second = next(iterator), next(iterator)
    flambeau.graph_break()
    holder.items.append(x + 3)
    return first, second, list(iterator), list(iterator)


def reversed_and_grown(x):
    holder = Holder()
    flambeau.graph_break()
    holder.items += [x, x + 1, x + 2]
    iterator = reversed(holder.items)
    flambeau.graph_break()
    return list(iterator)


@pytest.mark.parametrize("program", [grown_after_the_break, passed_and_grown, reversed_and_grown])
def test_iterators_over_changed_lists_leave_the_frame(program):
    check(program, (X,), graphs=None)


def watched(x):
    """Nothing reads `holder` any more, but it lives until the frame ends."""
    holder = Holder()
    reference = weakref.ref(holder)
    flambeau.graph_break()
    alive = reference() is not None
    flambeau.graph_break()
    return x + 1, alive, reference() is not None


def watched_below(x):
    def inner():
        holder = Holder()
        return look(weakref.ref(holder))

    def look(reference):
        flambeau.graph_break()
        return reference() is not None

    found = inner()
    return x + 1, found


def watched_elements(x):
    first, second = Holder(), Holder()
    references = list(map(weakref.ref, [first, second]))
    flambeau.graph_break()
    return x + 1, [reference() is not None for reference in references]


@pytest.mark.parametrize("program", [watched, watched_below, watched_elements])
def test_variables_keep_their_objects(program):
    check(program, (X,), graphs=None)


class Clearing:
    """Compares by clearing containers, the way in which CPython's own tests look for what is read too late."""

    def __init__(self, *containers):
        self.containers = containers

    def __eq__(self, other):
        for container in self.containers:
            container.clear()
        return NotImplemented


def cleared_lists(x):
    first, second = [], []
    first += [Clearing(second), 2]
    second += [Clearing(first), 2]
    third = []
    third += [Clearing(third)]
    return x + 1, first == second, third == [1], first < second, third != []


def grown_lists(x):
    first, second = [1, 2], [1, 2]

    class Growing:
        def __eq__(self, other):
            first.append(3)
            return True

    first[1] = Growing()
    return x + 1, first == second, first > second, len(first)


def cleared_dicts(x):
    first = {}
    first["a"], first["b"] = Clearing(first), 1
    second = {"a": Clearing(), "b": 1}
    return x + 1, first == second, len(first)


@pytest.mark.parametrize("program", [cleared_lists, grown_lists, cleared_dicts])
def test_containers_that_change_while_they_are_compared(program):
    check(program, (X,), graphs=None)
