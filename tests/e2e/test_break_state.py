"""What a graph break must find as eager code does: exceptions being handled, callees that are left alone."""

import ctypes
import datetime
import operator
import re
import sys
import weakref

import pytest
import torch

import flambeau

X = torch.arange(4.0)


@pytest.fixture(params=["eager", "cpu"])
def backend(request):
    return request.param


def test_handled_exceptions(backend, capsys):
    def f(x):
        y = x + 1
        try:
            raise KeyError("k")
        except LookupError as error:
            print(sys.exc_info()[0], error)
            y = y * 2
        return y

    compiled = flambeau.compile(f, backend=backend)
    for _ in range(2):
        want, printed = f(X), capsys.readouterr().out
        assert torch.equal(compiled(X), want) and capsys.readouterr().out == printed


def test_disabled_functions_run_as_plain_python(backend):
    seen = []

    @flambeau.disable
    def alone(x):
        seen.append(flambeau.is_compiling())
        return x * 3

    def f(x):
        return alone(x + 1) - 1

    before = flambeau.counters()["graph_breaks"].get("disabled", 0)
    assert torch.equal(flambeau.compile(f, backend=backend)(X), (X + 1) * 3 - 1)
    assert seen == [False]
    assert flambeau.counters()["graph_breaks"]["disabled"] == before + 1


def test_classes_without_arguments(backend):
    class Empty:
        pass

    def f(x):
        Empty(2)
        return x

    with pytest.raises(TypeError, match=r"Empty\(\) takes no arguments"):
        flambeau.compile(f, backend=backend)(X)


@pytest.mark.plain_only("no break may be there", "leaf")
def test_compiled_functions_are_inlined(backend):
    inner = flambeau.compile(lambda x: x * 2, backend=backend)
    linear = flambeau.compile(torch.nn.Linear(4, 4), backend=backend)

    def f(x):
        return linear(inner(x + 1))

    before = flambeau.counters()
    with torch.no_grad():
        torch.testing.assert_close(flambeau.compile(f, backend=backend)(X), f(X))
    after = flambeau.counters()
    assert after["graph_breaks"] == before["graph_breaks"]


def test_expressions_of_ints_stay_small(backend):
    def f(x, n):
        for _ in range(20):
            n = (n * n + n) % 7
        items = [n]
        for _ in range(16):
            items.insert(0, max([n, *items]) % 9)
        return x * 0.5, n, items

    compiled = flambeau.compile(f, backend=backend)
    for n in (1, 2, 3, 5, 9, 20):
        assert compiled(X, n)[1:] == f(X, n)[1:]


