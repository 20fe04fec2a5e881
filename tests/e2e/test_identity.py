"""Objects told by their identity: ids, keys of dicts and sets, copies of what holds them, and what looks them up."""

import collections
import copy
import enum
import inspect
import os
import types

import pytest
import torch
from mode import COUNTED, PROCESS
from support import assert_same

import flambeau

SEEN = []


class Thing:
    """Compared by identity."""

    def __init__(self, value):
        self.value = value


class Output(collections.OrderedDict):
    """As model libraries have them."""

    def __getitem__(self, key):
        return dict(self.items())[key] if isinstance(key, str) else tuple(self[k] for k in self.keys())[key]


class Colour(enum.Enum):
    RED = 1
    GREEN = "g"
    BOTH = (1, 2)


class Number(enum.IntEnum):
    ONE = 1
    TWO = 2


class Config:
    """A plain object with containers."""

    def __init__(self):
        self.size, self.names, self.nothing = 1, {"x": [1]}, None


FIRST, SECOND, THIRD = Thing(1), Thing(2), Thing(3)
TABLE = {FIRST: 1, SECOND: 2}
KINDS = {int: "i", str: "s", list: "l"}
BY_COLOUR = {Colour.RED: 10, Colour.GREEN: 20}
CONFIG = Config()
LARGE = {id(SEEN): "seen"}


def keys(x, y):
    table = {x: 1}
    return y in table, table.get(y), x in {y}, x + 0


def keys_of_objects(x, y):
    made = {FIRST: x}
    made[SECOND] = y
    made[FIRST] = made[FIRST] + 1
    return len(made), made[FIRST], THIRD in made


def ids(x, y):
    memo = {id(x): x}
    return id(y) in memo, id(x) == id(y), id(x) != id(y), memo[id(x)] + 1


def ids_that_leave(x, y):
    return id(x), [id(y)], {id(x): 1}, id(FIRST)


def ids_of_containers(x, y):
    items = [1]
    memo = {id(items): items}
    memo[id(items)].append(x)
    return items, id(items) == id(memo[id(items)]), id(()) in memo


def ids_of_what_is_gone(x, y):
    """Python puts the second where the first was."""
    found = list(map(id, zip([1, 2], [3, 4], strict=True)))
    return id([1]) == id([2]), min(found) == max(found), x + 1


def ids_in_sets(x, y):
    found = {id(x)}
    found.add(id(y))
    return len(found), id(x) in found, 3 in found, tuple(map(id, (x, y))) == (id(x), id(y))


def numbers_of_ids(x, y):
    return id(x) % 16, str(id(x)), f"{id(y)}", id(x) + 1 > 0, float(id(x)), sorted([id(x), id(y)]), x + 1


def ids_as_indices(x, y):
    try:
        return [1, 2][id(x)]
    except IndexError:
        return x + y


def ids_and_numbers(x, y):
    return id(SEEN) in LARGE, id(x) in LARGE, id(x) == 5, id(x) in [1, 2], id(x) is None, x + 1


def ids_of_constants(x, y):
    memo = {id(x): 1}
    return memo.get(id("a"), 2), id(3) in memo, id(None) == id(None), x + 1


def ordered(x, y):
    output = Output(a=x, b=y)
    return output[0] + output["b"], list(output.items())[1][0]


def read_by_object(x, y):
    return TABLE[FIRST] + x, TABLE.get(THIRD, 7), THIRD in TABLE, [k.value for k in TABLE], sum(TABLE.values())


def read_by_type(x, y):
    return KINDS.get(type(x), "none"), KINDS[type(len(SEEN))], KINDS.get(float), x + 1


SAME_KINDS, OTHER_KINDS = {list: "l", int: "i", str: "s"}, {int: "i", str: "s", list: "m"}


def compared(x, y):
    return KINDS == SAME_KINDS, SAME_KINDS != KINDS, KINDS == OTHER_KINDS, {int: "i"} == KINDS, {**KINDS, int: 2}, x + 1


def gone_through(x, y):
    names = [name for kind, name in KINDS.items() if kind is not int]
    turned = {name: kind for kind, name in KINDS.items()}
    return names, [*KINDS.values()], turned, KINDS.copy(), dict(KINDS) == KINDS, KINDS | SAME_KINDS, x + 1


def written_by_object(x, y):
    TABLE[FIRST] = TABLE.get(FIRST, 0) + 1
    TABLE[THIRD] = 3
    return x + 1, len(TABLE), list(TABLE.values())


def deleted_by_object(x, y):
    first, missing = TABLE.pop(FIRST), TABLE.pop(THIRD, "none")
    TABLE[THIRD] = TABLE[SECOND]
    TABLE[FIRST] = first + 1
    del TABLE[SECOND]
    return missing, x + 1, len(TABLE), list(TABLE.values()), SECOND in TABLE


def members(x, y):
    return (
        Colour(1),
        Colour("g"),
        Colour((1, 2)),
        Colour(Colour.RED),
        Number(2) is Number.TWO,
        BY_COLOUR[Colour.RED] + x,
    )


