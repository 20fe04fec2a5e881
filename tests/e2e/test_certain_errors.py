"""Errors that a trace takes for certain are those that Python raises, and no others: each program catches what it
meets, so that a wrong guess changes its result."""

# ruff: noqa: B018, F821, SIM300, UP008

import collections
import copy
import enum
import functools
import itertools
import threading
import types

import pytest
import torch

import flambeau


class Buffer(bytearray):
    pass


def bytes_and_a_buffer():
    return b"ab" + Buffer(b"cd"), b"ab" + bytearray(b"cd")


def percent_of_bytes():
    name = b"seven"
    text = b"%s/100"
    text %= (name,)
    return text, b"%s of %d" % (name, 79)


def keywords_of_exceptions():
    told = []
    for make in (lambda: ImportError("m", foo=2), lambda: ValueError("m", foo=2)):
        try:
            told.append(make())
        except TypeError as error:
            told.append(str(error))
    error = ImportError("m", name="n", path="p")
    return told, error.name, error.path, error.args


def numbers_of_os_errors():
    try:
        raise OSError(2, "x")
    except FileNotFoundError as error:
        return error.errno
    except OSError:
        return "another"


class Refuses:
    @property
    def __eq__(self):
        raise AttributeError("no")

    @property
    def __lt__(self):
        raise ValueError("no")

    __hash__ = None


def methods_that_cannot_be_had():
    try:
        return Refuses() == Refuses(), Refuses() < Refuses()
    except TypeError as error:
        return str(error)


def deletes_while_it_iterates(table):
    seen = []
    try:
        for key in table:
            del table[key]
            table[key] = 0
            seen.append(key)
    except RuntimeError as error:
        return seen, str(error)
    return seen


def a_dict_of_its_own():
    return deletes_while_it_iterates({0: 0}), deletes_while_it_iterates({0: 0, 1: 1})


class Stands:
    """For another object."""

    def __init__(self, held):
        self.__held = held

    def __getattribute__(self, name):
        if name.startswith("_Stands__"):
            return object.__getattribute__(self, name)
        return getattr(self.__held, name)


class Base:
    def said(self):
        return "base"


class Derived(Base):
    def said(self):
        return super(Derived, self).said() + " derived"


def super_of_what_stands_for_it():
    return Derived.__dict__["said"](Stands(Derived()))


class Hands:
    def __init__(self, held):
        self.held = held

    def __get__(self, instance, owner):
        return self.held.__get__(instance, owner)


class Holds:
    @classmethod
    @Hands
    def outer(cls):
        return "outer"


def a_class_method_of_a_descriptor():
    told = []
    for holder in Holds, Holds():
        try:
            told.append(holder.outer())
        except TypeError as error:
            told.append(type(error).__name__)
    return told


class Makes:
    def __new__(cls, kind):
        return object.__new__(Made if isinstance(kind, int) else cls)


class Made(Makes):
    def __init__(self, kind):
        self.kind = kind


def an_object_of_a_subclass():
    return Makes(1).kind, type(Makes("q")) is Makes


class Shown(enum.Enum):
    def __repr__(self):
        return "shown"


class Text(Shown, enum.StrEnum):
    EIGHT = "8"


def text_of_members():
    return str(Text.EIGHT), f"{Text.EIGHT}", Text.EIGHT == str(Text.EIGHT), repr(Text.EIGHT)


class Three:
    def __index__(self):
        return 3


def repeats():
    items = [0]
    items *= Three()
    return items, "ab" * Three(), Three() * (1, 2), b"x" * Three()


def causes():
    told = []
    for cause in (KeyError, KeyError("k"), None, 5, int):
        try:
            raise IndexError from cause
        except (IndexError, TypeError) as error:
            told.append((type(error).__name__, type(error.__cause__).__name__))
    return told


def ends(raised):
    yield 1
    raise raised


def ends_of_generators():
    try:
        list(ends(StopIteration(3)))
    except RuntimeError as error:
        return str(error), type(error.__cause__).__name__, error.__cause__.value


def inside():
    try:
        yield 1
    except ValueError:
        yield 2
    except GeneratorExit:
        raise KeyError("closed") from None


def around():
    try:
        yield from inside()
    except KeyError:
        yield "caught"


def throws_below():
    told = []
    for thrown in ValueError, GeneratorExit, IndexError:
        made = around()
        told.append(next(made))
        try:
            told.append(made.throw(thrown))
        except Exception as error:
            told.append(type(error).__name__)
    return told


class Counts:
    def __init__(self):
        self.at = 0

    def __iter__(self):
        return self

    def __next__(self):
        self.at += 1
        if self.at > 2:
            raise StopIteration(42)
        return self.at


