"""One process that times the first and the steady calls of one compiler on one model, and prints a line of JSON.

Seconds and MB throughout. `first` is from before the compiler's import to the first result, less one call: the eager
one or the compiled one, the shortest of three each; a millisecond at least. `imports` is the part of it spent importing
the compiler, where that can be told apart. `call_peak_mb` is how far one later call raises the process's resident
memory above where it stood, `added_mb` how much more than after the eager calls is resident once the compiled ones are
done.
"""

import argparse
import ctypes
import gc
import json
import statistics
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "examples"))

import models  # noqa: E402
import torch  # noqa: E402


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", choices=list(models.CASES))
    parser.add_argument("compiler", choices=["eager", "flambeau", "torch"])
    parser.add_argument("backend", help="flambeau: cpu or eager; torch: inductor or eager")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument(
        "--steady", type=float, default=0.0, help="seconds of steady calls to time, alternating with eager"
    )
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args()


def timed(call) -> float:
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def memory(field: str) -> float:
    """A field of the process's status, in MB."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) / 1024


def settle() -> float:
    """Gives free memory back to the system; the resident memory then."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return memory("VmRSS")


def peaks(calls: dict) -> dict[str, float]:
    """How far one call of each raises resident memory above where it stands. They take turns, as each finds the
    allocator's free memory as former calls left it; the least of five, as it keeps some."""
    rises: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(5):
        for name, call in calls.items():
            before = settle()
            Path("/proc/self/clear_refs").write_text("5")
            call()
            rises[name].append(memory("VmHWM") - before)
    return {name: min(found) for name, found in rises.items()}


def steady(compiled, eager, seconds: float) -> dict[str, float]:
    """Medians of alternating calls."""
    times = {"steady": [], "eager": []}
    for _ in range(3):
        compiled()
        eager()
    until = time.perf_counter() + seconds
    while time.perf_counter() < until or len(times["eager"]) < 5:
        times["steady"].append(timed(compiled))
        times["eager"].append(timed(eager))
    return {key: statistics.median(values) for key, values in times.items()}


def import_and_compile(compiler: str, backend: str, fn):
    """The compiled callable, and the seconds its import took."""
    begun = time.perf_counter()
    if compiler == "flambeau":
        import flambeau

        return flambeau.compile(fn, backend=backend), time.perf_counter() - begun
    if compiler == "torch":
        import torch._dynamo

        if backend == "inductor":
            import torch._inductor.compile_fx
        return torch.compile(fn, backend=backend), time.perf_counter() - begun
    return fn, 0.0


def main() -> None:
    options = arguments()
    torch.set_num_threads(options.threads)
    fn, args = models.build(options.model, options.batch)
    report = {"model": options.model, "compiler": options.compiler, "backend": options.backend, "batch": options.batch}
    with torch.no_grad():
        fn(*args)
        eager_call = min(timed(lambda: fn(*args)) for _ in range(3))
        expected = fn(*args)
        resident = settle()
        begun = time.perf_counter()
        compiled, report["imports"] = import_and_compile(options.compiler, options.backend, fn)
        actual = compiled(*args)
        total = time.perf_counter() - begun
        compiled_call = min(timed(lambda: compiled(*args)) for _ in range(3))
        report["first"] = max(total - min(eager_call, compiled_call), 1e-3)
        report["eager_call"] = eager_call
        report["error"] = ((actual - expected).abs().max() / expected.abs().max()).item()
        report["added_mb"] = settle() - resident
        report |= peaks({"eager_peak_mb": lambda: fn(*args), "call_peak_mb": lambda: compiled(*args)})
        if options.steady:
            report |= steady(lambda: compiled(*args), lambda: fn(*args), options.steady)
    if options.compiler == "flambeau":
        import flambeau

        report["counters"] = flambeau.counters()
        status = Path(f"/proc/{flambeau.status()['pid']}/status").read_text().splitlines()
        report["daemon_mb"] = next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmRSS"))
    print(json.dumps(report))


if __name__ == "__main__":
    main()
