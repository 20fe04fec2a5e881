"""What random programs can reach besides their own code: opaque calls, odd classes, context managers, ops unknown to us.

All names that programs use come from `names()`. Nothing here depends on the program or its seed.
"""

from __future__ import annotations

import binascii
import bisect
import collections
import contextlib
import dataclasses
import functools
import heapq
import itertools
import logging
import math
import operator
import os
import re
import sys
import threading
import time
import types
import warnings
import zlib
from typing import Any

import torch
import torch.utils.checkpoint

import flambeau

from . import objects


class Oops(Exception):
    """The exception of programs."""


class Uh(Oops):
    """A subclass, for handlers by base class."""


class Box:
    """Plain attributes: a tensor, an int, a list."""

    def __init__(self, t, k):
        self.t, self.k, self.items = t, k, []
        self.__dict__  # noqa: B018 (the message of `del self.missing` depends on whether this was ever read)

    def step(self, a, k=1):
        self.k = (self.k + k) % 11
        return a + self.t * 0.5

    def __len__(self):
        return self.k % 3

    def __call__(self, a, k=1):
        self.items.append(k)
        return a - k

    def __getitem__(self, key):
        return self.k if key == "k" else self.items[key]

    def __contains__(self, key):
        return key in self.items


class PropBox(Box):
    """Stores through a property that prints."""

    @property
    def v(self):
        return self.k

    @v.setter
    def v(self, value):
        print("set v", value)
        self.k = value % 11


class OpBox(Box):
    """Operators written in Python, each with a break in it."""

    def __add__(self, other):
        print("add", other)
        return (self.k + other) % 11

    def __lt__(self, other):
        flambeau.graph_break()
        return self.k < other

    def __eq__(self, other):
        return self.k == crc(2)

    __hash__ = object.__hash__

    def __bool__(self):
        return os.cpu_count() > 0 and self.k > 2

    def __iter__(self):
        for k in range(2):
            print("item", k)
            yield k + self.k

    def __setitem__(self, key, value):
        print("store", key)
        self.items.append(value)

    def __str__(self):
        flambeau.graph_break()
        return f"box {self.k}"

    def __call__(self, a, k=1):
        print("called", k)
        return a + self.t


class LoudBox(Box):
    """A `__setattr__` and `__getattr__` written in Python."""

    def __setattr__(self, name, value):
        object.__setattr__(self, name, value)
        if name == "v":
            object.__setattr__(self, "k", (value + 1) % 11)

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return 3


class SlotBox:
    """No instance dictionary."""

    __slots__ = ("items", "k", "t", "v")

    def __init__(self, t, k):
        self.t, self.k, self.items, self.v = t, k, [], 0

    def step(self, a, k=1):
        self.k = (self.k + k) % 11
        return a * 0.5 + self.t

    def __call__(self, a, k=1):
        return a + k

    def __getitem__(self, key):
        return self.k

    def __len__(self):
        return 1

    def __contains__(self, key):
        return key == self.k


class LocalBox(threading.local):
    """Attribute stores in C."""

    def __init__(self, t, k):
        self.t, self.k, self.items, self.v = t, k, [], 1

    step = Box.step
    __call__ = Box.__call__
    __len__ = Box.__len__
    __getitem__ = Box.__getitem__
    __contains__ = Box.__contains__


class PeekBox(Box):
    """Properties that change state, one with a break; items; a context of its own."""

    @property
    def peek(self):
        self.k = (self.k + 1) % 11
        return self.k

    @property
    def level(self):
        flambeau.graph_break()
        return self.k

    @level.setter
    def level(self, value):
        self.k = value % 11
        self.items.append(value % 3)

    @functools.cached_property
    def total(self):
        return self.k + len(self.items)

    def __setitem__(self, key, value):
        self.items[:] = [*self.items[-3:], key % 5 + value % 5]

    def __getitem__(self, key):
        return self.items[-1] if self.items else key

    def __enter__(self):
        self.k += 1
        return self

    def __exit__(self, *error):
        self.k -= 1


Pair = collections.namedtuple("Pair", ["t", "k"])


@dataclasses.dataclass
class Record:
    """A data class."""

    k: int
    items: list


