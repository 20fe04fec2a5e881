"""Keys of dicts and sets whose class hashes and compares them by Python code."""

import dataclasses
import functools
import re
from typing import ClassVar

import pytest
import torch

import flambeau


@dataclasses.dataclass(frozen=True)
class Point:
    x: int
    y: object = "y"


@dataclasses.dataclass(frozen=True)
class Line:
    start: Point
    end: Point
    dtype: torch.dtype = torch.float32
    kind: object = None


@dataclasses.dataclass(frozen=True)
class Holder:
    items: list


@dataclasses.dataclass(unsafe_hash=True)
class Loose:
    x: int


@functools.total_ordering
class Version:
    def __init__(self, *parts):
        self.parts = parts

    def __eq__(self, other):
        return isinstance(other, Version) and self.parts == other.parts

    def __lt__(self, other):
        return self.parts < other.parts

    def __hash__(self):
        return hash(self.parts)

    def __repr__(self):
        return f"Version{self.parts}"


class Name:
    """Equal to its text."""

    def __init__(self, text):
        self.text = text

    def __eq__(self, other):
        return self.text == (other.text if isinstance(other, Name) else other)

    def __hash__(self):
        return hash(self.text)


class ById:
    def __init__(self, x):
        self.x = x

    def __eq__(self, other):
        return self is other

    def __hash__(self):
        return id(self)


class Plain:
    """Compares by its number, and is hashed as objects are."""

    def __init__(self, x):
        self.x = x

    def __eq__(self, other):
        return self.x == other.x

    __hash__ = object.__hash__


class Near:
    """Equality that is not transitive."""

    def __init__(self, x):
        self.x = x

    def __eq__(self, other):
        return abs(self.x - other.x) <= 1

    def __hash__(self):
        return 1


class Larger:
    """Equality that depends on the side."""

    def __init__(self, x):
        self.x = x

    def __eq__(self, other):
        return self.x >= other.x

    def __hash__(self):
        return 1


class Raises:
    def __init__(self, x):
        self.x = x

    def __eq__(self, other):
        raise ValueError("not to be compared")

    def __hash__(self):
        return self.x % 2


ASKED = []


class Counts:
    """Writes down what it is asked."""

    def __init__(self, x):
        self.x = x

    def __eq__(self, other):
        ASKED.append(("eq", self.x, other.x))
        return self.x == other.x

    def __hash__(self):
        ASKED.append(("hash", self.x))
        return self.x % 2


class NoNumber:
    def __hash__(self):
        return "no number"

    def __eq__(self, other):
        return True


class OfOther:
    """The hash and the looks of another object, which is no key itself."""

    def __init__(self, of):
        self.of = of

    def __eq__(self, other):
        return self.of == (other.of if isinstance(other, OfOther) else other)

    def __hash__(self):
        return hash(self.of)


MAKERS = [
    Point, lambda x: Point(x, None), lambda x: Point(x, torch.bool), lambda x: Point(3, (x, "a")),
    lambda x: Point(x, Point), lambda x: Line(Point(x), Point(0)),
    lambda x: Line(Point(1), Point(2), kind=Point(x, int)), lambda x: Holder([x]), Loose, Version,
    lambda x: Version(x, "b"), lambda x: Version(-1 - x), lambda x: Name(str(x)), ById, Plain, Near, Larger, Raises,
    Counts, lambda x: NoNumber(), OfOther, lambda x: OfOther((x, torch.bool)), lambda x: OfOther(Point(x)),
    lambda x: Point(float(x)), lambda x: Point(float("nan")), lambda x: (Point(x), 1),
    lambda x: frozenset([Point(x)]), lambda x: Point(bool(x)),
]  # fmt: skip


def outcome(run, *args):
    ASKED.clear()
    try:
        result = repr(run(*args))
    except Exception as error:
        result = f"{type(error).__name__}: {error}"
    return result, list(ASKED)


def addressless(outcome):
    return re.sub("0x[0-9a-f]+", "0x", repr(outcome))


def new_dict(x, a, b, c):
    table = {a: 1}
    table[b] = table.get(b, 0) + 2
    table[c] = table.get(c, 0) + 4
    return x + len(table), list(table.values()), a in table, c in table, table[b]


def new_set(x, a, b, c):
    found = {a, b}
    found.add(c)
    return x + 1, len(found), {a} == {c}, {a, b} - {c} == {b}, len({a, b} | {c}), b in {a, c}


def beside_constants(x, a, b, c):
    table = {"0": 1, 0: 2, 1: 3, a: 4, (1, torch.bool): 5}
    table.setdefault(b, 6)
    return x + table.get("1", 7), table.get(0), table.get(c), table.get((0, torch.bool)), len(table)


def taken_out(x, a, b, c):
    table = {a: 1, b: 2}
    return x, table.pop(c, None), len(table), [table.pop(key, 9) for key in (a, b)], table


def of_pairs(x, a, b, c):
    table = {(a, 1): 1, (b, 1): 2}
    return x, table.get((c, 1)), table.get((c, 2)), len(table)


def kept(x, a, b, c):
    table = {a: 1}
    table[b] = 2
    first, *_ = table
    return x, first is a, table, {c: 3}


RUNS = [new_dict, new_set, beside_constants, taken_out, of_pairs, kept]


