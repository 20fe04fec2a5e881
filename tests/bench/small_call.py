"""One process that times `x + 1` on 8 floats, plain and compiled in turn, and prints nanoseconds a call as JSON.

Usage: small_call.py flambeau|torch
"""

import json
import statistics
import sys
import time

import torch

CALLS = 5_000
ROUNDS = 30


def increment(x):
    """The whole program."""
    return x + 1


def nanoseconds(call, x: torch.Tensor) -> float:
    """Time of one call, over a loop of many."""
    begun = time.perf_counter_ns()
    for _ in range(CALLS):
        call(x)
    return (time.perf_counter_ns() - begun) / CALLS


def main() -> None:
    if sys.argv[1] == "flambeau":
        import flambeau

        compiled = flambeau.compile(increment, backend="cpu")
    else:
        compiled = torch.compile(increment)
    x = torch.randn(8)
    times = {"eager": [], "compiled": []}
    for _ in range(ROUNDS):
        times["eager"].append(nanoseconds(increment, x))
        times["compiled"].append(nanoseconds(compiled, x))
    print(json.dumps({name: statistics.median(values[3:]) for name, values in times.items()}))


if __name__ == "__main__":
    main()
