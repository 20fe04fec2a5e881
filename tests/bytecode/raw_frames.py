"""What a running frame of CPython holds: the cells themselves, and the value stack."""

import ctypes
import sys

# `PyFrameObject.f_frame`, and of `_PyInterpreterFrame`: `stacktop` and `localsplus` (pycore_frame.h).
F_FRAME, STACKTOP, LOCALSPLUS = 24, 64, 72
# `_PyInterpreterFrame.f_func` (`f_funcobj`) and `PyGenObject.gi_exc_state.exc_value`.
F_FUNC, EXC_VALUE = {(3, 11): (0, 48), (3, 12): (16, 40), (3, 13): (16, 40)}[sys.version_info[:2]]


class Null:
    """A null of the stack, or an unbound local."""

    def __repr__(self):
        return "NULL"


NULL = Null()


def read(frame, depth=None):
    """The contents of the slots and the stack, or `None` while the frame runs C code that may change its stack. At an
    instruction that is traced `depth` is the stack's, which from 3.12 on the frame does not say."""
    inner = ctypes.c_void_p.from_address(id(frame) + F_FRAME).value
    top = ctypes.c_int.from_address(inner + STACKTOP).value
    if top < 0 and depth is not None:
        top = len(slot_names(frame.f_code)) + depth
    if top < 0:
        return None

    def item(index):
        pointer = ctypes.c_void_p.from_address(inner + LOCALSPLUS + 8 * index).value
        return ctypes.cast(pointer, ctypes.py_object).value if pointer else NULL

    count = len(slot_names(frame.f_code))
    items = [item(index) for index in range(top)]
    return items[:count], items[count:]


def slot_names(code):
    """The names of `localsplus`."""
    return [*dict.fromkeys([*code.co_varnames, *code.co_cellvars]), *code.co_freevars]


def function(frame):
    """The function that the frame runs."""
    inner = ctypes.c_void_p.from_address(id(frame) + F_FRAME).value
    return ctypes.cast(ctypes.c_void_p.from_address(inner + F_FUNC).value, ctypes.py_object).value


def handled(generator):
    """The exception that a suspended generator handles."""
    pointer = ctypes.c_void_p.from_address(id(generator) + EXC_VALUE).value
    return ctypes.cast(pointer, ctypes.py_object).value if pointer else None
