"""What is asked of an object's `__getattr__`: all that is not found, and what descriptors say is not there."""

import operator

import pytest
import torch
from support import assert_same

import flambeau


class Refusing:
    def __get__(self, owner, kind=None):
        raise AttributeError("refused")


class RefusingData(Refusing):
    def __set__(self, owner, value):
        raise AttributeError("no store")


class Failing:
    def __get__(self, owner, kind=None):
        raise KeyError("failed")


class Meta(type):
    of_meta = Refusing()
    data_of_meta = RefusingData()

    def __getattr__(cls, name):
        return "meta", name


class Parts:
    plain = Refusing()
    data = RefusingData()
    fails = Failing()

    @property
    def own(self):
        return self.missing


class Hooked(Parts, metaclass=Meta):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return "hook", name


class Forwarding(Hooked):
    def __getattribute__(self, name):
        return object.__getattribute__(self, name)


class HookedTuple(tuple):
    plain, data, fails, own = Parts.__dict__["plain"], Parts.__dict__["data"], Parts.__dict__["fails"], Parts.own
    __getattr__ = Hooked.__dict__["__getattr__"]


class HookedList(list):
    plain, data, fails, own = Parts.__dict__["plain"], Parts.__dict__["data"], Parts.__dict__["fails"], Parts.own
    __getattr__ = Hooked.__dict__["__getattr__"]


class HookedDict(dict):
    plain, data, fails, own = Parts.__dict__["plain"], Parts.__dict__["data"], Parts.__dict__["fails"], Parts.own
    __getattr__ = Hooked.__dict__["__getattr__"]


class HookedModule(Parts, torch.nn.Module):
    pass


OBJECTS = [
    Parts(), Hooked(), Forwarding(), Parts, Hooked, Forwarding, HookedTuple("ab"), HookedList("ab"), HookedDict(a=1),
    HookedModule(),
]  # fmt: skip
NAMES = ["plain", "data", "fails", "own", "of_meta", "data_of_meta", "missing", "__len__", "__missing__"]


def attempt(call, *args):
    try:
        return call(*args)
    except Exception as error:
        return type(error), str(error)


def looks(x, obj, name):
    return [
        attempt(getattr, obj, name),
        attempt(getattr, obj, name, 7),
        attempt(hasattr, obj, name),
        attempt(object.__getattribute__, obj, name),
        attempt(operator.attrgetter(name), obj),
        attempt(type.__getattribute__, obj, name),
    ]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("obj", OBJECTS, ids=lambda obj: getattr(obj, "__name__", f"a_{type(obj).__name__}"))
def test_as_eager(obj, name):
    assert str(flambeau.compile(looks)(torch.ones(1), obj, name)) == str(looks(None, obj, name))


def test_a_hook_gives_what_is_changed_and_stored():
    def fn(x, obj):
        obj.plain += ("more",)
        return x + 1, obj.__dict__

    first, second = Hooked(), Hooked()
    assert flambeau.compile(fn)(torch.ones(1), first)[1] == fn(torch.ones(1), second)[1] != {}


def test_a_metaclass_names_its_classes():
    class Naming(type):
        def __name__(cls):
            return "never called"

    class Named(torch.nn.Module, metaclass=Naming):
        pass

    named = Named()

    def fn(x):
        try:
            return named.absent
        except AttributeError as error:
            return str(error), callable(type(named).__name__), x + 1

    assert_same(flambeau.compile(fn)(torch.ones(2)), fn(torch.ones(2)))
