"""What user code says to the compiler: where not to compile, what is dynamic, whether it is being compiled."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar, overload

from flambeau import _native

F = TypeVar("F", bound=Callable[..., Any])


def _later(what: str, instead: str) -> NoReturn:
    raise NotImplementedError(f"flambeau.{what} is not available yet; {instead}")


def disable(fn: F) -> F:
    """A version of `fn` that always runs as plain Python, also when a compiled function calls it."""

    @functools.wraps(fn)  # the compiler knows this function by its code (`is_disabled`)
    def plain(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

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


class Region:
    """Changes how this thread takes graph breaks: in a `with` block, or in each call of a function it decorates."""

    def __init__(self, switch: Callable[[bool], bool], value: bool) -> None:
        self._switch = switch
        self._value = value
        self._before: list[bool] = []

    def __enter__(self) -> None:
        self._before.append(self._switch(self._value))

    def __exit__(self, *_exception: object) -> None:
        self._switch(self._before.pop())

    def __call__(self, fn: F) -> F:
        """The decorator."""
        switch, value = self._switch, self._value

        @functools.wraps(fn)
        def inside(*args: Any, **kwargs: Any) -> Any:
            with Region(switch, value):
                return fn(*args, **kwargs)

        return inside  # type: ignore[return-value]


@overload
def disable_nested_graph_breaks(fn: F) -> F: ...
@overload
def disable_nested_graph_breaks(fn: None = None) -> Region: ...
def disable_nested_graph_breaks(fn: Any = None) -> Any:
    """A decorator and context manager: a graph break inside is one of the outermost call there, as
    `config.nested_graph_breaks = False` does for the whole program."""
    region = Region(_native.set_nested_breaks, False)
    return region if fn is None else region(fn)


def error_on_graph_break(enabled: bool = True) -> Region:
    """A decorator and context manager: a graph break inside is an error, or with False is none again."""
    if not isinstance(enabled, bool):
        raise TypeError(f"error_on_graph_break takes a bool, not {enabled!r}")
    return Region(_native.set_error_on_break, enabled)
