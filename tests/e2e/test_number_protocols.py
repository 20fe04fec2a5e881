"""Operators, `math`, `int`, `range`, codecs on objects of any class, and the state of the process they depend on."""

# ruff: noqa: B024, F841

import abc
import codecs
import enum
import itertools
import math
import operator
import sys
from typing import Any

import pytest
import torch

import flambeau

LOG: list[str] = []


class Float:
    def __float__(self):
        LOG.append("float")
        return 2.5


class Index:
    def __index__(self):
        LOG.append("index")
        return 6


class Fails:
    def __float__(self):
        LOG.append("fails")
        return 1 / 0

    __index__ = __float__


class OwnFloat(float):
    def __float__(self):
        LOG.append("own float")
        return 9.0


class OwnInt(int):
    def __float__(self):
        LOG.append("own int")
        return 9.5

    __index__ = __float__


class NoDivision(int):
    def __truediv__(self, other):
        return NotImplemented

    __rtruediv__ = __truediv__


class LeftDivision(int):
    def __truediv__(self, other):
        return NotImplemented


class NoConcatenation(list):
    def __add__(self, other):
        return NotImplemented

    __mul__ = __iadd__ = __add__


class NoRepetition(list):
    def __rmul__(self, other):
        return NotImplemented

    __iadd__ = __rmul__


class NoUnion(set):
    def __or__(self, other):
        return NotImplemented

    __ior__ = __or__


class NoUpdate(set):
    def __ior__(self, other):
        return NotImplemented


def seen(call: Any, *args: Any) -> Any:
    """The result or the exception, and what was called on the way."""
    LOG.clear()
    try:
        result = call(*args)
        return type(result).__name__, repr(result), list(LOG)
    except Exception as error:
        return type(error).__name__, str(error), list(LOG)


def same(call: Any, *args: Any) -> None:
    """Compiled twice as eager: with the exception caught in the frame, and leaving it."""
    flambeau.reset()  # the frames of this function count for all that call it: past the limit they would run eagerly

    def caught(*args):
        return seen(call, *args)

    def uncaught(*args):
        return call(*args)

    for fn in (caught, uncaught):  # of all calls together, one key would have more frames than the cache keeps for it
        fn.__code__ = fn.__code__.replace(co_name="_".join([call.__name__, *(type(a).__name__ for a in args)]))
    expected = seen(call, *args)
    compiled = flambeau.compile(caught)
    assert compiled(*args) == expected
    assert compiled(*args) == expected
    assert seen(flambeau.compile(uncaught), *args) == expected


OF_FLOATS = [math.sqrt, math.floor, math.trunc, math.log, math.isnan]
OF_INTS = [math.isqrt, math.factorial]
NUMBERS = [Float(), Index(), OwnFloat(4.5), OwnInt(4), Fails(), "no", True, 2.5]


@pytest.mark.parametrize("function", [*OF_FLOATS, *OF_INTS, int, float], ids=lambda f: f.__name__)
def test_conversions(function):
    for number in NUMBERS:
        same(function, number)


@pytest.mark.parametrize("function", [math.atan2, math.gcd, math.log, math.fmod], ids=lambda f: f.__name__)
def test_conversions_in_order(function):
    for a, b in itertools.product(NUMBERS, NUMBERS):
        same(function, a, b)


def true_divide(a, b):
    return a / b


def add(a, b):
    return a + b


def multiply(a, b):
    return a * b


def unite(a, b):
    return a | b


def add_in_place(a, b):
    a = before = type(a)(a)
    a += b
    return a, a is before, before


def unite_in_place(a, b):
    a = before = type(a)(a)
    a |= b
    return a, a is before, before


INTS = [NoDivision(4), LeftDivision(4), 2, 2.0]
LISTS = [NoConcatenation([1]), NoRepetition([1]), [3], 2]
SETS = [NoUnion({1}), NoUpdate({1}), {2}, [2]]


