"""`str`, `repr` and f-strings of containers: sets in their order, subclasses by their own methods."""

import collections

import pytest
import torch
from mode import COUNTED

import flambeau

X = torch.arange(3.0)

Point = collections.namedtuple("Point", "x y")


class Named(collections.namedtuple("Named", "x")):
    def __repr__(self):
        return f"named {self.x!r}"


class Bare(tuple):
    __slots__ = ()


class Listed(list):
    def __repr__(self):
        return "listed " + super().__repr__()


class PlainList(list):
    pass


class Table(dict):
    def __str__(self):
        return f"table of {len(self)}"


class Sized(set):
    pass


class Loud(str):
    __slots__ = ()

    def __repr__(self):
        return str(self).upper() + "!"


WORDS = {"reflect", "constant", "replicate", "circular"}


def sets(x):
    made = {3, 1, 2, x.dim()}
    made.add("word")
    frozen = frozenset(made)
    return f"one of {WORDS}", str(made), repr(frozen), str(set()), repr(frozenset()), f"{ {1} }", str({(1, "a")})


def sets_of_objects(x):
    return f"{set([Loud('a')])}", str([{1}, {2: {3}}])


def tuples(x):
    return str(Point(1, "a")), f"{Named(2)}", repr((Named("b"), Point(1, 2))), str(Bare((1, 2))), f"{Bare((1,))!r}"


def lists_and_dicts(x):
    inner = PlainList([1, Listed(["a"])])
    inner.append(inner)
    table = Table(a=1)
    return str(inner), repr(Listed([2])), str(table), repr(table), f"{table}", f"{table!r}", str([table, Listed()])


def orders(x):
    counted, default = collections.Counter("aab"), collections.defaultdict(list, a=[1])
    ordered = collections.OrderedDict(a=1, b=Point(1, 2))
    return str(counted), repr(default), f"{ordered}"


def outside(x, values):
    return [str(v) for v in values], "".join(f"{v!r:>12}" for v in values)


@pytest.mark.plain_only("hashes of texts are others in another process", "warm")
@pytest.mark.parametrize("program", [sets, sets_of_objects, tuples, lists_and_dicts, orders], ids=lambda p: p.__name__)
def test_texts(program):
    compiled = flambeau.compile(lambda x: (x + 1, program(x)))
    for _ in range(2):
        assert compiled(X)[1] == program(X)


VALUES = [
    {1, 2}, frozenset("ab"), {"b", "a", 3}, Sized([1]), Point(1, [2]), Named(1), Bare(), PlainList("ab"), Listed([{1}]),
    Table(b=2), set(), {Point(1, 2)}, [Loud("x")],
]  # fmt: skip


@pytest.mark.plain_only("hashes of texts are others in another process", "warm")
def test_texts_of_what_is_there_before():
    compiled = flambeau.compile(lambda x, values: (x + 1, outside(x, values)))
    for _ in range(2):
        assert compiled(X, VALUES)[1] == outside(X, VALUES)
    VALUES[2].add("later")
    VALUES[4][1].append(5)
    assert compiled(X, VALUES)[1] == outside(X, VALUES)
    VALUES[2].discard("later")


@pytest.mark.plain_only("hashes of texts are others in another process", "warm")
@pytest.mark.parametrize("program", [sets, tuples], ids=lambda p: p.__name__)
def test_no_break(program):
    flambeau.compile(lambda x: (x + 1, program(x)))(X)
    assert not COUNTED or flambeau.counters()["graph_breaks"] == {}


class Precise(float):
    def __repr__(self):
        return "%.*g" % (12, self)  # noqa: UP031


class Hexadecimal(int):
    def __repr__(self):
        return hex(self)

    def __str__(self):
        return "text"

    def __float__(self):
        return 0.5

    def __index__(self):
        return 9


class Truncated(float):
    def __int__(self):
        return 77

    def __trunc__(self):
        return 78


DIRECTIVES = ["%.*g", "%*d", "%-*d|", "%s", "%r", "%a", "%d", "%5s|", "%.2s|", "%%", "%c", "%x", "%i%%", "%(a)s", "%g"]
DIRECTIVES += ["%(a)5r %(a)s", "%s %s", "%+d", "%#x", "%5.1f|", "%s%", "%z", "%", "%l", "%ld", "%b", "% d", "%03d"]
DIRECTIVES += ["%-5s|", "%.*s", "%.0s|", "%*s|", "no directive", "%e %s", "%a %d"]
OPERANDS = [(12, Precise(1.1)), (5, 3), 3, (3,), "ab", ("ab",), {"a": 1}, ({"a": 1},), {"a": [X]}, Hexadecimal(7)]
OPERANDS += [(Hexadecimal(7),), Precise(2.5), (Truncated(2.5),), (5, "abcdef"), None, (None,), (1, 2, 3), [1], ([1],)]
OPERANDS += [
    True,
    (-3, "ab"),
    b"x",
    (1.5,),
    (300, "ab"),
    65,
    ("\xe9", 2),
    Loud("b"),
    (Loud("b"), [Loud("c")]),
    Point(1, 2),
]


@pytest.mark.parametrize("directive", DIRECTIVES)
def test_directives_of_percent(directive):
    def program(x, value):
        try:
            return x + 1, directive % value
        except Exception as error:
            return x, type(error).__name__, str(error)

    for value in OPERANDS:
        flambeau.reset()
        compiled = flambeau.compile(program)
        (_, *eager), (_, *ours) = program(X, value), compiled(X, value)
        assert ours == eager, value
