"""One process that times later calls of both compilers in turn, then of eager, and prints medians in seconds as JSON.

Eager comes last: its many temporaries would empty the caches between the compilers' calls, and move their outputs to
freshly mapped pages, which a program that calls one compiled function again and again does not see.

Usage: steady.py MODEL BATCH SECONDS [THREADS]
"""

import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

import models
import torch

import flambeau


def timed(calls: dict[str, Any], args: tuple[Any, ...], seconds: float) -> dict[str, list[float]]:
    """Seconds of each call, the functions taking turns of one call that is not timed and five that are."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        for _ in range(3):
            call(*args)
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        for name, call in calls.items():
            call(*args)
            for _ in range(5):
                begun = time.perf_counter()
                call(*args)
                times[name].append(time.perf_counter() - begun)
    return times


def main() -> None:
    model, batch, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    torch.set_num_threads(int(sys.argv[4]) if len(sys.argv) > 4 else 2)
    fn, args = models.build(model, batch)
    compiled = {"flambeau": flambeau.compile(fn, backend="cpu"), "torch": torch.compile(fn)}
    with torch.no_grad():
        times = timed(compiled, args, seconds * 0.75) | timed({"eager": fn}, args, seconds * 0.25)
    print(json.dumps({name: statistics.median(values) for name, values in times.items()}))


if __name__ == "__main__":
    main()
