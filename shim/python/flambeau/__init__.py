"""flambeau compiles PyTorch programs through a local daemon that keeps every compile.

`flambeau.compile` takes a function or a module and gives back one that behaves the same, faster. Nothing here imports
`torch._dynamo`; the compiler itself is the daemon `flambeaud`, started on the first call.
"""

from __future__ import annotations

from flambeau import _extension as _extension
from flambeau._compile import compile
from flambeau._config import config
from flambeau._marks import (
    allow_in_graph,
    disable,
    disable_nested_graph_breaks,
    error_on_graph_break,
    graph_break,
    is_compiling,
    mark_dynamic,
)
from flambeau._report import Explanation, counters, explain, list_backends, reset, status

__all__ = [
    "Explanation",
    "allow_in_graph",
    "compile",
    "config",
    "counters",
    "disable",
    "disable_nested_graph_breaks",
    "error_on_graph_break",
    "explain",
    "graph_break",
    "is_compiling",
    "list_backends",
    "mark_dynamic",
    "reset",
    "status",
]
