"""Classes that subclass built-ins, dataclasses, and what an object is: identity, `id`, methods bound at run time."""

import collections
import collections.abc
import dataclasses
import types
import weakref
from typing import ClassVar

import torch

from ..program import Made, ones, program


@program("https://github.com/pytorch/pytorch/issues/100181")
def list_subclass():
    class NonNone(list):
        def append(self, item):
            if item is not None:
                super().append(item)

        def extend(self, items):
            for item in items:
                self.append(item)

    def f(x):
        made = NonNone()
        made.append(x)
        made.append(None)
        made.extend([x + 1, None])
        return torch.cat(made), made, type(made + [1]), len(made) == 3, isinstance(made[:1], NonNone)

    return Made(lambda x: f(x)[:3], [(ones(2),), (ones(3),)], look=lambda _, result: type(result[1]).__name__)


@program("https://github.com/pytorch/pytorch/issues/100181")
def dict_subclass_with_missing():
    class Defaults(dict):
        def __missing__(self, key):
            self[key] = made = len(key)
            return made

        def __setitem__(self, key, value):
            super().__setitem__(key.lower(), value)

    def f(x, d):
        d["AB"] = 7
        y = x * d["ab"] + d["xyz"]
        return y, list(d), d.get("none"), d

    d = Defaults()
    return Made(f, [(ones(3), d), (ones(3), d), (ones(3), Defaults(ab=1))])


@program("https://github.com/ROCm/pytorch/issues/2698")
def frozen_ordered_dict():
    class Frozen(collections.OrderedDict):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            for key, value in self.items():
                setattr(self, key, value)
            self._frozen = True

        def __setitem__(self, name, value):
            if getattr(self, "_frozen", False):
                raise TypeError(f"cannot set {name}")
            super().__setitem__(name, value)

    def f(x, config):
        try:
            config["a"] = 3
        except TypeError as error:
            return x * config["a"] + config.b, str(error), list(config)

    return Made(f, [(ones(3), Frozen(a=2, b=1)), (ones(3), Frozen(a=4, b=0))])


@program("https://github.com/pytorch/pytorch/issues/96198")
def dict_of_an_object_that_is_a_dict():
    class Batch(dict):
        def __init__(self, **more):
            super().__init__(**more)
            self.__dict__ = self

    def f(batch):
        batch.y = batch.x + 1
        found = {k: v * 2 for k, v in batch.__dict__.items() if isinstance(v, torch.Tensor)}
        return found, "y" in batch, batch["y"] is batch.y

    return Made(f, [(Batch(x=ones(3), n=1),), (Batch(x=ones(2), n=2),)])


@program("https://github.com/pytorch/pytorch/issues/175943")
def namedtuple_with_own_add():
    class Pair(collections.namedtuple("Pair", "a b")):
        __slots__ = ()

        def __add__(self, other):
            return Pair(self.a + other.a, self.b + other.b)

        def __new__(cls, a, b=None):
            return super().__new__(cls, a, a if b is None else b)

    def f(x):
        both = Pair(x.sin(), x.cos()) + Pair(x)
        return both.a * 0.5 - both.b, both, type(both) is Pair

    return Made(f, [(ones(3),), (ones(2),)])


@program("https://github.com/pytorch/pytorch/issues/142399")
def namedtuple_with_own_getitem():
    class Pair(collections.namedtuple("Pair", "a b")):
        def __getitem__(self, at):
            return Pair(self.a[at], self.b[at])

        def __len__(self):
            return 7

    def f(pair):
        a, b = pair
        return pair.a + 1, pair[0], a - b, len(pair)

    return Made(f, [(Pair(ones(3), ones(3) * 2),), (Pair(ones(2), ones(2)),)])


@program("https://github.com/pytorch/pytorch/issues/161610")
def attributes_on_a_tuple_subclass():
    class Row(tuple):
        pass

    def f(row, note):
        row.note = note
        return row[0] + 1, row

    return Made(
        f,
        [(Row([ones(2), 1]), "a"), (Row([ones(2), 2]), "b")],
        look=lambda args, result: (args[0].note, result[1].note),
    )


@program("https://github.com/pytorch/pytorch/issues/142050")
def subclasses_of_int_str_and_float():
    class Meters(float):
        def __add__(self, other):
            return Meters(float(self) + other)

        def __repr__(self):
            return f"{float(self)}m"

    class Name(str):
        def __eq__(self, other):
            return self.lower() == other.lower()

        __hash__ = str.__hash__

    def f(x, m, name):
        total = m + 2
        return x * total, repr(total), isinstance(total, Meters), name == "ABC", name.upper(), type(m * 2).__name__

    return Made(f, [(ones(3), Meters(1.5), Name("abc")), (ones(3), Meters(2), Name("abd"))])


