"""What a running frame of CPython 3.11 holds: the cells themselves, and the value stack."""

import ctypes
import sys

assert sys.version_info[:2] == (3, 11)

# `PyFrameObject.f_frame`, and of `_PyInterpreterFrame`: `f_func`, `stacktop` and `localsplus` (pycore_frame.h).
F_FRAME, F_FUNC, STACKTOP, LOCALSPLUS = 24, 0, 64, 72
# `PyGenObject.gi_exc_state.exc_value`.
EXC_VALUE = 48


class Null:
    """A null of the stack, or an unbound local."""

    def __repr__(self):
        return "NULL"


NULL = Null()


def read(frame):
    """The contents of the slots and the stack, or `None` while the frame runs C code that may change its stack."""
    inner = ctypes.c_void_p.from_address(id(frame) + F_FRAME).value
    top = ctypes.c_int.from_address(inner + STACKTOP).value
    if top < 0:
        return None

    def item(index):
        pointer = ctypes.c_void_p.from_address(inner + LOCALSPLUS + 8 * index).value
        return ctypes.cast(pointer, ctypes.py_object).value if pointer else NULL

    code = frame.f_code
    count = len(set(code.co_varnames) | set(code.co_cellvars)) + len(code.co_freevars)
    items = [item(index) for index in range(top)]
    return items[:count], items[count:]


def function(frame):
    """The function that the frame runs."""
    inner = ctypes.c_void_p.from_address(id(frame) + F_FRAME).value
    return ctypes.cast(ctypes.c_void_p.from_address(inner + F_FUNC).value, ctypes.py_object).value


def handled(generator):
    """The exception that a suspended generator handles."""
    pointer = ctypes.c_void_p.from_address(id(generator) + EXC_VALUE).value
    return ctypes.cast(pointer, ctypes.py_object).value if pointer else None
