"""Immutable containers, enumerations, dates, paths, patterns, and the environment as data."""

import collections
import datetime
import enum
import inspect
import logging
import os
import pathlib
import platform
import re
import sys
import typing
from typing import NamedTuple, Optional, TypedDict

import torch

from ..program import Made, ones, program


class Mode(enum.IntEnum):
    FILL = enum.auto()
    DECODE = enum.auto()
    IDLE = 7

    def busy(self):
        return self in (Mode.FILL, Mode.DECODE)

    @property
    def short(self):
        return self.name[0]

    @classmethod
    def parse(cls, text):
        return cls[text.upper()]


class Color(enum.Enum):
    RED = "r"
    GREEN = "g"
    ALSO_RED = "r"


class Flags(enum.Flag):
    A = 1
    B = 2
    C = 4


@program("https://github.com/pytorch/pytorch/issues/142050")
def enum_methods():
    def f(x, mode):
        if mode.busy():
            return x * mode, mode.short, Mode.parse("idle")
        return x - mode.value, mode.name

    return Made(f, [(ones(3), Mode.FILL), (ones(3), Mode.IDLE), (ones(3), Mode.DECODE)])


@program("https://github.com/pytorch/torchdynamo/issues/211")
def enum_identity_and_lookup():
    def f(x, color):
        if color is Color.RED:
            x = x + 1
        return x, Color("g") is color, Color["RED"] == color, Color.ALSO_RED is Color.RED, color != "r", repr(color)

    return Made(f, [(ones(3), Color.RED), (ones(3), Color.GREEN)])


@program("https://github.com/pytorch/pytorch/issues/112338")
def enum_members_in_sets_and_dicts():
    scale = {Color.RED: 2.0, Color.GREEN: 3.0}

    def f(x, color):
        if color in {Color.GREEN}:
            return x, scale[color]
        return x * scale[color], [c.name for c in Color], len(Color), Color.__members__["ALSO_RED"]

    return Made(f, [(ones(3), Color.RED), (ones(3), Color.GREEN)])


@program("https://github.com/pytorch/pytorch/issues/142050")
def enum_flags():
    def f(x, flags):
        if flags & Flags.B:
            x = x * 2
        return x, flags | Flags.C, ~flags, Flags.A in flags, bool(flags & Flags.C), (flags ^ Flags.A).value, list(flags)

    return Made(f, [(ones(3), Flags.A), (ones(3), Flags.A | Flags.B), (ones(3), Flags.B)])


@program("https://github.com/pytorch/pytorch/issues/142050")
def enum_made_by_value_that_fails():
    def f(x, value):
        try:
            return x + 1, Color(value)
        except ValueError as error:
            return x - 1, str(error)

    return Made(f, [(ones(3), "r"), (ones(3), "z")])


@program("https://github.com/pytorch/pytorch/issues/125171")
def datetime_arithmetic():
    def f(x, day):
        later = day + datetime.timedelta(days=3, hours=12)
        return x * (later - day).days, later.isoformat(), day < later, later.weekday(), later.replace(year=2001).year

    start = datetime.datetime(2024, 2, 27)
    return Made(f, [(ones(3), start), (ones(3), datetime.datetime(2023, 12, 31))])


@program("https://github.com/pytorch/pytorch/issues/125171")
def datetime_format_and_date():
    def f(x, text):
        when = datetime.datetime.strptime(text, "%Y-%m-%d")
        return x + when.month, when.strftime("%d/%m"), when.date(), when.timetuple().tm_yday, when.date().toordinal()

    return Made(f, [(ones(3), "2024-03-01"), (ones(3), "2023-03-01")])


@program("https://github.com/pytorch/pytorch/issues/125171")
def datetime_now_is_not_frozen():
    def f(x, seen):
        seen.append(datetime.datetime.now())
        return x + 1, seen == sorted(seen), (seen[-1] - seen[0]).total_seconds() >= 0

    seen = []
    return Made(lambda x: f(x, seen), [(ones(3),), (ones(3),), (ones(3),)], look=lambda *_: len(set(map(id, seen))))


