"""Writes what Python's `dis` says of code objects, for `tests/facts.rs`.

`python3.11 facts.py > facts_311.txt` rewrites a version's small fixture; `python facts.py MODULE...` prints a corpus of
all code objects found in those modules.
"""

import dis
import importlib
import sys
import types

DROPPED = {"CACHE", "NOP", "RESUME", "PRECALL", "EXTENDED_ARG", "TO_BOOL"}

SAMPLES = (
    """
def loops(xs, flag):
    total = 0
    for i, x in enumerate(xs):
        while x > 3 and not flag:
            x -= 1
        total += x if x is not None else i
    return total

def handlers(a):
    try:
        with a as b:
            return b[1:2]
    except (ValueError, KeyError) as e:
        raise RuntimeError(f"{e!r:>10}") from e
    finally:
        del a

def calls(*args, k=1, **kw):
    def inner(z: int = 3, *, q=k) -> int:
        nonlocal k
        k += z
        return lambda: (k, q)
    return inner(*args, q=2, **kw) or [y for y in args if y not in kw] or {**kw, "a": {*args}}

def generator(n):
    got = yield n
    yield from range(got)

async def coroutine(a):
    async with a as b:
        async for c in b:
            await c

def match(x):
    match x:
        case [1, *rest]: return rest
        case {"k": v, **more}: return v, more
        case str(): return x
    a, *b, c = x
    global g
    g = a @ b // c

class Body:
    attr: int = 3
    def method(self): self.attr = -self.attr; assert self.attr; return super().method

"""
    + "def wide(x):\n    x = ["
    + ", ".join(f"x.a{i}" for i in range(300))
    + "]\n    while x:\n        x = x.a299\n"
)


def code_objects(code):
    yield code
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from code_objects(const)


SKIPS_END = {11: {}, 12: {"FOR_ITER": 1, "SEND": 1}}.get(sys.version_info.minor, {"FOR_ITER": 2, "SEND": 1})
"""Jumps behind the instruction that `dis` gives, by so many: at the end they do what those do."""


STOP_ITERATION_ERROR = bytes([dis.opmap.get("CALL_INTRINSIC_1", 255), 3])
"""The instruction that handles what leaves a generator: no handler of the program's."""


def facts(code):
    print(
        "code",
        sys.version_info.minor,
        code.co_qualname.replace(" ", "_"),
        code.co_firstlineno,
        *map(hexed, (code.co_code, code.co_linetable, code.co_exceptiontable)),
    )
    lines = {}
    for start, end, line in code.co_lines():
        lines.update(dict.fromkeys(range(start, end, 2), line))
    for i in dis.get_instructions(code):
        if i.opname in DROPPED:
            continue
        target = i.argval // 2 + SKIPS_END.get(i.opname, 0) if i.opcode in dis.hasjrel else None
        effects = [dis.stack_effect(i.opcode, i.arg, jump=j) for j in (False, True)]
        print("i", i.offset // 2, i.opname, *("-" if v is None else v for v in (lines.get(i.offset), target)), *effects)
    for e in dis._parse_exception_table(code):
        if code.co_code[e.target : e.target + 2] == STOP_ITERATION_ERROR:
            continue
        print("h", e.start // 2, e.end // 2, e.target // 2, e.depth, int(e.lasti))


def hexed(data):
    return data.hex() or "-"


def module_codes(module):
    loader = module.__spec__.loader
    return code_objects(loader.get_code(module.__name__)) if hasattr(loader, "get_code") else ()


def main():
    if len(sys.argv) == 1:
        samples = compile(SAMPLES, "samples.py", "exec")
        for code in code_objects(samples):
            facts(code)
        return
    for name in sys.argv[1:]:
        importlib.import_module(name)
        found = [m for n, m in sorted(sys.modules.items()) if n == name or n.startswith(name + ".")]
        for module in found:
            for code in module_codes(module) or ():
                facts(code)


main()
