"""What consumes an iterator takes one item after the other: what makes the items sees what came of those before, and an
exception leaves what was done so far."""

import itertools

import pytest
import torch
from support import check

import flambeau

X = torch.arange(3.0)


def log_of(program):
    """A function of a tensor that runs the program with a list as its log, and gives both."""

    def logged(x):
        log = []
        try:
            result = program(log, x)
        except Exception as error:
            result = (type(error).__name__, str(error))
        return result, log, x + len(log)

    return logged


def growing(log, x):
    y = [1]
    y.extend(y[-1] * 2 for _ in range(3))
    y += (y[-1] + i for i in range(2))
    y += map(lambda i: len(y) + i, range(2))
    y.extend(filter(lambda i: len(y) > i, range(7, 12)))
    return y


def generator_function(log, x):
    def items():
        for i in range(3):
            log.append(len(y))
            yield i

    y = []
    y.extend(items())
    y[1:2] = items()
    return y, [*items()], (*items(),), {*items()}


def raises_midway(log, x):
    def items():
        yield 1
        yield 2
        raise KeyError("midway")

    y, s, d = [0], {0}, {}
    for consume in (y.extend, s.update, lambda it: d.update((i, i) for i in it), y.__iadd__):
        try:
            consume(items())
        except KeyError:
            log.append((list(y), sorted(s), dict(d)))
    return y


def dict_update(log, x):
    d = {"a": 1}
    d.update((str(len(d)), len(d)) for _ in range(3))
    d |= ((str(len(d)), len(d)) for _ in range(2))
    s = {0}
    s.update(len(s) for _ in range(3))
    s |= {len(s)}
    return d, sorted(s)


def bad_pairs(log, x):
    d = {}
    try:
        d.update([(1, 2), (3,), (4, 5)])
    except ValueError as error:
        log.append((str(error), dict(d)))
    try:
        d.update([(1, 3), 7])
    except TypeError as error:
        log.append((str(error), dict(d)))
    return d


def keyed_extremes(log, x):
    def items():
        for i in (3, 1, 2):
            log.append(("item", i))
            yield i

    def key(i):
        log.append(("key", i))
        return -i

    return min(items(), key=key), max(items(), key=key), min(items()), max([5, 6], key=key), sum(items())


def sorts(log, x):
    def key(i):
        log.append((i, list(y)))
        return -i

    y = [3, 1, 2]
    y.sort(key=key)
    return y, sorted((i for i in y), key=lambda i: log.append(i) or i)


def sort_that_changes(log, x):
    y = [3, 1, 2]
    y.sort(key=lambda i: y.append(i) or i)
    return y


def compares(log, x):
    class Loud:
        def __init__(self, i):
            self.i = i

        def __lt__(self, other):
            log.append((self.i, other.i))
            return self.i < other.i

        def __eq__(self, other):
            log.append(("eq", self.i))
            y.clear()
            return False

    y = [Loud(1), Loud(2)]
    first = [item.i for item in sorted([Loud(i) for i in (2, 3, 1, 5, 4)])]
    return first, y.count(5), y, 5 in y


def shared_iterators(log, x):
    it = iter(range(10))
    pairs = list(zip(it, it, strict=False))
    it = iter([1, 2, 3, 4])
    for a in it:
        log.append((a, next(it, None)))
    y = [1, 2, 3]
    it = reversed(y)
    y.append(4)
    log.append(list(it))
    z = zip(iter("ab"), "xyz", strict=False)
    return pairs, list(z), list(z), next(z, "end")


def short_circuit(log, x):
    def items():
        for i in range(5):
            log.append(i)
            yield i

    s = {2, 9}
    a, b = itertools.islice(items(), 2)
    return s.isdisjoint(items()), s.issuperset(items()), 1 in items(), any(items()), a, b


def unpacking(log, x):
    def items(n):
        for i in range(n):
            log.append(i)
            yield i

    a, b = items(2)
    try:
        a, b = items(9)
    except ValueError as error:
        log.append(str(error))
    a, *b = items(3)
    try:
        a, b = 5
    except TypeError as error:
        log.append(str(error))
    return a, b


def stop_iteration_ends(log, x):
    def stops(i):
        if i == 2:
            raise StopIteration
        return i

    m = map(stops, range(5))
    return list(m), list(m), list(iter(lambda: stops(log.append(0) or len(log)), 7))


def old_sequences(log, x):
    class Sequence:
        def __getitem__(self, i):
            log.append(i)
            if i == 3:
                raise IndexError
            return i * 2

    for item in Sequence():
        log.append(("body", item))
    first, *_ = Sequence()
    return first, 2 in Sequence()


def lengths(log, x):
    class Sized:
        def __init__(self, hint):
            self.hint = hint

        def __len__(self):
            log.append("len")
            if self.hint is None:
                raise TypeError
            return 2

        def __iter__(self):
            log.append("iter")
            return iter([1, 2])

    class Hinted(Sized):
        __len__ = None

        def __length_hint__(self):
            log.append("hint")
            return NotImplemented

    y = [0]
    y.extend(Sized(2))
    y += Sized(None)
    return y, list(Sized(2)), tuple(Sized(2)), {*Sized(2)}, sum(Sized(2)), sorted(Sized(2))


def mappings(log, x):
    class Mapping:
        def keys(self):
            log.append("keys")
            return (k for k in "ab")

        def __getitem__(self, key):
            log.append((key, sorted(d)))
            return key * 2

    class Own(dict):
        def keys(self):
            log.append("never asked")
            return super().keys()

    class Iterated(dict):
        def __iter__(self):
            log.append("iter")
            return super().__iter__()

    d = {}
    d.update(Mapping())
    d.update(Own(c=1))
    d.update(Iterated(e=1))
    return d, dict(**Mapping()), {**Mapping(), **Iterated(f=2)}, dict(Own(g=3))


PROGRAMS = [
    growing,
    generator_function,
    raises_midway,
    dict_update,
    bad_pairs,
    keyed_extremes,
    sorts,
    sort_that_changes,
    compares,
    shared_iterators,
    short_circuit,
    unpacking,
    stop_iteration_ends,
    old_sequences,
    lengths,
    mappings,
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_items_are_taken_one_by_one(program, backend):
    check(log_of(program), (X,), backend=backend, graphs=None)


def test_the_usual_ones_do_not_break():
    def f(x):
        y = [x]
        y.extend(y[-1] * 2 for _ in range(3))
        d = {}
        d.update((str(i), t) for i, t in enumerate(y))
        return sum(d.values()), min((t.shape[0] for t in y), key=lambda n: -n)

    check(f, (X,), graphs=1)


def test_a_list_of_the_caller_keeps_what_came_before_the_exception():
    def f(y, x):
        def items():
            yield x
            yield x + 1
            raise RuntimeError("midway")

        y.extend(items())

    compiled, eager = [], []
    with pytest.raises(RuntimeError, match="midway"):
        f(eager, X)
    with pytest.raises(RuntimeError, match="midway"):
        flambeau.compile(f)(compiled, X)
    assert len(compiled) == len(eager) == 2
    assert all(torch.equal(a, b) for a, b in zip(compiled, eager, strict=True))
