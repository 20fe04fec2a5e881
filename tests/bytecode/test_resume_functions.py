"""Each function of the corpus is taken up at each instruction that it executes."""

import random

import pytest
from assembler import Assembler
from cases import CASES, LOG
from library import LIBRARY
from resuming import Point, Skip, Stop, as_it_is, break_at, handling_anew, instructions, outcome, stack_of

HANDLING = ("contexts", "handlers", "managers", "odd", "uncaught")


@pytest.fixture(scope="module")
def assembler():
    made = Assembler()
    yield made
    made.close()


def taken_up(assembler, call, way, **sample):
    """Takes the call up at each place that is worth it; how often that was possible."""
    expected = outcome(call)
    taken = 0
    for number in instructions(call, **sample):
        found = []

        def act(frame, found=found):
            log = list(LOG)
            try:
                points = [Point(assembler, f) for f in stack_of(frame)]
                found += [outcome(lambda: way(points), log), points[0].operation, frame]
            except Skip:
                found.append(expected)

        Stop(number, act).run(call)
        assert found[0] == expected, (number, found[1:])
        taken += len(found) > 1
    return taken


@pytest.mark.parametrize("name", CASES)
def test_from_each_instruction(assembler, name):
    assert taken_up(assembler, CASES[name], as_it_is) > 10


@pytest.mark.parametrize("name", CASES)
def test_behind_each_instruction(assembler, name):
    assert taken_up(assembler, CASES[name], break_at) > 2


@pytest.mark.parametrize("way", [as_it_is, break_at])
@pytest.mark.parametrize("name", LIBRARY)
def test_in_libraries(assembler, name, way):
    assert taken_up(assembler, LIBRARY[name], way, at_most=40, rng=random.Random(name)) >= 5


@pytest.mark.parametrize("name", [n for n in CASES if n.startswith(HANDLING)])
def test_in_handlers(assembler, name):
    taken_up(assembler, CASES[name], handling_anew)
