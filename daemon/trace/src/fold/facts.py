"""Writes `facts.txt`: what CPython answers to operations on constants, one a line, tab separated: operation,
arguments, result (`repr`), or `!`, class and message of the exception. `python facts.py > facts.txt` writes a sample, `python facts.py all` everything."""

import math
import operator
import sys
import zlib

VALUES = [
    None,
    True,
    False,
    0,
    1,
    -1,
    7,
    -3,
    256,
    2**40,
    2**63 - 1,
    -(2**63),
    2**70,
    -(2**70),
    0.0,
    -0.0,
    1.0,
    0.5,
    -2.5,
    3.0,
    1e16,
    1.5e300,
    float("inf"),
    2.0**53,
    "",
    "a",
    "ab",
    "it's",
    b"",
    b"ab",
    (),
    (1,),
    (1, "a"),
    (2.0, None),
]
SMALL = [v for v in VALUES if not isinstance(v, int) or abs(v) < 1000]
BINARY = {
    "add": operator.add,
    "and": operator.and_,
    "floordiv": operator.floordiv,
    "lshift": operator.lshift,
    "matmul": operator.matmul,
    "mul": operator.mul,
    "mod": operator.mod,
    "or": operator.or_,
    "pow": operator.pow,
    "rshift": operator.rshift,
    "sub": operator.sub,
    "truediv": operator.truediv,
    "xor": operator.xor,
    "lt": operator.lt,
    "le": operator.le,
    "eq": operator.eq,
    "ne": operator.ne,
    "gt": operator.gt,
    "ge": operator.ge,
    "divmod": divmod,
    "contains": operator.contains,
    "getitem": operator.getitem,
}
UNARY = {
    "neg": operator.neg,
    "pos": operator.pos,
    "invert": operator.invert,
    "bool": bool,
    "int": int,
    "float": float,
    "abs": abs,
    "round": round,
    "str": str,
    "repr": repr,
    "floor": math.floor,
    "ceil": math.ceil,
    "sqrt": math.sqrt,
}
TEXTS = [" 12 ", "-7", "+3", "1.5", "1e-3", "x", "\n", "é", "inf", "-inf", "1_0", "0x10", "a\\b", "\"'"]
FLOATS = [
    0.1,
    1 / 3,
    1e-5,
    0.0001,
    123456789.125,
    1e15,
    1e17,
    5e-324,
    1.7976931348623157e308,
    2.675,
    1e22,
    -0.0,
    99.995,
]
SPECS = [
    "",
    "5",
    "<5",
    ">8",
    "^9",
    "*^9",
    "05",
    "+",
    " ",
    ",",
    "_",
    "08,",
    ".0f",
    ".2f",
    "10.3f",
    "010.3f",
    "+.1e",
    ".3g",
    "g",
    ".3",
    "e",
    "%",
    ".1%",
    "d",
    "x",
    "#x",
    "#06b",
    "o",
    "X",
    "5d",
    "+d",
    "s",
    ".1s",
    "=6",
    "012,.2f",
    "r",
]
SLICES = [
    slice(None),
    slice(1, None),
    slice(None, -1),
    slice(None, None, -1),
    slice(5, 1, -2),
    slice(-2, None),
    slice(0, 9, 0),
]
METHODS = [
    ("startswith", "a"),
    ("startswith", ("x", "a")),
    ("endswith", "b"),
    ("split",),
    ("split", "a"),
    ("split", ".", 1),
    ("rsplit", ".", 1),
    ("partition", "."),
    ("rpartition", "."),
    ("replace", "a", "xy"),
    ("find", "b"),
    ("strip",),
    ("strip", " a"),
    ("lower",),
    ("upper",),
    ("isdigit",),
    ("isidentifier",),
    ("join", ("p", "q")),
    ("count", "a"),
    ("removeprefix", "a"),
]


def fact(op, function, *args):
    try:
        result = function(*args)
        if isinstance(result, complex) or (isinstance(result, int) and abs(result) > 2**4000):
            return
        if isinstance(result, list):
            result = tuple(result)
        text = repr(result)
    except Exception as e:
        text = f"!{type(e).__name__} {e}"
    line = "\t".join([op, *map(repr, args), text])
    if len(sys.argv) > 1 or zlib.crc32(line.encode()) % 16 == 0:
        print(line)


for name, function in BINARY.items():
    for a in VALUES:
        for b in SMALL if name in ("lshift", "pow", "mul") else VALUES:
            if name == "mod" and isinstance(a, (str, bytes)):
                continue
            fact(name, function, a, b)
for name, function in UNARY.items():
    for value in VALUES + TEXTS + FLOATS:
        fact(name, function, value)
for value in FLOATS + VALUES:
    for spec in SPECS:
        fact("format", format, value, spec)
    if isinstance(value, float):
        for digits in (0, 1, 2, 5):
            fact("round", round, value, digits)
for text in ["abcdef", b"abc", (1, 2, 3), ()]:
    for s in SLICES:
        fact("getitem", operator.getitem, text, s)
for text in ["ab", " a.b.a ", "a b\tc", "12", ""]:
    for name, *args in METHODS:
        fact("." + name, getattr(str, name), text, *args)
