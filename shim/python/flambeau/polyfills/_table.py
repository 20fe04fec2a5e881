"""The table of polyfills, and what they are written with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar, NoReturn, TypeVar

TABLE: dict[str, Callable[..., Any]] = {}
"""What a trace calls instead of the C function or type at an import path."""

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


def instead_of(*paths: str) -> Callable[[F], F]:
    """Enters a function into the table, for the C functions or types at these import paths."""

    def entered(function: F) -> F:
        TABLE.update(dict.fromkeys(paths, function))
        return function

    return entered


class Refused(Exception):
    """What [`refuse`] raises outside of a trace."""


def refuse() -> NoReturn:
    """These arguments are left to the C function: in a trace, its call is a graph break."""
    raise Refused


def same(a: Any, b: Any) -> bool:
    """Whether `a` is or equals `b`, as containers compare their items. A trace knows it of equal constants, too, of
    which it does not know whether they are one object."""
    return a is b or bool(a == b)


class Kind:
    """What an iterator or other object of C is. A trace calls its functions with the object's state, a list; it has no
    objects of its own."""

    made_by: ClassVar[Any]
    """The type of C."""

    @staticmethod
    def step(state: list[Any]) -> Any:
        """Of an iterator the next item; raises `StopIteration` at the end."""
        raise NotImplementedError

    @staticmethod
    def rebuild(state: list[Any]) -> tuple[Any, ...] | None:
        """The import path of a function and the arguments with which it makes such an object of C in this state, for
        one that leaves the frame. The function draws no items of others. `None`: no function makes it; where such an
        iterator would leave the frame, C makes it in the first place, after a graph break."""
        raise NotImplementedError


def made(kind: type[Kind], state: list[Any], cls: Any = None) -> Any:
    """An object of a type of C, or of the class `cls` derived from it, in this state. Only traces have such objects.
    What its type's data descriptors give and take is in the table, by their paths and these with `.__set__`."""
    raise Refused


def one_call(of: str, args: tuple[Any, ...], traced: Callable[..., Any], given: tuple[Any, ...]) -> Any:
    """What the function at the import path `of` gives for `args`. In a trace `traced(*given)` says what that is: a pair
    of the outputs, and of the tensors among them that require no grad. The graph calls the function."""
    raise Refused


def computed_again(code: Callable[[], T], keeps_draws: bool) -> T:
    """What `code()` gives. Of what the graph computes there, nothing is kept for its derivative: it is computed again.
    Code that does more than that is refused, and without `keeps_draws` code that draws random numbers."""
    raise Refused


def gradients(of: Any, gradient: Any, keeps: bool) -> list[tuple[Any, Any]]:
    """The leaves that `of.backward(gradient)` gives gradients, each with that. `keeps`: what autograd saved is there
    afterwards. What only autograd's engine can do is refused."""
    raise Refused


def asked_gradients(
    outputs: tuple[Any, ...], seeds: tuple[Any, ...], inputs: tuple[Any, ...], keeps: bool, creates: bool
) -> tuple[Any, ...]:
    """The gradients of `inputs`, as `torch.autograd.grad` gives them; `None` for what autograd connects with no output.
    `seeds`: the gradients that it begins with, or `None`. `keeps`, `creates`: `retain_graph` and `create_graph`."""
    raise Refused


def state_of(value: Any) -> list[Any]:
    """The state of such an object, or of one of C that was there before the trace; other objects are refused."""
    raise Refused


class Lazy:
    """An iterator of a kind. In a trace it stands for one of C."""

    def __init__(self, kind: type[Kind], state: list[Any]):
        self.kind = kind
        self.state = state

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return self.kind.step(self.state)
