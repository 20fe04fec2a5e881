"""Python functions that stand for functions and iterators of C: each beside its original, and traced in its place."""

import bisect
import collections
import functools
import heapq
import importlib
import inspect
import itertools
import json
import operator
import os
import random
import subprocess
import sys

import pytest
import torch
from mode import COUNTED

import flambeau
from flambeau.polyfills import TABLE
from flambeau.polyfills._table import Refused

CASES = 2000
"""Random cases for each function; 10,000 were run once."""

X = torch.arange(3.0)


def original(path):
    module, _, name = path.partition(".")
    return functools.reduce(getattr, name.split("."), importlib.import_module(module))


class Told:
    """A number that notes what it is compared with, and may refuse to be."""

    def __init__(self, value, log, patience):
        self.value, self.log, self.patience = value, log, patience

    def __lt__(self, other):
        self.log.append((self.value, other.value))
        if len(self.log) > self.patience:
            raise ArithmeticError(self.value)
        return self.value < other.value

    def __repr__(self):
        return f"<{self.value}>"


def outcome(function, *args, **kwargs):
    """The result or the exception."""
    try:
        return function(*args, **kwargs)
    except Refused:
        raise
    except Exception as error:
        return type(error), str(error)


def test_the_table_names_what_is_there():
    for path in TABLE:
        assert callable(original(path)) or inspect.isgetsetdescriptor(original(path)), path


HEAPS = [path for path in TABLE if path.startswith("_heapq.")]


@pytest.mark.parametrize("path", HEAPS)
def test_heaps(path):
    """Values, order of comparisons, and what is left where one raises."""
    draw = random.Random(path)
    for _ in range(CASES):
        values = [draw.randrange(9) for _ in range(draw.randrange(12))]
        patience, added = draw.choice([3, 8, 10**6]), draw.randrange(9)
        seen = []
        for function in (original(path), TABLE[path]):
            log = []
            heap = [Told(value, log, 10**6) for value in values]
            if draw.random() < 2:  # most of them are heaps
                heap.sort(reverse="max" in path)
                log.clear()
            for item in heap:
                item.patience = patience
            args = [heap, Told(added, log, patience)][: 2 if "push" in path or "replace" in path else 1]
            seen.append((repr(outcome(function, *args)), repr(heap), log))
        assert seen[0] == seen[1], (values, patience, added)


BISECTS = [path for path in TABLE if path.startswith("_bisect.")]


@pytest.mark.parametrize("path", BISECTS)
def test_bisections(path):
    draw = random.Random(path)
    for _ in range(CASES):
        values = sorted(draw.randrange(9) for _ in range(draw.randrange(9)))
        if draw.random() < 0.2:
            draw.shuffle(values)
        kwargs = {}
        if draw.random() < 0.4:
            kwargs["lo"] = draw.randrange(-1, 9)
        if draw.random() < 0.4:
            kwargs["hi"] = draw.choice([None, -1, 0, 3, len(values)])
        if draw.random() < 0.3:
            kwargs["key"] = operator.neg
        x, seen = draw.randrange(9), []
        for function in (original(path), TABLE[path]):
            items = list(values)
            seen.append((outcome(function, items, x, **kwargs), items))
        assert seen[0] == seen[1], (values, x, kwargs)


HELPERS = {
    "_operator.countOf": lambda draw: (items(draw), draw.randrange(4)),
    "_operator.indexOf": lambda draw: (items(draw), draw.randrange(4)),
    "_operator.concat": lambda draw: (items(draw), [1]),
    "_operator.delitem": lambda draw: (items(draw), draw.randrange(6)),
    "_operator.length_hint": lambda draw: (items(draw),),
    "_collections._count_elements": lambda draw: (collections.Counter({2: 5}), items(draw)),
    "builtins.set.intersection_update": lambda draw: (set(items(draw)), items(draw), iter(items(draw))),
    "builtins.range.count": lambda draw: (range(draw.randrange(5), 9, 2), draw.randrange(9)),
    "builtins.range.index": lambda draw: (range(9, draw.randrange(5), -2), draw.randrange(9)),
}


def items(draw):
    return [draw.randrange(4) for _ in range(draw.randrange(6))]


@pytest.mark.parametrize("path", HELPERS)
def test_helpers(path):
    for case in range(CASES):
        seen = []
        for function in (original(path), TABLE[path]):
            args = HELPERS[path](random.Random(case))
            seen.append((outcome(function, *args), args[0]))
        assert seen[0] == seen[1], case


