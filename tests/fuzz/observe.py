"""What one call leaves behind, as plain data: result, exception, output, warnings, logs, state; and how two differ."""

from __future__ import annotations

import collections
import functools
import inspect
import io
import logging
import math
import random
import re
import sys
import types
import warnings
from dataclasses import dataclass, fields
from typing import Any

import torch

from . import world

# Addresses, and the names of autograd's nodes: those of graphs are others than those of ops.
_ADDRESS = re.compile(r"0x[0-9a-f]+|(?<=grad_fn=)<\w+>")
_FLOAT = re.compile(r"-?\d+\.\d*(?:e[+-]?\d+)?")
_SCALARS = (type(None), bool, int, float, str, bytes, complex, range, type(...), torch.dtype, torch.device, torch.Size)
_ITERATED = ([], (), range(0), "", {}, {}.items(), {}.values(), set())
_ITERATORS = (*(type(iter(v)) for v in _ITERATED), enumerate, zip, map, reversed, filter)


@dataclass(frozen=True)
class Leaf:
    """A tensor as it was: everything but the values is compared exactly."""

    facts: tuple[Any, ...]
    values: torch.Tensor

    def same(self, other: Leaf) -> bool:
        """Equal facts, and values equal to 1e-5."""
        if self.facts != other.facts:
            return False
        if self.values.is_meta or torch.equal(self.values, other.values):
            return True
        if not self.values.is_floating_point():
            return False
        return torch.allclose(self.values, other.values, rtol=1e-5, atol=1e-5, equal_nan=True)


class Freezer:
    """Turns values into nested tuples. Objects met twice become references, so that aliasing is part of the result."""

    def __init__(self):
        self.seen: dict[int, int] = {}
        self.storages: dict[int, int] = {}
        self.kept: list[Any] = []  # so that no id is used twice

    def freeze(self, value: Any) -> Any:
        """`value` as data."""
        if isinstance(value, _SCALARS):
            return type(value).__name__, _ADDRESS.sub("0x", value) if isinstance(value, str) else repr(value)
        if type(value) is tuple:
            return "tuple", *map(self.freeze, value)
        if id(value) in self.seen:
            return "seen", self.seen[id(value)]
        number = self.seen[id(value)] = len(self.seen)
        self.kept.append(value)
        if isinstance(value, torch.Tensor):
            return "tensor", self.tensor(value), self.freeze(value.__dict__)
        return number, *self.inside(value)

    def tensor(self, value: torch.Tensor) -> Leaf:
        kind = (type(value).__name__, value.dtype, tuple(value.shape), str(value.device), str(value.layout))
        state = (value.requires_grad, value.is_leaf, value.grad_fn is None)
        state += value.is_neg(), value.is_conj(), value.is_inference()
        with torch._C.DisableTorchFunctionSubclass():
            held = value.detach().clone()
        if value.layout != torch.strided:
            return Leaf(kind + state, held.to_dense())
        storage = value.untyped_storage().data_ptr() if value.numel() and not value.is_meta else id(value)
        place = self.storages.setdefault(storage, len(self.storages))
        return Leaf((*kind, value.stride(), value.storage_offset(), place, *state), held)

    def inside(self, value: Any) -> tuple[Any, ...]:
        """The parts of an object."""
        f = self.freeze
        match value:
            case list() | tuple():
                parts: tuple[Any, ...] = tuple(map(f, (list if isinstance(value, list) else tuple).__iter__(value)))
            case collections.deque():
                parts = tuple(map(f, value))
            case int() | float() | str():
                base = next(kind for kind in (int, float, str) if isinstance(value, kind))
                parts = (base.__repr__(value),)
            case dict():
                parts = tuple((f(k), f(v)) for k, v in value.items())
            case set() | frozenset():
                parts = tuple(sorted((f(v) for v in value), key=repr))
            case types.FunctionType():
                cells = [c.cell_contents if c != types.CellType() else "empty" for c in value.__closure__ or ()]
                parts = value.__qualname__, *map(f, cells), f(value.__defaults__), f(value.__kwdefaults__)
            case types.MethodType():
                parts = getattr(value.__func__, "__qualname__", ""), f(value.__self__)
            case functools.partial():
                parts = f(value.func), f(value.args), f(value.keywords)
            case types.GeneratorType():
                parts = value.__qualname__, inspect.getgeneratorstate(value)
            case type():
                own = {k: v for k, v in value.__dict__.items() if not k.startswith("__")}
                parts = value.__qualname__, *((k, f(v)) for k, v in own.items() if value.__module__ == "program")
            case BaseException():
                parts = tuple(map(f, value.args))
            case types.ModuleType():
                parts = (value.__name__,)
            case _ if isinstance(value, _ITERATORS):
                parts = (f(value.__reduce__()[1:]),)
            case _:
                slots = getattr(type(value), "__slots__", ())
                names = (
                    ["__dict__", *(s for s in slots if isinstance(s, str))]
                    if isinstance(slots, tuple)
                    else ["__dict__"]
                )
                parts = tuple((name, f(_raw(value, name))) for name in names)
        if isinstance(value, (list, dict, set, tuple, int, float, str)) and type(value).__dictoffset__:
            parts = (*parts, f(_raw(value, "__dict__")))
        return type(value).__qualname__, *parts


