"""A child process: runs test methods of one module, eagerly or compiled; an event per line of JSON.

{"found": [name, ...]}   {"start": name}   {"done": name, "outcome", "detail", "traced", "seconds"}   {"end": true}

The job: {"module", "mode", "compiled", "only": [name, ...] or null, "limits": {name: seconds}, "limit": seconds,
"loud"}.
`setUp` and `tearDown` stay eager. In the mode wrap the eager run has the additional frame too.
"""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import importlib.util
import inspect
import random
import re
import sys
import time
import traceback
import types
import unittest
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import flambeau
from flambeau import _report
from tests import internal as reasons
from tests.conformance import children
from tests.fuzz import modes


class Result(unittest.TestResult):
    """Compiles a method before its test starts, reports when it stopped."""

    def __init__(self, job: dict[str, Any], voice: children.Voice):
        super().__init__()
        self.job, self.voice = job, voice
        self.outcome, self.details = "ok", list[str]()
        self.compiled: Any = None
        self.begun = 0.0

    def prepare(self, test: unittest.TestCase) -> None:
        """Puts the compiled method in place of the test's own."""
        self.outcome, self.details, self.compiled = "ok", [], None
        flambeau.reset()
        random.seed(1)  # both runs compare the same numbers: some methods pass with most of them only
        re.purge()  # how far a trace gets is not to hang on which patterns the methods before have compiled
        replaced = self.method(getattr(test, test._testMethodName))
        if replaced is not None:
            setattr(test, test._testMethodName, replaced)

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        name = short(test, self.job["module"])
        self.voice.say(start=name)
        self.begun = time.monotonic()
        faulthandler.dump_traceback_later(self.job["limits"].get(name, self.job["limit"]), exit=True)

    def method(self, method: Any) -> Any:
        """What is called in place of a test method; `None` if it stays as it is."""
        fn = getattr(method, "__func__", method)
        if not isinstance(fn, types.FunctionType):
            return None
        asynchronous = asyncio.iscoroutinefunction(fn)
        if self.job["mode"] == "wrap" and not asynchronous:
            fn = modes.wrapped(fn)
        if self.job["compiled"]:
            fn = self.compiled = flambeau.compile(fn)
            if asynchronous:
                fn = awaiting(fn)
        return types.MethodType(fn, method.__self__) if hasattr(method, "__self__") else fn

    def stopTest(self, test: unittest.TestCase) -> None:
        faulthandler.cancel_dump_traceback_later()
        seconds = time.monotonic() - self.begun
        test.__dict__.pop(test._testMethodName, None)
        traced = False
        if self.compiled is not None:
            data = _report.explanation(self.compiled).data
            traced = any(frame["code"] == 0 for frame in data["frames"])
            for reason in internal(data):
                self.note("internal", reason)
        detail = self.details[0] if self.details else ""
        name = short(test, self.job["module"])
        self.voice.say(done=name, outcome=self.outcome, detail=detail, traced=traced, seconds=round(seconds, 3))
        super().stopTest(test)

    def note(self, outcome: str, detail: str = "") -> None:
        """One more thing that happened; the first that is no pass is the outcome."""
        if self.outcome in ("ok", "expected", "skip") or outcome == "internal":
            self.outcome = outcome
        if detail:
            self.details.append(detail)

    def raised(self, outcome: str, err: Any) -> None:
        """An exception, in one line."""
        kind, value, tb = err
        if self.job["loud"]:
            traceback.print_exception(kind, value, tb)
        frames = traceback.extract_tb(tb)
        own = [f for f in frames if "unittest" not in f.filename] or list(frames)
        where = f" [{own[-1].filename.rpartition('/')[2]}:{own[-1].lineno}]" if own else ""
        said = str(value).strip().splitlines() or [""]
        self.note(outcome, f"{kind.__name__}: {said[0][:300]}{where}")

    def addError(self, test: Any, err: Any) -> None:
        self.raised("error", err)

    def addFailure(self, test: Any, err: Any) -> None:
        self.raised("failure", err)

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:
        if err is not None:
            self.raised("failure" if issubclass(err[0], test.failureException) else "error", err)

    def addSkip(self, test: Any, reason: str) -> None:
        self.note("skip", reason)

    def addExpectedFailure(self, test: Any, err: Any) -> None:
        self.note("expected")

    def addUnexpectedSuccess(self, test: Any) -> None:
        self.note("unexpected success")


class Suite(unittest.TestSuite):
    """Prepares each test when it is its turn: CPython 3.12.1 looks its method up before `startTest`."""

    def __init__(self, tests: list[unittest.TestCase], result: Result):
        super().__init__(tests)
        self.result = result

    def __iter__(self) -> Iterator[unittest.TestCase]:
        for test in super().__iter__():
            self.result.prepare(test)
            yield test


def awaiting(compiled: Callable[..., Any]) -> Callable[..., Any]:
    """`unittest` awaits what is a coroutine function."""

    async def method(self: Any) -> Any:
        return await compiled(self)

    return method


def internal(data: dict[str, Any]) -> Iterator[str]:
    """What was counted that should never be."""
    said = {b["reason"]: b["text"].splitlines()[0] for b in data["breaks"]}
    for reason in reasons.counted(flambeau.counters()):
        yield said.get(reason, reason)


def short(test: unittest.TestCase, module: str) -> str:
    """`Class.method`, with what its package has below the module."""
    return test.id().removeprefix(f"test.{module}").lstrip(".")


def methods(suite: Any) -> Iterator[unittest.TestCase]:
    """All tests of a suite that are methods."""
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from methods(test)
        elif getattr(test, "_testMethodName", "").startswith("test"):
            yield test


def main(job: dict[str, Any], voice: children.Voice) -> None:
    """Runs the job."""
    from test import support

    support.use_resources = []  # what needs the network, much time or much memory is skipped
    support.verbose = False
    support.max_memuse = 0
    inspect.getattr_static(flambeau.compile(lambda: 0), "__doc__")  # imports torch
    if job["compiled"]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            flambeau.compile(lambda: 0)()
    gc.collect()
    gc.freeze()  # tests collect garbage often, and torch has half a million objects to look at each time
    name = f"test.{job['module']}"
    if importlib.util.find_spec(name) is None:
        raise ModuleNotFoundError(f"this Python has no {name}")
    wanted = None if job["only"] is None else set(job["only"])
    chosen: dict[str, unittest.TestCase] = {}
    loader = unittest.TestLoader()
    for test in methods(loader.loadTestsFromName(name)):
        chosen.setdefault(short(test, job["module"]), test)
    if loader.errors:
        raise ImportError(loader.errors[0])
    voice.say(found=list(chosen))
    result = Result(job, voice)
    Suite([test for key, test in chosen.items() if wanted is None or key in wanted], result).run(result)
    voice.say(end=True)
    sys.stderr.flush()


if __name__ == "__main__":
    main(children.job(), children.Voice())
