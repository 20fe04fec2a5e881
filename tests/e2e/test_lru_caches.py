"""Functions with an `lru_cache`: a result that is kept is a fact of the call."""

import functools
import gc

import pytest
import torch
from mode import COUNTED

import flambeau

X = torch.arange(3.0)


def cached(maxsize=128, typed=False):
    """A function with a cache, and the calls that reached it."""
    calls = []

    @functools.lru_cache(maxsize, typed)
    def noted(*args, **kwargs):
        calls.append((args, kwargs))
        return [len(calls), args]

    return noted, calls


def no_arguments(x, table):
    return x + table()[0], table()


def one_number(x, table):
    return x * table(3)[0], table(3) is table(3)


def texts_and_tuples(x, table):
    return x, table("a"), table("a", 1), table((1, (2.5, None)))


def equal_keys(x, table):
    return x, table(1), table(True), table(1.0), table(1) is table(True)


def keywords(x, table):
    return x, table(1, k=2), table(k=2)


def no_constants(x, table):
    return x, table(x)[0], table(len)[0]


def recursion(x, table):
    @functools.lru_cache(None)
    def steps(n):
        return table(n)[0] if n < 2 else steps(n - 1) + steps(n - 2) * 2

    return x * steps(6), steps.cache_info()


def more_than_fit(x, table):
    return x, table(1), table(2), table(3), table(1), table(2), table(4), table(1)


def of_objects(x, table):
    a, b = (Recipe, functools), functools
    return x, table(a), table(b), table((Recipe, b)), table(b)


def equal_in_one_trace(x, table):
    return x, table(2), table(2.0), table(2), table((1, 2)), table((1.0, 2)), table(-0.0), table(0.0), table("2")


def effects_of_a_miss(x, table):
    before = table(1)
    flambeau.graph_break()
    return x + 1, before, table(2), table(1)


PROGRAMS = [no_arguments, one_number, texts_and_tuples, equal_keys, keywords, no_constants, effects_of_a_miss]
PROGRAMS += [recursion, more_than_fit, of_objects, equal_in_one_trace]


@pytest.mark.parametrize("kept", [128, None, 2, 0])
@pytest.mark.parametrize("typed", [False, True])
@pytest.mark.parametrize("program", PROGRAMS)
def test_results_calls_and_counts(program, typed, kept):
    compiled = flambeau.compile(program)
    tables = [cached(kept, typed) for _ in range(2)]
    for round_ in range(5):
        results = []
        for fn, (table, calls) in zip((program, compiled), tables, strict=True):
            if round_ == 3:
                table.cache_clear()
            results.append((str(fn(X, table)), table.cache_info(), str(calls)))
        assert results[0] == results[1], round_


def test_a_kept_result_is_no_break():
    table, calls = cached()

    def program(x):
        return x * table()[0] + table(2)[0]

    table()
    table(2)
    compiled = flambeau.compile(program)
    for _ in range(3):
        assert torch.equal(compiled(X), X * 1 + 2)
    counters = flambeau.counters()
    assert not COUNTED or (counters["graph_breaks"] == {} and counters["frames_traced"] == 1)
    table.cache_clear()
    assert torch.equal(compiled(X), X * 3 + 4) and len(calls) == 4


class Masks(torch.nn.Module):
    """Methods with caches, which are one for all objects of the class."""

    @functools.lru_cache(8)  # noqa: B019
    def mask(self, size, sign=1):
        return [sign * at for at in range(size)], self

    @functools.cache  # noqa: B019
    def twice(self):
        return self.mask(2)[0] * 2

    def forward(self, x):
        found, me = self.mask(x.shape[0], sign=2)
        bound, again = self.mask, Masks.mask(self, x.shape[0], sign=2)
        same = me is self, again[0] is found, bound.__self__ is self, bound(3, sign=2)[0] is found
        return x + found[1], same, self.twice()


def test_methods_with_caches():
    seen = []
    for wrap in (lambda fn: fn, flambeau.compile):
        Masks.mask.cache_clear()
        Masks.twice.cache_clear()
        modules = [Masks(), Masks()]
        calls = [wrap(module) for module in modules]
        results = [str(call(X)) for _ in range(3) for call in calls]
        seen.append((results, Masks.mask.cache_info(), Masks.twice.cache_info()))
        kept = [wrap(lambda x, module=module: (x, module.mask)) for module in modules]
        seen[-1] += ([call(X)[1] == module.mask for call, module in zip(kept, modules, strict=True)],)
    assert seen[0] == seen[1]
    assert not COUNTED or flambeau.counters()["graph_breaks"] == {}


