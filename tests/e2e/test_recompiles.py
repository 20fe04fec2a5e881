"""Values that plain Python gives at a break: what is only carried along is no fact, what is computed with is; what a
function recompiles is counted with what its resume functions do."""

import itertools
import random
import time
import warnings

import pytest
import torch

import flambeau

pytestmark = [
    pytest.mark.plain_only("counts frames"),
    pytest.mark.passes_recompile_limit("what counts for it, and what does not"),
]


class Feed:
    """Gives what it was fed, in plain Python."""

    def __init__(self):
        self.values = []

    def __call__(self):
        return self.values.pop(0)


feed = Feed()


@flambeau.disable
def given():
    return feed()


@flambeau.disable
def pause(*seen):
    seen_by_plain_python.extend(seen)


seen_by_plain_python: list = []


class Box:
    pass


BOX = Box()
STATS: dict = {}
LATER: list = []


def traces(fn, calls, *rounds):
    """How many frames `calls` calls of `fn` trace, each fed what the iterators give. Results are eager's."""
    compiled = flambeau.compile(fn)
    before = flambeau.counters()["frames_traced"]
    for _ in range(calls):
        values = [next(values) for values in rounds]
        outcomes = []
        for run in (fn, compiled):
            feed.values = list(values)
            seen_by_plain_python.clear()
            result = run(torch.ones(3))
            outcomes.append((result, list(seen_by_plain_python)))
        (eager, seen), (ours, seen_too) = outcomes
        same(eager, ours)
        same(seen, seen_too)
    return flambeau.counters()["frames_traced"] - before


def same(a, b):
    if isinstance(a, torch.Tensor):
        assert torch.equal(a, b)
    elif isinstance(a, list | tuple):
        assert type(a) is type(b) and len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            same(x, y)
    elif isinstance(a, dict):
        assert list(a) == list(b)
        same(list(a.values()), list(b.values()))
    else:
        assert a is b or (type(a) is type(b) and a == b)


def floats():
    return (random.random() for _ in itertools.count())


def texts():
    return (f"name {n}" for n in itertools.count())


def mixed():
    """A value of another kind each time."""
    return itertools.cycle([1.5, "text", None, True, (1.0, "pair"), b"bytes", 2.5, 7, torch.ones(2), [1], False, 1j])


def returned(x):
    t = given()
    y = x * 2
    pause()
    return y + 1, t


def returned_deep(x):
    t = given()
    y = x * 2
    pause()
    return [y + 1, {"t": t, "u": (t, [t])}]


def carried_twice(x):
    t = given()
    y = x * 2
    pause()
    y = y + 1
    u = given()
    y = y * 2
    pause()
    return y, t, u


def passed_on(x):
    t = given()
    y = x + 1
    pause(t)
    y = y * 2
    pause(y, t)
    return y


def attribute(x):
    BOX.t = given()
    y = x * 2
    pause()
    return y, BOX.t


def attribute_kept(x):
    BOX.t = given()
    return x * 2


def item(x):
    STATS["t"] = given()
    y = x * 2
    pause(STATS["t"])
    return y + 1


def unpacked(x):
    t, u = given()
    y = x * 2
    pause()
    return y, u, t


def helper(x):
    t = given()
    y = x * 2
    pause()
    return y, t


def nested(x):
    y, t = helper(x)
    y = y + 1
    pause()
    return y, t


def around(x):
    t = given()
    y, u = helper(x)
    y = y + 1
    pause(u)
    return y, t


def looped(x):
    for _ in range(3):
        t = given()
        x = x + 1
        pause()
    return x, t


def closed_over(x):
    t = given()
    y = x * 2
    pause()

    def inner():
        return t

    return y + 1, inner()


def compared_with_none(x):
    t = given()
    y = x + 1
    pause()
    if t is None:
        y = y * 5
    return y, t


def argument(x):
    def inner(y, t, *, u):
        return y + 1, t, u

    t = given()
    return inner(x, t, u=t)


def asked_for_its_type(x):
    t = given()
    y = x + 1
    pause()
    return (y * 5 if type(t) is str else y), t, type(t)


@pytest.mark.parametrize(
    "fn",
    [returned, returned_deep, passed_on, attribute_kept, closed_over, argument, asked_for_its_type],
    ids=lambda f: f.__name__,
)
@pytest.mark.parametrize("values", [floats, texts], ids=lambda f: f.__name__)
def test_what_is_carried_along_is_not_guarded(fn, values):
    assert traces(fn, 40, values()) <= 4


