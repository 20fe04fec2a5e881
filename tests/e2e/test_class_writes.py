"""Attributes of classes that a compiled function sets: read again in the trace, along the MRO, and there after it."""

import abc
import enum

import pytest
import torch
from mode import COUNTED

import flambeau


def both(build, calls=3):
    """Results and states of `calls` calls, eager and compiled, each with classes of its own."""

    def run(wrap):
        fn, state = build()
        fn = wrap(fn)
        outcomes = []
        for i in range(calls):
            try:
                outcomes.append(fn(torch.ones(2) * (i + 1)))
            except Exception as error:
                outcomes.append((type(error).__name__, str(error)))
            outcomes.append(state())
        return outcomes

    expected, found = run(lambda fn: fn), run(flambeau.compile)
    assert str(found) == str(expected)


def breaks(build):
    fn, _ = build()
    before = sum(flambeau.counters()["graph_breaks"].values())
    flambeau.compile(fn)(torch.ones(2))
    return sum(flambeau.counters()["graph_breaks"].values()) - before


def counter():
    class Counted:
        made = 0

        def __init__(self):
            Counted.made += 1

    def fn(x):
        a, b = Counted(), Counted()
        return x * a.made + b.made

    return fn, lambda: Counted.made


def singleton():
    class Single:
        only = None

        def __new__(cls):
            if cls.only is None:
                cls.only = super().__new__(cls)
            return cls.only

    def fn(x):
        a, b = Single(), Single()
        a.seen = getattr(a, "seen", 0) + 1
        return x * a.seen, a is b

    return fn, lambda: (Single.only is not None, vars(Single.only))


def new_name():
    class A:
        pass

    def fn(x):
        had = hasattr(A, "late")
        A.late = 3
        return x * A().late, had, hasattr(A, "late")

    return fn, lambda: A.late


def base_and_derived():
    class A:
        v = 1

    class B(A):
        pass

    class C(B):
        v = 5

    def fn(x):
        first = (B.v, C.v)
        A.v = A.v + 10
        second = (A.v, B.v, C.v, B().v, C().v)
        B.v = 7
        return x, first, second, (A.v, B.v, C.v, super(C, C()).v)

    return fn, lambda: (A.v, B.v, C.v, "v" in vars(B))


def of_two_bases():
    class A:
        pass

    class B:
        v = 2

    class C(A, B):
        pass

    def fn(x):
        first = C.v
        A.v = 9
        return x * C.v, first, C().v

    return fn, lambda: (A.v, B.v, C.v)


def method_and_property():
    class A:
        def f(self):
            return 1

    def other(self):
        return 2

    def fn(x):
        a = A()
        first = a.f()
        A.f = other
        A.g = property(lambda self: self.f() * 10)
        A.h = staticmethod(other)
        A.i = classmethod(lambda cls: cls.__name__)
        return x * first, a.f(), a.g, a.h(0), a.i()

    return fn, lambda: (A().f(), A().g, A.h(0), A.i())


def instance_goes_first():
    class A:
        v = 1

    a = A()
    a.v = 5

    def fn(x):
        A.v = 2
        return x * a.v, A.v

    return fn, lambda: (a.v, A.v)


def data_descriptor_goes_first():
    class A:
        pass

    a = A()
    a.v = 5

    def fn(x):
        A.v = property(lambda self: 8)
        return x * a.v

    return fn, lambda: a.v


def abstract():
    class A(abc.ABC):
        count = 0

        @abc.abstractmethod
        def f(self): ...

    class B(A):
        def f(self):
            type(self).count += 1
            return self.count

    def fn(x):
        return x * B().f(), B().f()

    return fn, lambda: (A.count, B.count)


def meta_that_sets():
    log = []

    class Meta(type):
        def __setattr__(cls, name, value):
            log.append(name)
            super().__setattr__(name, value + 1)

    class A(metaclass=Meta):
        v = 1

    def fn(x):
        A.v = A.v * 2
        return x * A.v

    return fn, lambda: (A.v, log)


