"""What the `__dict__` of objects and classes holds, of the standard library's and of subclasses of built-in types."""

import collections
import operator
import threading
import types

import pytest
import torch

import flambeau


def whole(f, *calls):
    """Compiled and eager calls on equal arguments, made anew; nothing may break."""
    compiled = flambeau.compile(f, fullgraph=True)
    for make in calls:
        expected, found = make(), make()
        want, got = f(*expected), compiled(*found)
        torch.testing.assert_close(got, want)


def test_namespace_from_outside():
    space = types.SimpleNamespace(scale=2, inner=types.SimpleNamespace(shift=1))

    def f(x):
        space.scale += 1
        space.late = 5
        del space.late
        space.seen = x.shape
        return x * space.scale + space.inner.shift, hasattr(space, "late"), vars(space.inner)

    compiled = flambeau.compile(f, fullgraph=True)
    for n in (2, 3):
        got, late, inner = compiled(torch.ones(n))
        assert (space.scale, late, inner is space.inner.__dict__) == (n + 1, False, True)
        assert got.tolist() == [n + 2.0] * n and space.seen == (n,)
    space.inner.shift = 10
    assert compiled(torch.ones(1))[0].tolist() == [15.0]
    space.inner = types.SimpleNamespace()
    with pytest.raises(AttributeError, match=r"'types\.SimpleNamespace' object has no attribute 'shift'"):
        compiled(torch.ones(1))


def test_namespace_of_the_trace():
    class Own(types.SimpleNamespace):
        pass

    def f(x):
        a, b = types.SimpleNamespace(y=x + 1, n=2), Own(z=x)
        a.n += 1
        b.w = a.y
        return a.y * a.n + b.z, a, type(b).__name__, b.w

    compiled = flambeau.compile(f, fullgraph=True)
    for n in (1, 2):
        got, a, name, w = compiled(torch.ones(n))
        assert got.tolist() == [7.0] * n and type(a) is types.SimpleNamespace and name == "Own"
        assert list(vars(a)) == ["y", "n"] and a.n == 3 and a.y is w


def test_thread_local_is_read_per_thread():
    local = threading.local()

    def f(x):
        local.seen = getattr(local, "seen", 0) + 1
        return x * local.seen, hasattr(local, "none"), getattr(local, "scale", 1)

    compiled = flambeau.compile(f, fullgraph=True)
    local.scale = 3
    assert [compiled(torch.ones(1))[0].item() for _ in range(3)] == [1, 2, 3]
    assert compiled(torch.ones(1))[2] == 3
    found = []

    def other():
        found.append(compiled(torch.ones(1)))
        local.scale = 7
        found.append(compiled(torch.ones(1)))

    for _ in range(2):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert [(y.item(), none, scale) for y, none, scale in found] == [(1, False, 1), (2, False, 7)]
        found.clear()
    assert (local.seen, local.scale) == (4, 3)


def test_thread_local_subclass_with_init():
    made = []

    class Own(threading.local):
        def __init__(self, first):
            made.append(threading.get_ident())
            self.first = first

    local = Own(5)

    def f(x):
        local.first += 1
        return x * local.first

    compiled = flambeau.compile(f)
    assert [compiled(torch.ones(1)).item() for _ in range(2)] == [6, 7]
    found = []

    def other():
        found.extend(compiled(torch.ones(1)).item() for _ in range(2))

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert found == [6, 7] and local.first == 7 and len(made) == 2


def test_attributes_of_tuples_lists_and_dicts():
    class Row(tuple):
        kind = "row"

    class Rows(list):
        pass

    def f(row, rows, note):
        row.note = note
        rows.note = row.note + "!"
        made = Row([row[0], 2])
        made.note = "made"
        before = hasattr(row, "old")
        if before:
            del row.old
        return row[0] + 1, row, made, made.note, row.kind, before

    def make(old):
        row = Row([torch.ones(2), 1])
        if old:
            row.old = 1
        return row, Rows(), "a"

    compiled = flambeau.compile(f, fullgraph=True)
    for old in (False, True, False):
        row, rows, note = make(old)
        got = compiled(row, rows, note)
        assert got[1] is row and vars(row) == {"note": "a"} and rows.note == "a!"
        assert type(got[2]) is Row and got[2].note == "made" and got[3:] == ("made", "row", old)


def test_attributes_that_tuples_do_not_take():
    def f(x, t):
        try:
            t.note = 1
        except AttributeError as error:
            return x + 1, str(error)

    compiled = flambeau.compile(f)
    t = (1, 2)
    assert compiled(torch.ones(1), t)[1] == f(torch.ones(1), t)[1]


def test_default_factories():
    def f(xs):
        groups = collections.defaultdict(list)
        for x in xs:
            groups[x.shape[0]].append(x * 2)
        counts = collections.defaultdict(int, a=1)
        counts["b"] += 2
        return groups, counts, counts.default_factory is int, "z" in counts

    compiled = flambeau.compile(f, fullgraph=True)
    groups, counts, *rest = compiled([torch.ones(2), torch.ones(3), torch.ones(2)])
    assert type(groups) is collections.defaultdict and groups.default_factory is list
    assert {k: len(v) for k, v in groups.items()} == {2: 2, 3: 1} and groups["new"] == []
    assert counts == {"a": 1, "b": 2} and rest == [True, False] and counts["c"] == 0


