"""Stands for the extension where there is none for the running Python: everything runs as plain Python."""

from __future__ import annotations

import functools
import json
import types
import warnings
from collections.abc import Callable
from typing import Any

WHY = "the extension is missing"
"""Why there is none; set by `_extension`."""

_calls = 0
_region = {"nested": True, "error": False}


class Compiled:
    """Calls its function as it is, and binds as one."""

    def __init__(self, fn: Callable[..., Any], *_options: Any) -> None:
        self._fn = fn
        _warn()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        global _calls
        _calls += 1
        return self._fn(*args, **kwargs)

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __reduce__(self) -> str:
        return self._fn.__qualname__

    def __copy__(self) -> Compiled:
        return self

    def __deepcopy__(self, _memo: dict[int, Any]) -> Compiled:
        return self


@functools.cache
def _warn() -> None:
    warnings.warn(f"flambeau runs code uncompiled: {WHY}", RuntimeWarning, stacklevel=2)


def admin(_command: str) -> str | None:
    """There is no daemon."""
    return None


def call_natively(cls: type, call: Callable[..., Any]) -> None:
    """The class keeps its `__call__`."""


def configure(**_settings: Any) -> None:
    """Nothing to set."""


def counters() -> dict[str, Any]:
    """All zero but for the calls."""
    counts: dict[str, Any] = dict.fromkeys(("graphs", "ops", "frames_traced", "recompiles", "eager_graph"), 0)
    fallbacks = {"no_extension": _calls} if _calls else {}
    cache: dict[str, dict[str, int]] = {"hits": {"process": 0}, "misses": {}}
    return {**counts, "graph_breaks": {}, "eager_fallbacks": fallbacks, "eager_graph_reasons": {}, "cache": cache}


def explain_data(_compiled: Compiled) -> str:
    """Nothing was compiled."""
    return json.dumps({"codes": [], "frames": [], "breaks": []})


def mark_dynamic(_tensor: Any, _dim: int, _minimum: int | None, _maximum: int | None) -> None:
    """Nothing is compiled for a size."""


def plugins() -> dict[str, str]:
    """There are none."""
    return {}


def reset() -> None:
    """Only the calls are counted."""
    global _calls
    _calls = 0


def set_error_on_break(enabled: bool) -> bool:
    """Kept, so that it can be put back."""
    before, _region["error"] = _region["error"], enabled
    return before


def set_nested_breaks(enabled: bool) -> bool:
    """Kept, so that it can be put back."""
    before, _region["nested"] = _region["nested"], enabled
    return before
