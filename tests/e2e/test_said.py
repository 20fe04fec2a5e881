"""What Python itself says when an operation is refused: the exception and its text."""

import collections
import enum
import functools

import pytest
import torch
from support import check

import flambeau

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
def test_operands_of_operators_in_place(op):
    check(lambda x: (x + 1, [said(lambda a=a, b=b: inplace(op, a, b)) for a, b in OPERANDS]), (X,), graphs=None)


def test_operands_of_operators():
    def tried(a, b):
        return [lambda: a + b, lambda: a * b, lambda: a**b, lambda: a @ b, lambda: a | b, lambda: pow(a, b)]

    check(lambda x: (x + 1, [said(call) for a, b in OPERANDS for call in tried(a, b)]), (X,), graphs=None)


def test_truth_is_a_bool():
    check(lambda x: (x + 1, [said(lambda v=v: not Bools(v)) for v in (1, None, "a", True)]), (X,))


class Empty(type):
    def __len__(cls):
        return 0


class Untrue(type):
    def __bool__(cls):
        return False


def test_truth_of_a_class_is_its_metaclass_s():
    kinds = [Plain, Empty("E", (), {}), Untrue("U", (), {}), int]
    check(lambda x: (x + 1, [bool(kind) for kind in kinds]), (X,))


def test_lengths():
    def lengths(o):
        return said(lambda: len(o)), said(lambda: bool(o)), said(lambda: list(reversed(o)))

    check(lambda x: (x + 1, [lengths(Sized(value)) for value in (3, 0, -1, None, True, 1.5)]), (X,))


def test_what_iter_gives():
    def f(x):
        return x + 1, [said(lambda v=v: list(Iterated(v))) for v in (3, None, iter([1, 2]), [1])]

    check(f, (X,))


def unpack(o):
    a, b = o
    return a, b


def unpack_rest(o):
    a, *b = o
    return a, b


def assigned(o):
    items = [1, 2, 3]
    items[:1] = o
    items[::2] = o
    return items


@pytest.mark.parametrize("o", [Plain(), 3, None, Refuses(), Iterated(3), len], ids=lambda v: type(v).__name__)
@flambeau.config.patch(recompile_limit=64)  # from 3.12 on the frame itself loops, and is resumed at each break
def test_what_cannot_be_unpacked(o):
    def f(x):
        tried = [
            lambda: unpack(o), lambda: unpack_rest(o), lambda: [*o], lambda: (1, *o), lambda: said(*o),
            lambda: said(1, *o),
            lambda: list(o), lambda: 1 in o, lambda: Plain(*o), lambda: reversed(o),
            lambda: "-".join(o), lambda: assigned(o),
        ]  # fmt: skip
        return x + 1, [said(call) for call in tried]

    check(f, (X,), graphs=None)


def test_zip_of_other_lengths():
    every = [(1, 2), (2, 1), (2, 2, 1), (1, 1, 2), (2, 1, 1)]
    zipped = lambda lengths: list(zip(*map(range, lengths), strict=True))
    check(lambda x: (x + 1, [said(lambda given=lengths: zipped(given)) for lengths in every]), (X,))


@pytest.mark.parametrize("ring", [Ring(), Ring([1, 2])], ids=["empty", "full"])
@flambeau.config.patch(recompile_limit=64)  # from 3.12 on the frame itself loops, and is resumed at each break
def test_a_subclass_of_a_container_of_c(ring):
    def f(x):
        tried = [
            lambda: bool(ring), lambda: len(ring), lambda: list(ring), lambda: sum(ring), lambda: 1 in ring,
            lambda: ring[0],
            lambda: ring + ring, lambda: ring == Ring([1, 2]), lambda: ring < ring, lambda: [*reversed(ring)],
        ]  # fmt: skip
        return x + 1, [said(call) for call in tried]

    check(f, (X,), graphs=None)


def test_methods_that_a_subclass_of_a_list_inherits():
    def f(x, ranked):
        return x + 1, ranked.__gt__([0]), ranked.__eq__([1]), Pair(1, 2).__eq__(3), Pair(1, 2).__lt__((1, 3))

    check(f, (X, Ranked([1])), graphs=None)


def test_new_of_object():
    made = lambda kind: said(lambda: type(object.__new__(kind)).__name__)
    check(lambda x: (x + 1, [made(kind) for kind in (Number, Ranked, Pair, Plain, Ring)]), (X,), graphs=None)


def test_types_of_c_bear_their_module():
    values = [torch.float32, torch.device("cpu"), X.shape, functools.partial(len), collections.deque(), len, 3]
    check(lambda x: (x + 1, [said(lambda v=v: v.no_such_name) for v in values]), (X,), graphs=None)


def test_methods_of_functions_of_c():
    check(
        lambda x: (x + 1, said(lambda: len.__call__()), len.__call__([1]), said(lambda: plus.__call__())),
        (X,),
        graphs=None,
    )


def plus(a):
    return a + 1


class Described:
    @property
    def __dict__(self):
        return {"made": 1}


def test_a_property_named_dict():
    check(lambda x: (x + 1, sorted(vars(Described())), sorted(Described().__dict__)), (X,))


