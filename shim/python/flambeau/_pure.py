"""Immutable objects of C: how an equal one is made, and what their attributes are."""

from __future__ import annotations

import datetime
import functools
import importlib
import re
from collections.abc import Callable
from typing import Any

# What these do depends on more than the pattern: on the locale, on what is printed; the last one (`re.TEMPLATE`) warns.
_NOT_PURE = re.DEBUG | re.LOCALE | 1
# What may be meant as an operation on sets of characters.
_WARNED_OF = ("[[", "--", "&&", "~~", "||")


class Refused(Exception):
    """A call that is left to plain Python."""


@functools.lru_cache(500)
def pattern(text: str | bytes, flags: int) -> re.Pattern[Any]:
    """`re.compile`, without a trace of it in what `re` keeps. `Refused`: compiling it prints, or may warn."""
    characters = text if isinstance(text, str) else text.decode("latin-1")
    if flags & _NOT_PURE or any(mark in characters for mark in _WARNED_OF):
        raise Refused(text)
    compiler: Any = importlib.import_module("re._compiler")
    found: re.Pattern[Any] = compiler.compile(text, flags)
    return found


def made_of(value: Any) -> tuple[str, tuple[Any, ...]] | None:
    """The path of a function and the constants that it makes an object equal to `value` of; `None` where there is none.
    Runs no code of users: `value` is of exactly one of these types."""
    kind = type(value)
    if kind is re.Pattern:
        try:
            same = type(value.pattern) in (str, bytes) and pattern(value.pattern, value.flags) == value
        except Refused:
            return None
        return ("flambeau._pure.pattern", (value.pattern, value.flags)) if same else None
    if kind.__module__ == "numpy":
        return f"numpy.{kind.__name__}", (value.item(),)
    if kind is datetime.date:
        return "datetime.date", (value.year, value.month, value.day)
    if kind is datetime.timedelta:
        return "datetime.timedelta", (value.days, value.seconds, value.microseconds)
    if kind in (datetime.datetime, datetime.time) and value.tzinfo is None and not value.fold:
        clock = value.hour, value.minute, value.second, value.microsecond
        if kind is datetime.time:
            return "datetime.time", clock
        return "datetime.datetime", (value.year, value.month, value.day, *clock)
    return None


def of_numpy(function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """What a function of NumPy's, or of its numbers, gives. `Refused`: it warns or raises."""
    import numpy

    try:
        with numpy.errstate(all="raise"):
            return function(*args)
    except Exception as error:
        raise Refused from error


def attribute(value: Any, name: str) -> Any:
    """`value.name` of such an object; `...` where it is a method, `NotImplemented` where it is one of the class."""
    found = getattr(value, name)
    if not callable(found):
        return found
    return ... if getattr(found, "__self__", None) is value else NotImplemented