@pytest.mark.parametrize("values", [floats, texts, mixed], ids=lambda f: f.__name__)
def test_carried_across_several_breaks(values):
    assert traces(carried_twice, 40, values(), values()) <= 9
    assert traces(nested, 40, values()) <= 9
    assert traces(around, 40, values(), values()) <= 12
    assert traces(looped, 40, values(), values(), values()) <= 12


def test_pairs_are_taken_apart_unread():
    assert traces(unpacked, 40, zip(floats(), texts(), strict=False)) <= 3
    assert traces(returned, 40, zip(floats(), texts(), strict=False)) <= 3


@pytest.mark.parametrize(
    "fn",
    [returned, returned_deep, passed_on, attribute, item, closed_over, compared_with_none, asked_for_its_type],
)
def test_values_of_any_kind_come_out_as_they_are(fn):
    traces(fn, 24, mixed())


def test_is_none_asks_for_the_type():
    assert traces(compared_with_none, 40, floats()) <= 3
    assert traces(compared_with_none, 40, itertools.cycle([None, 1.5, "a"])) <= 5


def test_whether_a_list_has_items_says_nothing_of_them():
    waiting: list[float] = []

    def function(x):
        return x + 1 if waiting else x

    compiled, before = flambeau.compile(function, backend="eager"), flambeau.counters()["frames_traced"]
    for count in (3, 1, 0, 2, 5, 0, 7):
        waiting[:] = [float(count)] * count
        torch.testing.assert_close(compiled(torch.ones(3)), function(torch.ones(3)))
    assert flambeau.counters()["frames_traced"] - before == 2


def test_an_int_is_symbolic_at_once():
    def computes(x):
        n = given()
        y = x + 1
        pause()
        y = y * n
        pause()
        return y + n, n

    assert traces(computes, 40, itertools.count(3)) <= 4


def test_attributes_of_modules():
    class Timed(torch.nn.Module):
        def forward(self, x):
            self.t = given()
            y = x * 2
            pause()
            return y + 1

    module = Timed()
    assert traces(lambda x: (module(x), module.t), 1, floats()) <= 4
    assert traces(lambda x: module(x), 40, floats()) <= 3


def test_clocks_and_random_numbers():
    def timed(x):
        t = time.time()
        y = x * 2
        pause()
        return y, t

    def drawn(x):
        r = random.random()
        y = x * 2
        pause()
        return y, r

    for fn in (timed, drawn):
        compiled = flambeau.compile(fn)
        before = flambeau.counters()["frames_traced"]
        values = [compiled(torch.ones(3))[1] for _ in range(1000)]
        assert flambeau.counters()["frames_traced"] - before <= 3
        assert len(set(values)) > 900


def test_what_goes_into_containers_is_not_looked_at():
    kept = []

    def appended(x):
        kept.append(given())
        return x + 1

    def made(x):
        found = [given(), 1]
        y = x * 2
        pause()
        found.append(y)
        return found

    def nested(x):
        found = {"times": [given()], "n": 1}
        found["times"].append(given())
        return x + found["n"], found

    def looked_at(x):
        found = [given()]
        found.append(given())
        return x + 1, found[0] == found[1], found.index(found[1]), len(found), [*found, 3], sorted(found)

    assert traces(appended, 40, floats()) <= 3
    assert kept[::2] == kept[1::2] and len(set(kept)) == 40
    assert traces(made, 40, floats()) <= 4
    assert traces(nested, 40, floats(), floats()) <= 4
    compiled = flambeau.compile(looked_at)
    for values in ([1.5, 2.5], [2.5, 1.5], [1.5, 1.5], ["b", "a"]):
        feed.values = [*values, *values]
        assert str(compiled(torch.ones(3))) == str(looked_at(torch.ones(3)))


def test_frames_from_the_disk_count_for_the_limit():
    """In mode `warm` the second process must trace nothing: the first one ran what was beyond the limit eagerly."""
    compiled, fn = flambeau.compile(used(lambda t, y: y * t)), used(lambda t, y: y * t)
    for t in range(30):
        feed.values = [t / 4, t / 4]
        assert torch.equal(fn(torch.ones(3)), compiled(torch.ones(3)))
    assert flambeau.counters()["eager_fallbacks"]["recompile_limit"] > 0


def test_what_is_carried_is_the_object_itself():
    def carries(x):
        t = given()
        y = x * 2
        pause(t)
        return y, t, {"t": [t]}

    compiled = flambeau.compile(carries)
    for value in [1.5, "some text", (1.0, "a"), 10**30, b"bytes", 2j, float("nan")]:
        feed.values = [value]
        _, t, kept = compiled(torch.ones(3))
        assert t is value and kept["t"][0] is value and seen_by_plain_python[-1] is value


