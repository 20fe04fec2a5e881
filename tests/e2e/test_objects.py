"""Python objects where a tracer is easily wrong: classes, descriptors, data classes, enums, functions that leave the frame."""

# ruff: noqa

import abc
import functools
from collections import namedtuple
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pytest
import torch
from samples import Color, Flags, Level
from support import check, inputs

import flambeau

Point = namedtuple("Point", "x y", defaults=(7,))


def decorated(times):
    def wrap(f):
        @functools.wraps(f)
        def inner(*args, **kwargs):
            result = f(*args, **kwargs)
            for _ in range(times - 1):
                result = result + f(*args, **kwargs)
            return result

        return inner

    return wrap


@decorated(3)
def tripled(x, *, bias=1):
    return x + bias


def escaping_closure(a, b):
    n = 1

    def inc():
        nonlocal n
        n += 1
        return n

    inc()
    return inc


def decorators(a, b):
    return tripled(a, bias=2), tripled.__name__, tripled.__wrapped__(b)


def returned_functions(a, b):
    def f(x=3):
        return a + x

    return f, functools.partial(f, 2)


def returned_instance(a, b):
    return Base(a), [Base(1)]


def returned_iterator(a, b):
    return iter([a, b]), (x for x in [a, b])


def returned_methods(a, b):
    base = Base(3)
    return base.apply


def getattr_setattr(a, b):
    b1 = Base(2)
    b1.new = a
    delattr(b1, "scale")
    try:
        b1.scale
    except AttributeError as error:
        message = str(error)
    return b1.new, message, vars(b1).keys() == {"new"}, a + 1


def exception_classes(a, b):
    class Mine(ValueError):
        def __init__(self, code):
            super().__init__(f"code {code}")
            self.code = code

    try:
        raise Mine(3)
    except (TypeError, ValueError) as error:
        return error.code, str(error), error.args, isinstance(error, Exception), a + 1


class Base:
    kind = "base"
    table = {"shared": 1}

    def __init__(self, scale):
        self.scale = scale

    def __repr__(self):
        return f"{type(self).__name__}({self.scale})"

    def apply(self, x):
        return x * self.scale

    @property
    def double(self):
        return self.scale * 2

    @double.setter
    def double(self, value):
        self.scale = value / 2

    @classmethod
    def make(cls, scale):
        return cls(scale + 1)

    @staticmethod
    def helper(x):
        return x + 1

    def __getattr__(self, name):
        if name.startswith("dyn_"):
            return name[4:]
        raise AttributeError(f"no {name}")


class Derived(Base):
    kind = "derived"

    def apply(self, x):
        return super().apply(x) + 1

    @classmethod
    def make(cls, scale):
        return super().make(scale * 2)

    def __call__(self, x):
        return self.apply(x)

    def __eq__(self, other):
        return isinstance(other, Base) and self.scale == other.scale

    def __hash__(self):
        return hash(self.scale)

    def __lt__(self, other):
        return self.scale < other.scale

    def __len__(self):
        return self.scale

    def __bool__(self):
        return self.scale > 3

    def __contains__(self, x):
        return x == self.scale

    def __getitem__(self, i):
        if i > 2:
            raise IndexError(i)
        return i * self.scale

    def __add__(self, other):
        return NotImplemented if isinstance(other, str) else ("add", other)

    def __radd__(self, other):
        return ("radd", other)

    def __iadd__(self, other):
        self.scale += other
        return self

    def __matmul__(self, other):
        return ("matmul", other)

    def __format__(self, spec):
        return f"<{spec}>"

    def __str__(self):
        return "derived!"


def classes(a, b):
    d = Derived.make(1)
    d.double = 10
    n = d.scale
    d += 2
    return (
        d(a),
        n,
        d.double,
        d.helper(1),
        d.dyn_name,
        getattr(d, "nope", "default"),
        hasattr(d, "dyn_x"),
        d.kind,
        Base.kind,
        f"{d:>3} {d!r} {d!s} {d}",
        str(d),
        repr(d),
        bool(d),
        len(Derived(2)),
        not Derived(1),
        2 in Derived(2),
        list(Derived(2)),
        d + 1,
        1 + d,
        [1] + d,
        d @ 3,
        d == Base(7),
        d != Base(7),
        sorted([Derived(3), Derived(1)])[0].scale,
        isinstance(d, Base),
        issubclass(Derived, (int, Base)),
        type(d).__mro__[1].__name__,
    )


