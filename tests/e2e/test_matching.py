"""`match` statements: classes, sequences, mappings; the rules by which types and attributes match."""

import abc
import array
import collections
import collections.abc
import enum
import types
from dataclasses import dataclass
from typing import NamedTuple

import pytest
import torch
from mode import COUNTED
from support import assert_same, run

import flambeau


def compare(fn, *inputs):
    """Eagerly and compiled, on the same objects: results and errors."""
    compiled = flambeau.compile(fn)
    for _ in range(2):
        for args in inputs:
            kind, want, _ = run(fn, args)
            got_kind, got, _ = run(compiled, args)
            assert (got_kind, type(got)) == (kind, type(want)), (got, want)
            if kind == "raised":
                assert got == want
            else:
                assert_same(got, want)


class Positional:
    __match_args__ = ("a", "b")

    def __init__(self, a, b):
        self.a, self.b = a, b


class Derived(Positional):
    pass


class Renamed(Positional):
    __match_args__ = ("b",)


class NoArgs:
    def __init__(self, a=1):
        self.a = a


class Computed:
    __match_args__ = ("twice", "gone")

    @property
    def twice(self):
        return 4

    @property
    def gone(self):
        raise AttributeError("gone")


class Raising:
    __match_args__ = ("bad",)

    @property
    def bad(self):
        raise ValueError("bad")


@dataclass
class Data:
    x: int
    y: int = 2


class Named(NamedTuple):
    left: int
    right: int


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class MyInt(int):
    pass


class MyList(list):
    pass


class MyDict(dict):
    pass


class OwnArgsInt(int):
    __match_args__ = ("extra",)
    extra = 5


class Checked(type):
    def __instancecheck__(cls, other):
        return isinstance(other, int)


class Virtual(metaclass=Checked):
    pass


class Sequence(collections.abc.Sequence):
    def __init__(self, *items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


class Mapping(collections.abc.Mapping):
    def __init__(self, **items):
        self.items_ = items

    def __len__(self):
        return len(self.items_)

    def __iter__(self):
        return iter(self.items_)

    def __getitem__(self, key):
        return self.items_[key]

    def keys(self):
        return self.items_.keys()


class LooksLikeOne:
    def __len__(self):
        return 2

    def __getitem__(self, i):
        return i


class GetsOwn(dict):
    def get(self, key, default=None):
        return ("own", key) if key == "a" else default


def by_class(x, subject):
    match subject:
        case Data(0) | Data(y=0):
            return x, "zero"
        case Data(x=n, y=m):
            return x + n * m, "data"
        case torch.Tensor(shape=(n, 2)):
            return x * n, "tensor"
        case torch.Tensor():
            return x, subject
        case Color.RED:
            return x + 1, "red"
        case Color():
            return x, subject.name
        case bool(b):
            return x, "bool", b
        case OwnArgsInt(extra):
            return x + extra, "own"
        case MyInt(n):
            return x, type(n).__name__
        case int(n) | float(n):
            return x * n, "number"
        case str(text):
            return x, text
        case Renamed(b, a=a):
            return x, "renamed", a, b
        case Derived(1, b):
            return x + b, "derived"
        case Positional(a, b) if a > b:
            return x + a - b, "more"
        case Positional(a=a):
            return x - a, "by name"
        case Named(left, right=2):
            return x + left, "named"
        case NoArgs(a=2):
            return x, "a"
        case Computed(t):
            return x * t, "computed"
        case list(items) | set(items) | frozenset(items) | bytes(items) | bytearray(items):
            return x, "self", len(items)
        case dict(d):
            return x, d
        case None:
            return x, "single"
        case tuple((first, *_)):
            return x, first
        case type():
            return x, "class"
        case object(missing=_):
            return x, "has it"
        case _:
            return x, "none"


SUBJECTS = [
    Color.RED,
    Color.BLUE,
    True,
    OwnArgsInt(3),
    MyInt(4),
    5,
    2.5,
    "text",
    Renamed(1, 2),
    Derived(1, 5),
    Derived(2, 1),
    Positional(5, 3),
    Positional(1, 3),
    Data(0),
    Data(1, 0),
    Data(3, 4),
    Named(1, 2),
    Named(1, 3),
    NoArgs(2),
    NoArgs(3),
    Computed(),
    torch.ones(3, 2),
    torch.ones(3),
    [1, 2],
    MyList([1]),
    {1, 2},
    frozenset([1]),
    b"ab",
    {"k": 1},
    MyDict(k=2),
    None,
    NotImplemented,
    (),
    (7, 8),
    int,
]


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda s: type(s).__name__)
def test_classes(subject):
    compare(by_class, (torch.ones(2), subject))
    assert flambeau.counters()["graph_breaks"] == {} or not COUNTED


