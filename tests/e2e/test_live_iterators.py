"""Iterators that are there before a trace: in loops whose bodies break, and as arguments."""

import itertools

import pytest
import torch

import flambeau

X = torch.arange(3.0)
WORDS = {"a": 1, "b": 2, "c": 3}

#: Iterators of known types, and some that only Python can advance.
MADE = {
    "list": lambda: iter([1, 2, 3]),
    "tuple": lambda: iter((1, "b", 2.5)),
    "range": lambda: iter(range(2, 9, 3)),
    "large range": lambda: iter(range(10**20, 10**20 + 3)),
    "ascii": lambda: iter("abc"),
    "text": lambda: iter("aß€"),
    "bytes": lambda: iter(b"xyz"),
    "keys": lambda: iter(WORDS),
    "values": lambda: iter(WORDS.values()),
    "items": lambda: iter(WORDS.items()),
    "set": lambda: iter({7}),
    "reversed": lambda: reversed([1, 2, 3]),
    "enumerate": lambda: enumerate("abc", 5),
    "zip": lambda: zip([1, 2, 3], "ab", strict=False),
    "strict": lambda: zip([1, 2, 3], "ab", strict=True),
    "nested": lambda: enumerate(zip([1, 2], reversed([3, 4]), strict=True)),
    "empty": lambda: iter(()),
    "map": lambda: map(str, [1, 2, 3]),
    "generator": lambda: (i for i in range(3)),
    "count": lambda: itertools.islice(itertools.count(4), 3),
    "subclass": lambda: iter(Loud([1, 2, 3])),
}


class Loud(list):
    def __iter__(self):
        return iter("loud")


def begun(it, steps):
    for _ in range(steps):
        drawn(it)
    return it


def drawn(it):
    """The next item, or how it ends."""
    try:
        return next(it)
    except Exception as error:
        return type(error), str(error)


def left(value):
    """What a container has, or the next items of an iterator."""
    return [drawn(value) for _ in range(5)] if hasattr(value, "__next__") else value


def same(program, make):
    """Eager and compiled runs from equal states, twice: results or errors, and what is left."""
    compiled = flambeau.compile(program)
    for _ in range(2):
        outcomes = []
        for run in (program, compiled):
            state = make()
            try:
                result = run(*state)
            except Exception as error:
                result = type(error), str(error)
            outcomes.append((str(result), str([left(part) for part in state[1:]])))
        assert outcomes[0] == outcomes[1]


def one(x, it):
    return x + 1, next(it, "end")


def two_and_a_break(x, it):
    a = next(it, "end")
    flambeau.graph_break()
    return a, next(it, "end"), x + 1


def rest(x, it):
    return [x, *it]


def looped(x, it):
    found = []
    for item in it:
        found.append(item)
        flambeau.graph_break()
        x = x + 1
        if len(found) == 2:
            break
    return x, found


def past_the_end(x, it):
    found = list(it)
    flambeau.graph_break()
    return found, next(it, "end"), next(it, "end"), x


@pytest.mark.parametrize("steps", [0, 1, 3, 4])
@pytest.mark.parametrize("kind", MADE)
@pytest.mark.parametrize("program", [one, two_and_a_break, rest, looped, past_the_end], ids=lambda p: p.__name__)
def test_arguments(program, kind, steps):
    same(program, lambda: (X, begun(MADE[kind](), steps)))


def over_a_list(x, items):
    for item in items:
        x = x + 1
        flambeau.graph_break()
        if len(items) < 6:
            items.append(item)
    return x


def over_a_shrinking_list(x, items):
    seen = []
    for item in items:
        seen.append(item)
        flambeau.graph_break()
        if item == 1:
            items.remove(2)
    return x, seen


def changes_then_draws(x, items):
    it = iter(items)
    next(it)
    flambeau.graph_break()
    items.insert(0, 9)
    first = next(it)
    items.clear()
    return x + 1, first, list(it)


def draws_then_changes(x, items):
    it = iter(items)
    flambeau.graph_break()
    first = next(it)
    items[1:] = [7, 8]
    flambeau.graph_break()
    return x, first, list(it)


def ends_then_grows(x, items):
    it = iter(items)
    flambeau.graph_break()
    seen = list(it)
    items.append(9)
    flambeau.graph_break()
    return x + 1, seen, list(it), items


LISTS = [over_a_list, over_a_shrinking_list, changes_then_draws, draws_then_changes, ends_then_grows]