class Counting(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return x * self.calls


def test_attributes_of_modules_are_stored_inside_a_try_block(backend):
    def f(module, x):
        try:
            return module(x)
        except TypeError:
            return x - 100

    compiled = flambeau.compile(f, backend=backend)
    one, other = Counting(), Counting()
    for _ in range(4):
        assert torch.equal(compiled(one, X), f(other, X)) and one.calls == other.calls


def test_two_live_ranges_are_not_one(backend):
    def inner(x, items):
        for _ in zip(items, range(3)):  # noqa: B905
            flambeau.graph_break()
            x[0] += 1
        return x

    def f(x, items):
        for _ in range(1):
            result = inner(x, items)
        return result

    compiled = flambeau.compile(f, backend=backend)
    for items in ([1, 2, 3], [4, 5, 6, 7], [1], [2, 2]):
        assert torch.equal(compiled(torch.zeros(2, 3), items), f(torch.zeros(2, 3), items))


def test_a_write_that_fails_inside_a_try_block(backend):
    def f(x):
        try:
            x.copy_(x)
        except RuntimeError:
            return x.detach() + 1
        return x

    leaf = torch.ones(3, requires_grad=True)
    assert torch.equal(flambeau.compile(f, backend=backend)(leaf), f(leaf))


class Plain:
    pass


def instance_dicts(x):
    """The `__dict__` of an object made in the frame is the object's, whatever leaves first."""
    one, two = Plain(), Plain()
    of_one = one.__dict__
    of_one["before"] = 1
    of_two = vars(two)
    flambeau.graph_break()
    of_one["after"] = 2
    two.late = 3
    return one.after, of_two["late"], of_one is one.__dict__, of_two is vars(two), sorted(of_one), x + 1


def reversed_iterators(x):
    """Where a reversed iterator of a list stands, though the list changes after the break."""
    items = list(range(6))
    begun, new, spent, shrunk = reversed(items), reversed(items), reversed(items), reversed(items)
    next(begun)
    list(spent)
    del items[4:]
    flambeau.graph_break()
    left = [operator.length_hint(it) for it in (begun, new, spent, shrunk)]
    items += [7, 8, 9]
    found = next(begun), type(begun).__name__, list(spent)
    items[1:] = []
    return left, found, list(begun), list(new), list(shrunk), x + 1


def keys_by_value(x):
    """Objects of C types hash and compare as they like; paths of functions are no strings."""
    day, again = datetime.date(2000, 12, 31), datetime.date(2000, 12, 31)
    pattern = re.compile("a+")
    made = {day: 1, pattern: 2}
    made[again] = 3
    found = {day, again, datetime.timedelta(1), datetime.timedelta(hours=24)}
    names = {"builtins.len": 1, len: 2}
    return made[day], made[re.compile("a+")], len(made), len(found), names[len], len(names), x + 1


class Equal(int):
    def __eq__(self, other):
        return True

    __hash__ = int.__hash__


def ranges(x):
    odd = Equal(11)
    return odd in range(10), odd in list(range(10)), True in range(2), 5 in range(0, 10, 2), x + 1


@pytest.mark.parametrize("program", [instance_dicts, reversed_iterators, keys_by_value, ranges])
def test_objects_survive_breaks(program, backend):
    want, compiled = program(X), flambeau.compile(program, backend=backend)
    for _ in range(2):
        *found, y = compiled(X)
        assert found == list(want[:-1]) and torch.equal(y, want[-1])


def exported(x):
    data = bytearray(8)
    view = memoryview(data)  # noqa: F841
    try:
        data.append(1)
    except BufferError:
        return x + 1
    return x


@flambeau.disable
def watched(seen):
    made = Plain()
    seen.append(weakref.ref(made))
    return made


def referred(x):
    seen = []
    held = watched(seen)
    alive = [seen[0]() is not None]
    flambeau.graph_break()
    alive.append(seen[0]() is not None)
    held = None  # noqa: F841
    return x + 2 if [*alive, seen[0]() is None] == [True] * 3 else x


def unbound(x):
    seen = []
    watched(seen)
    flambeau.graph_break()
    return x + 2 if seen[0]() is None else x


@pytest.mark.parametrize("program", [exported, referred, unbound])
def test_unread_variables_keep_what_plain_python_gave(program, backend):
    want, compiled = program(X), flambeau.compile(program, backend=backend)
    assert not torch.equal(want, X)
    for _ in range(2):
        assert torch.equal(compiled(X), want)


def record(seen):
    """A function of C that notes two arguments."""
    kinds = [ctypes.py_object] * 3
    return ctypes.PYFUNCTYPE(*kinds)(lambda a, b: seen.append((a, b)))


def test_a_constant_is_not_what_the_broken_call_read(backend):
    """What only an instruction looked at that runs in plain Python is no fact of the frame."""
    seen = []
    note = record(seen)

    def fn(x, a):
        note(a, 1.5)
        note(a, 0.0)
        note((a, "k"), "k")
        return x + 1

    compiled = flambeau.compile(fn, backend=backend)
    for a in (0.0, 5.0, 1.5, "k"):
        fn(X, a)
        want = list(seen)
        seen.clear()
        assert torch.equal(compiled(X, a), X + 1)
        assert seen == want
        seen.clear()


def test_grad_mode_that_is_left_to_the_caller(backend):
    def leaves_off(x):
        torch.set_grad_enabled(False)
        return x + 1

    def leaves_off_at_a_break(x):
        y = x + 1
        torch.set_grad_enabled(False)
        flambeau.graph_break()
        return y

    for fn in (leaves_off, leaves_off_at_a_break):
        compiled = flambeau.compile(fn, backend=backend)
        for _ in range(2):
            with torch.enable_grad():
                found = compiled(X)
                assert not torch.is_grad_enabled()
            assert torch.equal(found, X + 1) and torch.is_grad_enabled()


def test_callers_that_only_return_are_in_tracebacks(backend):
    """Of frames that break together, one that only returns the result of the next one stays below it on the stack."""

    def fails(x):
        y = x + 1
        flambeau.graph_break()
        raise ValueError(float(y[1]))

    def returns(x):
        return fails(x)

    def fn(x):
        return returns(x * 2)

    def names(run):
        with pytest.raises(ValueError) as raised:
            run(X)
        return [entry.name for entry in raised.traceback if str(entry.path).endswith("test_break_state.py")][1:]

    compiled = flambeau.compile(fn, backend=backend)
    for _ in range(2):
        assert names(compiled) == names(fn) == ["fn", "returns", "fails"]


@pytest.mark.parametrize("kept", ["result", "dropped", "stored"])
def test_variables_that_only_a_handler_reads(backend, kept):
    """An inlined call breaks, and raises behind the break: its caller's handler finds the variables it needs."""

    def breaks(x):
        y = x + 1
        flambeau.graph_break()
        raise ValueError(float(y[1]))

    def result(x):
        note = x * 3
        try:
            return breaks(x)
        except ValueError as error:
            return note, error.args

    def dropped(x):
        note = x * 3
        try:
            breaks(x)
        except ValueError as error:
            return note, error.args

    def stored(x):
        note = x * 3
        try:
            note = breaks(x)
        except ValueError as error:
            return note, error.args

    fn = {"result": result, "dropped": dropped, "stored": stored}[kept]
    compiled, (want, args) = flambeau.compile(fn, backend=backend), fn(X)
    for _ in range(2):
        found, said = compiled(X)
        assert torch.equal(found, want) and said == args
