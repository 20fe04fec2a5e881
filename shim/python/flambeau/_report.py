"""What happened: counters, the daemon's status, and explanations of one call."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from flambeau import _native


def counters() -> dict[str, Any]:
    """Counts of this process since start or `reset`: `graphs`, `ops`, `graph_breaks` (reason: count), `frames_traced`,
    `recompiles`, `cache` (`hits` and `misses` by tier), `eager_fallbacks` (reason: count), `eager_graph`."""
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
    """Names that `backend=` takes: flambeau's own, then torch's where `torch._dynamo` is imported already."""
    import sys

    from flambeau._compile import NATIVE

    dynamo = sys.modules.get("torch._dynamo")
    return [*NATIVE, "eager", *(dynamo.list_backends() if dynamo else [])]


@dataclass(frozen=True)
class Explanation:
    """What one call compiled. `str()` is for people, `json()` for programs."""

    data: dict[str, Any]

    def json(self) -> str:
        """The same as JSON text."""
        return json.dumps(self.data)

    def __str__(self) -> str:
        lines = []
        for i, frame in enumerate(self.data.get("frames", [])):
            lines.append(f"graph {i}: {frame.get('ops', '?')} ops, {len(frame.get('guards', []))} guards")
            lines += [f"    {line}" for line in str(frame.get("graph", "")).splitlines()]
            lines += [f"    {stage}: {seconds * 1e3:.1f} ms" for stage, seconds in frame.get("timings", [])]
        for found in self.data.get("breaks", []):
            what = "graph break" if found["resumed"] else "not compiled"
            times = "" if found["count"] == 1 else f" ({found['count']} times)"
            lines.append(f"{what}{times}: {found['text']}")
        return "\n".join(lines) or "nothing was compiled"


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
    return Explanation(json.loads(_native.explain_data(native)))
