"""One process that calls one compiled model with batches of 1 to 64 in random order, and prints as JSON: compiles, the
largest error against eager (relative to the largest value), and what a call takes with kernels for any batch as a
multiple of one with kernels for that batch alone, by batch size (medians, the two in turn).

Usage: batches.py MODEL SECONDS
"""

import json
import random
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

import models
import torch

import flambeau

SIZES = range(1, 65)
"""Batches that are called."""
TIMED = (2, 5, 16, 33, 64)
"""Batches whose calls are timed."""
FEWEST = 5
"""Calls that are timed, however long they take."""


def timed(call: Callable, args: tuple) -> float:
    """Seconds of one call."""
    begun = time.perf_counter()
    call(*args)
    return time.perf_counter() - begun


def multiple(compiled: Callable, batch: int, model: str, seconds: float) -> float:
    """Time of a call of `compiled` over that of the same model compiled for this batch only."""
    call, args = models.build(model, batch)
    fixed = flambeau.compile(call, backend="cpu", dynamic=False)
    for _ in range(3):
        fixed(*args)
        compiled(*args)
    ratios: list[float] = []
    until = time.perf_counter() + seconds
    while time.perf_counter() < until or len(ratios) < FEWEST:
        ratios.append(timed(compiled, args) / timed(fixed, args))
    return statistics.median(ratios)


def main() -> None:
    model, seconds = sys.argv[1], float(sys.argv[2])
    torch.set_num_threads(2)
    call, _ = models.build(model, 1)
    compiled = flambeau.compile(call, backend="cpu")
    order = random.Random(0).sample(SIZES, len(SIZES))
    error = 0.0
    with torch.no_grad():
        for batch in order:
            _, args = models.build(model, batch)
            expected = call(*args)
            error = max(error, ((expected - compiled(*args)).abs().max() / expected.abs().max()).item())
        compiles = flambeau.counters()["graphs"]
        multiples = {batch: multiple(compiled, batch, model, seconds) for batch in TIMED}
    print(json.dumps({"compiles": compiles, "error": error, "multiples": multiples}))


if __name__ == "__main__":
    main()
