"""One process that times later calls of both compilers and of eager in turn, and prints medians in seconds as JSON.

Usage: steady.py MODEL BATCH SECONDS [THREADS]
"""

import json
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

import models
import torch

import flambeau


def main() -> None:
    model, batch, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    torch.set_num_threads(int(sys.argv[4]) if len(sys.argv) > 4 else 2)
    fn, args = models.build(model, batch)
    calls = {"eager": fn, "flambeau": flambeau.compile(fn, backend="cpu"), "torch": torch.compile(fn)}
    times: dict[str, list[float]] = {name: [] for name in calls}
    with torch.no_grad():
        for call in calls.values():
            for _ in range(3):
                call(*args)
        until = time.perf_counter() + seconds
        while time.perf_counter() < until or len(times["eager"]) < 7:
            for name, call in calls.items():
                # Two calls in a row, the second timed: the one before was the same compiler's, not eager's.
                call(*args)
                begun = time.perf_counter()
                call(*args)
                times[name].append(time.perf_counter() - begun)
    print(json.dumps({name: statistics.median(values) for name, values in times.items()}))


if __name__ == "__main__":
    main()