@pytest.mark.parametrize("program", LISTS)
def test_lists_that_change(program):
    same(program, lambda: (X, [1, 2, 3]))


def over_a_dict(x, table):
    for key in table:
        x = x + table[key]
        flambeau.graph_break()
        table[key] = 5
    return x


def over_a_growing_dict(x, table):
    for key in table:
        flambeau.graph_break()
        x = x + 1
        table[key + "'"] = 1
    return x


def over_a_set(x, table):
    found = set(table.values())
    for key in found:
        flambeau.graph_break()
        found.discard(key)
    return x


@pytest.mark.parametrize("program", [over_a_dict, over_a_growing_dict, over_a_set])
def test_dicts_and_sets_that_change(program):
    same(program, lambda: (X, dict(WORDS)))


def appends_to_another(x, items, it):
    items.append(1)
    return x, next(it), next(it), items


def test_the_list_behind_is_guarded():
    """What the first calls change is another list than the iterator's; then it is the same."""
    compiled = flambeau.compile(appends_to_another)
    for shared in (False, False, True, False, True):
        outcomes = []
        for run in (appends_to_another, compiled):
            items = [5]
            it = iter(items) if shared else iter([5, 6])
            outcomes.append(str(run(X, items, it)))
        assert outcomes[0] == outcomes[1]


def of_two(x, a, b):
    return x, next(a), next(b), next(a)


def test_one_iterator_twice():
    compiled = flambeau.compile(of_two)
    for shared in (False, True, False, True):
        outcomes = []
        for run in (of_two, compiled):
            a = iter([1, 2, 3])
            b = a if shared else iter([4, 5, 6])
            outcomes.append((str(run(X, a, b)), list(a), list(b)))
        assert outcomes[0] == outcomes[1]


def test_an_iterator_within_another():
    """What a zip draws from is drawn from by others too."""

    def draws(x, it, pairs):
        return x, next(pairs), next(it), next(pairs)

    def make():
        it = iter(range(9))
        return X, it, zip(it, it, strict=True)

    same(draws, make)

    def drawn_later(x, it):
        pairs = enumerate(it)
        next(pairs)
        flambeau.graph_break()
        return x, next(pairs), next(it), next(pairs)

    same(drawn_later, lambda: (X, iter("abcdefg")))


def traced(fn, *calls):
    before = flambeau.counters()
    compiled = flambeau.compile(fn)
    for arguments in calls:
        assert str(compiled(*arguments)) == str(fn(*arguments))
    after = flambeau.counters()
    return after["frames_traced"] - before["frames_traced"], after["graph_breaks"]


@pytest.mark.plain_only("counts breaks and traces")
def test_rounds_of_a_loop_share_what_was_compiled():
    layers = torch.nn.ModuleList(torch.nn.Linear(3, 3) for _ in range(12))

    def through(x):
        for layer in layers:
            x = layer(x)
            flambeau.graph_break()
        return x

    def counted(x, n):
        for i in range(n):
            x = x + i
            flambeau.graph_break()
        return x

    frames, breaks = traced(through, (X,))
    assert frames <= 4 and set(breaks) == {"user_break"}
    frames, breaks = traced(counted, (X, 12), (X, 30))
    assert frames <= 8 and "live_iterator" not in breaks


@pytest.mark.plain_only("counts breaks and traces")
def test_rounds_without_a_break_are_one_graph():
    def once(x, items):
        for i, item in enumerate(items):
            x = x * item
            if i == 0:
                flambeau.graph_break()
        return x

    frames, breaks = traced(once, (X, [2, 3, 4, 5, 6]))
    assert frames == 2 and breaks == {"user_break": 1}


@pytest.mark.plain_only("counts breaks and traces")
@pytest.mark.passes_recompile_limit("how many rounds are compiled before it")
def test_items_that_differ_in_kind_are_left_to_python():
    """Each round would be compiled by itself: from some number on Python advances the iterator."""
    steps = [
        torch.relu,
        torch.sin,
        torch.cos,
        torch.tanh,
        torch.exp,
        torch.neg,
        torch.abs,
        torch.sqrt,
        torch.square,
    ] * 2

    def calls(x):
        for step in steps:
            x = step(x)
            flambeau.graph_break()
        return x

    frames, breaks = traced(calls, (X,), (X + 1,))
    assert breaks["live_iterator"] > 0
    assert "recompile_limit" not in flambeau.counters()["eager_fallbacks"] or frames <= 20
