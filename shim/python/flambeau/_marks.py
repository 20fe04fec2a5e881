"""What user code says to the compiler: where not to compile, what is dynamic, whether it is being compiled."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from flambeau import _native

F = TypeVar("F", bound=Callable[..., Any])

DISABLED = "_flambeau_disabled"


def _later(what: str, instead: str) -> NoReturn:
    raise NotImplementedError(f"flambeau.{what} is not available yet; {instead}")


def disable(fn: F) -> F:
    """A version of `fn` that always runs as plain Python, also when a compiled function calls it."""

    @functools.wraps(fn)
    def plain(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    setattr(plain, DISABLED, True)
    return plain  # type: ignore[return-value]


def graph_break() -> None:
    """Ends the graph here when compiled; does nothing in plain Python. Source: `torch._dynamo.graph_break`."""


def is_compiling() -> bool:
    """True in code that flambeau is tracing, False in plain Python."""
    return False


def mark_dynamic(tensor: Any, dim: int, *, min: int | None = None, max: int | None = None) -> None:
    """Makes dimension `dim` of `tensor` symbolic: one compile serves all sizes from `min` to `max`."""
    import torch

    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"mark_dynamic takes a tensor, not {type(tensor).__name__}")
    if not -tensor.dim() <= dim < tensor.dim():
        raise IndexError(f"the tensor has {tensor.dim()} dimensions; {dim} is not one of them")
    _native.mark_dynamic(tensor, dim % tensor.dim(), min, max)


def allow_in_graph(fn: F) -> F:
    """Not available yet."""
    _later("allow_in_graph", "register the function with torch.library.custom_op, which is kept whole in the graph")


def disable_nested_graph_breaks(fn: F | None = None) -> F:
    """Not available yet."""
    _later("disable_nested_graph_breaks", "a graph break leaves the whole frame to Python for now")


def error_on_graph_break(enabled: bool = True) -> NoReturn:
    """Not available yet."""
    _later("error_on_graph_break", "pass fullgraph=True to flambeau.compile")
