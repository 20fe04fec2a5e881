"""Slots, descriptors and protocols of user classes: attributes, calls, comparison, hashing, containers."""

import torch

from ..program import Made, ones, program


@program("https://github.com/pytorch/pytorch/pull/182740")
def wrapper_descriptors_called_directly():
    def f(x, items):
        joined = list.__add__(items, [4])
        return x * int.__mul__(3, 2), joined, object.__eq__(items, items), str.__len__("abc"), type(list.__add__)

    return Made(f, [(ones(3), [1]), (ones(3), [1, 2])])


@program("https://github.com/pytorch/pytorch/pull/182740")
def method_wrappers_as_values():
    def f(x, n, items):
        add, size = n.__add__, items.__len__
        items.append(5)
        return x + add(2), size(), add.__name__, add.__self__, n.__eq__("a"), [0].__contains__(0)

    return Made(f, [(ones(3), 4, [1]), (ones(3), 7, [])])


@program("https://github.com/pytorch/pytorch/pull/182740")
def method_descriptors_bound_by_get():
    def f(x, items):
        append = list.append.__get__(items)
        append(x + 1)
        bound = dict.__dict__["fromkeys"].__get__(None, dict)
        return x * len(items), bound("ab", 0), list.append.__name__, list.append.__objclass__ is list

    return Made(f, [(ones(3), []), (ones(3), [1])])


@program("https://github.com/pytorch/pytorch/issues/190755")
def descriptor_of_another_type():
    class Slotted:
        __slots__ = ("value",)

    def f(x, thing):
        found = []
        for attempt in (lambda: Slotted.value.__get__(thing), lambda: list.append(thing, 1), lambda: str.upper(3)):
            try:
                found.append(attempt())
            except (TypeError, AttributeError) as error:
                found.append(str(error))
        return x + len(found), found

    return Made(f, [(ones(3), 5), (ones(3), Slotted())])


@program("https://github.com/pytorch/pytorch/pull/109542")
def getset_descriptors():
    class Plain:
        pass

    def f(x, thing):
        thing.__dict__["late"] = 3
        named = type.__dict__["__name__"].__get__(Plain)
        return x * thing.late, named, Plain.__dict__["__dict__"].__get__(thing), type(thing).__mro__[0] is Plain

    return Made(f, [(ones(3), Plain()), (ones(3), Plain())])


@program("https://github.com/pytorch/pytorch/pull/109542")
def getset_of_a_tensor():
    def f(x):
        shape = torch.Tensor.shape.__get__(x)
        return x.reshape(-1), shape, torch.Tensor.requires_grad.__get__(x), torch.Tensor.T.__get__(x)

    return Made(f, [(ones(2, 3),), (ones(4, 1),)])


@program("https://github.com/pytorch/pytorch/pull/187532")
def getattr_hook():
    class Lazy:
        def __init__(self):
            self.known = 2
            self.asked = []

        def __getattr__(self, name):
            if name.startswith("_"):
                raise AttributeError(f"no {name}")
            self.asked.append(name)
            return len(name)

    def f(x, lazy):
        y = x * lazy.known + lazy.width + getattr(lazy, "_hidden", 10)
        return y, hasattr(lazy, "_x"), hasattr(lazy, "anything"), getattr(lazy, "known")

    lazy = Lazy()
    return Made(f, [(ones(3), lazy), (ones(3), lazy), (ones(3), Lazy())])


@program("https://github.com/pytorch/pytorch/pull/187532")
def getattribute_skips_the_hook():
    class Both:
        real = 5

        def __getattr__(self, name):
            return 100

    def f(x, thing):
        try:
            object.__getattribute__(thing, "missing")
            caught = False
        except AttributeError:
            caught = True
        return x + thing.missing + thing.__getattribute__("real"), thing.__getattr__("real"), caught

    return Made(f, [(ones(3), Both()), (ones(3), Both())])


