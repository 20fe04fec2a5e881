"""One program, eager and compiled: three calls each, and the first difference."""

from __future__ import annotations

import contextlib
import gc
import io
import os
import random
import signal
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import torch

import flambeau

from . import modes, observe, shared, world

try:
    from tests import internal as reasons
except ImportError:  # as a package in the folder `tests`, for `perturb`
    import internal as reasons

SHARED = shared.Shared()
CALLS = 3
torch.set_warn_always(True)  # or the second of two runs would warn less


@dataclass
class Failure:
    """A difference: of what kind, how, and with what program."""

    kind: str
    detail: str
    seed: int
    mode: str
    backend: str
    source: str
    call: int = 0

    def data(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


class Slow(BaseException):
    """The alarm of `deadline`."""


GAVE_UP = 75
"""Exit code of a process whose program cannot be stopped."""


@contextmanager
def deadline(seconds: float, clock: int = signal.ITIMER_REAL, mercy: float = 0) -> Iterator[None]:
    """Raises `Slow` in the block after this time; `ITIMER_PROF`: time of this process. A program that catches it and is
    not done so many seconds later (`mercy`, if any) ends the process."""

    def stop(*_):
        if late:
            os._exit(GAVE_UP)
        late.append(True)
        raise Slow

    late: list[bool] = []
    number = signal.SIGALRM if clock == signal.ITIMER_REAL else signal.SIGPROF
    old = signal.signal(number, stop)
    signal.setitimer(clock, seconds, mercy)
    try:
        yield
    finally:
        signal.setitimer(clock, 0)
        signal.signal(number, old)
    if late:  # a handler of the program swallowed it
        raise Slow


class Depth:
    """Counts in its block how deep calls of Python functions nest."""

    def __init__(self):
        self.now = self.most = 0

    def _see(self, _frame: types.FrameType, event: str, _arg: Any) -> None:
        self.now += (event == "call") - (event == "return")
        self.most = max(self.most, self.now)

    def __enter__(self) -> Depth:
        sys.setprofile(self._see)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)


def load(source: str, file: str) -> types.ModuleType:
    """A fresh module `program` of this source."""
    module = types.ModuleType("program")
    module.__dict__.update(world.names())
    module.__file__ = file
    sys.modules["program"] = module
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(compile(source, file, "exec"), module.__dict__)
    return module


def outcomes(source: str, seed: int, root: str, calls: int, backend: str | None, file: str) -> list[observe.Outcome]:
    """Outcomes of the calls; stops after one that cannot go on. `backend`: None for eager."""
    torch.manual_seed(seed)
    random.seed(seed)
    world.forget()
    gc.collect()  # a class that a run before left may say things of itself, to those that ask for all subclasses
    SHARED.restore()
    torch.set_default_dtype(torch.float32)
    module = load(source, file)
    torch.set_default_dtype(torch.float64 if seed % 17 == 5 else torch.float32)
    fn = getattr(module, root)
    fn = fn if backend is None else flambeau.compile(fn, backend=backend)
    found: list[observe.Outcome] = []
    for call in range(calls):
        raised = any(outcome.exception for outcome in found)
        found.append(observe.observe(module, fn, world.inputs(seed, call), seed + call, raised))
    return found


def check(
    source: str,
    seed: int,
    mode: str,
    backend: str,
    calls: int = CALLS,
    survived: Callable[[], object] = lambda: None,
) -> Failure | None:
    """The first difference between eager and compiled, or `None`. Skipped are programs that are too slow eagerly, or recur
    without end: at what depth that fails, and what their handlers then do, is not the program's to say. `survived` is
    called between the two: a process that ends before it was ended by the eager run."""
    text, root = modes.transform(source, mode, seed)
    file = f"<program {seed} {mode}>"

    def failure(kind: str, detail: str, call: int = 0) -> Failure:
        return Failure(kind, detail, seed, mode, backend, source, call)

    try:
        with deadline(0.4, signal.ITIMER_PROF, mercy=2), deadline(10), Depth() as depth:
            eager = outcomes(text, seed, root, calls, None, file)
    except Slow:
        return None
    except Exception:  # a program that cannot even be loaded
        return None
    if depth.most > sys.getrecursionlimit() // 2:
        return None
    survived()
    before = reasons.counted(flambeau.counters())
    try:
        with deadline(30), modes.settings(mode):
            compiled = outcomes(text, seed, root, calls, backend, file)
    except Slow:
        return failure("hang", "more than 30 s")
    except BaseException as error:
        return failure("harness", f"{type(error).__name__}: {error}")
    finally:
        torch.set_grad_enabled(True)
    for call, (a, b) in enumerate(zip(eager, compiled, strict=True)):
        found = observe.difference(a, b)
        if found:
            return failure(found[0], f"call {call}: {found[1]}", call)
    after = reasons.counted(flambeau.counters())
    met = [name for name, count in after.items() if count != before.get(name, 0)]
    return failure("internal", f"a fallback that is a mistake: {', '.join(met)}") if met else None