def no_member(x, y):
    try:
        return Colour(7)
    except ValueError as error:
        return str(error), x + 1


def copied(x, y):
    original = {"a": [1, 2], "b": {"c": (1, [2, 3])}}
    made = copy.deepcopy(original)
    made["a"].append(1)
    return made, original, made["b"]["c"] is original["b"]["c"], x + 1


def copied_object(x, y):
    made = copy.deepcopy(CONFIG)
    made.size = 5
    made.names["x"].append(2)
    shallow = copy.copy(CONFIG)
    return made.size, made.names, CONFIG.size, CONFIG.names, shallow.names is CONFIG.names, x + 1


def copied_twice_the_same(x, y):
    inner = [1]
    made = copy.deepcopy([inner, inner, (inner, "a")])
    return made[0] is made[1], made[2][0] is made[0], made, inner, x + 1


def copied_tensor(x, y):
    made = copy.deepcopy([x, x])
    return made[0] is made[1], made[0] is x, made


def proxies(x, y):
    items = {"a": 1, "b": x}
    proxy = types.MappingProxyType(items)
    items["c"] = 2
    return (
        len(proxy),
        "c" in proxy,
        proxy["a"],
        proxy.get("z", 5),
        list(proxy),
        dict(proxy),
        proxy == items,
        bool(proxy),
    )


def proxy_is_not_written(x, y):
    proxy = types.MappingProxyType({"a": 1})
    try:
        proxy["b"] = 2
    except TypeError as error:
        return str(error), x + 1


def _taken(first, second=1, *rest, third: int = 2, **named):
    return first


def signatures(x, y):
    found = inspect.signature(_taken).parameters
    return len(found), list(found), found["third"].default, found["third"].annotation is int, x + 1


def environment(x, y):
    return os.environ.get("HOME"), os.environ.get("NOT_SET", "d"), os.getenv("HOME") == os.environ["HOME"], x + 1


def methods_of_constants(x, y):
    return "\u00e9".encode().decode(), (5).bit_length(), (255).to_bytes(2, "big"), "aXb".swapcase(), (1.5).hex(), x + 1


BOUND = frozenset({"a", "b"}).__contains__
APPEND = SEEN.append


def bound_methods(x, y):
    APPEND(1)
    return BOUND("a"), BOUND("c"), len(SEEN), x + 1


WHOLE = [
    keys, keys_of_objects, ids, ids_that_leave, ids_of_containers, ids_in_sets, ordered, read_by_object, read_by_type,
    deleted_by_object, compared, gone_through, written_by_object, members, copied, copied_object, copied_twice_the_same,
    proxies, signatures, environment, methods_of_constants, bound_methods,
]  # fmt: skip
BROKEN = [
    copied_tensor,
    ids_of_what_is_gone,
    numbers_of_ids,
    ids_as_indices,
    ids_and_numbers,
    ids_of_constants,
    no_member,
    proxy_is_not_written,
]


def start():
    SEEN.clear()
    TABLE.clear()
    TABLE.update({FIRST: 1, SECOND: 2})
    CONFIG.__init__()


def states():
    return list(SEEN), [(key.value, value) for key, value in TABLE.items()], CONFIG.names


def same(fn, compiled, *args):
    """Both from the same state, on the same objects: what they give may be ids."""
    start()
    expected = fn(*args)
    after = copy.deepcopy(states())
    start()
    assert_same(compiled(*args), expected)
    assert states() == after


def alone(fn):
    """As a parameter; signatures read the limit of recursion, which some imports change."""
    return pytest.param(fn, marks=PROCESS if fn is signatures else (), id=fn.__name__)


@pytest.mark.parametrize("fn", [alone(fn) for fn in (*WHOLE, *BROKEN)])
def test_as_eager(fn):
    """Also where two arguments are one object in one call and not in another."""
    compiled = flambeau.compile(fn)
    x, y = torch.ones(2), torch.zeros(2)
    for args in ((x, y), (x, x), (y, x), (x, y)):
        same(fn, compiled, *args)


@pytest.mark.plain_only("counts breaks")
@pytest.mark.parametrize("fn", WHOLE, ids=lambda f: f.__name__)
def test_is_captured_whole(fn):
    start()
    flambeau.compile(fn, fullgraph=True)(torch.ones(2), torch.zeros(2))


def of_an_argument(key, x):
    return TABLE.get(key, 7) + x, key in TABLE


def test_another_key():
    compiled = flambeau.compile(of_an_argument)
    x = torch.ones(2)
    for key in (FIRST, SECOND, THIRD, FIRST):
        same(of_an_argument, compiled, key, x)


def test_a_key_that_appears():
    """What was not there at the first call, and stands at another place later."""
    compiled = flambeau.compile(of_an_argument)
    x = torch.ones(2)
    same(of_an_argument, compiled, THIRD, x)
    for items in ({THIRD: 5}, {SECOND: 1, FIRST: 2}, {FIRST: 1, SECOND: 2, THIRD: 9}, {}):
        TABLE.clear()
        TABLE.update(items)
        for key in (FIRST, THIRD):
            assert_same(compiled(key, x), of_an_argument(key, x))
    start()


