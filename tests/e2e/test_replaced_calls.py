"""Functions whose vectorcall C replaced (`PyFunction_SetVectorcall`): a call of them does not run their code."""

import ctypes
import sys
import types

import pytest
import torch

import flambeau

pytestmark = pytest.mark.skipif(sys.version_info < (3, 12), reason="calls of functions honour it from 3.12 on")

X = torch.arange(3.0)
#: Where a function keeps its vectorcall, and behind it the version that calls of it are specialised by.
PLACE = types.FunctionType.__basicsize__ - 16

# The interpreter hands on addresses; what the function gives back is a new reference.
SIGNATURE = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)


@SIGNATURE
def _overridden(function, args, count, names):
    return "overridden"


class Overriding:
    """As CPython's own `PyFunction_SetVectorcall`; put back at the end."""

    def __init__(self, function):
        self.place = ctypes.c_void_p.from_address(id(function) + PLACE)
        self.version = ctypes.c_uint32.from_address(id(function) + PLACE + 8)
        self.function = function

    def __enter__(self):
        self.before = self.place.value
        self.version.value = 0
        self.place.value = ctypes.cast(_overridden, ctypes.c_void_p).value

    def __exit__(self, *_):
        self.place.value = self.before


def add_one(a):
    return a + 1


class Holder:
    def __init__(self, a):
        self.a = a

    def method(self):
        return self.a + 1

    @property
    def read(self):
        return self.a + 2

    @staticmethod
    def static(a):
        return a + 3


class Overall:
    def __getattribute__(self, name):
        return name + "!"


def fresh(function):
    """A function of the same code."""
    return types.FunctionType(function.__code__, function.__globals__, function.__name__, None, function.__closure__)


def same(compiled, fn, *args):
    got, expected = compiled(*args), fn(*args)
    assert type(got) is type(expected)
    assert torch.equal(got, expected) if isinstance(got, torch.Tensor) else got == expected


def test_what_a_frame_calls():
    def fn(a):
        return add_one(a)

    compiled = flambeau.compile(fn)
    same(compiled, fn, X)
    with Overriding(add_one):
        assert fn(X) == "overridden"
        same(compiled, fn, X)
        same(compiled, fn, X)
    same(compiled, fn, X)


def test_what_is_replaced_before_the_first_call():
    made = fresh(add_one)

    def fn(a):
        return made(a)

    compiled = flambeau.compile(fn)
    with Overriding(made):
        same(compiled, fn, X)
        same(compiled, fn, X)
    same(compiled, fn, X)
    with Overriding(made):
        same(compiled, fn, X)


def test_the_compiled_function_itself():
    made = fresh(add_one)
    compiled = flambeau.compile(made)
    with Overriding(made):
        same(compiled, made, X)
    same(compiled, made, X)
    with Overriding(made):
        same(compiled, made, X)
        assert compiled(X) == "overridden"


def test_methods_properties_and_attributes():
    def method(h):
        return h.method()

    def read(h):
        return h.read

    def static(h):
        return h.static(h.a)

    def attribute(o):
        return o.anything

    cases = (
        (method, Holder.method, Holder(X)),
        (read, Holder.read.fget, Holder(X)),
        (static, Holder.static, Holder(X)),
        (attribute, Overall.__getattribute__, Overall()),
    )
    for fn, replaced, argument in cases:
        compiled = flambeau.compile(fn)
        same(compiled, fn, argument)
        with Overriding(replaced):
            assert fn(argument) == "overridden"
            same(compiled, fn, argument)
            same(compiled, fn, argument)
        same(compiled, fn, argument)


def test_a_function_of_the_frame_itself():
    def override(function, within):
        within.append(Overriding(function))
        within[0].__enter__()

    override = torch.compiler.disable(override)

    def fn(a):
        def inner(b):
            return b * 2

        before, within = inner(a), []
        override(inner, within)
        after = [inner(a) for _ in range(3)]
        within[0].__exit__()
        return before, after, inner(a)

    before, after, again = flambeau.compile(fn)(X)
    assert after == ["overridden"] * 3
    assert torch.equal(before, X * 2) and torch.equal(again, X * 2)