@program("https://github.com/pytorch/torchdynamo/pull/454")
def getattribute_overridden():
    class Config:
        alias = {"hidden": "width"}

        def __init__(self, width):
            self.width = width
            self.reads = 0

        def __getattribute__(self, name):
            if name == "width":
                object.__setattr__(self, "reads", object.__getattribute__(self, "reads") + 1)
            return super().__getattribute__(type(self).alias.get(name, name))

    def f(x, config):
        return x * config.hidden + config.width

    config = Config(3)
    return Made(f, [(ones(3), config), (ones(3), config), (ones(3), Config(4))], state=config)


@program("https://github.com/pytorch/pytorch/issues/93607")
def setattr_hook():
    class Tracked:
        def __init__(self, size):
            self.size = size

        def __setattr__(self, name, value):
            self.__dict__.setdefault("order", []).append(name)
            super().__setattr__(name, value)

        def __delattr__(self, name):
            self.order.append(f"del {name}")
            object.__delattr__(self, name)

    def f(x, size):
        thing = Tracked(size)
        thing.y = x + size
        del thing.size
        return thing.y, thing.order, hasattr(thing, "size"), thing

    return Made(f, [(ones(3), 2), (ones(3), 5)])


@program("https://github.com/pytorch/pytorch/issues/176599")
def property_with_setter_and_deleter():
    class Scaled:
        def __init__(self):
            self._scale, self.log = 1.0, []

        @property
        def scale(self):
            self.log.append("get")
            return self._scale

        @scale.setter
        def scale(self, value):
            self.log.append("set")
            self._scale = max(value, 0.5)

        @scale.deleter
        def scale(self):
            self.log.append("del")
            self._scale = -1.0

    def f(x, thing, value):
        thing.scale = value
        y = x * thing.scale
        del thing.scale
        return y + thing.scale

    thing = Scaled()
    return Made(f, [(ones(3), thing, 0.1), (ones(3), thing, 2.0)], state=thing)


@program("https://github.com/pytorch/pytorch/issues/165385")
def invalid_attribute_writes():
    class Closed:
        __slots__ = ("a",)

        @property
        def fixed(self):
            return 1

    def f(x, thing):
        said = []
        for name in ("fixed", "b", "a", "__class__"):
            try:
                setattr(thing, name, 3)
            except (AttributeError, TypeError) as error:
                said.append((name, type(error).__name__))
        return x + thing.a, said

    return Made(f, [(ones(3), Closed()), (ones(3), Closed())])


@program("https://github.com/pytorch/pytorch/pull/177659")
def slots_and_inheritance():
    class Base:
        __slots__ = ("a", "b")

        def __init__(self, a):
            self.a = a

    class Child(Base):
        __slots__ = ("c",)

    def f(x, thing):
        unset = hasattr(thing, "b")
        thing.b = x + thing.a
        thing.c = thing.b * 2
        del thing.a
        return thing.c, unset, hasattr(thing, "a"), hasattr(thing, "__dict__"), Child.c.__name__

    return Made(f, [(ones(3), Child(1)), (ones(3), Child(2))])


@program("https://github.com/pytorch/pytorch/issues/150864")
def class_attribute_writes():
    class Counter:
        made = 0

        def __init__(self):
            type(self).made += 1

    def f(x):
        Counter.last = x.shape
        return x + Counter().made, Counter().made

    return Made(f, [(ones(3),), (ones(3),), (ones(2),)], look=lambda *_: (Counter.made, Counter.last))


@program("https://github.com/pytorch/pytorch/pull/183088")
def data_and_non_data_descriptors():
    class Data:
        def __get__(self, thing, kind=None):
            return "data" if thing is not None else self

        def __set__(self, thing, value):
            thing.__dict__["sets"] = thing.__dict__.get("sets", 0) + value

    class NonData:
        def __get__(self, thing, kind=None):
            return "non-data"

    class Holder:
        d, n = Data(), NonData()

    def f(x, h):
        h.d = 2
        first = h.n
        h.n = "own"
        h.__dict__["d"] = "shadow"
        return x * h.sets, h.d, first, h.n, Holder.n, type(Holder.d).__name__

    holder = Holder()
    return Made(f, [(ones(3), holder), (ones(3), holder), (ones(3), Holder())])