def _raw(value: Any, name: str) -> Any:
    """An attribute, whatever the program's classes make of attribute reads."""
    try:
        found = object.__getattribute__(value, name)
    except AttributeError:
        return None
    return dict(found) if name == "__dict__" else found


@dataclass
class Outcome:
    """Everything of one call that a user could see."""

    result: Any
    exception: Any
    traceback: Any
    printed: list[str]
    warned: list[Any]
    logged: list[Any]
    state: Any
    modes: Any
    rng: Any
    gradients: Any


class _Records(logging.Handler):
    def __init__(self):
        super().__init__()
        self.records: list[Any] = []

    def emit(self, record):
        self.records.append((record.levelname, record.getMessage(), record.funcName, record.lineno))


def observe(module: types.ModuleType, fn: Any, args: tuple[Any, ...], seed: int, raised: bool = False) -> Outcome:
    """Calls `fn` and looks at the result, the arguments and the module's globals. `raised`: a call before it raised."""
    torch.default_generator.manual_seed(seed)  # of this device alone: `torch.manual_seed` costs 2 ms
    if torch.get_default_device().type == "cuda":
        torch.cuda.manual_seed(seed)
    torch.set_grad_enabled(True)
    random.seed(seed)
    dtype = torch.get_default_dtype()
    world.forget()
    handler, output, stdout = _Records(), io.StringIO(), sys.stdout
    world.log.handlers[:] = [handler]
    result, error = None, None
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        sys.stdout = output
        try:
            result = fn(*args)
        except Exception as raised:
            error = raised
        finally:
            sys.stdout = stdout
            world.log.handlers.clear()
    modes = (
        torch.is_grad_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch.get_default_dtype(),
        world.depth[0],
        module.__dict__["lock"]._is_owned(),
        world.tallied,
        tuple(world.ledger),
        # Not in order: a resume function that runs as plain Python keeps what it was given to its end. Not at all after an
        # exception: its traceback keeps the variables of Python's frames, but not of compiled ones, for some time.
        None if error or raised else sorted(world.ended),
    )
    torch.set_grad_enabled(True)
    torch.set_default_dtype(dtype)
    rng = torch.get_rng_state().sum().item(), random.getstate()[1]
    fixed = world.names()
    changed = {
        k: v for k, v in module.__dict__.items() if not k.startswith("__") and (k == "lock" or v is not fixed.get(k))
    }
    freeze = Freezer().freeze
    texts = [(w.category.__name__, _ADDRESS.sub("0x", str(w.message)), w.filename, w.lineno) for w in warned]
    advice = ("flambeau compiled ", "a compiled frame ran eagerly: ")  # its own, as about recompiles
    shown = [w for w in texts if not w[1].startswith(advice)]
    return Outcome(
        freeze(result), _exception(error), _frames(error, module.__file__), _ADDRESS.sub("0x", output.getvalue()).split("\n"),
        shown, handler.records, [freeze(args), freeze({k: v for k, v in changed.items() if k != "lock"})], modes, rng,
        _gradients(result, args),
    )  # fmt: skip