def delegates():
    return (yield from Counts())


def ends_with_a_value():
    made = delegates()
    told = [next(made), next(made)]
    try:
        next(made)
    except StopIteration as end:
        told.append(end.value)
    return told


def own_cell():
    def inner():
        return late

    try:
        late
    except UnboundLocalError as error:
        told = str(error)
    late = 1
    return told, inner()


class Empty:
    pass


def arguments_of_object():
    told = []
    for call in (lambda: Empty().__init__(1), lambda: Empty(1), lambda: object.__new__(Empty, 1), lambda: object(1)):
        try:
            call()
        except TypeError as error:
            told.append(str(error))
    return told


class Kept(types.ModuleType):
    def __setattr__(self, name, value):
        object.__setattr__(self, name, value)

    def __delattr__(self, name):
        object.__delattr__(self, name)


MODULE, PLAIN = Kept("kept"), types.ModuleType("plain")


def attributes_past_the_class():
    told = []
    MODULE.a = PLAIN.a = own_cell.a = 1
    for owner in (MODULE, PLAIN, own_cell):
        object.__setattr__(owner, "b", 2)
        object.__delattr__(owner, "a")
        told.append(sorted(set(vars(owner)) & {"a", "b"}))
        try:
            object.__delattr__(owner, "a")
        except AttributeError as error:
            told.append(str(error))
    del MODULE.b
    return told, hasattr(MODULE, "b")


class MakesNothing(ValueError):
    def __new__(cls):
        return None


class Plain:
    made = 0

    def __new__(cls):
        Plain.made += 1


def raised(what):
    try:
        raise what
    except Exception as error:
        return type(error), str(error)


def raises_what_is_no_exception():
    return raised(Plain), raised(3), raised(MakesNothing), raised(ValueError("v")), Plain.made


class Unhashable(type):
    def __eq__(cls, other):
        return NotImplemented


class OfIt(metaclass=Unhashable):
    pass


def asks_abstract_classes():
    told = []
    for ask in (lambda: isinstance(OfIt(), collections.abc.Sized), lambda: issubclass(OfIt, collections.abc.Hashable)):
        try:
            told.append(ask())
        except TypeError as error:
            told.append(str(error))
    return told


class Missing(collections.defaultdict):
    pass


class Deeper(Missing):
    pass


KNOWN = Deeper(int)


def message(call):
    try:
        return call()
    except Exception as error:
        return type(error), str(error)


def factories_given_late():
    told = []
    for made in (KNOWN, Deeper(int), collections.defaultdict()):
        told.append(message(lambda made=made: made.__init__(4)))
        told.append(message(lambda made=made: made.__init__("ab")))
        told.append(message(lambda made=made: made.__init__(list, [(1, 2)])))
        told.append((made[3], type(made.copy())))
        made.clear()
    return told


def names_of_types():
    def of_the_frame():
        class Inner:
            pass

        return Inner

    types_ = (itertools.count, collections.deque, torch.Size, functools.partial, int, torch.nn.Module, of_the_frame())
    scalar = torch.tensor(2.0)
    return [message(lambda owner=owner: owner.absent) for owner in types_], message(lambda: scalar[0])


class Ordered(collections.OrderedDict):
    pass


def pairs_of_ordered_dicts():
    given = ("ab", [1], [(1, 2, 3)], [None], [[]])
    return [message(lambda make=make, g=g: make(g)) for make in (Ordered, collections.OrderedDict, dict) for g in given]


class CalledList(list):
    def __call__(self, *args):
        return args


class CalledTuple(tuple):
    def __call__(self, *args):
        return args


def containers_that_are_called():
    made = (CalledList(), CalledTuple(), [], ())
    return [callable(m) for m in made], [message(lambda m=m: functools.partial(m, 1)(2)) for m in made]


class Compared(torch.nn.Module):
    def __eq__(self, other):
        return True


class ComparedToo(Compared):
    pass


NET = ComparedToo()


def modules_as_keys():
    return message(lambda: NET in {1: 2}), message(lambda: {NET: 1}), message(lambda: {}.get(NET))


class Local(threading.local):
    pass


LOCAL = Local()


def attributes_past_a_local():
    LOCAL.a = 1
    told = message(lambda: object.__setattr__(LOCAL, "k", 2)), message(lambda: object.__delattr__(LOCAL, "a"))
    return told, sorted(vars(LOCAL)), hasattr(LOCAL, "k")


class Number(float):
    pass


def extends_by_a_number():
    items = [1]

    def extend():
        nonlocal items
        items += Number(4)

    return message(extend), message(lambda: items.extend(Number(4))), items