@program("https://github.com/pytorch/pytorch/issues/133607")
def pure_paths():
    def f(x, text):
        path = pathlib.PurePosixPath(text)
        made = path.parent / "out" / path.with_suffix(".pt").name
        return x + len(path.parts), str(made), path.stem, path.suffixes, path.is_absolute(), made.relative_to("/a")

    return Made(f, [(ones(3), "/a/b/c.tar.gz"), (ones(3), "/a/d.txt")])


@program("https://github.com/pytorch/pytorch/issues/133607")
def path_as_argument():
    def f(x, path):
        if path.suffix == ".pt" and path.match("*/weights/*"):
            return x * 2, path.name, os.fspath(path)
        return x, path.joinpath("x").as_posix(), path < pathlib.PurePosixPath("z")

    return Made(f, [(ones(3), pathlib.PurePosixPath("m/weights/a.pt")), (ones(3), pathlib.PurePosixPath("b"))])


@program("https://github.com/pytorch/pytorch/issues/133185")
def os_path_functions():
    def f(x, name):
        base, ext = os.path.splitext(os.path.basename(name))
        return x + len(base), ext, os.path.join("a", base), os.path.dirname(name), os.path.normpath("a/../b"), os.sep

    return Made(f, [(ones(3), "d/one.txt"), (ones(3), "e/three.md")])


@program("https://github.com/pytorch/pytorch/pull/189027")
def environment_variable_that_changes():
    name = "PROGRAMS_SCALE"

    def f(x):
        scale = float(os.environ.get(name, "1"))
        return x * scale, os.getenv("PROGRAMS_NOT_SET", "none"), name in os.environ

    def before(number):
        os.environ.pop(name, None)
        if number:
            os.environ[name] = str(number + 1)

    return Made(f, [(ones(3),), (ones(3),), (ones(3),)], before=before, look=lambda *_: os.environ.pop(name, None))


@program("https://github.com/pytorch/pytorch/pull/132123")
def environment_variable_set_in_trace():
    name = "PROGRAMS_SET"

    def f(x, value):
        os.environ[name] = value
        y = x + len(os.environ[name])
        del os.environ[name]
        return y, os.environ.get(name)

    return Made(f, [(ones(3), "a"), (ones(3), "bcd")])


@program("https://github.com/pytorch/pytorch/issues/133185")
def sys_and_platform():
    def f(x):
        if sys.platform == "linux" and sys.version_info >= (3, 8) and sys.byteorder == "little":
            x = x + 1
        return x, sys.maxsize, sys.float_info.epsilon, sys.version_info[:2], sys.implementation.name, platform.system()

    return Made(f, [(ones(3),), (ones(3),)])


@program("https://github.com/pytorch/pytorch/issues/133185")
def sys_modules_and_recursion_limit():
    def f(x):
        loaded = "torch" in sys.modules and "no.such.module" not in sys.modules
        return (
            x * loaded,
            sys.getrecursionlimit() > 10,
            sys.modules["torch"] is torch,
            sys.intern("a") is sys.intern("a"),
        )

    return Made(f, [(ones(3),), (ones(3),)])


@program("https://github.com/pytorch/pytorch/issues/149920")
def regex_match_groups():
    pattern = re.compile(r"(?P<kind>[a-z]+)\.(\d+)")

    def f(x, name):
        found = pattern.match(name)
        if found is None:
            return x, pattern.groups
        return x + int(found.group(2)), found["kind"], found.groupdict(), found.span(), found.start(2), found.groups()

    return Made(f, [(ones(3), "layer.3"), (ones(3), "none"), (ones(3), "head.12")])


