"""Objects for random programs that ask about them: descriptors, ABCs, iterators in Python, and what describes a value."""

from __future__ import annotations

import abc
import contextlib
import copy
import dataclasses
import datetime
import decimal
import enum
import fractions
import inspect
import numbers
import pickle
import random
import re
import threading
import typing
import weakref
from typing import Any


class Data:
    """A data descriptor."""

    def __get__(self, o, kind=None):
        return 11 if o is None else o.__dict__.get("data", 12)

    def __set__(self, o, value):
        o.__dict__["data"] = value


class NonData:
    """A descriptor that an instance's own attribute hides."""

    def __get__(self, o, kind=None):
        return 21 if o is None else 22


class OnlySet:
    """Only stores; reads give the instance's own attribute, or this."""

    def __set__(self, o, value):
        o.__dict__["stored"] = value


class Refusing:
    """Raises as if it was not there."""

    def __get__(self, o, kind=None):
        raise AttributeError("refused")


class Named:
    """Knows its name; callable with the object."""

    def __set_name__(self, owner, name):
        self.name = name

    def __get__(self, o, kind=None):
        return lambda *args: (self.name, o is None, len(args))


class Sizeable(abc.ABC):  # noqa: B024 (it is asked, not implemented)
    """An ABC that asks the class."""

    @classmethod
    def __subclasshook__(cls, kind):
        return any("__len__" in base.__dict__ for base in kind.__mro__) or NotImplemented


class Hooked(abc.ABC):  # noqa: B024 (classes are registered with it)
    """An ABC to register classes with."""


class Color(enum.Enum):
    """Members with a method."""

    RED = 1
    BLUE = 2

    def step(self):
        return self.value + 1


class Steps:
    """An iterable by `__next__`."""

    def __init__(self, most):
        self.at, self.most = 0, most

    def __iter__(self):
        return self

    def __next__(self):
        self.at += 1
        if self.at > self.most:
            raise StopIteration
        return self.at


class Items:
    """An iterable by `__getitem__`."""

    def __init__(self, items):
        self.items = items

    def __getitem__(self, at):
        return self.items[at]


class Partial:
    """A class whose instances are called as methods are not."""

    def __call__(self, *args):
        return len(args)


HALF = Partial()


def fail_at(k):
    """Raises for one value."""
    if k == 2:
        raise KeyError(k)
    return k


def said(error):
    """An exception as data."""
    return type(error).__name__, str(error)


def kind(value):
    """A value whose type alone is compared, but for plain ones."""
    return value if type(value) in (int, str, bool, type(None)) else type(value).__name__


def instance(cls, k):
    """An instance of the class, made the first way that works."""
    for arguments in ((), (k,), ((1, k),), ("a", k)):
        try:
            made = cls(*arguments)
        except Exception:
            continue
        with contextlib.suppress(Exception):
            made.k = k
        return made
    return k


def twice(it):
    """Consumes an iterable by a loop, then what is left."""
    total = 0
    for value in it:
        total += value
    return total, list(it)


def names() -> dict[str, Any]:
    """What programs see of it."""
    own = (Data, NonData, OnlySet, Refusing, Named, Sizeable, Hooked, Color, Steps, Items, Partial, fail_at, said, kind, instance, twice)  # fmt: skip
    modules = (abc, copy, dataclasses, datetime, decimal, enum, fractions, inspect, numbers, pickle, random, re, typing, weakref)  # fmt: skip
    return {v.__name__: v for v in (*own, *modules)} | {"HALF": HALF, "threading_local": threading.local}
