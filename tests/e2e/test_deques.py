"""`collections.deque`: made in a trace, given, changed, looked at, left behind."""

import collections
import contextlib
import copy
import random

import pytest
import torch
from support import COUNTED, assert_same

import flambeau

pytestmark = pytest.mark.filterwarnings("ignore:flambeau")


def state(value):
    """What can be seen of a result."""
    if isinstance(value, collections.deque):
        return "deque", [state(item) for item in value], value.maxlen
    if isinstance(value, (list, tuple)):
        return [type(value).__name__, *map(state, value)]
    return value.tolist() if isinstance(value, torch.Tensor) else value


def outcome(function, *args):
    try:
        return state(function(*args))
    except Exception as error:
        return type(error).__name__, str(error)


def agree(program, *makers, whole=False):
    """Calls with the arguments that each maker makes, twice each, eagerly and compiled."""
    compiled = flambeau.compile(program)
    before = flambeau.counters()["graph_breaks"]
    for make in makers:
        for _ in range(2):
            mine, theirs = make(), make()
            assert outcome(compiled, *mine) == outcome(program, *theirs)
            assert state(list(mine)) == state(list(theirs)), "arguments afterwards"
    assert not whole or not COUNTED or flambeau.counters()["graph_breaks"] == before


def made_in_the_trace(a):
    d = collections.deque([1, 2, 3], maxlen=4)
    d.append(4)
    d.append(5)
    d.appendleft(0)
    d.rotate(1)
    return a * sum(d), list(d), d.maxlen, len(d), bool(d), d[0], d[-1]


def window_of_tensors(d, a):
    d.append(a)
    return torch.stack(list(d)).sum(0)


def blind_append(d, a):
    d.append(1)
    d.extend([2, 3])
    return a + 1


def first_in_first_out(d, a):
    total = a
    while d:
        item = d.popleft()
        total = total + item
        if item > 2:
            d.append(item - 2)
    return total


def walks(d, a):
    return [x for x in d], [*reversed(d)], tuple(enumerate(d)), 3 in d, d.count(1), a * 2


def compares(d, a):
    other = collections.deque(d)
    other.append(9)
    return d == other, d != other, d < other, d <= d, d > other, d >= other, d == list(d), d == d.copy(), a


def adds(d, a):
    return d + d, d * 2, 2 * d, collections.deque(d, 2), copy.copy(d), a


def changes_items(d, a):
    d[0] = 7
    d[-1] = 5
    del d[1]
    d.insert(1, "x")
    d.reverse()
    d.remove("x")
    d *= 2
    d += [1]
    return d, d.index(1), repr(collections.deque([1, "a"], 5))


def leaves_new(a):
    d = collections.deque([a, a + 1], maxlen=3)
    return d, [d, d]


def changed_while_walked(d, a):
    for x in d:
        d.append(x)
    return a


def errors(a):
    said = []
    d = collections.deque()
    for action in (d.pop, d.popleft, lambda: d[0], lambda: d.remove(1), lambda: d.index(1), lambda: {d: 1}):
        try:
            action()
        except (IndexError, ValueError, TypeError) as error:
            said.append(f"{type(error).__name__}: {error}")
    return a, said


def arguments_that_c_refuses(a):
    said = []
    d = collections.deque([1], 1)
    for action in (lambda: d.index(1, 0, None), lambda: d.insert("x", 1), lambda: d.insert(0, 1), lambda: d < [1]):
        try:
            action()
        except (IndexError, TypeError) as error:
            said.append(f"{type(error).__name__}: {error}")
    return a, said


def broken_within(d, a):
    for x in d:
        a = a + x
        flambeau.graph_break()
    return a


def carried_over_a_break(a):
    d = collections.deque(maxlen=2)
    for i in range(4):
        d.append(a + i)
        flambeau.graph_break()
    return d


def broken_within_what_was_changed(d, a):
    d.appendleft(4)
    for x in d:
        a = a + x
        flambeau.graph_break()
    return a


def iterator_carried_over_a_break(d, a):
    forwards, backwards = iter(d), reversed(d)
    first = next(forwards)
    d[0] = 8
    flambeau.graph_break()
    return a + first, list(forwards), next(backwards)


def exits(a):
    said = []
    with contextlib.ExitStack() as stack:
        stack.callback(said.append, 1)
        stack.enter_context(contextlib.nullcontext())
        stack.callback(said.append, 2)
        b = a * 2
    return b, said


def a():
    return torch.arange(3.0)


def numbers(*items, maxlen=None):
    return lambda: (collections.deque(items, maxlen), a())


GIVEN = [
    blind_append,
    first_in_first_out,
    walks,
    compares,
    adds,
    changes_items,
    changed_while_walked,
    broken_within,
    broken_within_what_was_changed,
    iterator_carried_over_a_break,
]


@pytest.mark.parametrize("program", GIVEN, ids=lambda value: value.__name__)
def test_given(program):
    cases = [numbers(1, 2, 3), numbers(4, 3, 3, 1), numbers(1, 2, 3, maxlen=3), numbers(5, 4, maxlen=9), numbers(7)]
    agree(program, *cases)


@pytest.mark.parametrize(
    "program", [made_in_the_trace, leaves_new, errors, arguments_that_c_refuses, carried_over_a_break, exits]
)
def test_made(program):
    agree(program, lambda: (a(),))