class Row(tuple):
    pass


class Shelf(list):
    pass


def compares_with_a_subclass():
    """What is on the right is asked first, item by item."""
    pairs = [((1,), Row("a")), (Row("a"), (1,)), ([1], Shelf("a")), (Shelf("a"), [1]), (Row("a"), Row([1]))]
    return [
        [message(lambda a=a, b=b: a < b), message(lambda a=a, b=b: a >= b), message(lambda a=a, b=b: a == b)]
        for a, b in pairs
    ]


class Stores(type):
    def __setattr__(cls, name, value):
        STORED.append(name)
        super().__setattr__(name, value)


class Stored(metaclass=Stores):
    pass


STORED = []


def copies_store_what_slots_there_are():
    STORED.clear()
    made = Stored()
    made.a = 1
    copied = copy.deepcopy(made)
    found = list(STORED)
    if "__slotnames__" in vars(Stored):
        type.__delattr__(Stored, "__slotnames__")
    return found, vars(copied)


class Hinted(collections.Counter):
    def __length_hint__(self):
        raise AttributeError("not asked")


class HintedList(list):
    def __length_hint__(self):
        raise AttributeError("not asked")


def lengths_come_before_hints():
    return [message(lambda m=m: [*m]) for m in (Hinted("ab"), HintedList("ab"))], message(lambda: list(Hinted()))


class Subscripted(int):
    def __getitem__():
        pass


class Sized(float):
    def __len__(self):
        return 3


class PlainInt(int):
    pass


def tensors_of_numbers():
    given = (Subscripted(1), Sized(2), PlainInt(3), [PlainInt(1), PlainInt(2)], [1, Subscripted(2)], (Sized(1),))
    return [message(lambda g=g, make=make: str(make(g))) for g in given for make in (torch.tensor, torch.as_tensor)]


KEPT = KeyError("kept")


def initialised_again():
    KEPT.__init__("again")
    Exception.__init__(KEPT, *KEPT.args, 2)
    found = KEPT.args
    Exception.__init__(KEPT, "kept")
    return found, KEPT.args


PROGRAMS = [
    lengths_come_before_hints, tensors_of_numbers, initialised_again,
    compares_with_a_subclass, copies_store_what_slots_there_are,
    raises_what_is_no_exception, asks_abstract_classes, factories_given_late, names_of_types, pairs_of_ordered_dicts,
    containers_that_are_called, modules_as_keys, attributes_past_a_local, extends_by_a_number,
    bytes_and_a_buffer, percent_of_bytes, keywords_of_exceptions, numbers_of_os_errors, methods_that_cannot_be_had,
    a_dict_of_its_own, super_of_what_stands_for_it, a_class_method_of_a_descriptor, an_object_of_a_subclass,
    text_of_members, repeats, causes, ends_of_generators, throws_below, ends_with_a_value, own_cell,
    arguments_of_object, attributes_past_the_class,
]  # fmt: skip


def divides(x, n, m):
    return [message(lambda: n % m), message(lambda: n // m), message(lambda: divmod(n, m))]


def test_divisions_of_symbolic_ints():
    compiled = flambeau.compile(divides, dynamic=True)
    for n, m in [(7, 3), (8, 4), (7, 0), (9, 0)]:
        assert compiled(torch.ones(n), n, m) == divides(None, n, m)


@pytest.mark.parametrize("program", PROGRAMS)
def test_as_eager(program):
    compiled = flambeau.compile(program)
    for _ in range(2):
        assert compiled() == program()


class PlainText(str):
    pass


class Real(float):
    pass


NAMED = """
n in "q"; r in "q"; t in b"q"; "q".join([n]); "q".join(["a", r]); "q".startswith(n); "q".replace("a", n); "q" + n;
n + "q"; n < "q"; t * r; [1] * r; t[r]; (1, 2)[t]; float(t); ord(t); chr(t); abs(t); round(t); divmod(t, 2); range(r);
int(t); f"{n:s}"; f"{t:d}"; f"{r:d}"; "{:d}".format(t); "%d" % t; ~r; -t; n | r; t.encode(n); t.translate(n);
n.to_bytes(t, "big"); int("1", t)
"""


@pytest.mark.parametrize("expression", [text.strip() for text in NAMED.split(";")])
def test_classes_that_errors_name(expression):
    """Those of the program, where what is wrong is an instance of a subclass of a built-in type."""
    scope = {"message": message, "n": PlainInt(2), "t": PlainText("ab"), "r": Real(1.5)}
    exec(f"def f():\n    return message(lambda: {expression})", scope)
    assert flambeau.compile(scope["f"])() == scope["f"]()