def by_shape(x, subject):
    match subject:
        case []:
            return x, "empty"
        case [one]:
            return x, "one", one
        case [1, *rest]:
            return x + len(rest), rest
        case [first, [a, b], *_, last]:
            return x, first, a, b, last
        case [*init, 9]:
            return x, init
        case (a, b):
            return x, a, b
        case {"kind": "a", **rest}:
            return x, rest
        case {"kind": str(kind), "size": [n, *_]}:
            return x * n, kind
        case {1: value, None: other}:
            return x, value, other
        case {}:
            return x, "mapping", len(subject)
        case _:
            return x, "neither"


SHAPES = [
    [],
    (),
    [3],
    [1, 2, 3],
    (1,),
    (5, (6, 7), 8, 8),
    (5, [6, 7], 8),
    (5, [6, 7]),
    [4, 4, 9],
    (4, 5),
    range(2),
    range(1, 5),
    Named(3, 4),
    MyList([3, 4]),
    "ab",
    b"ab",
    {1, 2},
    {"kind": "a", "x": 1, "y": 2},
    {"kind": "b", "size": (3, 4)},
    {"kind": 1},
    {1: "v", None: "o"},
    {},
    MyDict(kind="a", z=1),
    collections.OrderedDict(kind="b", size=[2]),
    iter([1, 2]),
    LooksLikeOne(),
    7,
    None,
    torch.ones(2),
    torch.Size([2, 3]),
]


@pytest.mark.parametrize("subject", SHAPES, ids=lambda s: type(s).__name__)
def test_sequences_and_mappings(subject):
    if isinstance(subject, type(iter([]))):
        pytest.skip("drawn from by the first call")
    compare(by_shape, (torch.ones(2), subject))
    assert flambeau.counters()["graph_breaks"] == {} or not COUNTED


@pytest.mark.parametrize(
    "subject",
    [
        Sequence(4, 5),
        Sequence(1, 2, 3),
        Mapping(kind="a", x=1),
        Mapping(kind="b", size=[3]),
        collections.deque([4, 5]),
        array.array("i", [1, 2]),
        types.MappingProxyType({"kind": "a"}),
        collections.defaultdict(int, kind="a"),
        collections.Counter("ab"),
        collections.ChainMap({"kind": "a"}, {"z": 1}),
        memoryview(b"ab"),
        bytearray(b"ab"),
        {}.keys(),
    ],
    ids=lambda s: type(s).__name__,
)
def test_other_collections(subject):
    """Right, with breaks where a type is not traced."""
    x = torch.ones(2)
    compiled = flambeau.compile(by_shape)
    for _ in range(2):
        want, got = by_shape(x, subject), compiled(x, subject)
        assert torch.equal(want[0], got[0])
        assert want[1:] == got[1:]


def test_keys_are_got():
    def f(x, subject):
        match subject:
            case {"a": value, "b": _}:
                return x, value
            case {"a": value}:
                return x + 1, value
        return x

    made = collections.defaultdict(int, a=1)
    compare(f, (torch.ones(2), GetsOwn()), (torch.ones(2), GetsOwn(b=1)), (torch.ones(2), {"b": 2}))
    assert flambeau.counters()["graph_breaks"] == {} or not COUNTED
    assert torch.equal(flambeau.compile(f)(torch.ones(2), made)[0], torch.full((2,), 2.0))
    assert dict(made) == {"a": 1}


class Wrong:
    __match_args__ = ["a"]  # noqa: RUF012
    a = 1


class WrongNames:
    __match_args__ = (1,)


class Twice:
    __match_args__ = ("a", "a")
    a = 1


class Keys:
    one, same, float_one = 1, 1, 1.0


def too_many(x, s):
    match s:
        case Positional(1, 2, 3):
            return x