@pytest.mark.plain_only("counts frames")
@pytest.mark.parametrize("program", [made_in_the_trace, leaves_new, exits])
def test_made_without_a_break(program):
    agree(program, lambda: (a(),), whole=True)


@pytest.mark.plain_only("counts frames")
@pytest.mark.parametrize("program", [blind_append, first_in_first_out, walks, changes_items])
def test_given_without_a_break(program):
    agree(program, numbers(1, 2, 3), whole=True)


def test_a_window_of_tensors():
    def windows(run):
        d = collections.deque(maxlen=3)
        return [run(d, torch.full((2,), float(i))) for i in range(6)], list(d)

    assert_same(windows(flambeau.compile(window_of_tensors)), windows(window_of_tensors))


def test_how_long_one_grows_does_not_matter_to_what_only_appends():
    compiled, d = flambeau.compile(blind_append), collections.deque()
    before = flambeau.counters()["recompiles"]
    for _ in range(20):
        compiled(d, a())
    assert len(d) == 60
    assert flambeau.counters()["recompiles"] == before


def test_maxlen_and_length_are_facts():
    def both(d, a):
        d.append(9)
        return a * len(d), d[0]

    agree(both, *(numbers(*items, maxlen=longest) for items in ((), (1,), (1, 2)) for longest in (None, 2, 3)))


@pytest.mark.parametrize(
    "change",
    [lambda d: d.__setitem__(0, 5), lambda d: d.reverse(), lambda d: d.append(d.popleft()), lambda d: d.rotate(3)],
)
def test_iterators_of_the_caller(change):
    def changes(d, a):
        change(d)
        return a * 2

    def walk(run):
        d, seen = collections.deque([1, 2, 3]), []
        try:
            for x in d:
                seen.append(x)
                run(d, a())
        except RuntimeError as error:
            seen.append(str(error))
        return seen, list(d)

    assert walk(flambeau.compile(changes)) == walk(changes)


def test_one_deque_given_twice():
    def both(p, q, a):
        p.append(5)
        return a * len(q)

    def given(one):
        p = collections.deque([1])
        return p, p if one else collections.deque([1]), a()

    agree(both, lambda: given(False), lambda: given(True), lambda: given(False))


def test_subclasses_are_left_alone():
    class Own(collections.deque):
        def append(self, item):
            super().append(item * 2)

    agree(blind_append, lambda: (Own([1]), a()))
    agree(lambda d, a: (d == collections.deque([1]), a), lambda: (Own([1]), a()))


class Operations:
    """A random program on two deques: `given` is given, the other is made."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def value(self):
        return self.random.choice([0, 1, 2, 3, "'s'", "a", "(1, 2)"])

    def line(self):
        d, e = self.random.sample(["given", "own"], 2)
        n = self.random.randrange(-4, 5)
        return self.random.choice(
            [
                f"{d}.append({self.value()})",
                f"{d}.appendleft({self.value()})",
                f"{d}.extend({e})",
                f"{d}.extend({d})",
                f"{d}.extendleft([{self.value()}, {self.value()}])",
                f"out.append({d}.pop())",
                f"out.append({d}.popleft())",
                f"{d}.rotate({n})",
                f"{d}.reverse()",
                f"{d}.insert({n}, {self.value()})",
                f"{d}[{n}] = {self.value()}",
                f"out.append({d}[{n}])",
                f"del {d}[{n}]",
                f"out.append({d} == {e})",
                f"out.append({d} is {e})",
                f"out.append(len({d}))",
                f"out.append(bool({d}))",
                f"out.append({d}.maxlen)",
                f"{d} += [{self.value()}]",
                f"{d} *= {n}",
                f"{d} = {d} + {e}",
                f"{d} = {d}.copy()",
                f"{d} = {d} * {n}",
                f"{d} = deque({d}, {self.random.choice([None, 0, 1, 3])})",
                f"out.append([x is a or x for x in {d}])",
                f"out.append([*reversed({d})])",
                f"it = iter({d}); out.append(next(it, 7)); out.append(list(it))",
                f"it = iter({d}); {d}.append(1); out.append(list(it))",
                f"{d}.clear()",
                "flambeau.graph_break()",
                f"out.append(repr([x for x in {d} if x is not a]))",
            ]
        )

    def program(self):
        lines = ["def program(given, a):", "    own, out = deque(), []"]
        for _ in range(self.random.randrange(2, 9)):
            first, *rest = self.line().split("; ")
            lines += [
                "    try:",
                f"        {first}",
                *(f"        {line}" for line in rest),
                "    except Exception as error:",
                "        out.append((type(error).__name__, str(error)))",
            ]
        return "\n".join([*lines, "    return given, own, out, a + 1"])

    def arguments(self):
        items, longest = self.random.choices([0, 1, 2, 5], k=self.random.randrange(4)), self.random.choice([None, 2, 4])
        return lambda: (collections.deque(items, longest), a())


@pytest.mark.parametrize("first", range(0, 40, 10))
def test_random_programs(first):
    for seed in range(first, first + 10):
        operations = Operations(seed)
        text = operations.program()
        names = {"deque": collections.deque, "flambeau": flambeau}
        exec(compile(text, f"<deques {seed}>", "exec"), names)
        agree(names["program"], operations.arguments(), operations.arguments())
