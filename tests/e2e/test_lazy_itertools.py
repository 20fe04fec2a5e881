"""`itertools` that take items one by one, in a trace: containers that change meanwhile, effects of what adds, iterators
that leave the frame after they have begun; and weak references to arguments, which programs see."""

from __future__ import annotations

import itertools
import operator
import typing
import weakref
from typing import Any

import pytest

import flambeau

MADE = {
    "accumulate": lambda items: itertools.accumulate(items),
    "accumulate with a function": lambda items: itertools.accumulate(items, operator.mul),
    "accumulate with a lambda": lambda items: itertools.accumulate(items, lambda a, b: a - b),
    "accumulate from": lambda items: itertools.accumulate(items, initial=7),
    "pairwise": lambda items: itertools.pairwise(items),
    "zip_longest": lambda items: itertools.zip_longest(items, [5]),
    "zip_longest filled": lambda items: itertools.zip_longest(items, [5], fillvalue=3),
    "product": lambda items: itertools.product(items, repeat=2),
    "permutations": lambda items: itertools.permutations(items),
    "combinations": lambda items: itertools.combinations(items, 2),
}


@pytest.mark.parametrize("name", MADE)
def test_lists_that_change_after_the_iterator_was_made(name: str) -> None:
    make = MADE[name]

    def program() -> Any:
        items = [1, 2]
        made = make(items)
        items.append(3)
        items[0] = 9
        return list(made)

    assert flambeau.compile(program)() == program()


@pytest.mark.parametrize("name", ["accumulate", "pairwise", "zip_longest"])
def test_dicts_that_change_after_the_iterator_was_made(name: str) -> None:
    make = MADE[name]

    def program() -> Any:
        items = {1: 2}
        made = make(items)
        items[2] = 3
        return list(made)

    with pytest.raises(RuntimeError, match="dictionary changed size during iteration"):
        flambeau.compile(program)()


class Adds:
    """Says when it is added."""

    def __init__(self, log: list[str]):
        self.log = log

    def __add__(self, other: Any) -> Adds:
        self.log.append("added")
        return self


def test_what_adds_is_called_when_the_sum_is_asked_for() -> None:
    def program() -> list[str]:
        log: list[str] = []
        sums = itertools.accumulate([Adds(log), Adds(log)])
        log.append("made")
        next(sums)
        log.append("one")
        next(sums)
        return log

    assert flambeau.compile(program)() == program() == ["made", "one", "added"]


@pytest.mark.parametrize("begun", [0, 1, 2])
@pytest.mark.parametrize("name", MADE)
def test_iterators_leave_the_frame_as_what_they_are(name: str, begun: int) -> None:
    make = MADE[name]

    def program() -> Any:
        made = make([4, 2, 3])
        for _ in range(begun):
            next(made)
        return made

    got, expected = flambeau.compile(program)(), program()
    assert type(got) is type(expected)
    assert list(got) == list(expected)


def test_an_accumulated_none_leaves_the_frame() -> None:
    def program() -> Any:
        made = itertools.accumulate([None, None, None], operator.is_)
        next(made)
        return made

    got = flambeau.compile(program)()
    assert type(got) is itertools.accumulate
    assert list(got) == [True, False]


def test_arguments_get_no_weak_references_that_the_program_sees() -> None:
    def program(held: Any) -> tuple[int, int]:
        return weakref.getweakrefcount(held), weakref.getweakrefcount(program)

    compiled = flambeau.compile(program)
    held = Adds([])
    assert compiled(held) == compiled(held) == program(held) == (0, 0)
    assert weakref.getweakrefcount(held) == 0


def test_objects_that_cannot_die_with_a_weak_reference() -> None:
    # CPython frees `typing.ParamSpecArgs` without telling weak references to it, and crashes when those are freed.
    def program(args: Any) -> bool:
        return args is None

    compiled = flambeau.compile(program)
    for _ in range(3):
        assert compiled(typing.ParamSpec("P").args) is False
    flambeau.reset()