@program("https://github.com/pytorch/pytorch/issues/130087")
def identity_of_parameters():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    chosen = {id(model[0].weight): 2.0, id(model[1].weight): 3.0}

    def f(x, weight):
        return model(x) * chosen[id(weight)], id(weight) == id(model[0].weight), id(model) != id(model[0])

    return Made(f, [(ones(1, 2), model[i].weight) for i in (0, 1, 0)])


@program("https://github.com/pytorch/pytorch/pull/196360")
def identity_of_rebound_attributes():
    class Holder:
        def __init__(self):
            self.left, self.right = object(), object()
            self.current = self.left

    def f(x, h):
        y = x + 1 if h.current is h.left else x - 1
        h.current = h.right if h.current is h.left else h.left
        return y

    holder = Holder()
    return Made(f, [(ones(3), holder)] * 4, look=lambda *_: holder.current is holder.left)


@program("https://github.com/pytorch/pytorch/pull/184830")
def identity_of_tensors_and_methods():
    def f(x, y):
        same = [x is y, x.contiguous() is x, x.detach() is x, x.to(x.dtype) is x, x.view(-1) is x, x.data is x]
        return x + y, same, x.add is x.add, x.__class__ is torch.Tensor

    a = ones(3)
    return Made(f, [(a, a), (ones(3), ones(3)), (a, a)])


@program("https://github.com/pytorch/pytorch/issues/165408")
def data_ptr_comparison():
    def f(x):
        y = x.detach()
        if x.data_ptr() == y.data_ptr() and x.stride() == y.stride():
            return x + 1
        return x - 1

    return Made(f, [(ones(3),), (ones(2, 2).T,)])


@program("https://github.com/pytorch/pytorch/pull/184830")
def identity_of_arguments():
    def f(a, b):
        a.append(1)
        if a is b:
            return torch.ones(2) * len(b), a == b
        return torch.zeros(2) + len(b), a == b

    one = []
    return Made(f, [(one, one), ([], []), (one, one)])


@program("https://github.com/pytorch/pytorch/issues/116264")
def dataclass_equality_and_order():
    @dataclasses.dataclass(order=True)
    class C:
        a: int
        b: list = dataclasses.field(default_factory=list, compare=False)

    def f(x, n):
        left, right = C(n), C(4, [1])
        left.b.append(n)
        return x * left.a, left == right, left < right, left, repr(right), dataclasses.asdict(right)

    return Made(f, [(ones(3), 3), (ones(3), 4)])


@program("https://github.com/pytorch/pytorch/issues/154009")
def frozen_dataclass_with_slots():
    @dataclasses.dataclass(frozen=True, slots=True)
    class Point:
        x: int
        y: int = dataclasses.field(default=2)
        z: int = dataclasses.field(init=False)

        def __post_init__(self):
            object.__setattr__(self, "z", self.x + self.y)

    def f(t, n):
        p = Point(n)
        q = dataclasses.replace(p, y=5)
        try:
            p.x = 3
        except dataclasses.FrozenInstanceError as error:
            return t * q.z, str(error), p, hash(p) == hash(Point(n)), [g.name for g in dataclasses.fields(p)]

    return Made(f, [(ones(3), 1), (ones(3), 2)])


@program("https://github.com/pytorch/pytorch/issues/120799")
def super_in_static_and_class_methods():
    class A:
        scale = 2

        @classmethod
        def make(cls, n):
            return cls.scale * n

        @staticmethod
        def plain(n):
            return n + 1

    class B(A):
        scale = 3

        @classmethod
        def make(cls, n):
            return super().make(n) + 1

        def run(self, x):
            return x * super().make(2) + super(B, self).plain(1) + self.make(1)

    def f(x, b):
        return b.run(x), B.make.__self__ is B, B.plain is A.plain, type(b).__mro__[1].make(5)

    return Made(f, [(ones(3), B()), (ones(3), B())])


@program("https://github.com/pytorch/pytorch/issues/119198")
def methods_bound_at_run_time():
    class Thing:
        n = 2

    def scaled(self, x):
        return x * self.n

    def f(x, thing):
        thing.scaled = types.MethodType(scaled, thing)
        again = scaled.__get__(thing)
        return thing.scaled(x), again(x + 1), again == thing.scaled, thing.scaled.__func__ is scaled

    return Made(lambda x, t: f(x, t), [(ones(3), Thing()), (ones(3), Thing())])