@program("https://github.com/pytorch/pytorch/pull/183088")
def set_name_of_descriptors():
    class Field:
        def __set_name__(self, owner, name):
            self.name = f"_{name}"

        def __get__(self, thing, owner):
            return getattr(thing, self.name, 1.0)

        def __set__(self, thing, value):
            setattr(thing, self.name, value * 2)

    class Model:
        scale = Field()
        shift = Field()

    def f(x, model):
        model.scale = model.scale + 1
        return x * model.scale + model.shift

    model = Model()
    return Made(f, [(ones(3), model), (ones(3), model), (ones(3), Model())], state=model)


@program("https://github.com/pytorch/pytorch/issues/128942")
def init_subclass_registry():
    registry = {}

    class Layer:
        def __init_subclass__(cls, /, name=None, **more):
            super().__init_subclass__(**more)
            registry[name or cls.__name__] = cls

        def __call__(self, x):
            return self.apply(x)

    class Double(Layer, name="double"):
        def apply(self, x):
            return x * 2

    class Negate(Layer):
        def apply(self, x):
            return -x

    def f(x, name):
        return registry[name]()(x), sorted(registry), [c.__name__ for c in Layer.__subclasses__()]

    return Made(f, [(ones(3), "double"), (ones(3), "Negate"), (ones(3), "double")])


@program("https://github.com/pytorch/pytorch/issues/107143")
def metaclass_call_and_attributes():
    class Meta(type):
        instances = 0

        def __call__(cls, *args):
            cls.instances += 1
            return super().__call__(*args)

        def __len__(cls):
            return 3

        def __getitem__(cls, n):
            return cls(n)

        @property
        def tag(cls):
            return cls.__name__.lower()

    class Thing(metaclass=Meta):
        def __init__(self, n):
            self.n = n

    def f(x, n):
        return x * Thing(n).n + len(Thing), Thing[4].n, Thing.tag

    return Made(f, [(ones(3), 2), (ones(3), 3)], look=lambda *_: Thing.instances)


@program("https://github.com/pytorch/pytorch/issues/107143")
def singleton_by_new():
    class One:
        made = None

        def __new__(cls, *args):
            if cls.made is None:
                cls.made = super().__new__(cls)
                cls.made.count = 0
            return cls.made

        def __init__(self, step):
            self.count += step

    def f(x, step):
        one = One(step)
        return x + one.count, one is One(1)

    return Made(f, [(ones(3), 2), (ones(3), 3), (ones(3), 2)], look=lambda *_: One.made.count)


@program("https://github.com/pytorch/pytorch/issues/154009")
def class_getitem_and_generic():
    class Box:
        def __class_getitem__(cls, item):
            return (cls.__name__, item)

    def f(x):
        alias = list[int]
        return (
            x + len(alias([1, 2])),
            Box[int],
            alias.__origin__ is list,
            alias.__args__,
            dict[str, int] == dict[str, int],
        )

    return Made(f, [(ones(3),), (ones(3),)])


@program("https://github.com/pytorch/pytorch/issues/128964")
def callable_objects():
    class Scale:
        def __init__(self, factor):
            self.factor, self.calls = factor, 0

        def __call__(self, x, *, shift=0):
            self.calls += 1
            return x * self.factor + shift

    def f(x, fn):
        return fn(fn(x), shift=fn.calls), callable(fn), fn.__call__(x)

    scale = Scale(2)
    return Made(f, [(ones(3), scale), (ones(3), scale), (ones(3), Scale(3))])


class Version:
    def __init__(self, *parts):
        self.parts = parts

    def __eq__(self, other):
        return self.parts == other.parts if isinstance(other, Version) else NotImplemented

    def __lt__(self, other):
        return self.parts < other.parts

    def __hash__(self):
        return hash(self.parts)


