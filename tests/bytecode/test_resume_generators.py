"""Suspended generators are rebuilt from their frame and driven on: what they yield, raise and log must not differ."""

import contextlib
import inspect
import sys

import pytest
from assembler import Assembler
from cases import LOG
from corpus_generators import captured, counting, delegating, expression, guarded, handling
from raw_frames import NULL, handled
from resuming import Point, described, plain


@pytest.fixture(scope="module")
def assembler():
    made = Assembler()
    yield made
    made.close()


STEPS = {
    "next": ("next",) * 12,
    "send": ("next", ("send", 2), ("send", 3), "next", ("send", 1), "next", "next", "next", "next"),
    "throw": ("next", "next", ("throw", ValueError), "next", ("throw", KeyError), "next", "next"),
    "throw at once": ("next", ("throw", ValueError), "next", "next", ("throw", IndexError), "next"),
    "close": ("next", "next", "close", "next"),
    "close early": ("next", "close"),
}


def step(generator, what):
    """One step, and how the generator stands after it."""
    name, *argument = (what,) if isinstance(what, str) else what
    try:
        if name == "next":
            result = next(generator)
        elif name == "throw":
            result = generator.throw(argument[0]("thrown"))
        else:
            result = getattr(generator, name)(*argument)
        result = "gave", plain(result)
    except BaseException as error:
        result = "raised", described(error), plain(getattr(error, "value", None))
    frame = generator.gi_frame
    stands = frame and frame.f_lineno
    return result, inspect.getgeneratorstate(generator), stands, plain(generator.gi_yieldfrom), plain(list(LOG))


def rebuilt(assembler, generator, entry):
    """Another generator that stands where this one does; the iterators on its stack it takes over."""
    point = Point(assembler, generator.gi_frame)
    closure = tuple(point.locals[i] for i in range(len(point.locals)) if point.free(i))
    point.function = type(rebuilt)(generator.gi_code, generator.gi_frame.f_globals, "f", None, closure)
    # From 3.13 on a suspended frame stands behind its `yield`.
    point.at -= sys.version_info >= (3, 13)
    assert point.operation == "YieldValue"
    point.handles(handled(generator))
    made, state = point.resume(point.at + 1, point.stack, [entry])
    assert all(v is not NULL for v in point.stack)
    made.__qualname__ = generator.__qualname__
    other = made(state, None)
    if entry == "Yield":
        assert next(other) is None
    return other


def exhaust(*generators):
    """Thrown away in their middle, some would complain."""
    for generator in generators:
        with contextlib.suppress(Exception):
            list(generator)


@pytest.mark.parametrize("steps", STEPS)
@pytest.mark.parametrize("function", [counting, guarded, delegating, captured, expression, handling])
@pytest.mark.parametrize("entry", ["Yield", "Value"])
def test_goes_on(assembler, function, steps, entry):
    LOG.clear()
    original = function(3)
    expected = [step(original, s) for s in STEPS[steps]]
    exhaust(original)
    taken = 0
    for stop in range(1, len(STEPS[steps])):
        LOG.clear()
        generator = function(3)
        found = [step(generator, s) for s in STEPS[steps][:stop]]
        assert found == expected[:stop]
        if generator.gi_frame is None:
            break
        if entry == "Value" and STEPS[steps][stop] != "next":
            exhaust(generator)
            continue
        other = rebuilt(assembler, generator, entry)
        assert not LOG or found[-1][-1] == plain(list(LOG))
        if entry == "Yield":
            assert (other.gi_frame.f_lineno, other.gi_frame.f_lasti > 0) == (found[-1][2], True)
            assert plain(other.gi_yieldfrom) == found[-1][3]
        found += [step(other, s) for s in STEPS[steps][stop:]]
        assert found == expected, (stop, STEPS[steps][stop:])
        taken += 1
        exhaust(generator, other)
    assert taken or entry == "Value"