@pytest.mark.parametrize(
    ("function", "operands"),
    [
        (true_divide, INTS),
        (add, LISTS),
        (multiply, LISTS),
        (add_in_place, LISTS[:3]),
        (unite, SETS),
        (unite_in_place, SETS[:3]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_operators_that_are_not_implemented(function, operands):
    for a, b in itertools.product(operands, operands):
        same(function, a, b)


BOUNDS = [
    (0, sys.maxsize),
    (0, sys.maxsize + 1),
    (-5, sys.maxsize),
    (-sys.maxsize - 1, sys.maxsize),
    (0, -sys.maxsize - 1, -1),
    (-sys.maxsize, sys.maxsize, 2),
    (sys.maxsize, 0),
    (sys.maxsize, 0, -3),
]


@pytest.mark.parametrize("bounds", BOUNDS, ids=str)
def test_ranges_of_any_length(bounds):
    same(lambda *bounds: len(range(*bounds)), *bounds)
    same(lambda *bounds: bool(range(*bounds)), *bounds)
    same(lambda *bounds: range(*bounds)[-1], *bounds)
    same(lambda *bounds: range(*bounds)[1::2], *bounds)
    same(lambda *bounds: list(zip(range(*bounds), "ab", strict=False)), *bounds)


def test_numbers_of_many_digits():
    for digits in (600, 700, 4301):
        for convert in (str, repr, hex, "{}".format, "%d".__mod__, lambda n: repr((n,)), lambda n: f"{n}"):
            same(lambda digits, convert=convert: convert(10**digits), digits)
        same(int, "1" * digits)
        same(int, "_".join("1" * digits))
        same(int, b"1" * digits)


def test_limit_of_digits_that_changes():
    def convert(text):
        try:
            return len(str(int(text)))
        except ValueError:
            return "too long"

    compiled = flambeau.compile(convert)
    limit = sys.get_int_max_str_digits()
    try:
        for now in (1000, 0, 1000):
            sys.set_int_max_str_digits(now)
            assert compiled("1" * 1100) == convert("1" * 1100)
    finally:
        sys.set_int_max_str_digits(limit)


@pytest.mark.parametrize("name", ["utf-8", "UTF_8", "latin-1", "utf-7", "rot13", "no such"])
def test_codecs(name):
    same(lambda name: "abcé".encode(name), name)
    same(lambda name: b"abc".decode(name), name)
    same(lambda name: str(b"abc\xff", name, "replace"), name)
    same(lambda name: bytes("abcé", name, "no such"), name)


def test_codecs_that_come_later():
    def encode(name):
        try:
            return "ab".encode(name)
        except LookupError as error:
            return str(error)

    def find(name):
        return codecs.lookup("utf-8") if name == "of_a_test" else None

    compiled = flambeau.compile(encode)
    assert compiled("of_a_test") == "unknown encoding: of_a_test"
    codecs.register(find)
    try:
        assert compiled("of_a_test") == b"ab"
    finally:
        codecs.unregister(find)
    assert compiled("of_a_test") == encode("of_a_test")


@pytest.mark.parametrize("spec", ["1" * 10000 + "d", "1" * 30, "." + "1" * 30 + "f", "20d"])
def test_widths_of_formats(spec):
    same(lambda spec: len(format(3, spec)), spec)
    same(lambda spec: len(format("x", spec)), spec)


class Hooked(metaclass=abc.ABCMeta):
    @classmethod
    def __subclasshook__(cls, other):
        if cls is Hooked:
            return "foo" in other.__dict__
        return NotImplemented


class Derived(Hooked):
    pass


class Has:
    foo = 1


@pytest.mark.parametrize("of", [Hooked, Derived, Has, int], ids=lambda of: of.__name__)
def test_hooks_of_abstract_classes(of):
    same(lambda of: (issubclass(of, Hooked), issubclass(of, (Hooked,)), isinstance(of(), Hooked)), of)
    same(lambda of: (issubclass(Hooked, of), issubclass(Derived, of), issubclass(Has, of)), of)


class Super:
    def plain(self):
        return super().__init__()

    def of_a_cell(self):
        return (lambda: self), super().__init__()

    def deleted(self):
        del self
        return super()

    def without_class(self):
        nonlocal __class__
        before = __class__
        del __class__
        try:
            return super()
        finally:
            __class__ = before


def cell(value):
    return (lambda: value).__closure__[0]


def test_super_of_what_does_not_fit():
    same(lambda: Super.plain(Super()))
    same(lambda: Super.plain(3))
    same(lambda held: Super.plain(held), cell(Super()))
    same(lambda: Super.of_a_cell(3))
    same(lambda: Super().deleted())
    same(lambda: Super().without_class())


def test_modules_that_the_frame_unloads(tmp_path, monkeypatch):
    (tmp_path / "of_a_test.py").write_text("import itertools\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import of_a_test as first

    def again():
        del sys.modules["of_a_test"]
        import of_a_test

        return of_a_test is first

    assert flambeau.compile(again)() is False
    del sys.modules["of_a_test"]


def own(self, other):
    return "own"


class OwnList(list):
    __add__ = __mul__ = own


class OwnDict(dict):
    __or__ = own


class OwnSet(set):
    __or__ = __sub__ = own


class NoAdd(list):
    __add__ = None


class Right:
    __radd__ = __ror__ = own


class Items:
    def __radd__(self, other):
        return NotImplemented

    def __iter__(self):
        return iter([1, 2])


class Both(list):
    __add__ = own

    def __iadd__(self, other):
        return "in place"


@pytest.mark.parametrize("make", [OwnList, OwnDict, OwnSet, NoAdd, Both, list, dict, set])
def test_in_place_a_built_in_base_comes_first(make):
    def add(other):
        held = make()
        held += other
        return held

    def multiply(other):
        held = make()
        held *= other
        return held

    def unite(other):
        held = make()
        held |= other
        return held

    def subtract(other):
        held = make()
        held -= other
        return held

    for fn in (add, multiply, unite, subtract):
        for other in ([1], 2, {1: 2}, {3}, frozenset({4}), Right(), Items()):
            same(fn, other)


class Place(tuple):
    def __index__(self):
        return 1


class WrongPlace(tuple):
    def __index__(self):
        return "1"


class NoPlace(tuple):
    def __index__():
        pass


@pytest.mark.parametrize("key", [Place((5, 6)), WrongPlace(), NoPlace(), (0,)])
def test_an_index_is_what_its_class_says(key):
    def read(key):
        seen = []
        for items in ((5, 6), [5, 6], "ab", b"ab", range(5, 7)):
            for get in (lambda: items[key], lambda: items.__getitem__(key)):  # noqa: B023
                try:
                    seen.append(get())
                except TypeError as error:
                    seen.append(str(error))
        return seen

    def write(key):
        items = [1, 2, 3]
        try:
            items[key] = 5
            del items[key]
        except TypeError as error:
            return str(error)
        return items

    same(read, key)
    same(write, key)


class Text(str):
    pass


class Data(bytes):
    __getitem__ = int


@pytest.mark.parametrize("value", [Text("ab"), Data(b"ab")])
def test_subclasses_of_text_are_iterated_by_their_base(value):
    def each(value):
        return [*value], [item for item in value], dict.fromkeys(value), max(value), type(iter(value)) is type(value)

    same(each, value)


class AnyAttribute(int):
    def __getattr__(self, name):
        return None


class Named(tuple):
    def __getattr__(self, name):
        return name


class Overrides(int):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        return "own"


def test_torch_asks_arguments_for_attributes():
    x = torch.ones(2)

    def run(value):
        seen = []
        for call in (lambda: x + value, lambda: torch.add(x, value), lambda: torch.tensor(value), lambda: x.sum(value)):
            try:
                seen.append(str(call()))
            except Exception as error:
                seen.append((type(error), str(error)))
        return seen

    for value in (AnyAttribute(1), Named((1, 2)), Overrides(1)):
        same(run, value)


class Size(int):
    def __index__(self):
        LOG.append("index")
        return 50

    def __int__(self):
        LOG.append("int")
        return 60


class Rate(float):
    def __float__(self):
        LOG.append("float")
        return 70.0


class Answers(int):
    def __add__(self, other):
        return "add"

    def __radd__(self, other):
        return "radd"

    def __rsub__(self, other):
        return NotImplemented


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 3


OPERATORS = [
    operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow,
    operator.and_, operator.iadd, operator.imul, operator.isub,
]  # fmt: skip


@pytest.mark.parametrize("value", [2, Size(2), Rate(2.5), Answers(2), Level.HIGH, Level.LOW], ids=repr)
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool], ids=str)
def test_tensors_with_numbers_of_own_classes(value, dtype):
    """torch reads the number itself, whatever its class defines; the class of a left operand is asked first."""
    x = torch.tensor([1, 2, 3]).to(dtype)
    for op in OPERATORS:
        for left in (False, True):

            def run(value, op=op, left=left):
                LOG.clear()
                result = op(value, x.clone()) if left else op(x.clone(), value)
                return str(result), str(getattr(result, "dtype", None)), LOG[:]

            same(run, value)


class Steps(int):
    pass


class Speed(float):
    pass


def test_a_number_of_an_own_class_scales_without_a_break():
    def f(x, steps, speed, level):
        return x * steps + speed - level / x

    given = torch.ones(3) * 2, Steps(4), Speed(0.5), Level.HIGH
    torch.testing.assert_close(flambeau.compile(f, fullgraph=True)(*given), f(*given))