@program("https://github.com/pytorch/pytorch/issues/167956")
def comparison_slots():
    def f(x, a, b):
        flags = (a < b, a > b, a == b, a != b, a == 3, 3 != a, sorted([b, a])[0] is a, max(a, b) is b)
        try:
            a <= b
        except TypeError as error:
            return x + sum(map(bool, flags)), flags, str(error)

    return Made(f, [(ones(3), Version(1), Version(2)), (ones(3), Version(2), Version(2))])


@program("https://github.com/pytorch/pytorch/issues/167956")
def objects_as_dict_keys():
    table = {Version(1): 10, Version(2): 20}

    def f(x, version):
        table[version] = table.get(version, 0) + 1
        return x * table[version], version in table, {version, Version(1)} == {Version(1)}, len(table)

    return Made(
        f, [(ones(3), Version(1)), (ones(3), Version(3)), (ones(3), Version(3))], look=lambda *_: list(table.values())
    )


@program("https://github.com/pytorch/pytorch/issues/167956")
def unhashable_objects():
    class NoHash:
        def __eq__(self, other):
            return True

    def f(x, thing):
        said = []
        for key in (thing, [1], {}, x):
            try:
                said.append(len({key: 1}))
            except TypeError as error:
                said.append(str(error))
        return x + 1, said, NoHash.__hash__ is None

    return Made(f, [(ones(3), NoHash()), (ones(3), Version(1))])


@program("https://github.com/pytorch/pytorch/issues/116264")
def reflected_operators():
    class Poly:
        def __init__(self, *terms):
            self.terms = terms

        def __add__(self, other):
            return Poly(*self.terms, other) if not isinstance(other, Poly) else Poly(*self.terms, *other.terms)

        def __radd__(self, other):
            return Poly(other, *self.terms)

        def __imul__(self, n):
            self.terms = self.terms * n
            return self

        def __matmul__(self, x):
            return x * len(self.terms)

        def __neg__(self):
            return Poly(*(-t for t in self.terms))

    def f(x, p):
        q = 1 + p + 2
        q *= 2
        return q @ x, (-q).terms, (p + p).terms, sum([p, p], 0).terms

    return Made(f, [(ones(3), Poly(5)), (ones(3), Poly(1, 2))])


@program("https://github.com/pytorch/pytorch/issues/119198")
def container_protocol():
    class Bag:
        def __init__(self, *items):
            self.items = list(items)

        def __iter__(self):
            return iter(self.items)

        def __len__(self):
            return len(self.items)

        def __contains__(self, item):
            return item in self.items

        def __reversed__(self):
            return iter(self.items[::-1])

        def __setitem__(self, at, value):
            self.items[at] = value

    def f(x, bag):
        bag[0] = bag.items[0] + 1
        total = x
        for item in bag:
            total = total + item
        first, *rest = bag
        return total, len(bag), 3 in bag, list(reversed(bag)), bool(bag), rest

    return Made(f, [(ones(3), Bag(1, 3)), (ones(3), Bag(2, 4, 3))])


@program("https://github.com/pytorch/pytorch/issues/119198")
def old_sequence_protocol():
    class Squares:
        def __getitem__(self, n):
            if n > 3:
                raise IndexError(n)
            return n * n

    def f(x, squares):
        total = x
        for v in squares:
            total = total + v
        return total, list(squares), 4 in squares, 5 in squares, [*zip(squares, "ab")]

    return Made(f, [(ones(3), Squares()), (ones(3), Squares())])


@program("https://github.com/pytorch/pytorch/issues/119198")
def bool_and_len_decide():
    class Truth:
        def __init__(self, value):
            self.value, self.asked = value, 0

        def __bool__(self):
            self.asked += 1
            return self.value

    def f(x, t):
        y = x + 1 if t else x - 1
        return y, not t, t and 1, any([t, 0]), all([t])

    return Made(f, [(ones(3), Truth(True)), (ones(3), Truth(False))])
