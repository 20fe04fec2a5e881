"""What Python itself says when an operation is refused: the exception and its text."""

import collections
import functools

import pytest
import torch
from support import check

X = torch.arange(3.0)
Pair = collections.namedtuple("Pair", "t k")


class Number(int):
    pass


class Octets(bytes):
    pass


class Plain:
    pass


class Bools:
    def __init__(self, value):
        self.value = value

    def __bool__(self):
        return self.value


class Sized:
    def __init__(self, value):
        self.value = value

    def __len__(self):
        return self.value


class Iterated:
    def __init__(self, value):
        self.value = value

    def __iter__(self):
        return self.value


class Refuses:
    __iter__ = None
    __contains__ = None
    __reversed__ = None

    def __getitem__(self, key):
        return [1, 2][key]

    def __len__(self):
        return 2


class Ring(collections.deque):
    pass


class Ranked(list):
    pass


def said(call):
    try:
        return call()
    except Exception as error:
        return type(error).__name__, str(error)


def inplace(op, a, b):
    if op == "+":
        a += b
    elif op == "@":
        a @= b
    elif op == "**":
        a **= b
    elif op == "|":
        a |= b
    else:
        a *= b
    return a


OPERANDS = [(3, (1,)), (Number(3), "a"), (Plain(), 2), ([1], Plain()), (Octets(b"a"), 2), ((1,), 2), (2.5, None)]
OPERANDS += [({}, [1]), (None, "a"), (Plain(), "a"), ("a", Number(2)), ("a", 2.5)]


@pytest.mark.parametrize("op", ["+", "*", "**", "@", "|"])
@pytest.mark.parametrize("a, b", OPERANDS, ids=lambda v: type(v).__name__)
def test_operands_of_operators_in_place(op, a, b):
    check(lambda x: (x + 1, said(lambda: inplace(op, a, b))), X)


@pytest.mark.parametrize("a, b", OPERANDS, ids=lambda v: type(v).__name__)
def test_operands_of_operators(a, b):
    tried = [lambda: a + b, lambda: a * b, lambda: a**b, lambda: a @ b, lambda: a | b, lambda: pow(a, b), lambda: a - b]
    check(lambda x: (x + 1, [said(call) for call in tried]), X)


@pytest.mark.parametrize("value", [1, None, "a", True])
def test_truth_is_a_bool(value):
    check(lambda x: (x + 1, said(lambda: not Bools(value))), X)


@pytest.mark.parametrize("value", [3, 0, -1, None, True, 1.5])
def test_lengths(value):
    def f(x):
        o = Sized(value)
        return x + 1, said(lambda: len(o)), said(lambda: bool(o)), said(lambda: list(reversed(o)))

    check(f, X)


@pytest.mark.parametrize("value", [3, None, "iterator", [1]])
def test_what_iter_gives(value):
    def f(x):
        o = Iterated(iter([1, 2]) if value == "iterator" else value)
        return x + 1, said(lambda: list(o))

    check(f, X)


def unpack(o):
    a, b = o
    return a, b


def unpack_rest(o):
    a, *b = o
    return a, b


@pytest.mark.parametrize("o", [Plain(), 3, None, Refuses(), Iterated(3), len], ids=lambda v: type(v).__name__)
def test_what_cannot_be_unpacked(o):
    def f(x):
        tried = [
            lambda: unpack(o), lambda: unpack_rest(o), lambda: [*o], lambda: (1, *o), lambda: said(*o),
            lambda: said(1, *o),
            lambda: list(o), lambda: 1 in o, lambda: Plain(*o), lambda: reversed(o),
        ]  # fmt: skip
        return x + 1, [said(call) for call in tried]

    check(f, X)


@pytest.mark.parametrize("lengths", [(1, 2), (2, 1), (2, 2, 1), (1, 1, 2), (2, 1, 1)])
def test_zip_of_other_lengths(lengths):
    check(lambda x: (x + 1, said(lambda: list(zip(*map(range, lengths), strict=True)))), X)


@pytest.mark.parametrize("ring", [Ring(), Ring([1, 2])], ids=["empty", "full"])
def test_a_subclass_of_a_container_of_c(ring):
    def f(x):
        tried = [
            lambda: bool(ring), lambda: len(ring), lambda: list(ring), lambda: sum(ring), lambda: 1 in ring,
            lambda: ring[0],
            lambda: ring + ring, lambda: ring == Ring([1, 2]), lambda: ring < ring, lambda: [*reversed(ring)],
        ]  # fmt: skip
        return x + 1, [said(call) for call in tried]

    check(f, X)


def test_methods_that_a_subclass_of_a_list_inherits():
    def f(x, ranked):
        return x + 1, ranked.__gt__([0]), ranked.__eq__([1]), Pair(1, 2).__eq__(3), Pair(1, 2).__lt__((1, 3))

    check(f, X, Ranked([1]))


@pytest.mark.parametrize("kind", [Number, Ranked, Pair, Plain, Ring])
def test_new_of_object(kind):
    check(lambda x: (x + 1, said(lambda: type(object.__new__(kind)).__name__)), X)


def test_what_has_no_dict_and_what_is_no_callable():
    check(lambda x: (x + 1, said(lambda: vars(3)), said(lambda: functools.partial(3)), said(lambda: vars(len))), X)


def test_bits_of_floats_are_refused_where_they_are_asked_for():
    def f(x):
        out = []
        for call in (lambda: x ^ 1, lambda: ~x, lambda: x & x):
            out.append(type(said(call)).__name__)
            x.add_(1)
        return x, out

    check(f, X)