def odd(log):
    def asks(item):
        log.append(item)
        if item == 7:
            raise ArithmeticError
        return item % 2

    return asks


ITERATORS = {
    "itertools.takewhile": lambda draw, log: (odd(log), iter(items(draw))),
    "itertools.dropwhile": lambda draw, log: (odd(log), items(draw)),
    "itertools.compress": lambda draw, log: (map(odd(log), items(draw)), items(draw)),
    "itertools.starmap": lambda draw, log: (log.append, [(i,) if i else [i] for i in items(draw)]),
    "itertools.cycle": lambda draw, log: (map(odd(log), items(draw)),),
    "itertools.groupby": lambda draw, log: (items(draw), draw.choice([None, odd(log)])),
    "itertools.combinations_with_replacement": lambda draw, log: (items(draw)[:3], draw.randrange(-1, 4)),
}
if hasattr(itertools, "batched"):
    ITERATORS["itertools.batched"] = lambda draw, log: (map(odd(log), items(draw)), draw.randrange(4))


def test_all_iterators_are_tested():
    lazy = {path for path in TABLE if path.startswith("itertools.")} - {"itertools.tee"}
    assert lazy == set(ITERATORS)
    deques = {path for path in TABLE if path.startswith("collections.deque")}
    functions = {path for path in TABLE if path.startswith(("torch._C._FunctionBase.", "torch._foreach_"))}
    of_training = {"torch.Tensor.backward", "torch.autograd.grad", "torch.utils.checkpoint.checkpoint"}
    of_training.add("torch._C._group_tensors_by_device_and_dtype")
    others = {"itertools.tee", "_functools.cmp_to_key", *of_training}
    assert set(TABLE) - lazy - set(HEAPS) - set(BISECTS) - set(HELPERS) - deques - functions == others


def test_what_deques_have_is_in_the_table():
    """Their behaviour is tested in `test_deques.py`."""
    left = {
        "__class_getitem__",
        "__doc__",
        "__getattribute__",
        "__hash__",
        "__init__",
        "__module__",
        "__new__",
        "__reduce__",
        "__sizeof__",
    }
    for name in set(vars(collections.deque)) - left:
        assert f"collections.deque.{name}" in TABLE, name


def made_again(lazy):
    """As an exit makes it that the iterator leaves; the same iterator where none can be made."""
    call = lazy.kind.rebuild(lazy.state)
    return lazy if call is None else original(call[0])(*call[1:])


@pytest.mark.parametrize("path", ITERATORS)
def test_iterators(path):
    """Items, calls and exceptions, with the iterator made anew after some of them."""
    for case in range(CASES):
        seen = []
        for function in (original(path), TABLE[path]):
            draw, log = random.Random(case), []
            it, steps = outcome(function, *ITERATORS[path](draw, log)), []
            again = draw.randrange(9)
            for step in range(9):
                if step == again and hasattr(it, "kind"):
                    it = made_again(it)
                steps.append(outcome(next, it))
                if path == "itertools.groupby" and type(steps[-1][0]) is int:
                    key, group = steps[-1]
                    steps[-1] = (key, [outcome(next, group) for _ in range(draw.randrange(4))])
            seen.append((steps, log))
        assert seen[0] == seen[1], case


def test_tee():
    for case in range(CASES):
        seen = []
        for function in (itertools.tee, TABLE["itertools.tee"]):
            draw, log = random.Random(case), []
            copies = function(map(odd(log), items(draw)), 3)
            seen.append(([outcome(next, copies[draw.randrange(3)]) for _ in range(12)], log))
        assert seen[0] == seen[1], case


def heaps(x):
    heap = [(3, "c"), (1, "a")]
    heapq.heapify(heap)
    heapq.heappush(heap, (2, "b"))
    first = heapq.heappushpop(heap, (0, "z"))
    return x * first[0], heap, heapq.heapreplace(heap, (5, "e")), heapq.nlargest(2, heap), heapq.nsmallest(1, heap)


def merged(x):
    return x + 1, list(heapq.merge([1, 4], [2, 3], reverse=False))


def places(x):
    marks = [1, 3]
    bisect.insort(marks, 2)
    return x * bisect.bisect(marks, 2), marks, bisect.bisect_left(["a", "bb"], 1, key=len)


def counted(x):
    count = collections.Counter("abca")
    count.update("aa")
    return x * count["a"], count.most_common(1), count + collections.Counter(z=2), count


def sorted_by(x):
    key = functools.cmp_to_key(lambda a, b: len(a) - len(b) or (a > b) - (a < b))
    return x, sorted(["bb", "a", "ab"], key=key), min(["bb", "a"], key=key)


