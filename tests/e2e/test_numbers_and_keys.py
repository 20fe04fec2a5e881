"""Numbers of C beside their subclasses, what is equal as a key, what asks for lengths, and exhausted iterators."""

import collections.abc
import copy
import datetime
import functools
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


class Compares(type):
    def __eq__():
        pass


class Unhashable(type):
    __hash__ = None


class Refuses(type):
    def __hash__(cls):
        raise ValueError(cls.__name__)


class Counts(type):
    def __hash__(cls):
        HASHED.append(cls.__name__)
        return 7


HASHED: list = []
TABLE = {int: 1}
METAS = [Compares, Unhashable, Refuses, Counts]


@pytest.mark.parametrize("meta", METAS, ids=lambda meta: meta.__name__)
@pytest.mark.parametrize(
    "use",
    [
        TABLE.get,
        lambda k: TABLE[k],
        lambda k: k in TABLE,
        lambda k: (k,) in TABLE,
        lambda k: {k: 1}[k],
        lambda k: len({k, int}),
        lambda k: {**TABLE, k: 2}[int],
        lambda k: dict.fromkeys([k, int]).get(k),
        lambda k: copy.deepcopy(k()) is None,
        lambda k: hash(k) == hash((k,)),
        lambda k: isinstance(k(), collections.abc.Mapping),
    ],
)
def test_classes_as_keys_are_hashed_by_their_metaclass(meta, use):
    def f(x, own):
        return refused(lambda: use(own)), x + 1

    seen = []
    for run in (f, flambeau.compile(f)):
        HASHED.clear()
        # Abstract classes keep what they said of a class: another one each time.
        seen.append((run(X, meta("Own", (), {}))[0], list(HASHED)))
    assert seen[0] == seen[1]


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


NUMBERS = [0.0, -0.0, 1.0, -1.0, 0.5, -2.0, 3.0, 1e308, -1e308, float("inf"), float("-inf"), float("nan"), 0, -3, 70]


@pytest.mark.parametrize("name", ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "lt", "eq", "lshift"])
@pytest.mark.parametrize("left", NUMBERS)
def test_numbers_at_the_edges(name, left):
    """Values, and the types, arguments and texts of errors."""
    apply = getattr(operator, name)

    def f(x):
        told = []
        for right in NUMBERS:
            try:
                told.append(repr(apply(left, right)))
            except ArithmeticError as error:
                told.append(type(error).__name__)
            except (TypeError, ValueError) as error:
                told.append((type(error).__name__, str(error)))
        return told, x + 1

    with flambeau.config.patch(recompile_limit=1000):
        assert flambeau.compile(f)(X)[0] == f(X)[0]


FAILING = {
    "decode": lambda: b"\x80".decode("utf-8"),
    "encode": lambda: "\u1234".encode("ascii"),
    "int": lambda: int("x"),
    "pow": lambda: 10.0**400,
    "exp": lambda: __import__("math").exp(1e6),
    "sqrt": lambda: __import__("math").sqrt(-1),
    "index": lambda: (1, 2).index(5),
    "format": lambda: format(3, "q"),
    "key": lambda: {}[(1, 2)],
    "chr": lambda: chr(-1),
    "complex": lambda: complex("q"),
    "divmod": lambda: divmod(1.0, 0.0),
    "zero": lambda: 0.0**-1,
}


@pytest.mark.parametrize("kind", FAILING)
def test_errors_are_caught_by_their_classes(kind):
    fail = FAILING[kind]

    def f(x):
        try:
            fail()
        except UnicodeError as error:
            told = "unicode", error.args, error.start
        except OverflowError as error:
            told = "overflow", error.args, str(error)
        except (ValueError, KeyError) as error:
            told = type(error).__name__, error.args, str(error)
        except ArithmeticError as error:
            told = "arithmetic", error.args, str(error)
        except Exception as error:
            told = "other", error.args
        return told, x + 1

    compiled = flambeau.compile(f)
    for _ in range(2):
        assert compiled(X)[0] == f(X)[0]


