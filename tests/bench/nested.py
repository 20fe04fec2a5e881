"""One process that times the first call of nested functions with a graph break in the innermost, and prints JSON.

Each of DEPTH functions adds 1 two hundred times to a tensor, a hundred times before it calls the next one and a hundred
times after. Seconds of the call; the compiler is imported before, as are the parts that it loads at its first use.

Usage: nested.py DEPTH flambeau|torch BACKEND
"""

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

OPS = 200


def program(depth: int, graph_break: Callable[[], None]) -> Callable[[torch.Tensor], torch.Tensor]:
    """The outermost function."""
    half = ["    x = x + 1"] * (OPS // 2)
    lines: list[str] = []
    for level in range(depth):
        call = "    graph_break()" if level == depth - 1 else f"    x = f{level + 1}(x)"
        lines += [f"def f{level}(x):", *half, call, *half, "    return x"]
    scope: dict[str, Any] = {"graph_break": graph_break}
    exec(compile("\n".join(lines), "nested_program.py", "exec"), scope)
    return scope["f0"]


def main() -> None:
    depth, compiler, backend = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    if compiler == "flambeau":
        import flambeau

        fn = program(depth, flambeau.graph_break)
        compiled = flambeau.compile(fn, backend=backend)
        # The daemon starts, as torch's compiler is imported below.
        flambeau.compile(lambda x: x + 1, backend=backend)(torch.zeros(2))
        flambeau.reset()
    else:
        import torch._dynamo as dynamo

        dynamo.config.nested_graph_breaks = True
        # Its tracer needs several Python frames for each of the program's.
        sys.setrecursionlimit(100_000)
        fn = program(depth, dynamo.graph_break)
        compiled = torch.compile(fn, backend=backend)
        torch.compile(lambda x: x + 1, backend=backend)(torch.zeros(2))
    begun = time.perf_counter()
    result = compiled(torch.zeros(4))
    seconds = time.perf_counter() - begun
    if result.tolist() != [float(depth * OPS)] * 4:
        raise SystemExit(f"wrong result: {result.tolist()}")
    report = {"first": seconds}
    if compiler == "flambeau":
        report["graphs"] = flambeau.counters()["graphs"]
    print(json.dumps(report))


if __name__ == "__main__":
    main()