def _gradients(result: Any, args: tuple[Any, ...]) -> Any:
    """What the first tensor of the result gives the arguments when differentiated; the exception of an attempt that fails."""
    while isinstance(result, (list, tuple)):  # past what a subclass makes of its items
        base = tuple if isinstance(result, tuple) else list
        if not base.__len__(result):
            return None
        result = base.__getitem__(result, 0)
    if not isinstance(result, torch.Tensor) or not result.requires_grad:
        return None
    leaves = [a for a in args if isinstance(a, torch.Tensor) and a.requires_grad]
    try:
        made = torch.autograd.grad(result.sum(), leaves, allow_unused=True) if leaves else []
    except RuntimeError as error:
        return _exception(error)
    # Autograd hands on gradients that repeat one number as views of it; kernels write all of them.
    strided = [g is not None and g.layout == torch.strided for g in made]
    return Freezer().freeze([g.contiguous() if own else g for g, own in zip(made, strided, strict=True)])


def _exception(error: BaseException | None, depth: int = 0) -> Any:
    """Type, message and what it was raised from or during."""
    if error is None or depth > 4:
        return None
    chain = _exception(error.__cause__, depth + 1), _exception(error.__context__, depth + 1)
    return type(error).__name__, _ADDRESS.sub("0x", str(error)), *chain


def _frames(error: BaseException | None, file: str | None) -> list[tuple[str, int]]:
    """Functions and lines of the program and the world in the traceback."""
    frames, trace = [], error.__traceback__ if error else None
    while trace:
        if trace.tb_frame.f_code.co_filename in (file, world.__file__):
            frames.append((trace.tb_frame.f_code.co_name, trace.tb_lineno))
        trace = trace.tb_next
    if isinstance(error, UnboundLocalError) and frames:
        frames[-1] = (frames[-1][0], 0)  # once it is warm, CPython gives the line of the store before the load
    return frames


def difference(eager: Outcome, compiled: Outcome) -> tuple[str, str] | None:
    """What differs first, and how: ("result", "[1]: ... instead of ...")."""
    order = ("exception", "printed", "warned", "logged", "traceback", "result", "state", "modes", "rng", "gradients")
    assert set(order) == {f.name for f in fields(Outcome)}
    for name in order:
        found = _differ(getattr(eager, name), getattr(compiled, name))
        if found:
            return name, found
    return None


def _differ(a: Any, b: Any) -> str:
    if isinstance(a, Leaf) and isinstance(b, Leaf):
        if a.same(b):
            return ""
        if a.facts != b.facts:
            return f": {b.facts} instead of {a.facts}"
        return f": {b.values.tolist()} instead of {a.values.tolist()}"
    if type(a) is type(b) and isinstance(a, (tuple, list)):
        for k, (u, v) in enumerate(zip(a, b, strict=False)):
            found = _differ(u, v)
            if found:
                return f"[{k}]{found}"
        if len(a) != len(b):
            return f": {len(b)} instead of {len(a)} items: {str(b)[:300]} instead of {str(a)[:300]}"
        return ""
    same = _same_text(a, b) if isinstance(a, str) and isinstance(b, str) else a == b
    return "" if same else f": {str(b)[:300]} instead of {str(a)[:300]}"


def _same_text(a: str, b: str) -> bool:
    """Equal but for the last digits of floats, and signs of zeros: these come from tensors, whose values are compared to
    1e-5 too. Which of two zeros is the largest depends on the processor's vectors in torch."""
    if a == b:
        return True
    numbers = [tuple(map(float, _FLOAT.findall(text))) for text in (a, b)]
    close = (math.isclose(x, y, rel_tol=1e-5) for x, y in zip(*numbers, strict=False))
    return _FLOAT.sub("", a) == _FLOAT.sub("", b) and len(numbers[0]) == len(numbers[1]) and all(close)