def test_what_is_kept_is_the_very_object():
    table, _ = cached()
    kept = table(1)

    def program(x):
        found = table(1)
        found.append(7)
        return x + 1, found

    compiled = flambeau.compile(program)
    assert compiled(X)[1] is kept and compiled(X)[1] is kept
    assert kept[2:] == [7, 7]


def test_results_that_are_dropped():
    """The last used results stay: compiled calls count as uses."""
    tables = [cached(2) for _ in range(2)]

    def program(x, table):
        return x + table(1)[0]

    compiled = flambeau.compile(program)
    for fn, (table, calls) in zip((program, compiled), tables, strict=True):
        table(1)
        for other in (2, 3, 4):
            fn(X, table)
            table(other)
        fn(X, table)
        assert calls == [((1,), {}), ((2,), {}), ((3,), {}), ((4,), {})]


class Odd:
    """Equal to anything, with the hash of 1."""

    def __init__(self, log):
        self.log = log

    def __hash__(self):
        return 1

    def __eq__(self, other):
        self.log.append(type(other).__name__)
        return True


def test_keys_of_users_are_not_compared_by_guards():
    logs = []
    for make in (lambda fn: fn, flambeau.compile):
        table, calls = cached()
        log = []
        table(Odd(log))
        log.clear()
        fn = make(lambda x, table=table: (x + 1, table(1)))
        results = [str(fn(X)) for _ in range(3)]
        logs.append((results, list(log), len(calls)))
    assert logs[0] == logs[1]


class Recipe:
    pass


class Valued:
    """Compared by what it holds."""

    def __init__(self, value):
        self.value = value

    def __eq__(self, other):
        return isinstance(other, Valued) and self.value == other.value

    def __hash__(self):
        return hash(self.value)


def test_objects_sizes_and_keywords_are_arguments():
    """As einops calls its caches: a pattern, names of axes, a recipe that another cache keeps, a shape."""
    recipes = functools.lru_cache(lambda pattern, names, ndim: Recipe())
    shapes, calls = cached()

    def program(x):
        recipe = recipes("a b -> b a", names=("a",), ndim=x.dim())
        return x + 1, shapes(recipe, x.shape, (("a", 2),)), shapes(int, recipes, Recipe)

    compiled = flambeau.compile(program)
    for _ in range(4):
        results = [program(torch.ones(2, 3))[1:], compiled(torch.ones(2, 3))[1:]]
        assert all(a is b for a, b in zip(*results, strict=True))
    assert len(calls) == 2
    flambeau.reset()
    again = flambeau.compile(program)
    assert all(a is b for a, b in zip(again(torch.ones(2, 3))[1:], program(torch.ones(2, 3))[1:], strict=True))
    assert flambeau.counters()["graph_breaks"] == {} or not COUNTED


def test_another_object_is_another_call():
    tables = [cached() for _ in range(2)]

    def program(x, table, recipe):
        return x + 1, table(recipe), table(recipe, word=recipe)

    compiled = flambeau.compile(program)
    recipes = [Recipe(), Recipe(), Valued(1), Valued(1), Valued(2)]
    for recipe in [*recipes, *recipes]:
        results = [
            (fn(X, table, recipe)[1][0], table.cache_info(), len(calls))
            for fn, (table, calls) in zip((program, compiled), tables, strict=True)
        ]
        assert results[0] == results[1]


def test_sizes_that_vary_are_not_fixed():
    """A size that a second call changed is no constant: the call is a break, and one frame serves all sizes."""
    calls = []
    table = functools.lru_cache(lambda size: calls.append(size))

    def program(x):
        y = x * 2
        table(x.shape)
        table(x.shape[0])
        return y.sin()

    compiled = flambeau.compile(program)
    for rows in range(2, 20):
        x = torch.ones(rows, 3)
        assert str(compiled(x)) == str(program(x))
    assert flambeau.counters()["recompile_limit_hits"] == 0 and len(calls) == 36


def tensors(x, log):
    @functools.lru_cache
    def mask(n, dtype=torch.float32):
        log.append(n)
        return torch.arange(n, dtype=dtype) + x.sum()

    first = mask(3)
    return first.mul_(2), mask(3) is first, mask(3, dtype=torch.float64), mask.cache_info()


def outside_objects(x, log):
    found = table_of_lists("a", log_of=None)
    found.append(x.dim())
    return x + len(found), table_of_lists("a", log_of=None) is found


@functools.lru_cache
def table_of_lists(key, log_of):
    return [key]


