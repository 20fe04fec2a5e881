"""Programs that ask for what is not there, in all the ways in which Python asks."""

from __future__ import annotations

from .world import Entry

_CLASSES = """
class Meta(type):
    pass
class Base(metaclass=Meta):
    k = 1
class Thing(Base):
    def __init__(self, n):
        self.n = n
def made():
    return Thing(2)
"""
_SOURCES = {
    "absent attributes": _CLASSES + '''
def f(x, o):
    y = x * getattr(o, "absent", 2)
    if hasattr(o, "other"):
        y = y + 1
    try:
        y = y + o.third
    except AttributeError:
        y = y - 1
    return y, o.k, o.n
def arguments():
    return torch.ones(2, 3), made()
''',
    "absent attributes of classes": _CLASSES + '''
def f(x, o):
    y = x * getattr(Thing, "absent", 2)
    if hasattr(type(o), "other"):
        y = y + 1
    try:
        y = y + Thing.third
    except AttributeError:
        y = y - 1
    return y, Thing.k, hasattr(Thing, "n")
def arguments():
    return torch.ones(2, 3), made()
''',
    "absent methods": _CLASSES + '''
def tried(what, o, p):
    try:
        return what(o, p)
    except (TypeError, AttributeError, IndexError, ValueError) as error:
        return type(error).__name__
def f(x, o, p):
    y = x * 2 if o else x
    made = [
        tried(lambda o, p: len(o), o, p), tried(lambda o, p: list(o)[:2], o, p), tried(lambda o, p: 1 in o, o, p),
        tried(lambda o, p: o == p, o, p), tried(lambda o, p: o != p, o, p), tried(lambda o, p: o < p, o, p),
        tried(lambda o, p: o(), o, p), tried(lambda o, p: o[0], o, p), tried(lambda o, p: o + 1, o, p),
    ]
    return y, made
def arguments():
    return torch.ones(2, 3), made(), made()
''',
    "absent methods 2": _CLASSES + '''
def tried(what, o, p):
    try:
        return what(o, p)
    except (TypeError, AttributeError, IndexError, ValueError) as error:
        return type(error).__name__
def f(x, o, p):
    made = [
        tried(lambda o, p: 1 + o, o, p), tried(lambda o, p: -o, o, p), tried(lambda o, p: [1, 2][o], o, p),
        tried(lambda o, p: int(o), o, p), tried(lambda o, p: next(o), o, p), tried(lambda o, p: [*reversed(o)], o, p),
        tried(lambda o, p: o in [p], o, p), tried(lambda o, p: {o: 1}[o], o, p), tried(lambda o, p: any([o]), o, p),
        tried(lambda o, p: max(o, p) is o, o, p), tried(lambda o, p: callable(o), o, p), tried(lambda o, p: str(o) == "text", o, p),
    ]
    return x + 1, made
def arguments():
    return torch.ones(2, 3), made(), made()
''',
    "absent methods of classes": _CLASSES + '''
def tried(what, o):
    try:
        return what(o)
    except (TypeError, AttributeError, IndexError) as error:
        return type(error).__name__
def f(x, o):
    y = x * 2 if Thing else x
    made = [
        tried(lambda o: len(Thing), o), tried(lambda o: list(Thing), o), tried(lambda o: 1 in Thing, o), tried(lambda o: Thing[1], o),
        tried(lambda o: Thing == Base, o), tried(lambda o: Thing + 1, o), tried(lambda o: isinstance(3, Thing), o),
        tried(lambda o: issubclass(int, Base), o), tried(lambda o: type(Thing(1)) is Thing, o),
    ]
    return y, made
def arguments():
    return torch.ones(2, 3), made()
''',
    "absent registrations": '''
import abc
from collections.abc import Hashable, Iterable, Mapping, Sized
class Shape(abc.ABC):
    pass
class Plain:
    pass
class Under(Plain):
    pass
def f(x, o):
    y = x * 2 if isinstance(o, Shape) else x
    return y, isinstance(o, (Sized, Mapping)), issubclass(Under, Iterable), isinstance(o, Hashable), issubclass(Plain, Shape)
def arguments():
    return torch.ones(2, 3), Under()
''',
    "absent items": '''
TABLE = {"a": 1}
NAMES = {"b", "c"}
class Odd(dict):
    pass
class Counted(list):
    pass
ODD = Odd(q=1)
def f(x, d, l):
    y = x * TABLE.get("absent", 2)
    if "other" in TABLE or "other" in NAMES or 3 in d:
        y = y + 1
    try:
        y = y + ODD["third"]
    except KeyError:
        y = y - 1
    return y, d.get(2), d.setdefault("fourth", 5), "fifth" in ODD, getattr(l, "sixth", 6), bool(l), len(l), len(ODD), l == [1]
def arguments():
    return torch.ones(2, 3), {1: 2}, Counted([1])
''',
    "absent globals": '''
import math
def helper(x, k=None):
    return x if k is None else x * 3
def f(x, t):
    try:
        x = x + absent_name
    except NameError:
        x = x * 2
    try:
        import absent_module
        x = x + 1
    except ImportError:
        x = x - 1
    y = helper(x) + max(1, 2) + abs(-1)
    return y, hasattr(math, "absent_function"), getattr(helper, "mark", 3), hasattr(t, "tag"), "absent_name" in globals()
def arguments():
    return torch.ones(2, 3), torch.ones(3)
''',
    "absent descriptors": '''
class Plain:
    pass
class Read:
    def __get__(self, owner, kind=None):
        return 3 if owner is None else 4
class Owner:
    plain = Plain()
    read = Read()
    def __init__(self):
        self.own = 1
def f(x, o):
    y = x * o.read + o.own
    a = o.plain
    o.made = 2
    o.read = 6
    return y, isinstance(a, Plain), Owner.read, isinstance(Owner.plain, Plain), o.made, o.read
def arguments():
    return torch.ones(2, 3), Owner()
''',
    "absent in modules": '''
class Net(torch.nn.Module):
    extra = 1
    def forward(self, x):
        y = x * getattr(self, "absent", 2)
        if hasattr(self, "other"):
            y = y + 1
        if self:
            y = y + self.extra
        return y
net = Net()
def f(x):
    return net(x), hasattr(net, "third"), callable(net), net == 1
def arguments():
    return (torch.ones(2, 3),)
''',
}  # fmt: skip

ABSENT = [
    Entry(name, "import collections, dataclasses, enum, functools, types\n" + text) for name, text in _SOURCES.items()
]
