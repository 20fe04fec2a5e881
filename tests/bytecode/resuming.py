"""Runs a call up to some instruction, takes its frames up from there by resume functions, and tells how that ended."""

import collections
import ctypes
import re
import sys
import traceback
import types

import corpus
import corpus_generators
import library
from assembler import FREE, slots
from cases import CASES, LOG
from flow import caches, stacks
from raw_frames import NULL, function, read

# Files whose frames are taken up.
USER = {corpus.__file__, corpus_generators.__file__, *library.FILES}
LAUNCH = next(iter(CASES.values())).__code__


class Abandon(BaseException):
    """Ends the original frames once their resume functions have finished."""


class Skip(BaseException):
    """The frames cannot be taken up here; why."""


def outcome(run, log=()):
    """What a call gave, raised and logged; exceptions with their chain and the user's traceback entries."""
    LOG[:] = log
    try:
        result = ("returned", plain(run()))
    except Exception as error:
        result = ("raised", described(error))
    return result, plain(LOG)


def plain(value):
    """A picture of a value in which objects that differ from run to run look alike."""
    if isinstance(value, list | tuple | set | frozenset):
        items = map(plain, value)
        return type(value).__name__, sorted(items, key=repr) if isinstance(value, set | frozenset) else list(items)
    if isinstance(value, dict):
        return [(plain(k), plain(v)) for k, v in value.items()]
    return value if isinstance(value, int | float | complex | str | None) else type(value).__name__


def described(error):
    entries = [
        (entry.name, entry.lineno, entry.end_lineno, entry.colno, entry.end_colno)
        for entry in traceback.extract_tb(error.__traceback__)
        if entry.filename in USER
    ]
    chain = [e and described(e) for e in (error.__cause__, error.__context__)]
    return type(error).__name__, re.sub("0x[0-9a-f]+", "0x", str(error)), entries, chain, error.__suppress_context__


class Stop:
    """A trace function that acts at one instruction of the user's code, by its place in the order of execution."""

    # The frame that it acts in.
    frame = None

    def __init__(self, number, act):
        self.number, self.act, self.seen = number, act, []

    def __call__(self, frame, event, arg):
        if frame.f_code.co_filename not in USER:
            return None
        # From 3.13 on, only in this order.
        frame.f_trace, frame.f_trace_opcodes, frame.f_trace_lines = self, True, False
        if event == "opcode":
            self.seen.append((frame.f_code, frame.f_lasti))
            if len(self.seen) - 1 == self.number:
                sys.settrace(None)
                Stop.frame = frame
                self.act(frame)
                raise Abandon
        return self

    def run(self, call):
        """In a generator, with which the exception goes that an abandoned handler leaves behind as current."""

        def isolated():
            # From 3.12 on instructions are traced if some frame asked for it before.
            sys._getframe().f_trace_opcodes = True
            sys.settrace(self)
            try:
                call()
            except (Abandon, Exception):
                pass
            finally:
                sys.settrace(None)
            yield

        LOG.clear()
        list(isolated())