def operator_type_error(a, b):
    try:
        Derived(1) + "x"
    except TypeError as error:
        return str(error), a + 1


def class_attribute_write(a, b):
    class Local:
        count = 0

    Local.count += 1
    x = Local()
    x.count += 5
    return Local.count, x.count, a + x.count


def outside_object(obj, a):
    obj.scale = obj.scale + 1
    obj.extra = a * obj.scale
    obj.double = 8
    return obj.scale, obj.extra


class Slotted:
    __slots__ = ("x", "y")

    def __init__(self, x):
        self.x = x


def slots(a, b):
    s = Slotted(a)
    s.x = s.x + 1
    try:
        s.y  # noqa: B018
    except AttributeError:
        missing = True
    try:
        s.z = 1
    except AttributeError as error:
        message = str(error)
    s.y = 3
    del s.y
    return s.x, missing, message, hasattr(s, "y")


class SlottedWithSetter(Slotted):
    __slots__ = ()

    def __setattr__(self, name, value):
        object.__setattr__(self, name, value)


class WithDict:
    pass


def attributes_that_are_missing(a, b):
    said = []
    for missing in (Slotted(a), SlottedWithSetter(a), WithDict(), torch):
        try:
            del missing.z
        except AttributeError as error:
            said.append(str(error))
        if isinstance(missing, Slotted):
            try:
                missing.z = 1
            except AttributeError as error:
                said.append(str(error))
    return a + b, said


class Descriptor:
    def __set_name__(self, owner, name):
        self.name = name

    def __get__(self, obj, owner):
        return self if obj is None else obj.__dict__.get(self.name, "unset")

    def __set__(self, obj, value):
        obj.__dict__[self.name] = value + 1


class Described:
    field = Descriptor()

    def __setattr__(self, name, value):
        object.__setattr__(self, name, value)
        if name != "count":
            self.count = getattr(self, "count", 0) + 1


def descriptors(a, b):
    d = Described()
    before = d.field
    d.field = 3
    d.other = a
    return before, d.field, d.count, sorted(d.__dict__), a + d.field


class Diamond1(Base):
    def apply(self, x):
        return super().apply(x) * 10


class Diamond2(Base):
    def apply(self, x):
        return super().apply(x) + 100


class Diamond(Diamond1, Diamond2):
    pass


def diamond(a, b):
    return Diamond(2).apply(a), super(Diamond1, Diamond(2)).apply(b)


class Abstract(abc.ABC):
    @abc.abstractmethod
    def go(self): ...


class Concrete(Abstract):
    def go(self):
        return 1


def abcs(a, b):
    return (
        isinstance(Concrete(), Abstract),
        Concrete().go(),
        isinstance([1], Sequence),
        isinstance({}, Mapping),
        isinstance((1,), (list, tuple)),
        isinstance(True, int),
        isinstance(1, float | int),
        isinstance(None, type(None)),
        isinstance("s", Sequence),
        isinstance(a, torch.Tensor),
        a + 1,
    )


@dataclass(order=True)
class Data:
    x: int
    y: float = 2.0
    items: list = field(default_factory=list)

    def __post_init__(self):
        self.total = self.x + self.y


@dataclass(frozen=True)
class Frozen:
    x: int = 1


def dataclasses_(a, b):
    d = Data(1, items=[a])
    e = replace(d, x=5)
    frozen = Frozen()
    try:
        frozen.x = 2
    except AttributeError as error:
        message = str(error)
    return d.total, e.x, e.items is d.items, d < e, Data(1) == Data(1), repr(Frozen(3)), message, a + e.total


def namedtuples(a, b):
    p = Point(a)
    x, y = p._replace(x=b)
    return p, p.y, x, y, p._asdict()["y"], Point._fields, p[0], Point(1, 2) == (1, 2), len(p), isinstance(p, tuple)


def enums(a, b):
    return (
        Color.RED is Color(1),
        Color["BLUE"].value,
        Color.RED.name,
        Level.HIGH > 3,
        Level.HIGH + 1,
        [c.name for c in Color],
        Color.RED in (Color.BLUE, Color.RED),
        {Color.RED: 1}[Color.RED],
        Color.RED == 1,
        a * Level.HIGH,
    )