@program("https://github.com/pytorch/pytorch/issues/119198")
def del_and_str_and_repr():
    class Named:
        def __init__(self, name):
            self.name = name

        def __str__(self):
            return self.name

        def __repr__(self):
            return f"<{self.name}>"

        def __int__(self):
            return len(self.name)

        def __float__(self):
            return 0.5

    def f(x, thing):
        return x * int(thing) + float(thing), str(thing), repr([thing]), f"{thing!r}", "%s" % thing, round(3.7)

    return Made(f, [(ones(3), Named("ab")), (ones(3), Named("c"))])


@program("https://github.com/pytorch/pytorch/issues/149991")
def class_attribute_that_lies():
    class Real:
        pass

    class Pretender:
        @property
        def __class__(self):
            return Real

    def f(x, thing):
        flags = isinstance(thing, Real), type(thing) is Real, thing.__class__ is Real, issubclass(type(thing), Real)
        return x + sum(flags), flags

    return Made(f, [(ones(3), Pretender()), (ones(3), Real())])


@program("https://github.com/pytorch/pytorch/pull/161508")
def proxies_of_containers_and_calls():
    class Items(list):
        def __call__(self, n):
            return n + len(self)

    items = Items([1, 2])
    proxy = weakref.proxy(items)

    def f(x):
        proxy.append(3)
        return x * len(proxy) + proxy(1), proxy[0], 2 in proxy, list(proxy), bool(proxy), proxy == items

    return Made(f, [(ones(3),), (ones(3),)], state=items)


@program("https://github.com/pytorch/pytorch/issues/106125")
def namespaces_and_mapping_proxies():
    space = types.SimpleNamespace(scale=2, inner=types.SimpleNamespace(shift=1))
    fixed = types.MappingProxyType({"a": 5})

    def f(x):
        space.scale += 1
        space.late = x.shape
        try:
            fixed["b"] = 1
        except TypeError as error:
            return x * space.scale + space.inner.shift + fixed["a"], str(error), list(fixed), vars(space.inner)

    return Made(f, [(ones(3),), (ones(2),)], state=space)


@program("https://github.com/pytorch/pytorch/issues/96198")
def own_mapping_and_sequence():
    class Fields(collections.abc.Mapping):
        def __init__(self, **data):
            self.data = data

        def __getitem__(self, key):
            return self.data[key]

        def __iter__(self):
            return iter(self.data)

        def __len__(self):
            return len(self.data)

    class Pair(collections.abc.Sequence):
        def __getitem__(self, at):
            return (3, 4)[at]

        def __len__(self):
            return 2

    def scaled(x, a=1, b=2):
        return x * a + b

    def f(fields, pair):
        x = fields["x"]
        rest = {k: v for k, v in fields.items() if k != "x"}
        return (
            scaled(x, **rest),
            scaled(x, *pair),
            fields.get("none", 7),
            "a" in fields,
            pair.index(4),
            list(reversed(pair)),
        )

    return Made(f, [(Fields(x=ones(3), a=5), Pair()), (Fields(x=ones(2), b=1), Pair())])


@program("https://github.com/pytorch/pytorch/issues/100181")
def exceptions_and_types_as_values():
    class Code(Exception):
        def __init__(self, n):
            super().__init__(n, "code")
            self.n = n

    def f(x, n):
        made = Code(n)
        kind = type("Made", (Code,), {"extra": n})
        other = kind(n)
        return x * made.n + other.extra, made.args, repr(made), kind.__mro__[1] is Code, made == Code(n), str(other)

    return Made(f, [(ones(3), 1), (ones(3), 2)])


@program("https://github.com/pytorch/pytorch/issues/154009")
def dataclass_inheritance_and_class_variables():
    @dataclasses.dataclass
    class Base:
        a: int = 1
        made: ClassVar[int] = 0

        def __post_init__(self):
            type(self).made += 1

    @dataclasses.dataclass(kw_only=True)
    class Child(Base):
        b: dataclasses.InitVar[int] = 2
        total: float = dataclasses.field(default=0.0, repr=False, compare=False)

        def __post_init__(self, b):
            super().__post_init__()
            self.total = self.a + b

    def f(x, n):
        child = Child(n, b=n * 2)
        return x * child.total, repr(child), child == Child(n), dataclasses.is_dataclass(child), Child.made

    return Made(f, [(ones(3), 1), (ones(3), 2)], look=lambda *_: (Base.made, Child.made))