def all_iterators(x):
    first = list(itertools.takewhile(lambda n: n < 3, [1, 2, 5, 1]))
    rest = list(itertools.dropwhile(lambda n: n < 3, iter([1, 2, 5, 1])))
    powers = list(itertools.starmap(pow, [(2, 3), [3, 2]]))
    groups = [(key, list(group)) for key, group in itertools.groupby("aabbbc")]
    round_ = [n for n, _ in zip(itertools.cycle([1, 2, 3]), range(7), strict=False)]
    copies = [list(copy) for copy in itertools.tee(iter([1, 2, 3]))]
    chosen = list(itertools.compress("abc", [1, 0, 1])), list(itertools.combinations_with_replacement("ab", 2))
    return x + 1, first, rest, powers, groups, round_, copies, chosen


def effects_in_order(x):
    log = []
    for item in itertools.takewhile(lambda n: log.append(-n) or n < 3, [1, 2, 5, 1]):
        log.append(item)
    return x, log


def types_are_those_of_c(x):
    it = itertools.cycle([1])
    first, _ = itertools.tee([1])
    return x, type(it), isinstance(it, itertools.cycle), type(first), type(itertools.takewhile(bool, ()))


def of_tensors(x):
    parts = [t * 2 for t in itertools.takewhile(lambda t: t.dim() == 0, x)]
    return sum(parts), [a + b for a, b in itertools.starmap(lambda a, b: (a, b), [(x, x)])]


def caught(x):
    try:
        heapq.heappop([])
    except IndexError as error:
        said = str(error)
    try:
        next(itertools.takewhile(bool, [0]))
    except StopIteration:
        said += "!"
    return x, said


WHOLE = [
    heaps,
    merged,
    places,
    counted,
    sorted_by,
    all_iterators,
    effects_in_order,
    types_are_those_of_c,
    of_tensors,
    caught,
]


@pytest.mark.parametrize("program", WHOLE)
def test_programs_are_whole(program):
    compiled = flambeau.compile(program)
    for _ in range(2):
        assert str(compiled(X)) == str(program(X))
    assert flambeau.counters()["graph_breaks"] == {} or not COUNTED


def leaves_begun(x, kind):
    it = MADE[kind]()
    next(it)
    return x + 1, it


def crosses_a_break(x, kind):
    it = MADE[kind]()
    y = x + 1
    next(it)
    flambeau.graph_break()
    return y * 2, next(it), it


def breaks_inside(x, kind):
    it = MADE[kind]()
    seen = []
    for _, item in zip(range(3), it, strict=False):
        flambeau.graph_break()
        seen.append(item)
    return x + 1, seen, it


MADE = {
    "takewhile": lambda: itertools.takewhile(lambda n: n < 9, [1, 2, 3, 10, 1]),
    "dropwhile": lambda: itertools.dropwhile(lambda n: n < 2, [1, 2, 3, 1]),
    "compress": lambda: itertools.compress([1, 2, 3, 4], [1, 1, 0, 1]),
    "starmap": lambda: itertools.starmap(pow, iter([(2, 1), (2, 2), (2, 3)])),
    "cycle": lambda: itertools.cycle([1, 2, 3]),
    "cycle of an iterator": lambda: itertools.cycle(iter([1])),
    "groupby": lambda: itertools.groupby([1, 1, 2, 3, 3]),
    "tee": lambda: itertools.tee([1, 2, 3, 4])[1],
    "combinations": lambda: itertools.combinations_with_replacement([1, 2], 2),
    "user": lambda: itertools.takewhile(lambda n: n < 9, Counts()),
}


class Counts:
    """An iterator of the user's that counts how often it was asked for itself."""

    def __init__(self):
        self.at = 0

    def __iter__(self):
        self.at += 1
        return self

    def __next__(self):
        self.at += 1
        return self.at


def drained(value):
    """Ends of iterators as lists, in what a program returned."""
    if isinstance(value, tuple | list):
        return [drained(item) for item in value]
    if hasattr(value, "__next__"):
        return type(value).__name__, [drained(item) for item in itertools.islice(value, 5)]
    return str(value)


@pytest.mark.parametrize("kind", MADE)
@pytest.mark.parametrize("program", [leaves_begun, crosses_a_break, breaks_inside])
def test_iterators_that_leave(program, kind):
    compiled = flambeau.compile(program)
    for _ in range(2):
        assert drained(compiled(X, kind)) == drained(program(X, kind))