def test_equal_numbers_of_other_types_are_one_key():
    """Complex numbers without an imaginary part, and floats beyond what ints of 64 bits hold."""

    def f(x):
        table = {0: "zero", 2**60: "large", 2**70: "huge", 1.5: "half"}
        keys = (0j, -0.0, complex(-0.0, -0.0), float(2**60), float(2**70), 1.5 + 0j, 1j)
        return x + 1, [table.get(key) for key in keys], len(set((1, 1.0, 1 + 0j, True))), (2, 0j) in {(2.0, False)}

    x = torch.ones(2)
    assert flambeau.compile(f)(x)[1:] == f(x)[1:]
    assert f(x)[1] == ["zero", "zero", "zero", "large", "huge", "half", None]


class Hashed:
    def __init__(self, hash):
        self.hash = hash

    def __hash__(self):
        return self.hash


class Unhashed:
    __hash__ = None


def hashes(x):
    said = [hash(v) for v in (1, -1, 2**70, 2.5, True, "text", b"b", (1, ("a", -1)), torch.device("cpu"), 1.0, "")]
    said += [hash(Hashed(5)), hash(Hashed(-1)), hash(Hashed(2**70)), hash(Hashed(True)), hash(frozenset([1, 2]))]
    for odd in ([], {}, Unhashed(), Hashed("no")):
        try:
            said.append(hash(odd))
        except TypeError as error:
            said.append(str(error))
    return x + 1, said


def frozen_keys(x):
    table = {frozenset([1, 2]): "a", frozenset(["b"]): 2, (frozenset([1.0, 2]), 1): 3}
    table[frozenset((2, True))] = "c"
    return x + 1, table[frozenset({2, 1})], frozenset([3]) in table, len({frozenset([1]), frozenset([True]), 1}), table


KEYS = [torch.device("cpu"), torch.float32, torch.strided, ..., 1j, None, (1, torch.device("cpu")), 2.5, b"a", int, len]


@pytest.mark.parametrize("key", KEYS, ids=repr)
def test_constants_of_each_type_are_keys(key):
    """Guards find them again."""

    def reads(x, table):
        return x + 1, table[key], table.get(key), key in table, list(table.values())

    def goes_through(x, table):
        return x + 1, [value[0] for value in table.values()], list(table)

    for program in (reads, goes_through):
        compiled = flambeau.compile(program)
        for _ in range(2):
            table = {key: (1, 2), "other": (3,)}
            assert str(compiled(torch.ones(2), table)) == str(program(torch.ones(2), table))
    assert flambeau.counters()["eager_fallbacks"] == {}


@pytest.mark.parametrize("program", [hashes, frozen_keys])
def test_hashes_and_keys_that_are_sets(program):
    compiled = flambeau.compile(program)
    for _ in range(2):
        assert str(compiled(torch.ones(2))) == str(program(torch.ones(2)))


class ByIdentity:
    """Compares by its number, and is hashed as objects are."""

    def __init__(self, number):
        self.number = number

    def __eq__(self, other):
        return self.number == other.number if isinstance(other, ByIdentity) else NotImplemented

    __hash__ = object.__hash__


def test_objects_with_the_hash_of_objects_are_keys_by_identity():
    def run(x, a, b):
        table = {a: 1, ByIdentity(1): 2}
        table[b] = table.get(b, 0) + 3
        return x + 1, len(table), table[a], len({a, b}), a == (1, 2), a == b, [a].index(b) if a == b else None, table

    compiled, x = flambeau.compile(run), torch.ones(2)
    one = ByIdentity(1)
    for args in ((one, ByIdentity(1)), (one, one), (one, ByIdentity(2))):
        ours, theirs = compiled(x, *args), run(x, *args)
        assert repr(ours[:-1]) == repr(theirs[:-1])
        assert [ours[-1].get(key) for key in args] == [theirs[-1].get(key) for key in args]


def test_partials_are_keys_by_identity():
    def run(x, given, other, table):
        made = functools.partial(torch.add, x)
        known = {given: 1, made: 2, functools.partial(torch.add, x): 3}
        table[given] = table.get(given, 0) + 1
        return known.get(other), known[made], len(known), made in table, other in table, known[given], known[made] * x

    compiled, x = flambeau.compile(run), torch.ones(2)
    partials = [functools.partial(torch.add, x) for _ in range(2)]
    tables = [{partials[0]: 5}, {partials[0]: 5}]
    for i, j in [(0, 1), (0, 0), (1, 0), (1, 1)]:
        given = x, partials[i], partials[j]
        assert repr(compiled(*given, tables[0])) == repr(run(*given, tables[1]))
        assert tables[0] == tables[1]
