"""Code that has nothing to do with tensors below a compiled function: where it cannot be traced, the call of it is what
breaks, once, however many of its instructions could not be traced either."""

import array
import functools
import math
import re
import traceback

import pytest
import torch
from support import assert_same

import flambeau

WORDS = re.compile("([a-z]+)([0-9]+)")


class Table:
    """Of a package that knows no tensors: an array of C in an object."""

    def __init__(self, numbers):
        self.numbers = array.array("d", numbers)

    def total(self):
        result = 0.0
        for i in range(len(self.numbers)):
            result += self.numbers[i] * 2
            self.numbers[i] = result
        return result


def words(text):
    found = {}
    for match in WORDS.finditer(text):
        found[match.group(1)] = int(match.group(2))
        if match.start() > 100:
            break
    return found


def deep(text):
    return {name: math.sqrt(number) for name, number in words(text).items()}


@functools.lru_cache
def cached(n):
    return Table(range(n))


def parses(x):
    found = deep("a1 b4 c9")
    y = x * found["a"]
    return y + found["b"] + len(found)


def sums(x):
    table = Table([1.0, 2.0, 3.0])
    y = x * table.total()
    return y + table.total(), list(table.numbers)


def caches(x):
    return x + cached(4).total() * 0 + len(cached(4).numbers)


def fails(x):
    y = x + 1
    return y * words(None)["a"]


def wraps(x):
    def helper(text):
        return words(text)["a"]

    return x + helper("a3") + helper("a5")


@pytest.mark.parametrize("fn", [parses, sums, caches, wraps], ids=lambda f: f.__name__)
def test_results_are_eager(fn):
    compiled = flambeau.compile(fn)
    for _ in range(3):
        x = torch.randn(3)
        assert_same(compiled(x), fn(x))


@pytest.mark.plain_only("counts breaks")
@pytest.mark.parametrize(("fn", "most"), [(parses, 1), (sums, 4), (wraps, 2)], ids=["parses", "sums", "wraps"])
def test_one_break_a_call(fn, most):
    flambeau.reset()
    compiled = flambeau.compile(fn)
    compiled(torch.randn(3))
    assert sum(flambeau.counters()["graph_breaks"].values()) <= most


def test_exceptions_have_the_frames_of_eager():
    def frames(call):
        with pytest.raises(TypeError) as caught:
            call(torch.ones(3))
        names = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
        return str(caught.value), [name for name in names if name in ("fails", "words")]

    assert frames(flambeau.compile(fails)) == frames(fails)


MODEL = torch.nn.Linear(3, 3)


def global_model(text):
    found = words(text)["a"]
    return MODEL(torch.ones(3)) * found


@pytest.mark.plain_only("counts graphs")
def test_code_that_names_torch_is_resumed_inside():
    """What comes after the break in such a function is compiled."""

    def fn(x):
        return x + global_model("a2")

    flambeau.reset()
    compiled = flambeau.compile(fn)
    x = torch.randn(3)
    assert_same(compiled(x), fn(x))
    assert flambeau.counters()["graphs"] >= 1


class Trainer:
    """Holds a module: its methods deal in tensors, though they are handed none."""

    def __init__(self):
        self.model = torch.nn.Linear(3, 3)
        self.seen = {}

    def step(self, text):
        self.seen.update(words(text))
        return self.model.weight.sum() * self.seen["a"]


def test_methods_of_what_holds_a_module():
    ours, eager = Trainer(), Trainer()
    ours.model.load_state_dict(eager.model.state_dict())

    def fn(trainer, x):
        return x + trainer.step("a2")

    x = torch.randn(3)
    assert_same(flambeau.compile(fn)(ours, x), fn(eager, x))
    assert ours.seen == eager.seen
