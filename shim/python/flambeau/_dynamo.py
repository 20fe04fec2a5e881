"""The `torch.compile` back end "flambeau": takes the graph that Dynamo captured. Torch finds it by its entry point.

Dynamo's graph comes as a `GraphModule`, whose `forward` is Python like any other: so it is compiled like any other, and
there is one way into the compiler. Dynamo's own guards run first; flambeau's check the same facts once more.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import Any

from flambeau._compile import Options, check


def backend(
    gm: Any, example_inputs: list[Any], *, mode: str | None = None, options: dict[str, Any] | None = None
) -> Callable[..., Any]:
    """A callable for `gm: torch.fx.GraphModule` that takes inputs like `example_inputs` and returns a tuple.

    `mode` and `options` are those given to `torch.compile`; `flambeau.compile` says what they do.
    """
    del example_inputs
    check(mode, options)
    # Dynamo's modules generate their `forward` at the first call.
    getattr(gm, "real_recompile", lambda: None)()
    forward = type(gm).forward
    return MethodType(Options(fullgraph=False, dynamic=None, backend=None, mode=mode).start(forward), gm)
