"""Assembled code objects as objects: stack depths on all ways, locations, and one form however it was reached."""

import dis
import importlib
import inspect
import itertools
import random
import re
import types

import corpus
import pytest
from assembler import Assembler, slots
from flow import GENERATORS, caches, stacks

CALL = sum(1 + caches(name) for name in ("PRECALL", "CALL") if name in dis.opmap)
"""Code units of a call."""
TARGET = re.compile("to L?[0-9]+")
MODULES = "argparse ast asyncio.tasks collections contextlib dataclasses inspect json.decoder"


@pytest.fixture(scope="module")
def assembler():
    made = Assembler()
    yield made
    made.close()


def codes(module):
    """The module's code objects, without those of bodies of modules and classes."""
    waiting = [compile(inspect.getsource(module), module.__file__, "exec", dont_inherit=True)]
    while waiting:
        code = waiting.pop()
        waiting += [c for c in code.co_consts if isinstance(c, types.CodeType)]
        if code.co_flags & inspect.CO_OPTIMIZED:
            yield code


def operands(operation):
    """What `dis` lets a `PRECALL` take off the stack, which belongs to the call."""
    if "PRECALL" not in dis.opmap:
        return 0
    return int(operation.removeprefix("Call { argc: ").removesuffix(" }")) if operation.startswith("Call {") else 0


def points(assembler, code, rng, at_most):
    """Some places of a code object: instruction, next instruction, slots, stack and entry."""
    found = stacks(code)
    facts = [f for f in assembler.facts(code) if f[0] * 2 in found]
    restored = [i for i, kind in enumerate(slots(code)[1]) if kind != 0x80]
    for here, there in rng.sample(list(itertools.pairwise(facts)), min(at_most, len(facts) - 1)):
        depth_here, depth = (found[f[0] * 2][0] + operands(f[1]) for f in (here, there))
        saved = found[there[0] * 2][1]
        entry, pushed = rng.choice([(["Nothing"], 0), (["Value"], 1), (["NullValue"], 2), (["Items", 2], 2)])
        if here[1].startswith("Call {") and depth > 0:
            entry, pushed = rng.choice([(["Child"], 1), (["ChildDropped"], 0)])
        elif here[1] == "YieldValue" and not code.co_flags & inspect.CO_ASYNC_GENERATOR:
            entry, pushed = ["Yield"], 1
        elif here[3] is not None and here[3] <= depth and depth <= depth_here and rng.random() < 0.5:
            entry, pushed = ["Raise"], 0
        if pushed > depth or any(s >= depth - pushed for s in saved):
            entry, pushed = ["Nothing"], 0
        stack = ["Handled" if i in saved else "Value" for i in range(depth - pushed)]
        kept = here[3] or 0
        below = [[s for s in found[f[0] * 2][1] if s < kept] for f in (here, there)]
        if entry[0] in ("Child", "ChildDropped", "Raise", "Yield") and (kept > len(stack) or below[0] != below[1]):
            continue
        yield here[0], there[0], rng.sample(restored, rng.randrange(len(restored) + 1)), stack, entry


@pytest.mark.parametrize("name", MODULES.split())
def test_stacks_and_locations(assembler, name):
    rng = random.Random(name)
    made = 0
    for code in codes(importlib.import_module(name)):
        for point in points(assembler, code, rng, 6):
            resume = assembler.resume(code, *point)
            made += 1
            check(code, resume, point)
    assert made > 20


def check(code, resume, point):
    length = resume.co_consts[-1]
    at, target, *_ = point
    reached = stacks(resume)
    assert point[4] == ["Raise"] or target % 1 or reached[length * 2 + target * 2][0] == stacks(code)[target * 2][0]
    assert resume.co_flags == code.co_flags & ~(inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
    assert (resume.co_argcount, resume.co_posonlyargcount, resume.co_kwonlyargcount) == (2, 2, 0)
    own, now = list(code.co_positions()), list(resume.co_positions())
    assert now[length:] == own
    acting = {"Child": CALL, "ChildDropped": CALL, "Raise": 2, "Yield": 2}.get(point[4][0], 0)
    located = [p for p in now[:length] if p[0] is not None and p != (code.co_firstlineno,) * 2 + (None, None)]
    acting *= own[at][0] is not None
    # The second of two instructions of an opcode, or `TO_BOOL`, stands for itself.
    rest = len(located) - acting
    assert located == [own[at]] * acting + [own[int(target)]] * rest and rest in (0, 1, 4), (located, own[at])
    instructions = list(dis.get_instructions(resume))
    behind = [i for i in instructions if i.offset >= length * 2]
    original = list(dis.get_instructions(code))
    assert [(i.opname, TARGET.sub("", i.argrepr)) for i in behind] == [
        (i.opname, TARGET.sub("", i.argrepr)) for i in original
    ]
    dis.code_info(resume)


@pytest.mark.parametrize("name", MODULES.split()[::3])
def test_one_form(assembler, name):
    """A point reached through another resume code gives the same code object."""
    rng = random.Random(name)
    made = 0
    for code in codes(importlib.import_module(name)):
        some = list(points(assembler, code, rng, 4))
        for first in some:
            resume = assembler.resume(code, *first)
            length = resume.co_consts[-1]
            own = code.co_nlocals
            moved = lambda slot, own=own: slot + max(0, 2 - own) * (slot >= own)
            for at, target, restored, stack, entry in some:
                direct = assembler.resume(code, at, target, restored, stack, entry)
                again = (at + length, target + length, list(map(moved, restored)), stack, entry)
                assert assembler.resume(resume, *again) == direct
                same(assembler.resume(resume, *again), direct)
                made += 1
            if first[4][0] in ("Child", "ChildDropped"):
                facts = assembler.facts(resume)
                call = max(i for i, f in enumerate(facts) if f[0] < length and f[1].startswith("Call {"))
                places = facts[call][0], facts[call + 1][0]
                same(assembler.resume(resume, *places, list(map(moved, first[2])), first[3], ["Child"]), resume)
    assert made > 20


def same(one, other):
    for field in dir(one):
        if field.startswith("co_") and not callable(getattr(one, field)):
            assert getattr(one, field) == getattr(other, field), field


def test_source(assembler):
    code = corpus.handlers.__code__
    resume = assembler.resume(code, *next(points(assembler, code, random.Random(1), 1)))
    assert inspect.getsource(resume) == inspect.getsource(code)
    assert (resume.co_name, resume.co_qualname, resume.co_filename) == ("handlers", "handlers", corpus.__file__)
    assert not resume.co_flags & GENERATORS
