"""State that versions of CPython keep in their own ways, and how guards learn that it changed."""

import collections
import ctypes
import sys

import pytest
import torch
from frames import Frame, const

pytestmark = pytest.mark.plain_only("frames are made by hand")

# Few dicts are compared one by one; of many the clock tells whether any changed.
COUNTS = [1, 40]


class Thing:
    """Its attributes are kept without a dict until somebody asks for it."""

    def __init__(self, size):
        self.size = size


class Table(dict):
    """A dict with attributes."""

    size = 0


def function(x):
    """Something to call."""
    return x


def guarded(items, *steps):
    """A frame over a tuple, each item of which leads to the int 3 at the end of some steps."""
    frame = Frame()
    for i in range(len(items)):
        frame.guard(frame.path({"Arg": 0}, {"Index": i}, *steps), {"Equals": const(3)})
    installed = frame.install(function, items)
    for _ in range(3):
        assert installed.check(items) is None
    return installed


def store(thing, value):
    thing.size = value


@pytest.mark.parametrize("count", COUNTS)
def test_attributes(count):
    def replace(thing):
        thing.__dict__ = {"size": 4}

    def delete(thing):
        del thing.size

    changes = [
        lambda thing: [store(thing, n) for n in range(20)],
        lambda thing: thing.__dict__.update(size=4),
        lambda thing: setattr(thing, "size", 4),
        replace,
        delete,
    ]
    for change in changes:
        things = tuple(Thing(3) for _ in range(count))
        installed = guarded(things, "Dict", {"Item": const("size")})
        # Reading often may change how attributes are kept.
        assert all(thing.size == 3 for _ in range(20) for thing in things)
        assert installed.check(things) is None
        things[-1].other = 5
        assert installed.check(things) is None
        change(things[-1])
        assert installed.check(things) is not None
        things[-1].size = 3
        assert installed.check(things) is None


@pytest.mark.parametrize("kind", [dict, Table, collections.OrderedDict])
@pytest.mark.parametrize("count", COUNTS)
def test_items(count, kind):
    def delete(d):
        del d["size"]

    def store(d):
        for n in range(20):
            d["size"] = n

    def grow(d):
        d.update((str(n), n) for n in range(100))
        d["size"] = 4

    changes = [
        store,
        grow,
        delete,
        lambda d: d.pop("size"),
        lambda d: d.popitem(),
        lambda d: d.clear(),
        lambda d: d.update(size=4),
        lambda d: d.__ior__({"size": 4}),
        lambda d: (d.clear(), d.setdefault("size", 4)),
        lambda d: (d.clear(), d.update({"size": 4})),
        lambda d: dict.__setitem__(d, "size", 4),
    ]
    for change in changes:
        dicts = tuple(kind(first=1, size=3) for _ in range(count))
        installed = guarded(dicts, {"Item": const("size")})
        change(dicts[-1])
        assert installed.check(dicts) is not None
        dicts[-1]["size"] = 3
        assert installed.check(dicts) is None


def test_attributes_of_a_dict():
    tables = (Table(), Table())
    for table in tables:
        table.size = 3
    installed = guarded(tables, "Dict", {"Item": const("size")})
    tables[1].size = 4
    assert installed.check(tables) is not None


@pytest.mark.parametrize("kind", [int, torch.Tensor, torch.Size, Thing])
def test_the_dict_of_a_type(kind):
    frame = Frame()
    for path in (["Dict"], [{"Mro": 0}, "Dict"]):
        frame.guard(frame.path({"Arg": 0}, *path), {"NoItem": const("no such name")})
        doc = frame.path({"Arg": 0}, *path, {"Item": const("__doc__")})
        frame.guard(doc, {"Equals": const(kind.__dict__["__doc__"])})
    installed = frame.install(function, kind)
    for _ in range(3):
        assert installed.check(kind) is None
    assert installed.check(dict) is not None


@pytest.mark.skipif(sys.version_info < (3, 12), reason="dicts cannot be watched")
@pytest.mark.parametrize("count", COUNTS)
def test_dicts_that_are_watched(count):
    seen = []
    callback = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int, *[ctypes.c_void_p] * 3)
    note = callback(lambda event, *_: seen.append(event) or 0)
    api = ctypes.pythonapi
    watcher = api.PyDict_AddWatcher(note)
    dicts = tuple({"size": 3} for _ in range(count))
    installed = guarded(dicts, {"Item": const("size")})
    try:
        api.PyDict_Watch(watcher, ctypes.py_object(dicts[-1]))
        assert installed.check(dicts) is None
        dicts[-1]["other"] = 5
        assert installed.check(dicts) is None
        dicts[-1]["size"] = 4
        assert installed.check(dicts) is not None
        dicts[-1]["size"] = 3
        api.PyDict_Unwatch(watcher, ctypes.py_object(dicts[-1]))
        assert installed.check(dicts) is None
        assert len(seen) == 3
    finally:
        api.PyDict_ClearWatcher(watcher)