@program("https://github.com/pytorch/pytorch/issues/149920")
def regex_module_functions():
    def f(x, text):
        return x + len(re.findall(r"\d", text)), re.sub(r"\s+", "_", text), re.split("[,;]", text), re.escape("a.b")

    return Made(f, [(ones(3), "a 1, b 2"), (ones(3), "x;y  9")])


@program("https://github.com/pytorch/pytorch/issues/149920")
def regex_replacement_function():
    def f(x, text):
        seen = []

        def double(found):
            seen.append(found.group())
            return str(int(found.group()) * 2)

        return x * 2, re.sub(r"\d+", double, text), seen, [m.end() for m in re.finditer("a", text)]

    return Made(f, [(ones(3), "a1b22"), (ones(3), "aa")])


@program("https://github.com/pytorch/pytorch/issues/149920")
def tuple_and_frozenset_keys():
    cache = {}

    def f(x, kind, *shape):
        key = (kind, shape, frozenset(shape))
        if key not in cache:
            cache[key] = len(cache)
        return x + cache[key], hash((1, "a")) == hash((1, "a")), frozenset({1, 2}) | {3}, frozenset("ab") <= set("abc")

    return Made(f, [(ones(3), "a", 1, 2), (ones(3), "b", 1), (ones(3), "a", 1, 2)], state=cache)


@program("https://github.com/pytorch/pytorch/pull/193580")
def frozenset_has_no_add():
    def f(x, names):
        try:
            names.add("c")
        except AttributeError as error:
            return x + len(names), str(error), sorted(names - {"a"}), names.isdisjoint(["z"]), names.union("z") > names
        return x

    return Made(f, [(ones(3), frozenset("ab")), (ones(3), {"a"})])


@program("https://github.com/pytorch/pytorch/pull/128567")
def range_index_and_slice():
    def f(x, stop):
        r = range(1, stop, 2)
        return (
            x * r[1],
            r[1:4],
            r[::-1],
            len(r),
            5 in r,
            r.index(3),
            r == range(1, stop, 2),
            r.stop,
            list(r[-2:]),
            r.count(9),
        )

    return Made(f, [(ones(3), 10), (ones(3), 12)])


@program("https://github.com/pytorch/pytorch/issues/128322")
def slice_as_argument():
    def f(x, part):
        return x[part] + 1, part.indices(8), part.step, part == slice(None, None, 2), x[..., slice(part.start, 3)]

    return Made(f, [(ones(8), slice(None, None, 2)), (ones(8), slice(1, 5)), (ones(8), slice(-3, None))])


@program("https://github.com/pytorch/pytorch/issues/196172")
def user_index_in_slice():
    class Index:
        def __init__(self, n):
            self.n = n

        def __index__(self):
            return self.n

    def f(x, stop, names):
        return x[:stop], x[stop], names[stop], names[:stop], list(range(stop)), bin(stop)

    return Made(f, [(ones(8), Index(2), ("a", "b", "c")), (ones(8), Index(1), ("a", "b", "c"))])


class Point(NamedTuple):
    x: float
    y: float = 0.0

    def norm(self):
        return (self.x**2 + self.y**2) ** 0.5


@program("https://github.com/pytorch/pytorch/issues/161610")
def named_tuple_methods():
    def f(t, p):
        q = p._replace(y=4.0)
        a, b = q
        return t * q.norm(), q, q._asdict(), Point._fields, Point._make([1, 2]), q == (3.0, 4.0), a + b, p[1:], p < q

    return Made(f, [(ones(3), Point(3.0)), (ones(3), Point(1.0, 2.0))])


@program("https://github.com/pytorch/pytorch/issues/161610")
def namedtuple_of_tensors():
    Pair = collections.namedtuple("Pair", "first second", defaults=[None])

    def f(p):
        made = Pair(p.first + 1)
        return made, p._replace(second=p.first * 2), made.second is None, Pair(*p)

    return Made(
        f, [(Pair(ones(2), 1),), (Pair(ones(2) * 2, 2),)], look=lambda args, result: isinstance(result[0], Pair)
    )