def breaks_inside(x, log):
    @functools.lru_cache
    def broken(n):
        log.append(n)
        flambeau.graph_break()
        return n + 1

    return x * broken(2) + broken(2), broken.cache_info()


def raises_inside(x, log):
    @functools.lru_cache
    def refused(n):
        log.append(n)
        raise ValueError(n)

    for _ in range(2):
        try:
            refused(3)
        except ValueError as e:
            log.append(str(e))
    return x + 1, refused.cache_info()


def generators(x, log):
    @functools.lru_cache
    def drawn(n):
        return (log.append(i) or i for i in range(n))

    return x + next(drawn(3)), next(drawn(3)), list(drawn(3)), drawn.cache_info()


def reads_itself(x, log):
    @functools.lru_cache
    def curious(n):
        return n and (curious(n - 1), curious.cache_info())

    return x, curious(2)


def methods(x, log):
    class Layer:
        @functools.lru_cache  # noqa: B019
        def scale(self, n):
            log.append(n)
            return x.sum() * n

    one, other = Layer(), Layer()
    return one.scale(2) + one.scale(2) + other.scale(2), Layer.scale.cache_info()


def many_that_break(x, log):
    def broken(n):
        @functools.lru_cache
        def fn(k):
            flambeau.graph_break()
            return n + k

        return fn

    fns = [broken(n) for n in range(8)]
    return x + sum(fn(1) for fn in fns), [fn.cache_info() for fn in fns]


@pytest.mark.parametrize(
    "program",
    [tensors, outside_objects, breaks_inside, raises_inside, generators, reads_itself, methods, many_that_break],
    ids=lambda p: p.__name__,
)
def test_misses(program):
    compiled = flambeau.compile(program)
    logs = [[], []]
    for _ in range(3):
        results = []
        for fn, log in zip((program, compiled), logs, strict=True):
            table_of_lists.cache_clear()
            results.append((str(fn(X.clone(), log)), str(log)))
        assert results[0] == results[1]


@pytest.mark.plain_only("counts frames")
def test_a_miss_is_no_break():
    table, calls = cached()

    def program(x):
        return x.sin() * table("a", k=1)[0] + len(table((1, "b"))[1])

    compiled = flambeau.compile(program)
    for count in range(3):
        assert torch.equal(compiled(X), X.sin() * 1 + 1)
        assert table.cache_info()[:2] == (2 * count, 2) and len(calls) == 2
    counters = flambeau.counters()
    assert counters["graph_breaks"] == {} and counters["frames_traced"] == 2


@pytest.mark.plain_only("counts frames")
def test_a_result_kept_later_makes_a_frame_whole():
    """Where the function breaks itself, the frame is traced again once its result is kept."""
    table = functools.lru_cache(lambda n: [flambeau.graph_break(), n][1])

    def program(x):
        return x.sin() * table(3)

    compiled = flambeau.compile(program)
    for _ in range(4):
        assert torch.equal(compiled(X), X.sin() * 3)
    assert flambeau.counters()["frames_traced"] == 3
    table.cache_clear()
    assert torch.equal(compiled(X), X.sin() * 3) and table.cache_info().misses == 1


def test_one_cache_where_there_were_two():
    """Of two functions that share their code each call is traced; the guards see where they are one."""

    def program(x, one, other):
        return x + one(1)[0], other(1)[0], one is other, one((2, x.dim())), other((2, x.dim()))

    compiled = flambeau.compile(program)
    results = []
    for fn in (program, compiled):
        (a, _), (b, _), (c, _) = (cached() for _ in range(3))
        results.append((str(fn(X, a, b)), str(fn(X, c, c)), c.cache_info()))
    assert results[0] == results[1]


@pytest.mark.parametrize("kept", [2, None])
def test_finalizers_do_not_call_the_cache_meanwhile(kept):
    """The collector of garbage stays off while the cache keeps what the trace found."""
    table = functools.lru_cache(kept)(lambda n: n * 2)
    seen = []

    class Cyclic:
        def __init__(self):
            self.me = self

        def __del__(self):
            seen.append(table(7))

    def program(x, n):
        return x + table(n)

    compiled = flambeau.compile(program)
    thresholds = gc.get_threshold()
    gc.set_threshold(1, 1, 1)
    try:
        for n in range(1, 6):
            Cyclic()
            assert torch.equal(compiled(X, n), X + 2 * n)
    finally:
        gc.set_threshold(*thresholds)
    gc.collect()
    assert set(seen) == {14} and table(7) == 14 and gc.isenabled()
