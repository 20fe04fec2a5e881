"""One process that times later calls of one model as one compiler runs it, and prints the median in seconds as JSON.

Each compiler has processes of its own, as in use: in one process each would find the caches as the other left them.

Usage: steady.py MODEL BATCH SECONDS eager|flambeau|torch [THREADS]
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

UNTIMED = 10
"""Calls until the caches hold what the later ones find there."""

FEWEST = 7
"""Calls that are timed, however long they take."""


def main() -> None:
    model, batch, seconds, compiler = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), sys.argv[4]
    torch.set_num_threads(int(sys.argv[5]) if len(sys.argv) > 5 else 2)
    call, args = models.build(model, batch)
    if compiler == "flambeau":
        call = flambeau.compile(call, backend="cpu")
    elif compiler == "torch":
        call = torch.compile(call)
    times: list[float] = []
    with torch.no_grad():
        for _ in range(UNTIMED):
            call(*args)
        until = time.perf_counter() + seconds
        while time.perf_counter() < until or len(times) < FEWEST:
            begun = time.perf_counter()
            call(*args)
            times.append(time.perf_counter() - begun)
    print(json.dumps({"median": statistics.median(times)}))


if __name__ == "__main__":
    main()