def instructions(call, at_most=150, rng=None):
    """Places in the order of execution that are worth a stop: each instruction's first and second time, or a sample."""
    everything = Stop(None, None)
    everything.run(call)
    times, places = collections.Counter(), []
    for number, where in enumerate(everything.seen):
        times[where] += 1
        if times[where] <= 2:
            places.append(number)
    if rng:
        return rng.sample(places, min(len(places), at_most))
    return places[:: len(places) // at_most + 1]


class Point:
    """A frame and where it stands."""

    def __init__(self, assembler, frame):
        self.handled = {}
        self.assembler, self.frame, self.code = assembler, frame, frame.f_code
        self.function = function(frame)
        self.facts = assembler.facts(self.code)
        state = read(frame, stacks(self.code)[frame.f_lasti][0] if frame is Stop.frame else None)
        if state is None:
            raise Skip("runs C code")
        self.locals, self.stack = state
        self.stand(frame.f_lasti // 2)

    def stand(self, offset):
        # The calls of frames above stand at their last cache.
        later = [i for i, f in enumerate(self.facts) if f[0] > offset]
        behind = later[0] if later else len(self.facts)
        self.at = behind - 1 if behind and self.covers(behind - 1, offset) else behind

    def covers(self, index, offset):
        behind = caches("CALL") if self.facts[index][1].startswith("Call {") else 0
        return self.facts[index][0] <= offset <= self.facts[index][0] + behind

    def handles(self, exception):
        """Finds where the stack holds what was handled before what the frame handles; gives what its caller handles."""
        for place in reversed(stacks(self.code)[self.facts[self.at][0] * 2][1]):
            if place < len(self.stack):
                self.handled[place], exception = exception, self.stack[place]
        return exception

    @property
    def operation(self):
        return self.facts[self.at][1]

    def alone(self):
        return self.facts[self.at][2]

    def resume(self, target, stack, entry, more=()):
        """The resume function and its state."""
        at, to = self.facts[self.at][0], self.facts[target][0]
        live = self.assembler.live(self.code, at, to, entry)
        kept = [i for i, v in enumerate(self.locals) if live[i] and v is not NULL and not self.free(i)]
        shape, values = shaped(stack, self.handled)
        code = self.assembler.resume(self.code, at, to, kept, shape, entry)
        state = (*(self.locals[i] for i in kept), *values, *more)
        return self.made(code, self.function.__closure__), state

    def free(self, slot):
        return slots(self.code)[1][slot] & FREE

    def made(self, code, closure=None):
        return types.FunctionType(code, self.function.__globals__, self.code.co_name, None, closure)


def shaped(stack, handled):
    """The assembler's picture of a stack, and the items that `state` holds of it; `handled` maps positions that hold an
    exception handled before to the one handled since then."""
    kinds = ["Null" if v is NULL else "Handled" if i in handled else "Value" for i, v in enumerate(stack)]
    return kinds, [handled.get(i, v) for i, v in enumerate(stack) if v is not NULL]


def as_it_is(points):
    """Takes the innermost frame up at the very instruction."""
    leaf = points[0]
    return finish(points[1:], leaf.resume(leaf.at, leaf.stack, ["Nothing"]), None)


def finish(points, resume, value):
    """Calls the resume function of the innermost frame under those of its callers."""
    for caller in points:
        if not caller.operation.startswith(CALLS):
            raise Skip("called by C code")
        resume = caller.resume(caller.at + 1, caller.stack, ["Child"], resume)
    made, state = resume
    return made(state, value)


def stack_of(frame):
    """The user's frames, innermost first."""
    frames = []
    while frame and frame.f_code.co_filename in USER:
        frames.append(frame)
        frame = frame.f_back
    if frame.f_code is not LAUNCH or any(f.f_code.co_flags & 0x2A0 for f in frames):
        raise Skip("a generator")
    return frames


def handling_anew(points):
    """As above, but the resume functions themselves have to make what their frames handle the current exception."""
    handle = ctypes.pythonapi.PyErr_SetHandledException
    handle.argtypes = [ctypes.py_object]
    current = sys.exception()
    if current is None:
        raise Skip("handles nothing")
    handled = current
    for point in points:
        handled = point.handles(handled)
    handle(None)
    try:
        return as_it_is(points)
    finally:
        handle(current)


ENTRIES = {"None": "Nothing", "Value": "Value", "NullValue": "NullValue", "Items": "Items"}
CALLS = "Call {", "CallKw {"
JUMP = re.compile(r"(PopJumpIf|JumpIfOrPop) { cond: (True|False|true|false), target: (\d+) }|ForIter\((\d+)\)")


def break_at(points):
    """Runs the innermost frame's instruction alone, under thin functions for all frames, and goes on behind it."""
    leaf = points[0]
    thin, rest, go_on = broken(leaf)
    for caller in points[1:]:
        if not caller.operation.startswith(CALLS):
            raise Skip("called by C code")
        code = caller.assembler.thin_call(caller.code, caller.facts[caller.at][0])
        thin = caller.made(code), thin
    raised = None
    try:
        result = thin[0](*thin[1])
    except Exception as error:
        raised = error
    if raised:
        return caught(points, rest, raised)
    resume, value = go_on(result)
    return finish(points[1:], resume, value)


def broken(leaf):
    """The instruction's thin function with its inputs, what is left of the stack, and how to go on with a result."""
    jump = JUMP.fullmatch(leaf.operation)
    if jump:
        taken, output = 1, ["Next" if jump[4] else "Truth"]
    elif leaf.alone():
        taken, name = leaf.alone()
        output = [name.partition("(")[0], int(name.partition("(")[2].rstrip(")") or 0)]
    else:
        raise Skip("needs its frame")
    split = len(leaf.stack) - taken
    rest, inputs = leaf.stack[:split], leaf.stack[split:]
    if any(value in (super, locals, eval) for value in inputs[:2] if isinstance(value, type | type(eval))):
        raise Skip("reads its caller")
    shape, values = shaped(inputs, {})
    code = leaf.assembler.thin_instr(leaf.code, leaf.facts[leaf.at][0], shape, output)
    thin = leaf.made(code), tuple(values)

    def straight(result):
        return leaf.resume(leaf.at + 1, rest, [ENTRIES[output[0]], output[1]]), result

    def iterate(result):
        if result is None:
            return leaf.resume(int(jump[4]), rest, ["Nothing"]), None
        return leaf.resume(leaf.at + 1, leaf.stack, ["Value"]), result[0]

    def branch(result):
        jumps = result is (jump[2].lower() == "true")
        kept = leaf.stack if jumps and jump[1] == "JumpIfOrPop" else rest
        return leaf.resume(int(jump[3]) if jumps else leaf.at + 1, kept, ["Nothing"]), None

    return thin, rest, (iterate if jump[4] else branch) if jump else straight


def caught(points, rest, error):
    """Raises the exception anew in the innermost frame that has a handler."""
    depth = next((i for i, p in enumerate(points) if p.facts[p.at][3] is not None), None)
    if depth is None:
        raise error
    entry = error.__traceback__
    while entry.tb_frame.f_code.co_filename not in USER:
        entry = entry.tb_next
    for _ in points[depth:]:
        entry = entry.tb_next
    point = points[depth]
    stack = point.stack if depth else rest
    resume = point.resume(point.at + 1, stack, ["Raise"])
    return finish(points[depth + 1 :], resume, (error.with_traceback(entry), error.__context__))
