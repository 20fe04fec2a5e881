"""One process that times what each step of a model's plan takes, and prints it as JSON.

Of flambeau these are its kernels, torch's ops, allocations and checks in order; of torch.compile the kernels and ops
that torch's profiler sees. Times are in us of a call.

Usage: steps.py MODEL BATCH flambeau|torch [THREADS]
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

import models
import torch

import flambeau
from flambeau import _native

UNTIMED = 10
"""Calls until the caches hold what the later ones find there."""

SECONDS = 2.0
"""How long calls are timed for."""


def timed(call: Callable[[], Any]) -> tuple[float, int]:
    """Microseconds of a call, and how many there were."""
    calls, begun = 0, time.perf_counter()
    while time.perf_counter() - begun < SECONDS:
        call()
        calls += 1
    return (time.perf_counter() - begun) / calls * 1e6, calls


def ours(call: Callable[..., Any], args: tuple[Any, ...]) -> dict[str, Any]:
    """The steps of all plans in order. To time a step takes some 20 ns, which are part of it."""
    _native._testing.time_steps(True)
    compiled = flambeau.compile(call, backend="cpu")
    for _ in range(UNTIMED):
        compiled(*args)
    _native._testing.step_times()
    whole, calls = timed(lambda: compiled(*args))
    plans = _native._testing.step_times()
    steps = [(text, spent / calls / 1e3) for plan in plans for text, spent, runs in plan if runs]
    return {"whole": whole, "steps": steps}


def peers(call: Callable[..., Any], args: tuple[Any, ...]) -> dict[str, Any]:
    """What torch's profiler sees of torch.compile, the longest first; a kernel has the time that it takes itself."""
    import torch._inductor.config as inductor

    inductor.cpp.enable_kernel_profile = True
    compiled = torch.compile(call)
    for _ in range(UNTIMED):
        compiled(*args)
    whole, _ = timed(lambda: compiled(*args))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        for _ in range(UNTIMED):
            compiled(*args)
    seen = [(event.key, event.self_cpu_time_total / UNTIMED) for event in profile.key_averages()]
    return {"whole": whole, "steps": sorted(seen, key=lambda step: -step[1])}


def main() -> None:
    model, batch, compiler = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    torch.set_num_threads(int(sys.argv[4]) if len(sys.argv) > 4 else 2)
    call, args = models.build(model, batch)
    with torch.no_grad():
        print(json.dumps((ours if compiler == "flambeau" else peers)(call, args)))


if __name__ == "__main__":
    main()