def meta_with_property():
    class Meta(type):
        @property
        def v(cls):
            return 3

        @v.setter
        def v(cls, value):
            cls.w = value

    class A(metaclass=Meta):
        w = 0

    def fn(x):
        A.v = 4
        return x * A.v, A.w

    return fn, lambda: (A.v, A.w)


def of_an_enum():
    class Color(enum.Enum):
        RED = 1

    def fn(x):
        Color.extra = 3
        try:
            Color.RED = 4
        except AttributeError as error:
            return x, str(error), Color.extra
        return x

    return fn, lambda: Color.extra


def of_a_builtin():
    def fn(x):
        try:
            dict.v = 3
        except TypeError as error:
            return x, str(error)
        return x

    return fn, lambda: None


def special():
    class A:
        def __len__(self):
            return 1

    def fn(x):
        a = A()
        first = len(a)
        A.__len__ = lambda self: 4
        return x * first, len(a)

    return fn, lambda: len(A())


def tensors_on_a_class():
    class State:
        last = None
        total = torch.zeros(2)

    def fn(x):
        State.last = x * 2
        State.total = State.total + State.last
        return State.total

    return fn, lambda: (State.last, State.total)


def before_a_break():
    class A:
        v = 0

    @flambeau.disable
    def seen():
        return A.v

    def fn(x):
        A.v = A.v + 1
        first = seen()
        A.v = 20
        return x * A.v, first, seen()

    return fn, lambda: A.v


def raises_afterwards():
    class A:
        v = 0

    def fn(x):
        A.v = 3
        raise ValueError(A.v)

    return fn, lambda: A.v


def slots():
    class A:
        __slots__ = ("v",)

    a = A()
    a.v = 2

    def fn(x):
        first = a.v
        A.v = 7
        return x * first, a.v

    return fn, lambda: a.v


def set_by_name():
    class A:
        pass

    name = "v"

    def fn(x):
        setattr(A, name, 3)
        return x * A.v, vars(A).get("v"), "v" in dir(A), A.__dict__["v"]

    return fn, lambda: A.v


WHOLE = [
    counter,
    singleton,
    new_name,
    base_and_derived,
    of_two_bases,
    instance_goes_first,
    abstract,
    tensors_on_a_class,
]
OTHERS = [
    method_and_property,
    data_descriptor_goes_first,
    meta_that_sets,
    meta_with_property,
    of_an_enum,
    of_a_builtin,
    special,
    before_a_break,
    raises_afterwards,
    slots,
    set_by_name,
]


@pytest.mark.parametrize("build", WHOLE + OTHERS)
def test_as_eager(build):
    both(build)


@pytest.mark.parametrize("build", WHOLE)
def test_without_a_break(build):
    assert not breaks(build) or not COUNTED


def test_a_counter_on_a_class_is_no_constant():
    fn, state = counter()
    compiled = flambeau.compile(fn)
    before = flambeau.counters()["frames_traced"]
    for i in range(30):
        assert torch.equal(compiled(torch.ones(2)), torch.ones(2) * (2 * i + 2) * 2)
    assert state() == 60
    assert flambeau.counters()["frames_traced"] - before <= 4 or not COUNTED


def test_set_by_others_between_calls():
    class A:
        v = 1

    class B(A):
        pass

    def fn(x):
        first = B.v
        A.v = first + 1
        return x * B.v

    compiled = flambeau.compile(fn)
    assert compiled(torch.ones(1)).item() == 2
    B.v = 10
    assert compiled(torch.ones(1)).item() == 10
    assert A.v == 11
    del B.v
    assert compiled(torch.ones(1)).item() == 12


def test_a_class_in_front_gets_the_same():
    class A:
        v = 1

    class B(A):
        pass

    def fn(x):
        A.v = 5
        return x * B.v

    compiled = flambeau.compile(fn)
    assert compiled(torch.ones(1)).item() == 5
    A.v = B.v = 1
    assert compiled(torch.ones(1)).item() == 1
    del B.v
    assert compiled(torch.ones(1)).item() == 5
