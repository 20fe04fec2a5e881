"""All that a call shows to its user, eager against compiled: result, output, warnings, log records, tracebacks."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from support import aliasing, assert_same, tensors_of

import flambeau

log = logging.getLogger("flambeau.tests.breaks")
log.setLevel(logging.INFO)
log.propagate = False


@dataclass
class Seen:
    """What one call showed; `frames`: functions and lines of the traceback in the files of tests."""

    result: Any
    error: Any
    frames: list[tuple[str, int]]
    printed: str
    warned: list[tuple[str, str, int]]
    logged: list[tuple[str, str, int]]
    grad: bool


class Records(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[tuple[str, str, int]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append((record.getMessage(), record.funcName, record.lineno))


def watch(fn: Callable[..., Any], *args: Any) -> Seen:
    """Calls `fn` and notes what it shows."""
    result, error, frames, handler, output = None, None, [], Records(), io.StringIO()
    log.handlers[:] = [handler]
    torch.manual_seed(0)
    with warnings.catch_warnings(record=True) as warned, contextlib.redirect_stdout(output):
        warnings.simplefilter("always")
        try:
            result = fn(*args)
        except Exception as raised:
            error, trace = (type(raised), str(raised)), raised.__traceback__
            while trace:
                if "/tests/" in trace.tb_frame.f_code.co_filename:
                    frames.append((trace.tb_frame.f_code.co_name, trace.tb_lineno))
                trace = trace.tb_next
    grad = torch.is_grad_enabled()
    torch.set_grad_enabled(True)
    # Ours say why something runs eagerly; what the program warns of is compared.
    texts = [(str(w.message), w.filename, w.lineno) for w in warned if not str(w.message).startswith("flambeau ")]
    # The first frame is `watch` itself.
    return Seen(result, error, frames[1:], output.getvalue(), texts, handler.records, grad)


def assert_alike(make: Callable[[], tuple[Callable[..., Any], Any]], calls: list[tuple[Any, ...]], backend: Any) -> Any:
    """`make()` gives a function and the state it works on, fresh each time; both ways must show and leave the same.

    `calls`: functions of no arguments that give the arguments of each call. Gives the compiled function.
    """
    eager, eager_state = make()
    plain, state = make()
    compiled = flambeau.compile(plain, backend=backend)
    for number, arguments in enumerate(calls):
        expected_args, args = arguments(), arguments()
        expected, seen = watch(eager, *expected_args), watch(compiled, *args)
        where = f"call {number}"
        for name in ("error", "frames", "printed", "warned", "logged", "grad"):
            a, b = getattr(seen, name), getattr(expected, name)
            assert a == b, f"{where}: {name}: {a} instead of {b}"
        assert_same(seen.result, expected.result, f"{where}: result", slack=10)
        assert_same(args, expected_args, f"{where}: arguments", slack=10)
        assert_same(state, eager_state, f"{where}: state", slack=10)
        assert aliasing(tensors_of(seen.result, args)) == aliasing(tensors_of(expected.result, expected_args)), where
    return compiled