def test_what_has_no_dict_and_what_is_no_callable():
    check(lambda x: (x + 1, said(lambda: vars(3)), said(lambda: functools.partial(3)), said(lambda: vars(len))), (X,))


def test_bits_of_floats_are_refused_where_they_are_asked_for():
    def f(x):
        out = []
        for call in (lambda: x ^ 1, lambda: ~x, lambda: x & x):
            out.append(type(said(call)).__name__)
            x.add_(1)
        return x, out

    check(f, (X,), graphs=None)


class Half(float):
    pass


class Keyed(list):
    def __hash__(self):
        return 3


class Row(Pair):
    def __eq__(self, other):
        return True

    def __hash__(self):
        return 3


def test_keys_of_subclasses():
    half, keyed, row, word = Half(2), Keyed([1]), Row(1, 2), type("Word", (str,), {})("w")

    def f(x):
        tried = [
            lambda: {half: 1}[half], lambda: {half: 1}[2.0], lambda: {2.0: 1}[half], lambda: {keyed: 1}[keyed],
            lambda: {row: 1}[row], lambda: {row: 1}[Row(3, 4)], lambda: {word: 1}["w"], lambda: {"w": 1}[word],
            lambda: 2.0 in {half: 1}, lambda: {half: 1}.get(2),
        ]  # fmt: skip
        return x + 1, [said(call) for call in tried]

    check(f, (X,), graphs=None)


def test_what_is_no_index():
    half, plain = Half(1), Plain()

    def f(x):
        tried = [
            lambda: [1, 2][half], lambda: (1, 2)[half], lambda: range(3)[half], lambda: "ab"[half], lambda: [1][plain],
            lambda: remove(3, 1), lambda: remove((1,), 0),
            lambda: remove((1,), "a"), lambda: remove(plain, 1),
            lambda: remove(None, 1), lambda: +half, lambda: ~half, lambda: +Octets(b"a"),
            lambda: -plain, lambda: 1 in plain,
            lambda: reversed(3), lambda: reversed(plain), lambda: [*reversed("ab")],
        ]  # fmt: skip
        return x + 1, [said(call) for call in tried]

    check(f, (X,), graphs=None)


def remove(container, key):
    del container[key]


def test_a_dict_of_a_number_appears():
    """A subclass of a number gets its instance dict when something is stored there."""

    class Small(int):
        def twice(self):
            return self * 2

    number = Small(3)
    compiled = flambeau.compile(lambda x, k: x * k.twice())
    assert compiled(X, number).tolist() == (X * 6).tolist()
    number.twice = lambda: 5
    assert compiled(X, number).tolist() == (X * 5).tolist()


class Stores:
    def __set__(self, owner, value):
        pass


def test_descriptors_that_only_store():
    class Meta(type):
        own = Stores()
        k = Stores()

    class Table(dict, metaclass=Meta):
        k = 3
        own = Stores()

    table = Table()
    table.__dict__["own"] = 5
    check(lambda x: (x + 1, Table.k, table.own, table.k, type(Table.own).__name__), (X,))


class Whole(int):
    __str__ = int.__repr__

    def __repr__(self):
        return "mine"


class Quarter(float):
    __str__ = float.__repr__

    def __repr__(self):
        return "mine"


class Shown(int):
    def __repr__(self):
        return "mine"


class Bare(int):
    __str__ = object.__repr__


class Told(ValueError):
    __str__ = ValueError.__repr__


class Meta(type):
    __str__ = type.__repr__

    def __repr__(cls):
        return "mine"


class Made(metaclass=Meta):
    pass


@pytest.mark.plain_only("one text has an address", "warm")
@pytest.mark.parametrize(
    "value", [Whole(3), Quarter(2.5), Shown(4), Bare(5), Told(1), Made], ids=lambda v: repr(type(v))
)
def test_the_text_is_what_the_slot_of_the_class_gives(value):
    """`IntEnum` has `int.__repr__` for its `__str__`, whatever its `__repr__` is later."""

    def texts(x):
        return x + 1, str(value), repr(value), f"{value}", f"{value!r}", "%s %r" % (value, value), "{}".format(value)  # noqa: UP031, UP032

    compiled = flambeau.compile(texts)
    for _ in range(2):
        assert compiled(X)[1:] == texts(X)[1:]


class Refuses:
    def __iter__(self):
        raise TypeError("its own words")


class RefusesLater:
    def __iter__(self):
        yield 1
        raise TypeError("its own words")


def dicts_of_what_is_no_pair(x):
    said = []
    for source in (Colour, [Refuses()], [RefusesLater()], [len], [Colour.RED], [None], [(1, 2), 3], [[1, 2, 3]], "ab"):
        made = {}
        for make in (dict, made.update):
            try:
                said.append(make(source))
            except Exception as error:
                said.append((type(error), str(error)))
        said.append(made)
    return x + 1, said


class Colour(enum.Enum):
    RED = 1


def test_dicts_of_what_is_no_pair():
    compiled = flambeau.compile(dicts_of_what_is_no_pair)
    for _ in range(2):
        assert str(compiled(X)) == str(dicts_of_what_is_no_pair(X))
