"""What happened: counters, the daemon's status, and explanations of calls as text, JSON and a page."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from flambeau import _native


def counters() -> dict[str, Any]:
    """Counts of this process since start or `reset`: `graphs`, `ops`, `graph_breaks` (reason: count), `frames_traced`,
    `recompiles`, `cache` (`hits` and `misses` by tier), `eager_fallbacks` (reason: count), `eager_graph`,
    `backend_moves` (functions that went on with another back end or build)."""
    return _native.counters()


def reset() -> None:
    """Forgets every compiled frame of this process and zeroes the counters. The daemon's cache stays."""
    _native.reset()


def status() -> dict[str, Any]:
    """`{"running": False}`, or the daemon's process id, memory, clients and counters. Starts no daemon, but waits for
    one that this process is starting."""
    text = _native.admin("status")
    return {"running": True, **json.loads(text)} if text else {"running": False}


def list_backends() -> list[str]:
    """Names that `backend=` takes: flambeau's own, those of plug-ins, and torch's where `torch._dynamo` is imported."""
    import sys

    from flambeau._compile import NATIVE

    dynamo = sys.modules.get("torch._dynamo")
    return [*dict.fromkeys([*NATIVE, *_native.plugins()]), "eager", *(dynamo.list_backends() if dynamo else [])]


@dataclass(frozen=True)
class Explanation:
    """What was compiled for one callable. `str()` and `html()` are for people, `json()` for programs.

    `data` has `backend` (what compiles calls now; `plugin` is the folder of its files), `codes` (the function,
    resume functions, functions found below; `parent` is the code whose break it takes up), `frames` (graph as text
    and `python`, guards, seconds per stage, `recompiled`: guards that failed before; `code` and `break` are
    indices) and `breaks` (reason, the line `at` of the user, `stack`, `kind`, `count`).
    """

    data: dict[str, Any]

    def json(self) -> str:
        """The same as JSON text."""
        return json.dumps(self.data)

    def html(self) -> str:
        """The same as a page that needs nothing but itself: no network, no scripts."""
        from flambeau._page import page

        return page([self], counters())

    @property
    def name(self) -> str:
        """What the callable is called."""
        return str(self.data.get("name", ""))

    @property
    def graphs(self) -> int:
        """Compiled frames with calls in their graph."""
        return sum(frame["calls"] > 0 for frame in self.data["frames"])

    def __str__(self) -> str:
        lines = [backend_title(self.data)]
        for code, depth in tree(self.data["codes"]):
            indent = "  " * depth
            lines.append(indent + title(code))
            for frame in frames_of(self.data, code):
                lines += [f"{indent}  {line}" for line in _frame_lines(frame, self.data["breaks"])]
        for found in self.data["breaks"]:
            lines.append(f"{break_title(found)}: {found['text']}")
        return "\n".join(lines if len(lines) > 1 else ["nothing was compiled"])


def tree(codes: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], int]]:
    """Code objects with their depth, parents before children: a resume function is a child of the code whose break it
    takes up first. A loop's resume functions call each other; they stand one below the other."""
    children: dict[int | None, list[dict[str, Any]]] = {}
    for code in codes:
        children.setdefault(code["parent"], []).append(code)
    waiting = [(code, 0) for code in reversed(children.get(None, []))]
    while waiting:
        code, depth = waiting.pop()
        yield code, depth
        waiting += [(child, depth + 1) for child in reversed(children.get(code["id"], []))]


def frames_of(data: dict[str, Any], code: dict[str, Any]) -> list[dict[str, Any]]:
    """What was compiled for a code object, first compile first."""
    return [frame for frame in reversed(data["frames"]) if frame["code"] == code["id"]]


def title(code: dict[str, Any], where: str | None = None) -> str:
    """A code object in one line; `where` is its place, or that of its break, in other words."""
    at = code["after"]
    if at is None:
        return f"{code['name']} ({where or place(code)})"
    side = "" if code["when"] == "behind it" else f", {code['when']}"
    return f"{code['name']}, resumed after {where or place(at)} in {at['function']}{side}"


def place(at: dict[str, Any]) -> str:
    """`file:line`."""
    return f"{at['file']}:{at['line']}"


def backend_title(data: dict[str, Any]) -> str:
    """What compiles calls now, and where it is."""
    where = f" ({data['plugin']})" if data.get("plugin") else ""
    return f"back end: {data.get('backend', 'none')}{where}"


def break_title(found: dict[str, Any]) -> str:
    """What became of the frame, and how often."""
    what = "graph break" if found["resumed"] else "not compiled"
    return what if found["count"] == 1 else f"{what} ({found['count']} times)"


def stages(frame: dict[str, Any]) -> list[tuple[str, float]]:
    """Seconds per stage in the order they ran, none counted twice. What the daemon spent between stages (waiting for a
    thread, encoding) is `other`."""
    given = dict(frame["timings"])
    total, questions = given.pop("total", 0.0), given.get("questions", 0.0)
    if "trace" in given:
        # The trace waits while the client answers.
        given["trace"] = max(0.0, given["trace"] - questions)
    inside = sum(given.get(name, 0.0) for name in ("capture", "trace", "questions", "guard", "lower", "codegen"))
    last = given.pop("install", 0.0)
    return [*given.items(), ("other", max(0.0, total - inside)), ("install", last)]


def compile_seconds(data: dict[str, Any]) -> float:
    """Seconds that calls waited for their compiles, those that came to nothing included."""
    compiled = sum(seconds for frame in data["frames"] for _, seconds in stages(frame))
    return float(compiled + sum(found["seconds"] for found in data["breaks"]))


def _frame_lines(frame: dict[str, Any], breaks: list[dict[str, Any]]) -> Iterator[str]:
    times = ", ".join(f"{stage} {seconds * 1e3:.1f}" for stage, seconds in stages(frame) if seconds >= 5e-5)
    made = f"{frame['body']}, {frame['kernels']} kernels" if frame["body"] == "native" else frame["body"]
    yield f"graph of {frame['calls']} calls, {len(frame['guards'])} guards, {made}; from {frame['origin']}; ms: {times}"
    yield from (f"compiled anew, {guard}" for guard in frame["recompiled"])
    if frame["calls"]:
        yield from (f"  {line}" for line in frame["python"].splitlines())
    if frame["fallback"]:
        yield f"  runs op by op: {frame['fallback'].splitlines()[0]}"
    if frame["break"] is not None:
        found = breaks[frame["break"]]
        where = f" at {place(found['at'])}" if found["at"] else ""
        yield f"  breaks off{where}: {found['reason']}: {found['detail']}"


def explain(fn: Callable[..., Any], **options: Any) -> Callable[..., Explanation]:
    """`explain(fn)(*args)` compiles and calls `fn`, and says what became of it."""
    from flambeau._compile import compile

    compiled: Any = compile(fn, **options)

    def call(*args: Any, **kwargs: Any) -> Explanation:
        compiled(*args, **kwargs)
        return explanation(compiled)

    return call


def explanation(compiled: Any) -> Explanation:
    """What became of a compiled function, method or module until now."""
    native = getattr(compiled, "_flambeau_compiled", None) or getattr(compiled, "__func__", compiled)
    name = getattr(compiled, "__qualname__", type(compiled).__qualname__)
    return Explanation({"name": name, **json.loads(_native.explain_data(native))})
