"""Exceptions of users' own classes: their `__new__` and `__init__` are C's, or the user's and then C's."""

import builtins
import copy
import pickle
import weakref

import pytest
import torch
from mode import COUNTED

import flambeau

X = torch.arange(3.0)


def compared(program, *args, whole=True):
    flambeau.reset()
    compiled = flambeau.compile(program)
    for _ in range(2):
        got, expected = compiled(X, *args), program(X, *args)
        assert torch.equal(got[0], expected[0])
        assert str(got[1:]) == str(expected[1:])
    assert not (COUNTED and whole) or flambeau.counters()["graph_breaks"] == {}


def derives(base):
    return isinstance(base, type) and issubclass(base, BaseException) and not issubclass(base, BaseExceptionGroup)


#: Their `__init__` takes several arguments of certain types.
PARTICULAR = UnicodeDecodeError, UnicodeEncodeError, UnicodeTranslateError
BASES = sorted({b for b in vars(builtins).values() if derives(b) and b not in PARTICULAR}, key=lambda b: b.__name__)


@pytest.mark.parametrize("base", BASES, ids=lambda base: base.__name__)
def test_derived_from_each(base):
    class Own(base):
        pass

    def program(x, own):
        try:
            raise own("what")
        except base as error:
            found = type(error), error.args, str(error), isinstance(error, base), repr(error)
        try:
            raise own
        except own as error:
            return x + 1, found, error.args

    compared(program, Own)


@pytest.mark.parametrize("base", [Exception, ValueError, KeyError, RuntimeError, AttributeError, NotImplementedError])
def test_own_init(base):
    class Given(base):
        def __init__(self, what, *, code=3):
            super().__init__(f"{what} failed")
            self.code = code

    class Keeps(base):
        def __init__(self, *args, detail=None):
            self.detail = detail

    class Further(Given):
        def __init__(self, what):
            Given.__init__(self, what, code=5)
            self.args = (*self.args, "more")

        def __str__(self):
            return f"{self.code}: {self.args}"

    def program(x):
        said = []
        for make in (lambda: Given("this", code=4), lambda: Keeps(1, 2, detail="d"), lambda: Further("that")):
            try:
                raise make()
            except base as error:
                said.append((type(error).__name__, error.args, str(error), dict(vars(error))))
        return x * 2, said

    compared(program)


def test_own_new():
    class Made(ValueError):
        def __new__(cls, *args):
            made = super().__new__(cls, "made", *args)
            made.mark = 1
            return made

        def __init__(self, *args):
            self.given = args

    def program(x):
        try:
            raise Made(2)
        except ValueError as error:
            return x + error.mark, error.args, error.given

    compared(program)


@pytest.mark.parametrize("base", [OSError, ImportError, SystemExit, StopIteration, SyntaxError])
def test_parts_that_init_of_c_fills(base):
    class Silent(base):
        def __init__(self, *args):
            self.given = args

    class Passes(base):
        def __init__(self, *args):
            super().__init__(*args)

    class Plain(base):
        pass

    def program(x):
        found = []
        for kind in (Silent, Passes, Plain):
            for args in (), ("a",), (2, "b"):
                try:
                    raise kind(*args)
                except (base, TypeError) as error:
                    parts = [getattr(error, name, "none") for name in ("errno", "strerror", "msg", "code", "value")]
                    found.append((error.args, str(error), parts))
        return x + 1, found

    compared(program, whole=False)


def test_errors_of_the_library():
    """Raised inside of the standard library's own Python code."""
    import ipaddress
    import json

    def program(x, text):
        found = []
        for call in (ipaddress.IPv4Address, json.loads):
            try:
                call(text)
            except ValueError as error:
                found.append((type(error).__name__, str(error)))
        return x + len(found), found

    compared(program, "1.2", whole=False)
    compared(program, "[1, ", whole=False)


