"""Sets give their elements in an order that follows from hashes and from what was done to them."""

import os
import subprocess
import sys

import pytest
import torch
from mode import COUNTED

import flambeau

X = torch.arange(3.0)


def told(x, given):
    return x + 1, list(given), [*given], dict.fromkeys(given), ",".join(map(str, given)), max(given)


GIVEN = {
    "two": {1, 2},
    "numbers": {100, 3, 7},
    "texts": {"a", "b", "c"},
    "frozen": frozenset([2, 1, 9, 17]),
    "bytes": {b"x", b"y"},
    "one": {5},
    "same place": {8, 0, 16},
}


@pytest.mark.plain_only("hashes of texts are others in another process", "warm")
@pytest.mark.parametrize("kind", GIVEN)
def test_sets_from_outside(kind):
    given = GIVEN[kind]
    compiled = flambeau.compile(told)
    made_apart = type(given)(sorted(given, reverse=True))
    for case in (given, made_apart, given):
        assert str(compiled(X, case)) == str(told(X, case))
    assert flambeau.counters()["graph_breaks"] == {} or not COUNTED


def test_sets_of_tuples():
    compiled = flambeau.compile(told)
    assert str(compiled(X, {(1, "a"), (2, "b")})) == str(told(X, {(1, "a"), (2, "b")}))


def literals(x, names):
    return list({8, 0, 16}), list({"b", "a", *names}), [n for n in {3, 1, 2}], list(frozenset(names)), x


def additions_and_removals(x, names):
    found = set(names)
    found.add("zz")
    found.discard("a")
    found |= {"q", "r"}
    found.update(["s", "t"])
    found -= {"b"}
    return x, list(found), [item for item in found if item != "q"]


def of_numbers(x, names):
    found = {n * 8 for n in range(9)}
    for n in (0, 8, 40):
        found.remove(n)
    found.add(1000003)
    return x, list(found), tuple({-1, -2, 2**70})


def of_sets(x, names):
    found, added = set(names), {n * 8 for n in range(9)}
    pairs = list(found & {"a", "b", "zz"}), list(found ^ {"u"}), list(found.union(["q"])), list(found - {"c"})
    return x, pairs, list(added | {1, 2}), list(frozenset(added)), list(set(added)), list(added.copy())


def deduplicated(x, names):
    return x, {name: len(name) for name in set(names)}, sorted(set(names)), len(set(names))


def of_changed_sets(x, names):
    """What they give is left to Python: it would be made before its operands are changed."""
    found = {n * 8 for n in range(9)}
    found.remove(8)
    return x, list(found | {1, 2}), list(frozenset(found)), list(set(found)), list(found.copy()), list(found ^ {0})


def test_sets_of_sets_that_were_changed():
    compiled = flambeau.compile(of_changed_sets)
    for _ in range(2):
        assert str(compiled(X, ["a"])) == str(of_changed_sets(X, ["a"]))


@pytest.mark.plain_only("hashes of texts are others in another process", "warm")
@pytest.mark.parametrize("program", [literals, additions_and_removals, of_numbers, of_sets, deduplicated])
def test_sets_that_the_trace_makes(program):
    compiled = flambeau.compile(program)
    for names in (["a", "b", "c"], ["long", "words", "a", "b"], ["a", "b", "c"]):
        assert str(compiled(X, names)) == str(program(X, names))
    assert flambeau.counters()["graph_breaks"] == {} or not COUNTED


def grows(x, given):
    seen = []
    try:
        for item in given:
            seen.append(item)
            given.add(item + 100)
    except RuntimeError as error:
        seen.append(str(error))
    return x, seen


def grows_at_its_end(x, given):
    it = iter(given)
    seen = [next(it) for _ in range(len(given))]
    given.add(77)
    for _ in range(2):
        try:
            seen.append(next(it, "end"))
        except RuntimeError as error:
            seen.append(str(error))
    return x, seen


def changes_in_place(x, given):
    seen = []
    for item in given:
        seen.append(item)
        given.discard(item)
        given.add(item)
    return x, seen


def exchanges(x, given):
    seen = []
    for item in given:
        seen.append(item)
        given.discard(1)
        given.add(2)
        if len(seen) > 5:
            break
    return x, seen


@pytest.mark.parametrize("made", [lambda: {1}, lambda: {1, 4}, lambda: {9, 1, 4}])
@pytest.mark.parametrize("program", [grows, grows_at_its_end, changes_in_place, exchanges])
def test_sets_that_change_while_they_are_iterated_over(program, made):
    def inside(x):
        return program(x, made())

    compiled, compiled_inside = flambeau.compile(program), flambeau.compile(inside)
    for _ in range(2):
        assert str(compiled(X, made())) == str(program(X, made()))
        assert str(compiled_inside(X)) == str(inside(X))


SCRIPT = """
import flambeau, torch
def f(x, names):
    return x, list(set(names)), list(names), [n for n in {"p", "q", "r"}]
names = {"a", "b", "c", "d"}
x = torch.ones(2)
assert str(flambeau.compile(f)(x, names)) == str(f(x, names))
assert not flambeau.counters()["graph_breaks"]
"""


@pytest.mark.parametrize("seed", ["1", "2", "1"])
def test_another_process_has_another_order(seed):
    """Over the same cache."""
    subprocess.run([sys.executable, "-c", SCRIPT], env={**os.environ, "PYTHONHASHSEED": seed}, check=True, timeout=120)