def used(how):
    def computes(x):
        t = given()
        y = x * 2
        pause()
        return how(t, y)

    return computes


@pytest.mark.parametrize(
    "how",
    [
        lambda t, y: y * t,
        lambda t, y: y if t else -y,
        lambda t, y: y if t > 0.5 else -y,
        lambda t, y: (y, -t),
        lambda t, y: (y, t + 1),
        lambda t, y: (y, {t: 1}[t]),
        lambda t, y: (y, t in (t, 1)),
        lambda t, y: (y, f"{t:.3f}"),
        lambda t, y: (y, isinstance(t, float), type(t)),
        lambda t, y: (y, [t, t][0], max(t, 0.25), sorted([t, 0.5])),
        lambda t, y: (y, (lambda *a, **k: (a, k))(t, k=t)),
        lambda t, y: (y, list(map(lambda v: v + t, [1.0]))),
        lambda t, y: (y, sorted([1, 2], key=lambda v: t)),
        lambda t, y: (y, [v for v in (t,)], tuple(v * t for v in (t,))),
        lambda t, y: torch.add(y, y, alpha=t),
        lambda t, y: torch.full((2,), t) + y[:2],
        lambda t, y: (y, t.is_integer(), t.__class__, str(t), round(t, 1)),
        lambda t, y: (y, dict(a=t) == {"a": t}, (t,) == (t,), [t].index(t)),
    ],
)
def test_what_is_computed_with_is_guarded(how):
    fn = used(how)
    compiled = flambeau.compile(fn)
    before = flambeau.counters()["frames_traced"]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for t in itertools.islice(floats(), 30):
            feed.values = [t, t]
            expected, got = fn(torch.ones(3)), compiled(torch.ones(3))
            assert str(got) == str(expected)
    assert flambeau.counters()["frames_traced"] - before <= 10
    said = [str(w.message) for w in caught if "recompile_limit" in str(w.message)]
    assert len(said) <= 1


def test_the_limit_counts_resume_functions_and_names_what_varies():
    def below(y, t):
        pause()
        return y * t

    def computes(x):
        t = given()
        y = x * 2
        pause()
        y = y * t
        pause()
        y = below(y, t)
        pause()
        return y + t

    compiled = flambeau.compile(computes)
    before = flambeau.counters()["frames_traced"]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for t in itertools.islice(floats(), 50):
            feed.values = [t, t]
            assert torch.equal(compiled(torch.ones(3)), computes(torch.ones(3)))
    assert flambeau.counters()["frames_traced"] - before <= 24
    [said] = [str(w.message) for w in caught if "recompile_limit" in str(w.message)]
    assert "computes" in said and "==" in said and "." in said.split("==")[1]


def test_one_change_in_many_resume_functions_is_one_recompile():
    def steps(x, mode):
        for f in (torch.relu, torch.sin, torch.cos, torch.tanh, torch.exp):
            x = f(x)
            pause()
            if mode == "twice":
                x = x * 2
        pause()
        x = x + 1
        pause()
        return x * 2 if mode == "twice" else x

    compiled = flambeau.compile(steps)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for mode in ("once", "twice", "thrice", "once", "twice"):
            assert torch.equal(compiled(torch.ones(3), mode), steps(torch.ones(3), mode))
    assert "recompile_limit" not in flambeau.counters()["eager_fallbacks"]


@pytest.mark.parametrize("breaks", [False, True])
def test_callables_of_one_function_share_a_limit(breaks):
    def make(scale):
        def closes_over(x):
            y = x * scale
            if breaks:
                pause()
            return y + scale

        return closes_over

    before = flambeau.counters()["frames_traced"]
    hits = flambeau.counters()["eager_fallbacks"].get("accumulated_recompile_limit", 0)
    x = torch.ones(3)
    with flambeau.config.patch(accumulated_recompile_limit=12), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for scale in itertools.islice(floats(), 40):
            fn = make(scale)
            assert torch.equal(flambeau.compile(fn, backend="eager")(x), fn(x))
    assert 1 < flambeau.counters()["frames_traced"] - before <= 12
    assert flambeau.counters()["eager_fallbacks"]["accumulated_recompile_limit"] > hits
    [said] = [str(w.message) for w in caught if "accumulated_recompile_limit" in str(w.message)]
    assert "closes_over" in said and "==" in said