class Ends:
    """Says when it is freed."""

    def __init__(self, tag):
        self.tag = tag

    def __del__(self):
        ended.append(str(self.tag))


ended: list[str] = []  # tags of what was freed
tallied = 0  # a global that functions of this module write
ledger: list[int] = []
table: dict[Any, int] = {}  # by class and object


def forget():
    """Takes back what earlier calls left in this module."""
    global tallied
    depth[0] = tallied = 0
    ledger.clear()
    ended.clear()
    table.clear()
    table.update({int: 1, str: 2, Box: 3, Oops: 4})


def tally(k):
    """Writes to globals of this module."""
    global tallied
    tallied = (tallied + k) % 17
    ledger.append(tallied % 3)
    return tallied


def loud_tally(k):
    """The same round a break."""
    global tallied
    tallied += 1
    flambeau.graph_break()
    tallied = (tallied + k) % 17
    return tallied


def raise_below(k):
    """An exception with a note."""
    try:
        raise Uh(k)
    except Uh as error:
        error.add_note(f"note {k}")
        raise


BOXES = (Box, PropBox, LoudBox, SlotBox, LocalBox, OpBox)


class Ctx:
    """A context manager that prints, and swallows `Oops` when told."""

    def __init__(self, tag, swallow=False):
        self.tag, self.swallow = tag, swallow

    def __enter__(self):
        print("enter", self.tag)
        return len(self.tag)

    def __exit__(self, kind, error, trace):
        print("exit", self.tag, kind and kind.__name__)
        return self.swallow and kind is not None and issubclass(kind, Oops)


depth = [0]  # of `Quiet` contexts


class Quiet(Ctx):
    """The same with no output: `depth` counts."""

    def __enter__(self):
        depth[0] += 1
        return self

    def __exit__(self, kind, error, trace):
        depth[0] -= 1
        return self.swallow and kind is not None and issubclass(kind, Oops)


def crc(k):
    """An int out of a C function that no tracer folds."""
    return zlib.crc32(bytes([k & 255])) % 7


def traced(fn):
    """A decorator that prints."""

    @functools.wraps(fn)
    def wrapper(*args, **kwargs):
        print("call", fn.__name__)
        return fn(*args, **kwargs)

    return wrapper


def counted(fn):
    """A decorator with state in a cell and no break."""
    calls = 0

    @functools.wraps(fn)
    def wrapper(*args, **kwargs):
        nonlocal calls
        calls += 1
        return fn(*args, **kwargs)

    return wrapper


def warn_here(text, level=2):
    """A warning that names the caller's line."""
    warnings.warn(text, stacklevel=level)


def where():
    """The caller's function and line."""
    frame = sys._getframe(1)
    return f"{frame.f_code.co_name}:{frame.f_lineno}"


def callback(fn, k):
    """Python called by C."""
    return re.sub("[ab]", lambda match: str(fn(k)), "xay")


def apply(fn, *args, **kwargs):
    """One more frame."""
    return fn(*args, **kwargs)


@flambeau.disable
def off(a, k):
    """Never compiled."""
    return a + k % 5


def reraise():
    """A bare `raise` below the handler."""
    raise


def where2():
    """The caller's caller."""
    frame = sys._getframe(2)
    return f"{frame.f_code.co_name}:{frame.f_lineno}"


class Net(torch.nn.Module):
    """A module with state, a child, and a break when told."""

    def __init__(self, loud):
        super().__init__()
        self.loud, self.calls = loud, 0
        self.register_buffer("shift", torch.tensor([0.5, -0.5, 1.0]))
        self.inner = torch.nn.Identity()

    def forward(self, a, k=1):
        self.calls += 1
        a = self.inner(a + self.shift)
        if self.loud:
            print("net", self.calls)
        return a * 0.5


class Halve(torch.autograd.Function):
    """A region that must not be resumed inside."""

    @staticmethod
    def forward(ctx, a):
        print("halve")
        return a * 0.5

    @staticmethod
    def backward(ctx, grad):
        return grad * 0.5


def kept(fn, a, k=1):
    """Activation checkpointing round `fn`."""
    return torch.utils.checkpoint.checkpoint(fn, a, k, use_reentrant=False)


log = logging.getLogger("flambeau.fuzz.program")
log.propagate = False
log.setLevel(logging.INFO)