def test_tensors_as_keys_of_a_defaultdict():
    """Each key is another object than those that are there: an optimizer's state."""

    def f(x, state, key):
        made = state[key]
        flambeau.graph_break()
        made["step"] = made.get("step", 0) + 1
        return x + made["step"]

    compiled = flambeau.compile(f)
    keys = [torch.nn.Parameter(torch.ones(2)) for _ in range(4)]
    ours, theirs = (collections.defaultdict(dict) for _ in range(2))
    for key in (*keys, *keys):
        assert torch.equal(compiled(torch.ones(2), ours, key), f(torch.ones(2), theirs, key))
    assert [*ours.values()] == [*theirs.values()] and all(a is b for a, b in zip(ours, theirs, strict=True))


def test_default_factory_of_an_argument():
    def f(x, sums, key):
        sums[key] = sums[key] + x.sum()
        return x * len(sums)

    compiled = flambeau.compile(f, fullgraph=True)
    ours, theirs = (collections.defaultdict(lambda: torch.zeros(())) for _ in range(2))
    for key in "abacb":
        assert torch.equal(compiled(torch.ones(2), ours, key), f(torch.ones(2), theirs, key))
    assert ours == theirs and list(ours) == list(theirs)
    ours.default_factory = lambda: torch.ones(())
    compiled(torch.ones(2), ours, "d")
    assert ours["d"].item() == 3
    ours.default_factory = None
    with pytest.raises(KeyError):
        compiled(torch.ones(2), ours, "e")


def test_default_factory_is_set():
    def f(x, d):
        old, d.default_factory = d.default_factory, list
        return x + len(d["k"]), old is int

    compiled = flambeau.compile(f, fullgraph=True)
    d = collections.defaultdict(int)
    assert compiled(torch.ones(1), d)[1] and d.default_factory is list and d == {"k": []}
    assert compiled(torch.ones(1), d)[1] is False


class Node:
    def __init__(self, value):
        self.value = value

    def scaled(self, n, *, shift=0, **more):
        return self.value * n + shift + sum(more.values())


def test_method_callers():
    def f(x, node):
        call = operator.methodcaller("scaled", 3, shift=1, other=2)
        return x * call(node), operator.methodcaller("scaled", 2)(node), operator.methodcaller("upper")("ab") == "AB"

    whole(f, *(lambda n=n: (torch.ones(2), Node(n)) for n in (1, 2)))


def test_a_method_caller_leaves():
    def f(x):
        return x + 1, operator.methodcaller("scaled", 2)

    assert flambeau.compile(f, fullgraph=True)(torch.ones(1))[1](Node(4)) == 8


def test_bound_methods_are_made():
    def f(x, node):
        return x * types.MethodType(Node.scaled, node)(2)

    whole(f, lambda: (torch.ones(2), Node(3)))


class Base:
    shared = 1

    def scale(self):
        return 3


class Derived(Base):
    own = 2


def test_dict_of_a_class():
    def f(x, cls):
        own = vars(cls)
        where = [[name in c.__dict__ for name in ("own", "shared", "__init__", "__eq__")] for c in cls.__mro__]
        return x + own.get("own", 7) * Base.__dict__["scale"](None), where, own.get("shared"), type(own).__name__

    compiled = flambeau.compile(f, fullgraph=True)
    try:
        for cls in (Derived, Base, Derived):
            assert str(compiled(torch.ones(2), cls)) == str(f(torch.ones(2), cls))
        Derived.own = 5
        assert compiled(torch.ones(2), Derived)[0].tolist() == [16.0, 16.0]
        Derived.shared = 9
        assert compiled(torch.ones(2), Derived)[2] == 9
    finally:
        Derived.own = 2
        del Derived.shared


def test_dict_of_a_class_leaves_and_follows_writes():
    class Changed:
        count = 0

    def f(x):
        before = Changed.__dict__
        Changed.count += 1
        return x * before["count"], before, Changed.__dict__["count"]

    def of_new(x):
        class Made:
            size = 4

        return x * Made.__dict__["size"], sorted(name for name in vars(Made) if name == "size")

    compiled = flambeau.compile(f)
    for n in (1, 2, 3):
        y, shown, count = compiled(torch.ones(1))
        assert (y.item(), count, type(shown)) == (n, n, types.MappingProxyType)
        Changed.late = n
        assert shown["late"] == n
    with pytest.raises(TypeError, match="does not support item assignment"):
        shown["count"] = 1
    assert str(flambeau.compile(of_new)(torch.ones(1))) == str(of_new(torch.ones(1)))


def test_types_of_the_interpreter_leave_a_frame():
    """Module `types` has names for those that no other module has."""

    def f(x):
        kinds = (
            type(type.__dict__),
            type(f),
            type(x.sin),
            type(len),
            type(i for i in ""),
            type(f.__code__),
            type(str.join),
        )
        flambeau.graph_break()
        return x + 1, kinds

    for _ in range(2):
        assert flambeau.compile(f)(torch.ones(1))[1] == f(torch.ones(1))[1]
