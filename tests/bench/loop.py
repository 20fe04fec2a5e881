"""One process that times a loop with a graph break in its body, eager and compiled, and prints JSON.

Seconds of an iteration, the median over calls after the first, and what the first call compiled.

Usage: loop.py ITERATIONS BACKEND
"""

import json
import statistics
import sys
import time

import torch

import flambeau

CALLS = 5


def loop(x: torch.Tensor, iterations: int) -> torch.Tensor:
    """`iterations` times two operations round a graph break."""
    for _ in range(iterations):
        x = x + 1
        flambeau.graph_break()
        x = x * 0.5
    return x


def seconds(fn, x: torch.Tensor, iterations: int) -> float:
    """Of an iteration."""
    times = []
    for _ in range(CALLS):
        begun = time.perf_counter()
        fn(x, iterations)
        times.append((time.perf_counter() - begun) / iterations)
    return statistics.median(times)


def main() -> None:
    iterations, backend = int(sys.argv[1]), sys.argv[2]
    x, compiled = torch.ones(8), flambeau.compile(loop, backend=backend)
    with torch.no_grad():
        if not torch.equal(compiled(x, iterations), loop(x, iterations)):
            raise SystemExit("wrong result")
        counters = flambeau.counters()
        report = {"eager": seconds(loop, x, iterations), "compiled": seconds(compiled, x, iterations)}
    print(json.dumps({**report, "graphs": counters["graphs"], "recompiles": counters["recompiles"]}))


if __name__ == "__main__":
    main()