class Config(TypedDict, total=False):
    scale: float
    name: str


@program("https://github.com/pytorch/pytorch/issues/133607")
def typed_dict():
    def f(x, scale):
        config = Config(scale=scale)
        config["name"] = "n"
        return x * config["scale"], config, type(config) is dict, sorted(Config.__annotations__)

    return Made(f, [(ones(3), 2.0), (ones(3), 3.0)])


@program("https://github.com/pytorch/pytorch/issues/93760")
def signature_bind():
    def target(a, b=2, *rest, key=None):
        return a * b

    def f(x, *args, **options):
        bound = inspect.signature(target).bind(x, *args, **options)
        bound.apply_defaults()
        return target(*bound.args, **bound.kwargs), list(bound.arguments), bound.arguments["b"]

    return Made(f, [(ones(3),), (ones(3), 5), (ones(3), 3, 4)])


@program("https://github.com/pytorch/pytorch/issues/139374")
def signature_parameters():
    def target(a, b: int = 2, /, c=3, *, d: "str" = "x", **more):
        return a

    def f(x):
        found = inspect.signature(target).parameters
        kinds = [p.kind.name for p in found.values()]
        known = [p.default for p in found.values() if p.default is not inspect.Parameter.empty]
        return x * len(found), kinds, known, "d" in found

    return Made(f, [(ones(3),), (ones(3) * 2,)])


@program("https://github.com/pytorch/pytorch/issues/139374")
def function_attributes():
    def target(a, b=2, *, c=3):
        "docs"

    target.tag = 5

    def f(x):
        code = target.__code__
        names = code.co_varnames[: code.co_argcount]
        return x * target.tag, target.__name__, target.__doc__, target.__defaults__, target.__kwdefaults__, names

    return Made(f, [(ones(3),), (ones(3),)])


@program("https://github.com/pytorch/pytorch/pull/166757")
def type_hints():
    class Fields:
        a: int
        b: Optional[str] = None

    def f(x):
        hints = typing.get_type_hints(Fields)
        return x + len(hints), hints["a"] is int, typing.get_args(hints["b"]), typing.get_origin(list[int]) is list

    return Made(f, [(ones(3),), (ones(3),)])


@program("https://github.com/pytorch/pytorch/pull/146984")
def isinstance_of_unions_and_protocols():
    def f(x, value):
        flags = [isinstance(value, int | str), isinstance(value, (list, typing.Sequence)), callable(value)]
        flags += [isinstance(value, collections.abc.Hashable), issubclass(type(value), (int, tuple))]
        return x * sum(flags), flags, typing.cast(float, value) is value

    return Made(f, [(ones(3), 1), (ones(3), (1, 2)), (ones(3), [1]), (ones(3), "a")])


@program("https://github.com/pytorch/pytorch/issues/110886")
def logging_levels_as_data():
    log = logging.getLogger("programs.levels")
    log.setLevel(logging.WARNING)

    def f(x, level):
        if log.isEnabledFor(level) and level >= logging.ERROR:
            x = x + 1
        return x, logging.getLevelName(level), log.name, log.getEffectiveLevel(), logging.DEBUG < level, log.level

    return Made(f, [(ones(3), logging.INFO), (ones(3), logging.ERROR), (ones(3), logging.WARNING)])


@program("https://github.com/pytorch/pytorch/issues/149991")
def metaclass_instance_check():
    class Meta(type):
        def __instancecheck__(cls, value):
            return getattr(value, "duck", False)

        def __subclasscheck__(cls, other):
            return other is int

    class Duck(metaclass=Meta):
        pass

    class Bird:
        duck = True

    def f(x, value):
        return x + isinstance(value, Duck), issubclass(int, Duck), issubclass(str, Duck), isinstance(x, torch.nn.Buffer)

    return Made(f, [(ones(3), Bird()), (ones(3), 3)])