@pytest.mark.passes_recompile_limit("which keys are one object, and which are equal, are facts of the trace")
@pytest.mark.plain_only("hashes of texts are others in another process", "warm")
@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.__name__)
@pytest.mark.parametrize("make", MAKERS)
def test_keys(make, run):
    """Of equal objects, of the same, of others, in any order."""

    def made(x, a, b, c):
        return run(x, a, b, c)

    def of_new(x, i, j, k):
        return run(x, make(i), make(j), make(k))

    compiled, compiled_new = flambeau.compile(made), flambeau.compile(of_new)
    x = torch.zeros(2)
    for i, j, k in [(0, 1, 0), (0, 0, 0), (0, 1, 2), (1, 1, 0), (2, 1, 0)]:
        keys = [make(n) for n in (i, j, k)]
        assert outcome(compiled, x, *keys) == outcome(made, x, *keys)
        same = [keys[0], keys[1], keys[0]]
        assert outcome(compiled, x, *same) == outcome(made, x, *same)
        assert addressless(outcome(compiled_new, x, i, j, k)) == addressless(outcome(of_new, x, i, j, k))


@pytest.mark.parametrize("make", MAKERS)
def test_tables_from_outside(make):
    def build():
        keys = [make(n) for n in range(2)]
        try:
            return {keys[0]: 1, keys[1]: 2}, {keys[0], keys[1]}
        except (TypeError, ValueError):
            pytest.skip("no key")

    def run(x, table, among, key, other):
        table[key] = table.get(key, 0) + 10
        among.add(other)
        return x + table[key], other in table, key in among, "0" in table, 0 in among, len(table), len(among)

    compiled, x = flambeau.compile(run), torch.zeros(2)
    for i, j in [(0, 1), (1, 0), (2, 3), (0, 0), (3, 3)]:
        ours, theirs = build(), build()
        assert outcome(compiled, x, *ours, make(i), make(j)) == outcome(run, x, *theirs, make(i), make(j))
        assert list(ours[0].values()) == list(theirs[0].values()) and len(ours[1]) == len(theirs[1])


def test_a_key_that_changes_is_lost():
    def run(x, key, other):
        table = {key: 1}
        key.x += 1
        found = table.get(key), table.get(other)
        key.x -= 1
        return x + 1, found, table.get(key), table.get(other)

    compiled, x = flambeau.compile(run), torch.zeros(2)
    for i, j in [(0, 0), (0, 1), (3, 4)]:
        assert outcome(compiled, x, Loose(i), Loose(j)) == outcome(run, x, Loose(i), Loose(j))


class Switched:
    """Hashed and compared by what lies elsewhere."""

    where = "own"
    offset = 0
    shared: ClassVar = {"offset": 0}
    numbers: ClassVar = [0]

    def __init__(self, x):
        self.x = x

    def number(self):
        return self.x + {"class": type(self).offset, "dict": self.shared["offset"], "list": self.numbers[0]}[self.where]

    def __eq__(self, other):
        return self.number() == other.number()

    def __hash__(self):
        return hash(self.number())


def change_key(key):
    key.x += 1


def change_class(key):
    Switched.offset += 1


def change_dict(key):
    Switched.shared["offset"] += 1


def change_list(key):
    Switched.numbers[0] += 1


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("change", [change_key, change_class, change_dict, change_list])
def test_tables_are_made_by_what_the_keys_said(change, again):
    """What a key is hashed by changes after it was stored: the table that leaves the frame is as eager's."""

    def run(x, key, other):
        table = {key: 1}
        table[other] = 2
        among = {other, key}
        change(key)
        found = table.get(key), other in among
        if again:
            table[Switched(4)] = 3
        return x + len(table), table, among, found

    def compute(fn, i, j):
        Switched.offset = Switched.shared["offset"] = Switched.numbers[0] = 0
        Switched.where = {change_class: "class", change_dict: "dict"}.get(change, "list")
        key, other = Switched(i), Switched(j)
        x, table, among, found = fn(torch.zeros(2), key, other)
        asked = [(table.get(k), k in among) for k in [key, other, *map(Switched, range(8))]]
        return (
            x.tolist(),
            found,
            list(table.values()),
            len(among),
            asked,
            key.x,
            Switched.offset,
            list(Switched.numbers),
        )

    compiled = flambeau.compile(run)
    for i, j in [(0, 1), (1, 0), (0, 0), (3, 4)]:
        assert compute(compiled, i, j) == compute(run, i, j)


@pytest.mark.plain_only("counts frames")
@pytest.mark.parametrize(
    "make", [Point, Version, ById, Plain, lambda x: Line(Point(x), Point(0)), lambda x: Point(x, int)]
)
def test_such_keys_need_no_break(make):
    def run(x, a, b):
        table = {a: 1, make(7): 2}
        table[b] = 3
        return x + table[a], len({a, b}), make(7) in table

    a = make(1)
    for args in ((a, make(1)), (a, make(2)), (a, a)):
        flambeau.reset()
        x = torch.zeros(2)
        assert outcome(flambeau.compile(run), x, *args) == outcome(run, x, *args)
        counts = flambeau.counters()
        assert counts["graphs"] == 1 and not counts["graph_breaks"] and not counts["eager_fallbacks"], counts


def test_a_table_grows_by_keys_of_its_own():
    table = {Version(1): 10, Version(2): 20}

    def run(x, version):
        table[version] = table.get(version, 0) + 1
        return x * table[version], version in table, {version, Version(1)} == {Version(1)}, len(table)

    compiled, x = flambeau.compile(run), torch.ones(2)
    for version in (Version(1), Version(3), Version(3), Version(1)):
        before = dict(table)
        expected = outcome(run, x, version)
        table.clear()
        table.update(before)
        assert outcome(compiled, x, version) == expected