def a_callback_breaks(x):
    log = []

    def small(n):
        log.append(n)
        flambeau.graph_break()
        return n < 3

    return x + 1, list(itertools.takewhile(small, [1, 2, 5, 1])), log


def heap_of_tensors(x):
    heap = [x.sum(), x.max()]
    heapq.heapify(heap)
    return heap, x + 1


def wrong_arguments(x):
    said = []
    for call in (
        lambda: heapq.heappush((), 1),
        lambda: itertools.takewhile(1),
        lambda: itertools.takewhile(1, 2),
        lambda: next(itertools.takewhile(1, [2])),
        lambda: bisect.bisect([1], 1, -1),
        lambda: bisect.bisect([1], 1, 1.5),
        lambda: operator.countOf(1, 2),
        lambda: operator.indexOf([1], 2),
        lambda: itertools.tee([], -1),
        lambda: range(3).index(7),
        lambda: functools.cmp_to_key(len)(1) < 3,
    ):
        try:
            said.append(call())
        except Exception as error:
            said.append((type(error), str(error)))
    return x + 1, said


@pytest.mark.parametrize("program", [a_callback_breaks, heap_of_tensors, wrong_arguments])
def test_programs_that_break(program):
    compiled = flambeau.compile(program)
    for _ in range(2):
        assert str(compiled(X)) == str(program(X))


class Sized(type):
    """Its classes have a length; their instances have none."""

    def __len__(cls):
        return 2


class NoLength(metaclass=Sized):
    pass


class Hinted:
    def __len__(self):
        raise TypeError("no length")

    def __length_hint__(self):
        return 7


class Copied:
    """An iterator that `tee` copies: the attribute is the instance's."""

    def __init__(self):
        self.__copy__ = lambda: iter("copy")

    def __iter__(self):
        return self

    def __next__(self):
        return 1


@pytest.mark.parametrize("value", [NoLength(), NoLength, Hinted(), Hinted, [1], 3], ids=lambda v: type(v).__name__)
def test_lengths_are_of_the_type(value):
    def program(x):
        try:
            return x + 1, operator.length_hint(value), operator.length_hint(value, 5)
        except TypeError as error:
            return x, str(error)

    assert str(flambeau.compile(program)(X)) == str(program(X))


def test_tee_copies_what_has_an_own_copy():
    def program(x):
        first, second = itertools.tee(Copied())
        return x + 1, next(first), next(second)

    assert str(flambeau.compile(program)(X)) == str(program(X))


def test_a_heap_that_grows_from_call_to_call():
    """It is read for half of the limit; then the call is a break, and the rest stays compiled."""

    def program(x, heap):
        y = x * 2
        heapq.heappush(heap, x.dim())
        return y.sin()

    compiled = flambeau.compile(program)
    heaps = [], []
    for _ in range(3 * flambeau.config.recompile_limit):
        assert torch.equal(compiled(X, heaps[0]), program(X, heaps[1])) and heaps[0] == heaps[1]
    found = flambeau.counters()
    assert (found["recompile_limit_hits"] == 0 and found["graph_breaks"] == {"unsupported_call": 1}) or not COUNTED


IN_A_PROCESS = """
import heapq, itertools, json, sys

import torch
import flambeau


def program(x, numbers):
    heapq.heapify(numbers)
    left = itertools.takewhile(lambda number: number < 3, numbers)
    next(left)
    return x * len(numbers), left, iter([x])


loaded = [name for name in sys.modules if name.startswith(("flambeau._begun", "flambeau._pure", "flambeau.polyfills"))]
result, left, tensors = flambeau.compile(program)(torch.ones(2), [2, 1, 3])
print(json.dumps([loaded, result.tolist(), list(left), type(tensors).__name__, flambeau.counters()["frames_traced"]]))
"""


@pytest.mark.plain_only("counts traces")
def test_polyfills_are_loaded_where_a_trace_asks_for_them(tmp_path):
    """A process that needs none of them does not pay for them; guards of a stored frame find them in the next one."""
    script = tmp_path / "script.py"
    script.write_text(IN_A_PROCESS)
    env = {**os.environ, "FLAMBEAU_CACHE_DIR": str(tmp_path / "cache")}
    found = []
    for _ in range(2):
        done = subprocess.run([sys.executable, script], env=env, capture_output=True, text=True, timeout=100)
        assert done.returncode == 0, done.stderr
        found.append(json.loads(done.stdout))
    subprocess.run([sys.executable, "-m", "flambeau", "stop"], env=env, capture_output=True, timeout=60, check=False)
    assert found == [[[], [3.0, 3.0], [2], "list_iterator", traces] for traces in (1, 0)]