_library = torch.library.Library("flambeau_fuzz", "DEF")


def _shift(a, k):
    return a.roll(k, -1) if a.dim() else a.clone()


def _bump(a, k):
    a.add_(k)


def _scale(a, k):
    return a * k


def _like(a, k):
    return torch.empty_like(a)


def _nothing(a, k):
    return None


def _fail(a):
    raise Oops("the op failed")


def _define() -> None:
    """Ops with no fake kernel, one that writes to its argument, one that raises; two with fake kernels."""
    _library.define("shift(Tensor a, int k) -> Tensor")
    _library.define("bump(Tensor(a!) a, int k) -> ()")
    _library.define("fail(Tensor a) -> Tensor")
    for name, function in (("shift", _shift), ("bump", _bump), ("fail", _fail)):
        _library.impl(name, function, "CompositeExplicitAutograd")
    _library.define("scale(Tensor a, int k) -> Tensor")
    _library.define("raise_by(Tensor(a!) a, int k) -> ()")
    for name, function, fake in (("scale", _scale, _like), ("raise_by", _bump, _nothing)):
        _library.impl(name, function, "CompositeExplicitAutograd")
        torch.library.register_fake(f"flambeau_fuzz::{name}", fake, lib=_library)


_define()


def caches() -> dict[str, Any]:
    """Functions that keep their results: few that break, raise and call themselves; tensors."""

    @functools.lru_cache(maxsize=5)
    def memo(k, *more, word=None):
        if k == 4:
            flambeau.graph_break()
        if k == 5:
            raise Oops(k)
        return [k, len(more), word, memo(k - 1)[0] if k in (1, 2) else 0]

    return {"memo": memo, "ramp": functools.cache(lambda k, dtype: torch.arange(k + 1).to(dtype))}


def names() -> dict[str, Any]:
    """The globals that a program starts with."""
    return {
        "torch": torch,
        "flambeau": flambeau,
        **{c.__name__: c for c in (Oops, Uh, Ctx, Quiet, Net, PeekBox, Pair, Record, Ends, *BOXES)},
        **{
            f.__name__: f
            for f in (crc, traced, counted, warn_here, where, where2, callback, apply, off, reraise, kept, tally)
        },
        **objects.names(),
        **caches(),
        "Halve": Halve,
        "loud_tally": loud_tally,
        "raise_below": raise_below,
        "ledger": ledger,
        "TABLE": table,
        **{
            m.__name__: m
            for m in (binascii, bisect, collections, contextlib, functools, heapq, itertools, math, operator, os)
        },
        **{m.__name__: m for m in (sys, time, types, warnings)},
        "log": log,
        "halve": Halve.apply,
        "lock": threading.RLock(),
        "shift": torch.ops.flambeau_fuzz.shift,
        "bump": torch.ops.flambeau_fuzz.bump,
        "fail": torch.ops.flambeau_fuzz.fail,
    }


def inputs(seed: int, call: int) -> tuple[Any, ...]:
    """Arguments of call number `call`: (x, y, n, items, d, b). Sizes and ints differ between calls, not types."""
    generator = torch.Generator().manual_seed(seed * 7 + call)

    def tensor(*sizes):
        return torch.randint(-8, 9, sizes, generator=generator, device="cpu").to(torch.get_default_device()) * 0.25

    rows = (2, 2, 4)[call % 3]
    number = torch.randint(0, 6, (4,), generator=generator, device="cpu").tolist()
    kind = {8: PeekBox}.get(seed % 9, BOXES[seed % 9 if seed % 9 < len(BOXES) else 0])
    x, y = tensor(rows, 3), tensor(3) if seed % 5 == 0 else tensor(rows, 3)
    if seed % 11 == 0:
        y = x[0]
    if seed % 7 == 4:
        x, y = tensor(3, rows).t(), tensor(rows, 6)[:, ::2]
    if seed % 7 == 5:
        x, y = x.double(), (y * 4).to((torch.int64, torch.float16, torch.int32)[seed % 3])
    if seed % 13 == 0 or seed % 7 == 3:
        x.requires_grad_()
    box = kind(x if seed % 4 == 0 else tensor(3), number[0])
    return x, y, number[1], number[2:], {"a": number[3], "b": 1}, box
