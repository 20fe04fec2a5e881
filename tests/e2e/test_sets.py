"""Sets leave a frame as CPython left them: the order of their elements follows from what was done to them."""

import itertools
import operator

import pytest
import torch

import flambeau

X = torch.arange(3.0)


def fresh():
    return {7, 15, 23}


def added(s):
    s.add(31)
    return s


def discarded(s):
    s.discard(7)
    s.add(31)
    return s


def combined(s):
    return s | {31, 39}, s - {15}, s & {23, 7}, s ^ {23, 39}, s.copy(), set(s), frozenset(s)


def in_place(s):
    s |= {31, 39}
    s ^= {31, 7}
    s &= {39, 15, 23}
    s -= {39}
    return s


def updated(s):
    s.update([31], {39, 47}, {55: 1})
    return s


def of_dicts(s):
    d = dict.fromkeys([7, 15, 23, 31, 39, 47])
    return set(d), d.keys() | {55}, d.keys() & {7}, set(d.keys()), {*d}


def displays(s):
    return {v for v in [39, 31, 23, 15, 7]}, {*s, 31, 39}, {39, *s}, {16, 1, 2, 3, 4}


def of_changed(s):
    made = {39, 31}
    made |= s
    made.discard(39)
    made.add(47)
    s.add(55)
    return made, made | s


def cleared(s):
    s.clear()
    s.add(64)
    s.add(1)
    return s


@pytest.mark.parametrize(
    "program",
    [added, discarded, combined, in_place, updated, of_dicts, displays, of_changed, cleared],
    ids=lambda p: p.__name__,
)
def test_the_order_is_the_eager_one(program):
    def f(x, s):
        return program(s), x + 1

    def listed(value):
        return [list(v) for v in value] if isinstance(value, tuple) else list(value)

    ours, theirs = fresh(), fresh()
    expected, got = f(X, theirs)[0], flambeau.compile(f)(X, ours)[0]
    assert listed(got) == listed(expected)
    assert list(ours) == list(theirs)


def drawn(items, log):
    for item in items:
        log.append(item)
        yield item


FIRST = [{2}, {1, 2}, set(), frozenset({1, 2, 3}), {1.0, 5}]
OTHERS = [[2.0, 5], [2, 1.0, 1, 7], [7, 2, 2, 1, 9], [], [True, 1], (3.0, 2), {2.0}, {1.0, 2.0, 9, 8}, {1.0: 1, 2: 2}]


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("other", OTHERS, ids=repr)
@pytest.mark.parametrize("first", FIRST, ids=repr)
def test_intersections_give_the_elements_that_cpython_gives_and_draw_no_more(first, other, lazy):
    def f(x, first, other):
        log = []
        given = drawn(other, log) if lazy else other
        found = [first.intersection(given), log]
        if isinstance(first, set):
            changed = set(first)
            changed.intersection_update(drawn(other, log) if lazy else other)
            found.append(changed)
        if isinstance(other, (set, dict)) and not lazy:
            view = other.keys() if isinstance(other, dict) else other
            found += [first & view, view & first, {1: 0, 2.0: 0}.keys() & view, {2.0: 0}.keys() & {2: 1, 3: 1}.keys()]
        found += [first.difference(other), first.symmetric_difference(other), first.union(other)]
        return x, [sorted(part, key=repr) if isinstance(part, (set, frozenset)) else part for part in found]

    assert str(flambeau.compile(f)(torch.ones(1), first, other)) == str(f(torch.ones(1), first, other))


class Compared:
    """Equal by its number; it says what it was compared with, and has no hash."""

    def __init__(self, number, log):
        self.number = number
        self.log = log

    def __eq__(self, other):
        self.log.append((self.number, getattr(other, "number", other)))
        if self.number == 0:
            raise RuntimeError("compared")
        return self.number == getattr(other, "number", other)


def lists(numbers, log):
    return {key: [number] for key, number in enumerate(numbers)}.items()


def objects(numbers, log):
    return {key: Compared(number, log) for key, number in enumerate(numbers)}.items()


def plain(numbers, log):
    return dict(enumerate(numbers)).items()


def pairs(numbers, log):
    return set(enumerate(numbers))


def keys(numbers, log):
    return {(key, number): None for key, number in enumerate(numbers)}.keys()


def compared(make, other, numbers, others, compare):
    log = []
    try:
        value = compare(make(numbers, log), other(others, log))
        return sorted(map(str, value)) if isinstance(value, (set, frozenset)) else value, log
    except (TypeError, RuntimeError) as error:
        return str(error), log


KINDS = [lists, objects, plain, pairs, keys]
NUMBERS = [[1], [1, 2], [2, 1], [0, 1], []]
COMPARISONS = [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]


@pytest.mark.parametrize("compare", COMPARISONS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("make", KINDS, ids=lambda f: f.__name__)
def test_items_need_no_hash_to_be_compared(make, compare):
    cases = list(itertools.product(KINDS, NUMBERS, NUMBERS))

    def f(x):
        return x + 1, [compared(make, other, a, b, compare) for other, a, b in cases]

    assert flambeau.compile(f, backend="eager")(X)[1] == f(X)[1]


@pytest.mark.parametrize("operate", [operator.and_, operator.or_, operator.sub, operator.xor], ids=lambda f: f.__name__)
@pytest.mark.parametrize("make", KINDS, ids=lambda f: f.__name__)
def test_items_need_a_hash_where_they_become_elements(make, operate):
    def f(x, other, a, b):
        return x + 1, compared(make, other, a, b, operate)

    for case in itertools.product(KINDS, NUMBERS[1:4], NUMBERS[:2]):
        flambeau.reset()
        assert flambeau.compile(f, backend="eager")(X, *case)[1] == f(X, *case)[1]