def test_other_modules_have_other_limits():
    """Calls of modules all run the code of `Module.__call__`: what counts is what is compiled."""
    before = flambeau.counters()["eager_fallbacks"].get("accumulated_recompile_limit", 0)
    with flambeau.config.patch(accumulated_recompile_limit=2):
        for size in range(2, 10):
            parts = [torch.nn.Linear(4, 4) for _ in range(size)]
            model = torch.nn.Sequential(*parts)
            x = torch.randn(2, 4)
            torch.testing.assert_close(flambeau.compile(model, backend="eager")(x), model(x))
    assert flambeau.counters()["eager_fallbacks"].get("accumulated_recompile_limit", 0) == before


def test_what_is_stored_into_a_list_after_a_break():
    def stores(n, items):
        pause()
        items[0] = n
        return items.count(n), items.index(n), items == [n, 2], n in items

    for n in (7, 2, 7.5, "x", (1, 2)):
        assert flambeau.compile(stores)(n, [1, 2]) == stores(n, [1, 2])


def appends(x, items):
    items.append(x * 2)
    items.extend([1, 2])
    items += (3,)
    return x + 1


def appends_then_reads(x, items):
    items.append(1)
    return x + items[-1] + len(items)


def appends_after_a_break(x, items):
    items.append(x)
    pause()
    items.append(x + 1)
    return items[-1] + 1


def appends_to_two(x, items, others=LATER):
    items.append(1)
    others.append(2)
    return x + 1


@pytest.mark.parametrize(
    ("fn", "most"),
    [(appends, 1), (appends_after_a_break, 9), (appends_to_two, 1), (appends_then_reads, 9)],
    ids=lambda given: getattr(given, "__name__", None),
)
def test_what_is_appended_to_may_have_any_length(fn, most):
    """A list that grows from call to call is not read for that."""
    expected, found = [], []
    compiled = flambeau.compile(fn)
    before = flambeau.counters()["frames_traced"]
    for i in range(20):
        x = torch.ones(3) * i
        assert torch.equal(compiled(x, found), fn(x, expected))
    assert str(found) == str(expected)
    assert flambeau.counters()["frames_traced"] - before <= most


def test_what_is_appended_to_may_be_another_list_that_was_read():
    def fn(x, a, b):
        a.append(3)
        return x + len(b), b[-1]

    compiled = flambeau.compile(fn)
    for same in (False, True, False, True):
        a, b = [1], [2]
        c, d = [1], [2]
        assert str(compiled(torch.ones(1), a, a if same else b)) == str(fn(torch.ones(1), c, c if same else d))
        assert (a, b) == (c, d)


@torch.library.custom_op("flambeau_recompiles::paired", mutates_args=())
def paired(x: torch.Tensor) -> torch.Tensor:
    return torch.cat([x, x])


@paired.register_fake
def _(x):
    return x.new_empty(2 * x.shape[0], *x.shape[1:])


def of_unruled(x):
    return paired(x * 2) + 1


def of_an_axis(x, axis):
    return (x + 1).mean(dim=axis)


def of_pieces(x):
    return torch.stack(x.unbind(0)).sum(0)


@pytest.mark.parametrize("fn", [of_unruled, of_pieces])
def test_sizes_that_an_op_has_no_rule_for_are_constants_at_first(fn):
    """The graph is whole for the first sizes; where they go on varying, the op is a break and nothing is compiled."""
    compiled = flambeau.compile(fn)
    before = flambeau.counters()
    for n in (3, 4, 5):
        assert torch.equal(compiled(torch.ones(n, 2)), fn(torch.ones(n, 2)))
    now = flambeau.counters()
    assert sum(now["graph_breaks"].values()) == sum(before["graph_breaks"].values())
    for n in range(6, 30):
        assert torch.equal(compiled(torch.ones(n, 2)), fn(torch.ones(n, 2)))
    assert flambeau.counters()["frames_traced"] - before["frames_traced"] <= 16


def test_an_int_that_a_rule_does_not_take_is_a_constant():
    compiled = flambeau.compile(of_an_axis)
    before = sum(flambeau.counters()["graph_breaks"].values())
    for axis in (0, 1, 2, -1, 0, 2):
        x = torch.arange(24.0).reshape(2, 3, 4)
        assert torch.equal(compiled(x, axis), of_an_axis(x, axis))
    assert sum(flambeau.counters()["graph_breaks"].values()) == before


def test_marked_sizes_stay_symbolic():
    compiled = flambeau.compile(of_unruled)
    before = flambeau.counters()["frames_traced"]
    for n in range(3, 12):
        x = torch.ones(n, 2)
        flambeau.mark_dynamic(x, 0)
        assert torch.equal(compiled(x), of_unruled(torch.ones(n, 2)))
    assert flambeau.counters()["frames_traced"] - before <= 3
