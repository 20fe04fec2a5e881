"""Objects that are what their parts are: slices, ranges, partials, proxies of dicts, `super()`."""

from __future__ import annotations

import functools
import operator
import types
import typing

import pytest
import torch

import flambeau

X = torch.arange(6.0)


def same(function, *args):
    """The compiled function gives what the function gives, three times."""
    expected = function(*args)
    compiled = flambeau.compile(function, backend="eager")
    for _ in range(3):
        assert repr(compiled(*args)) == repr(expected)


def whole(function, *args):
    """As `same`, without a break."""
    same(function, *args)
    flambeau.compile(function, backend="eager", fullgraph=True)(*args)


OUTSIDE = {
    "slice": (
        lambda s: (X[s] + 1, s.start, s.stop, s.step, s.indices(5), s == slice(1, 4), [*"abcde"][s]),
        slice(1, 4),
    ),
    "range": (
        lambda r: ([X[i] for i in r], len(r), 5 in r, r[1], list(r[::-1]), r == range(2, 6, 3), bool(r)),
        range(2, 6, 3),
    ),
    "partial": (lambda p: (p(X), p.args[0] + 1, p.keywords["alpha"]), functools.partial(torch.add, X, alpha=2)),
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_from_outside(name):
    function, value = OUTSIDE[name]
    whole(function, value)


@pytest.mark.parametrize(
    ("value", "others"),
    [
        (slice(1, 4), [slice(1, 5), slice(0, 4), slice(1, 4, 2), slice(None), slice(-1, None, None)]),
        (range(4), [range(5), range(1, 4), range(0, 4, 2), range(0), range(3, -1, -1)]),
    ],
)
def test_each_part_is_guarded(value, others):
    def function(part):
        return X[part] if isinstance(part, slice) else [X[i] for i in part]

    compiled = flambeau.compile(function, backend="eager")
    for other in [value, *others, value]:
        torch.testing.assert_close(compiled(other), function(other), rtol=0, atol=0)


def test_parts_of_a_partial_are_guarded():
    compiled = flambeau.compile(lambda p: p(X), backend="eager")
    add, sub = (functools.partial(f, X, alpha=2) for f in (torch.add, torch.sub))
    for partial in (add, sub, functools.partial(torch.add, X + 1, alpha=2), functools.partial(torch.add, X, alpha=3)):
        torch.testing.assert_close(compiled(partial), partial(X), rtol=0, atol=0)
    add.keywords["alpha"] = 7
    torch.testing.assert_close(compiled(add), 8 * X, rtol=0, atol=0)


def test_they_are_themselves():
    parts = (slice(1, 2), range(3), functools.partial(max, 1))
    given = flambeau.compile(lambda a, b, c: (a, [b], {"c": c}, X + 1), backend="eager")(*parts)
    assert given[0] is parts[0] and given[1][0] is parts[1] and given[2]["c"] is parts[2]

    def made():
        part = range(4)
        return part, [part], slice(part[1], 3), functools.partial(max, 1), types.MappingProxyType({"a": 1}), X + 1

    first, (second,), cut, partial, proxy, _ = flambeau.compile(made, backend="eager")()
    assert first is second and first == range(4) and cut == slice(1, 3) and partial(4) == 4 and proxy == {"a": 1}


def keywords_of_partial():
    partial = functools.partial(torch.add, X, alpha=2)
    partial.keywords["alpha"] = 5
    return partial(X), partial.args is partial.args, partial.keywords is partial.keywords


def keywords_of_outer_partial():
    inner = functools.partial(torch.add, alpha=2)
    outer = functools.partial(inner, X)
    inner.keywords["alpha"] = 9
    return outer(X), inner(X, X), outer.func is torch.add


def proxies():
    table = {"a": 1}
    proxy = types.MappingProxyType(table)
    table["b"] = 2
    found = proxy["b"], len(proxy), list(proxy), "a" in proxy, proxy == table, table == proxy, dict(proxy), bool(proxy)
    return found, proxy is proxy, proxy is types.MappingProxyType(table), proxy.get("z"), list(proxy.items()), X + 1


class Told:
    """Says what it is compared with."""

    def __init__(self):
        self.said = []

    def __eq__(self, other):
        self.said.append(type(other).__name__)
        return NotImplemented if len(self.said) % 2 else True

    __hash__ = None


def compared_proxies():
    plain, told = {"a": 1}, Told()
    proxy = types.MappingProxyType({"a": 1})
    found = (
        told == proxy,
        told == proxy,
        proxy == told,
        plain == proxy,
        proxy == plain,
        proxy != {},
        proxy == proxy,
    )
    try:
        proxy < proxy  # noqa: B015
    except TypeError as error:
        return found, told.said, str(error), X + 1


class Base:
    def go(self):
        return X + 1


class Derived(Base):
    def go(self):
        above = super()
        return above.go() + 2, above.__self__ is self, above.__thisclass__ is Derived, hasattr(above, "gone")


def order_of_parts():
    small, large = slice(1, 2), slice(1, 3)
    said = []
    for pair in ((range(2), range(3)), (slice(1), slice(None, 2, 3)), (small, 1)):
        try:
            said.append(pair[0] < pair[1])
        except TypeError as error:
            said.append(str(error))
    return small < large, small <= small, large > small, small != large, small == slice(1, 2), said, X + 1


def errors_of_parts():
    said = []
    for part in (slice(1), range(3)):
        for use in (iter, len, lambda p: p[0], lambda p: p(), lambda p: 1 in p, lambda p: hash({p: 1})):
            try:
                use(part)
            except TypeError as error:
                said.append(str(error))
    return said, X + 1


def empty_names():
    return [hasattr(part, "") for part in (slice(1), range(2), types.MappingProxyType({}))], X + 1


CONFIG = types.MappingProxyType({"scale": 2, "sizes": [1, 2]})


def outside_proxy():
    return X * CONFIG["scale"], list(CONFIG), CONFIG.get("none", 3), len(CONFIG), [*CONFIG["sizes"]], "scale" in CONFIG


def generic_aliases():
    alias = list[int]
    made = dict[str, int](a=1), alias([1, 2]), alias == list[int], alias != list[str], alias is list[int]
    cast = typing.cast(list[int], [X + 1]), typing.cast(tuple[int, ...], (1,))
    return made, cast, alias.__origin__ is list, alias.__args__, dict[str, int].fromkeys("ab")


class Holder:
    def __init__(self, value):
        self.value = value
        self.inner = self

    def scaled(self, by, plus=0):
        return self.value * by + plus


def getters():
    rows = [(1, "b", X), (0, "a", X + 1)]
    items = [operator.itemgetter(0)(row) for row in rows], sorted(rows, key=operator.itemgetter(0))[0][1]
    several = (
        operator.itemgetter(2, 0)(rows[0]),
        operator.itemgetter(slice(1))(rows[0]),
        operator.itemgetter("k")({"k": 3}),
    )
    holder = Holder(X)
    attributes = operator.attrgetter("value")(holder), operator.attrgetter("inner.inner.value", "value")(holder)
    return (
        items,
        several,
        attributes,
        operator.methodcaller("scaled", 3)(holder),
        list(map(operator.itemgetter(1), rows)),
    )


def errors_of_getters():
    said = []
    for get in (
        operator.itemgetter(5),
        operator.itemgetter("k"),
        operator.attrgetter("none"),
        operator.methodcaller("none"),
    ):
        try:
            get([1])
        except (IndexError, TypeError, AttributeError) as error:
            said.append((type(error), str(error)))
    return said, X + 1


def getters_that_leave():
    return operator.itemgetter(1)([1, 2]), operator.itemgetter(1, 2), operator.attrgetter("a.b"), list[int], X + 1


@pytest.mark.parametrize("function", [outside_proxy, generic_aliases, getters, errors_of_getters, getters_that_leave])
def test_whole(function):
    whole(function)


def test_items_of_an_outside_proxy_are_guarded():
    table = {"scale": 2}
    proxy = types.MappingProxyType(table)
    compiled = flambeau.compile(lambda p: X * p["scale"], backend="eager")
    for scale in (2, 3, 2):
        table["scale"] = scale
        torch.testing.assert_close(compiled(proxy), X * scale, rtol=0, atol=0)


@pytest.mark.parametrize(
    "function",
    [
        keywords_of_partial,
        keywords_of_outer_partial,
        proxies,
        lambda: Derived().go(),
        errors_of_parts,
        empty_names,
        order_of_parts,
    ],
)
def test_made_in_the_trace(function):
    same(function)


def test_a_changed_dict_of_an_outside_partial():
    partial = functools.partial(torch.add, X, alpha=2)

    def function(part):
        part.keywords["alpha"] = part.keywords["alpha"] + 1
        return part(X)

    compiled = flambeau.compile(function, backend="eager")
    for alpha in (3, 4, 5):
        torch.testing.assert_close(compiled(partial), X + alpha * X, rtol=0, atol=0)
    assert partial.keywords == {"alpha": 5}