BY_CLASS = {int: "int", torch.Tensor: "tensor", Thing: "thing", len: "len"}


def by_class(kind, x):
    made = [BY_CLASS.get(type(value)) for value in (1, x, FIRST, "", [], 1.5)]
    return kind in BY_CLASS, BY_CLASS.get(kind, "none"), made, x + 1


@pytest.mark.plain_only("counts traces", "leaf flat warm")
@flambeau.config.patch(recompile_limit=100)
def test_other_keys_are_no_facts():
    """A table by class grows in the life of a process; what was looked up in it stays known."""
    compiled, x, before = flambeau.compile(by_class), torch.ones(2), dict(BY_CLASS)

    def traced(*args):
        start = flambeau.counters()["frames_traced"]
        assert_same(compiled(*args), by_class(*args))
        return flambeau.counters()["frames_traced"] - start

    try:
        for kind in (Colour, Thing, torch.Tensor, dict):
            assert traced(kind, x)
        for later in (Number, set, torch.nn.Linear, "text", (1, Colour), FIRST):
            BY_CLASS[later] = "later"
            assert not any(traced(kind, x) for kind in (Colour, Thing, torch.Tensor, dict))
        for appears in (Colour, dict, str, type(None), type(len)):
            BY_CLASS[appears] = "now"
            traced(Colour, x), traced(dict, x), traced(Thing, x)
        for gone in (int, Thing, Colour, dict):
            del BY_CLASS[gone]
            traced(Colour, x), traced(dict, x), traced(Thing, x)
    finally:
        BY_CLASS.clear()
        BY_CLASS.update(before)


class Equal:
    """Its instances equal what they were made of."""

    def __init__(self, of):
        self.of = of

    def __hash__(self):
        return hash(self.of)

    def __eq__(self, other):
        return other is self.of


def test_keys_that_equal_a_class():
    compiled, x = flambeau.compile(by_class), torch.ones(2)
    try:
        for kind in (Colour, dict):
            assert_same(compiled(kind, x), by_class(kind, x))
            BY_CLASS[Equal(kind)] = "equal"
            assert_same(compiled(kind, x), by_class(kind, x))
    finally:
        for key in [key for key in BY_CLASS if isinstance(key, Equal)]:
            del BY_CLASS[key]


def limited(x):
    import sys

    return x + sys.getrecursionlimit()


@PROCESS
def test_a_state_of_the_process_that_changes():
    import sys

    compiled, x, limit = flambeau.compile(limited), torch.ones(2), sys.getrecursionlimit()
    try:
        for more in (0, 10, 0):
            sys.setrecursionlimit(limit + more)
            assert_same(compiled(x), limited(x))
    finally:
        sys.setrecursionlimit(limit)


def devices(x):
    if torch.cuda.is_available():
        return x + torch.cuda.device_count()
    return x + torch.get_num_threads(), torch.get_default_device(), torch.backends.cpu.get_cpu_capability()


ATTENTION = torch.nn.MultiheadAttention(8, 2, batch_first=True).eval()


def attends(x):
    with torch.no_grad():
        return ATTENTION(x, x, x)[0]


@PROCESS
@pytest.mark.parametrize("function", [devices, attends], ids=["devices", "attention"])
def test_what_torch_says_of_the_process(function):
    compiled, x, threads = flambeau.compile(function), torch.ones(1, 3, 8), torch.get_num_threads()
    before = flambeau.counters()["graph_breaks"]
    try:
        for count in (threads, threads + 1, threads):
            torch.set_num_threads(count)
            assert_same(compiled(x), function(x))
    finally:
        torch.set_num_threads(threads)
    assert not COUNTED or flambeau.counters()["graph_breaks"] == before


def annotated(x):
    return len(inspect.signature(_taken).parameters) + x, _taken.__annotations__.get("first", 0)


@PROCESS
def test_annotations_that_change():
    compiled, x = flambeau.compile(annotated), torch.ones(2)
    assert_same(compiled(x), annotated(x))
    _taken.__annotations__["first"] = 4
    try:
        assert_same(compiled(x), annotated(x))
    finally:
        del _taken.__annotations__["first"]
    assert_same(compiled(x), annotated(x))


class Holder:
    """Holds a bound method of a built-in type that is replaced."""

    def __init__(self, take):
        self.take = take


def held(holder, x):
    return holder.take("a"), x + 1


def test_another_bound_method():
    compiled, x = flambeau.compile(held), torch.ones(2)
    names, others = frozenset("ab"), frozenset("cd")
    for take in (names.__contains__, others.__contains__, names.__contains__, {"a": 3}.get, {"a": 4}.get, ["a"].count):
        assert_same(compiled(Holder(take), x), held(Holder(take), x))