def too_many_of_self(x, s):
    match s:
        case int(1, 2):
            return x


def none_allowed(x, s):
    match s:
        case NoArgs(1):
            return x


def no_tuple(x, s):
    match s:
        case Wrong(1):
            return x


def no_names(x, s):
    match s:
        case WrongNames(1):
            return x


def twice(x, s):
    match s:
        case Twice(1, 1):
            return x


def twice_by_name(x, s):
    match s:
        case Positional(1, a=1):
            return x


def no_class(x, s):
    match s:
        case torch.relu():
            return x


def duplicate_keys(x, s):
    match s:
        case {Keys.one: _, Keys.float_one: _}:
            return x


def raising_attribute(x, s):
    match s:
        case Raising(_):
            return x


def missing_attribute(x, s):
    match s:
        case Computed(4, _):
            return x, "has"
        case Computed(4):
            return x, "has not"


def instance_check(x, s):
    match s:
        case Virtual():
            return x + 1
        case _:
            return x - 1


@pytest.mark.parametrize(
    ("fn", "subject"),
    [
        (too_many, Positional(1, 2)),
        (too_many, 1),
        (too_many_of_self, 1),
        (too_many_of_self, MyInt(1)),
        (none_allowed, NoArgs(1)),
        (no_tuple, Wrong()),
        (no_names, WrongNames()),
        (twice, Twice()),
        (twice_by_name, Positional(1, 1)),
        (no_class, 1),
        (duplicate_keys, {1: 2}),
        (duplicate_keys, 3),
        (raising_attribute, Raising()),
        (missing_attribute, Computed()),
        (instance_check, 1),
        (instance_check, "a"),
    ],
    ids=lambda v: getattr(v, "__name__", None),
)
def test_errors_and_checks(fn, subject):
    compare(fn, (torch.ones(2), subject))


def test_errors_are_caught():
    def f(x, s):
        said = []
        for case in (too_many, no_tuple, no_names):
            try:
                case(x, s)
            except TypeError as error:
                said.append(str(error))
        try:
            twice_by_name(x, s)
        except TypeError:
            said.append("twice")
        return x + 1, said

    compare(f, (torch.ones(2), Positional(1, 1)), (torch.ones(2), Wrong()))
    assert flambeau.counters()["graph_breaks"] == {} or not COUNTED


def test_sizes_as_patterns():
    def f(x):
        match x.shape:
            case (n,):
                return x * n
            case (1, n) | (n, 1):
                return x + n
            case [2, *rest] if rest:
                return x.sum(), rest
        return x

    compare(f, *[(torch.ones(*shape),) for shape in ((3,), (5,), (7,), (1, 4), (4, 1), (2, 3, 4), (3, 3))])
    assert flambeau.counters()["graph_breaks"] == {} or not COUNTED


def test_registered_later():
    """What a class matches changes when it is registered with an abstract class."""

    class Plain:
        def __len__(self):
            return 2

        def __getitem__(self, i):
            return (1, 2)[i]

    class Below(Plain):
        pass

    def f(x, s):
        match s:
            case [a, b]:
                return x + a + b
            case {}:
                return x - 1
            case _:
                return x

    class MySequence(collections.abc.Sequence, metaclass=abc.ABCMeta):
        pass

    compiled = flambeau.compile(f)
    x = torch.ones(2)
    subjects = (Plain(), Below())
    for s in subjects:
        assert run(compiled, (x, s))[1].tolist() == [1, 1]
    MySequence.register(Plain)
    for s in subjects:
        assert f(x, s).tolist() == [4, 4]
        assert compiled(x, s).tolist() == [4, 4]


def test_a_break_in_the_middle():
    class Prints:
        __match_args__ = ("a", "b")

        @property
        def a(self):
            calls.append("a")
            print(end="")
            return 1

        @property
        def b(self):
            calls.append("b")
            return 2

    def f(x, s):
        match s:
            case Prints(1, 3):
                return x
            case Prints(1, b):
                return x + b

    calls = []
    compiled = flambeau.compile(f)
    for _ in range(2):
        del calls[:]
        assert compiled(torch.ones(2), Prints()).tolist() == [3, 3]
        assert calls == ["a", "b", "a", "b"]
