"""Instances of Python classes with a base of C, and of C types derived from int, float or str: their own type
decides."""

import array
import collections
import collections.abc
import datetime
import decimal
import functools
import io
import pickle
import types

import numpy
import pytest
import torch
from support import check

import flambeau

X = torch.arange(3.0)


class Ring(collections.deque):
    pass


class Day(datetime.date):
    pass


class Price(decimal.Decimal):
    pass


class Writer(pickle.Pickler):
    pass


class Numbers(array.array):
    pass


class Bytes(bytearray):
    pass


class Phase(complex):
    pass


class Counted(collections.defaultdict):
    pass


class Ordered(collections.OrderedDict):
    pass


class Names(types.SimpleNamespace):
    pass


class Space(types.ModuleType):
    pass


class Partial(functools.partial):
    pass


class Whole(int):
    def __round__(self, digits=None):
        return "round", digits

    def __abs__(self):
        return "abs"


MADE = {
    "ring": lambda: Ring([1, 2]), "empty ring": Ring, "date": lambda: Day(2020, 1, 2), "price": lambda: Price("1.5"),
    "numbers": lambda: Numbers("i", [1, 2]), "bytes": lambda: Bytes(b"ab"), "phase": lambda: Phase(1, 2),
    "counted": lambda: Counted(int, {"a": 1, 0: 2}), "ordered": lambda: Ordered(a=1), "names": lambda: Names(a=1),
    "space": lambda: Space("space"), "partial": lambda: Partial(int), "whole": lambda: Whole(3),
    "float64": lambda: numpy.float64(2.5), "str_": lambda: numpy.str_("ab"), "size": lambda: torch.Size([1, 2]),
    "deque": lambda: collections.deque([1, 2]), "proxy": lambda: types.MappingProxyType({"a": 1}),
    "slice": lambda: slice(1, 2), "keys": lambda: {"a": 1}.keys(), "device": lambda: torch.device("cpu"),
}  # fmt: skip


def said(call):
    try:
        result = call()
    except Exception as error:
        return type(error).__name__, str(error)
    return type(result).__name__, repr(result)


def operators(a, b):
    return [
        lambda: a + b, lambda: a * b, lambda: a - b, lambda: a | b, lambda: a % b, lambda: 2 * a, lambda: a * 2,
        lambda: a == b, lambda: a != b, lambda: a < b, lambda: a >= b, lambda: a == 1, lambda: -a, lambda: +a,
        lambda: abs(a), lambda: round(a), lambda: bool(a), lambda: len(a), lambda: 1 in a, lambda: a[0], lambda: a["a"],
    ]  # fmt: skip


def asked(a, b):
    abstract = collections.abc
    return [
        lambda: isinstance(a, abstract.Hashable), lambda: isinstance(a, abstract.Sized), lambda: type(a),
        lambda: a.__class__, lambda: isinstance(a, Space), lambda: a in {1}, lambda: a in {1: 2}, lambda: a in [1],
    ]  # fmt: skip


def inplace(a, how):
    if how == "+":
        a += (1,)
    elif how == "*":
        a *= 2
    elif how == "|":
        a |= {1}
    elif how == "set":
        a.new = 1
    elif how == "del":
        del a.new
    else:
        a[0] = 1
    return a


@pytest.mark.parametrize("calls", [operators, asked])
@pytest.mark.parametrize("kind", MADE)
@flambeau.config.patch(recompile_limit=64)  # from 3.12 on the frame itself loops, and is resumed at each break
def test_what_the_type_says(kind, calls):
    a, b = MADE[kind](), MADE[kind]()
    check(lambda x: (x + 1, [said(call) for call in calls(a, b)]), (X,), graphs=None)


#: What `copy.deepcopy` cannot copy, or not to something equal.
UNCOPIED = ("space", "partial", "proxy", "keys")


@pytest.mark.parametrize("kind", [kind for kind in MADE if kind not in UNCOPIED])
def test_changes(kind):
    def f(x, objects):
        return x + 1, [said(lambda how=how, o=o: inplace(o, how)) for how, o in objects]

    check(f, (X, [(how, MADE[kind]()) for how in ["+", "*", "|", "set", "del", "item"]]), graphs=None)


def test_a_repeat_in_place_asks_the_left_operand_alone():
    def repeated(a, b):
        a *= b
        return a

    pairs = [(Whole(2), "a"), (Whole(2), [1]), (Whole(2), 2.5), (2, "a"), ("a", Whole(2)), (Whole(2), Whole(3))]
    check(lambda x: (x + 1, [said(lambda a=a, b=b: repeated(a, b)) for a, b in pairs]), (X,), graphs=None)


def test_the_factory_of_a_subclass_of_defaultdict():
    check(lambda x, d: (x + 1, d["new"], d), (X, Counted(int, a=1)), graphs=None)


def test_a_function_of_c_is_no_str_as_a_key():
    check(lambda x: (x + 1, "builtins.len" in {len}, {len: 1}.get("builtins.len"), {len: 1}[len]), (X,), graphs=None)


def test_a_method_that_takes_its_defining_class_leaves():
    """From 3.13 `dump` is such a method; it is bound with the class, without which CPython crashes."""

    def f(x):
        file = io.BytesIO()
        dump = Writer(file, 2).dump
        flambeau.graph_break()
        dump("text")
        return x + 1, file.getvalue()

    check(f, (X,), graphs=None)