def enum_flags(a, b):
    return (Flags.A | Flags.B).value, Flags.A in (Flags.A | Flags.B), a + 1


ALL = [
    exception_classes, classes, operator_type_error, class_attribute_write, slots,
    attributes_that_are_missing, descriptors, diamond, abcs,
    dataclasses_, namedtuples, enums, enum_flags, decorators, getattr_setattr,
]  # fmt: skip
# These may run eagerly as a whole; what counts is that they are right.
BREAKS = {
    abcs,
    class_attribute_write,
    classes,
    dataclasses_,
    decorators,
    enum_flags,
    enums,
    exception_classes,
}


@pytest.mark.parametrize("fn", ALL, ids=lambda f: f.__name__)
def test_semantics(fn, backend):
    check(fn, inputs(), backend=backend, graphs=None if fn in BREAKS else 1)


def test_outside_object(backend):
    compiled = flambeau.compile(outside_object, backend=backend)
    for _ in range(3):
        a = torch.randn(3)
        eager, traced = Base(2), Base(2)
        expected = outside_object(eager, a)
        actual = compiled(traced, a)
        assert actual[0] == expected[0]
        assert torch.equal(actual[1], expected[1])
        assert list(vars(traced)) == list(vars(eager))
        assert traced.scale == eager.scale
        assert traced.extra is actual[1]


def test_returned_objects(backend):
    a, b = inputs()
    inc = flambeau.compile(escaping_closure, backend=backend)(a, b)
    assert (inc(), inc()) == (3, 4)
    f, g = flambeau.compile(returned_functions, backend=backend)(a, b)
    assert torch.equal(f(), a + 3)
    assert torch.equal(g(), a + 2)
    base, [other] = flambeau.compile(returned_instance, backend=backend)(a, b)
    assert base.scale is a
    assert repr(other) == "Base(1)"
    x, y = flambeau.compile(returned_iterator, backend=backend)(a, b)
    assert next(x) is a
    assert list(y)[1] is b
    assert torch.equal(flambeau.compile(returned_methods, backend=backend)(a, b)(a), a * 3)


def test_a_wrapper_that_borrows_torch_names_is_not_taken_for_torch(backend):
    @functools.wraps(torch.nn.functional.relu)
    def relu(x):
        return x * 2

    @functools.wraps(torch.compiler.is_compiling)
    def is_compiling():
        return "mine"

    check(lambda a, b: (relu(a), is_compiling()), inputs(), backend=backend)


def test_a_wrapped_function_has_the_names_of_what_it_wraps(backend):
    def named(f):
        return lambda x: (f.__name__, f.__qualname__, f.__module__, x + 1)

    @decorated(1)
    def first(x):
        return x

    @decorated(1)
    def second(x):
        return x

    for f in (first, second, tripled, inputs, torch.nn.functional.relu):
        check(named(f), (torch.ones(2),), backend=backend, graphs=None)


SENTINEL = "no such value"


def test_a_constant_leaves_the_frame_as_the_object_that_it_was():
    class Holder:
        value = SENTINEL

    def f(holder, x):
        held = holder.value
        flambeau.graph_break()
        return held is SENTINEL, held, x + 1

    compiled = flambeau.compile(f)
    for _ in range(2):
        same, held, _ = compiled(Holder(), torch.ones(2))
        assert same
        assert held is SENTINEL
    assert flambeau.compile(lambda x: SENTINEL)(torch.ones(1)) is SENTINEL


def test_a_coroutine_is_made_by_plain_python():
    async def answer(x):
        return x + 1

    def f(x):
        made = answer(x)
        try:
            made.send(None)
        except StopIteration as done:
            return done.value * 2

    assert torch.equal(flambeau.compile(f)(torch.ones(2)), f(torch.ones(2)))


def test_a_submodule_is_imported_by_from(tmp_path, monkeypatch):
    package = tmp_path / "flambeau_sample_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "inner.py").write_text("number = 3")
    monkeypatch.syspath_prepend(tmp_path)

    def f(x):
        from flambeau_sample_package import inner

        return x * inner.number

    compiled = flambeau.compile(f)
    for _ in range(2):
        assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 3.0))