def test_wrong_arguments():
    class Own(ValueError):
        pass

    class Takes(ValueError):
        def __init__(self, a):
            super().__init__(a)

    def program(x):
        found = []
        for make in (lambda: Own(k=1), lambda: Takes(), lambda: Takes(1, 2), lambda: ValueError.__init__(Own(), k=2)):
            try:
                found.append(make())
            except TypeError as error:
                found.append(type(error).__name__)
        return x + 1, [type(f).__name__ for f in found], ValueError.__new__(Own, 1, 2).args

    compared(program, whole=False)


def state(error):
    parts = "args", "__cause__", "__context__", "__suppress_context__", "__traceback__"
    return type(error), [getattr(error, part) for part in parts], vars(error), str(error), repr(error)


class Slotted(ValueError):
    __slots__ = ("a", "b")

    def __init__(self, a):
        super().__init__(a, 1)
        self.a = a
        self.more = [a]


class Named(LookupError):
    def __init__(self, name, items):
        super().__init__(f"no {name}")
        self.name = name
        self.items = items
        self.args = name, items


def test_those_never_raised_leave_the_frame():
    def program(x):
        items = [1]
        named = Named("it", items)
        kept = [ValueError("a", items), Slotted(2), named, KeyError(), Exception(named)]
        return x + 1, kept, items

    compiled = flambeau.compile(program, fullgraph=True)
    for _ in range(2):
        (_, got, items), (_, expected, _) = compiled(X), program(X)
        assert str([state(e) for e in got]) == str([state(e) for e in expected])
        assert got[0].args[1] is items and got[2].items is items and got[4].args[0] is got[2]
        assert got[1].a == 2 and not hasattr(got[1], "b")
        with pytest.raises(ValueError, match="a") as caught:
            raise got[0]
        assert caught.value.__traceback__ is not None


@pytest.mark.parametrize("base", BASES, ids=lambda base: base.__name__)
def test_each_held_at_a_break(base):
    class Own(base):
        pass

    def program(x, own):
        held = own("what"), base("why")
        flambeau.graph_break()
        copied = [copy.copy(error) for error in held]
        return x + 1, [(type(e), e.args, str(e), repr(e), vars(e)) for e in (*held, *copied)]

    compared(program, Own, whole=False)


def test_those_raised_before_a_break():
    def program(x):
        kept = []
        for raised in (ValueError("a"), Named("it", [2])):
            try:
                raise raised
            except (ValueError, LookupError) as error:
                kept.append(error)
        with_cause, traced = ValueError("b"), ValueError("c")
        with_cause.__cause__ = kept[0]
        traced.with_traceback(kept[0].__traceback__)
        flambeau.graph_break()
        flags = [(e.__traceback__ is None, e.__cause__, e.__context__) for e in (*kept, with_cause, traced)]
        return x + 1, flags, ValueError("d").with_traceback(None)

    compared(program, whole=False)


def test_what_with_traceback_refuses():
    def program(x):
        try:
            ValueError("a").with_traceback(3)
        except TypeError as error:
            return x + 1, str(error)

    compared(program)


def test_pickled_in_a_loop():
    """The call that breaks is resumed with the exception alive."""

    def program(x):
        error, found = Named("it", [1, 2]), []
        for protocol in range(3):
            again = pickle.loads(pickle.dumps(error, protocol))
            found.append((again.args, again.name, again.items, repr(again)))
        return x + 1, found

    compared(program, whole=False)
    assert not COUNTED or flambeau.counters()["frames_traced"] > 1


def test_weak_references_to_them():
    """A variable that nothing reads any more keeps one alive."""

    def program(x):
        error = Named("it", [1])
        reference = weakref.ref(error)
        flambeau.graph_break()
        return x + 1, reference() is None

    compared(program, whole=False)


def test_object_makes_none_of_them():
    class Own(Exception):
        pass

    def program(x):
        try:
            return x + 1, object.__new__(Own)
        except TypeError as error:
            return x - 1, error

    compared(program, whole=False)
