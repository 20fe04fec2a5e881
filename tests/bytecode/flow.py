"""Walks all ways through a code object and checks the depth of its stack on each."""

import dis
import itertools
import sys

ENDS = {"RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE"}
# What raises nothing, although handlers may cover it.
SAFE = {"COPY", "DELETE_FAST", "JUMP_BACKWARD", "JUMP_FORWARD", "LOAD_CONST", "NOP", "POP_EXCEPT", "POP_TOP"}
SAFE |= {"PUSH_EXC_INFO", "RETURN_CONST", "RETURN_VALUE", "STORE_FAST", "STORE_NAME", "SWAP"}
GENERATORS = 0x20 | 0x80 | 0x200


def caches(name):
    """Inline cache entries behind an opcode."""
    # From 3.13 on they are listed by name.
    return dis._inline_cache_entries[name if sys.version_info >= (3, 13) else dis.opmap[name]]


def stacks(code):
    """Per offset of an instruction that can be reached: the stack depth before it, and the positions that hold what
    `PUSH_EXC_INFO` found as the handled exception, deepest first. An assertion fails where two ways disagree, a stack
    runs empty, or more than `co_stacksize` is needed."""
    instructions = {i.offset: i for i in dis.get_instructions(code)}
    order = sorted(instructions)
    behind = dict(itertools.pairwise(order))
    handlers = dis._parse_exception_table(code)
    found = {}
    # From 3.13 on, `RETURN_GENERATOR` is said to push what a generator is advanced with at first.
    given = code.co_flags & GENERATORS and dis.stack_effect(dis.opmap["RETURN_GENERATOR"]) == 0
    waiting = [(0, int(bool(given)), ())]
    while waiting:
        offset, depth, saved = waiting.pop()
        assert 0 <= depth <= code.co_stacksize, (offset, depth)
        saved = tuple(s for s in saved if s < depth)
        if offset in found:
            assert found[offset] == (depth, saved), (offset, depth, saved, found[offset])
            continue
        found[offset] = depth, saved
        instruction = instructions[offset]
        name = instruction.opname
        for entry in handlers:
            if entry.start <= offset < entry.end:
                assert depth >= entry.depth, (offset, depth, entry)
                if name not in SAFE:
                    kept = tuple(s for s in saved if s < entry.depth)
                    waiting.append((entry.target, entry.depth + entry.lasti + 1, kept))
        argument = instruction.arg
        jumping, falling = (dis.stack_effect(instruction.opcode, argument, jump=jump) for jump in (True, False))
        if name == "PUSH_EXC_INFO":
            saved = (*saved, depth - 1)
        elif name == "POP_EXCEPT":
            saved = saved[:-1]
        elif name == "SWAP":
            places = {depth - 1: depth - instruction.arg, depth - instruction.arg: depth - 1}
            saved = tuple(sorted(places.get(s, s) for s in saved))
        if instruction.opcode in dis.hasjrel:
            waiting.append((instruction.argval, depth + jumping, saved))
        if name not in ENDS and not name.startswith(("JUMP_FORWARD", "JUMP_BACKWARD")):
            waiting.append((behind[offset], depth + falling, saved))
    return found
