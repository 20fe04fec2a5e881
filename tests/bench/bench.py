"""flambeau beside torch.compile: first calls (cold, second process, after a restart), steady state, memory, what one
call of a tiny function costs, graph breaks (100 nested frames, a loop of 10,000 iterations), and what guards cost.

Everything runs turn by turn, in fresh processes, with each compiler's own caches on; steady figures are medians over
several processes of each. Times are in ms. From first calls one call is taken off.
Ratios are peer / flambeau, so more is better; the peer's first-call figures are without its import time, which is
printed beside them. Prints text, or JSON with everything.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from pathlib import Path

from processes import Caches

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
PROCESSES = {"seawater": 21}
"""Processes that time later calls, of each compiler, where three are too few: such short calls take up to 40 % longer
in one process than in another."""
MOST_STEPS = 25
"""Steps that a page of `--profile` shows."""
NAMES = ["resnet18", "mobilenet_v2", "vit_tiny_patch16_224", "transformer_encoder", "decoder", "seawater"]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", default=NAMES, choices=NAMES)
    parser.add_argument("--batches", nargs="*", type=int, default=[1, 8])
    parser.add_argument("--runs", type=int, default=1, help="fresh caches and processes this often; medians are shown")
    parser.add_argument("--steady", type=float, default=2.0, help="seconds of later calls, per process")
    parser.add_argument("--profile", metavar="MODEL", choices=NAMES, help="only what each step of this model takes")
    parser.add_argument("--json", action="store_true", help="print JSON only")
    return parser.parse_args()


def steady_calls(ours: Caches, peers: Caches, model: str, *call: str) -> dict[str, float]:
    """Seconds of a later call: medians over processes that take turns."""
    times: dict[str, list[float]] = {"eager": [], "flambeau": [], "torch": []}
    for _ in range(PROCESSES.get(model, 3)):
        for compiler, found in times.items():
            caches = peers if compiler == "torch" else ours
            found.append(caches.run("steady.py", model, *call, compiler)["median"])
    return {compiler: statistics.median(found) for compiler, found in times.items()}


def measure(model: str, batch: int, steady: float) -> dict[str, float]:
    """One round of all figures for one model, each process fresh."""
    options = ("--batch", str(batch))
    ours, peers, capture = Caches(), Caches(), Caches()
    try:
        cold = ours.call(model, "flambeau", "cpu", *options)
        peer_cold = peers.call(model, "torch", "inductor", *options)
        warm = ours.call(model, "flambeau", "cpu", *options)
        peer_warm = peers.call(model, "torch", "inductor", *options)
        later = steady_calls(ours, peers, model, str(batch), str(steady))
        ours.stop_daemon()
        restart = ours.call(model, "flambeau", "cpu", *options)
        eager = ours.call(model, "flambeau", "eager", *options)
        peer_eager = capture.call(model, "torch", "eager", *options)
    finally:
        for caches in (ours, peers, capture):
            caches.close()
    counters = cold["counters"]
    peaks = {
        key: statistics.median(run[key] for run in (cold, warm, restart)) for key in ("eager_peak_mb", "call_peak_mb")
    }
    return {
        "eager_ms": later["eager"] * 1e3,
        "capture_ms": eager["first"] * 1e3,
        "peer_capture_ms": (peer_eager["first"] - peer_eager["imports"]) * 1e3,
        "cold_ms": cold["first"] * 1e3,
        "peer_cold_ms": (peer_cold["first"] - peer_cold["imports"]) * 1e3,
        "peer_import_ms": peer_cold["imports"] * 1e3,
        "second_ms": warm["first"] * 1e3,
        "peer_second_ms": (peer_warm["first"] - peer_warm["imports"]) * 1e3,
        "restart_ms": restart["first"] * 1e3,
        "steady_ms": later["flambeau"] * 1e3,
        "peer_steady_ms": later["torch"] * 1e3,
        "graphs": counters["graphs"],
        "breaks": sum(counters["graph_breaks"].values()),
        "fallbacks": sum(counters["eager_fallbacks"].values()),
        "error": cold["error"],
        "eager_peak_mb": peaks["eager_peak_mb"],
        "peak_mb": peaks["call_peak_mb"],
        "added_mb": cold["added_mb"],
        "daemon_mb": cold["daemon_mb"],
    }


RATIOS = {
    "capture": ("peer_capture_ms", "capture_ms"),
    "cold": ("peer_cold_ms", "cold_ms"),
    "second": ("peer_second_ms", "second_ms"),
    "restart": ("peer_second_ms", "restart_ms"),
    "steady": ("peer_steady_ms", "steady_ms"),
}


SECTIONS = {
    "First calls, ms": [
        "capture_ms",
        "peer_capture_ms",
        "cold_ms",
        "peer_cold_ms",
        "second_ms",
        "restart_ms",
        "peer_second_ms",
        "peer_import_ms",
    ],
    "Steady calls": ["eager_ms", "steady_ms", "peer_steady_ms", "graphs", "breaks", "fallbacks", "error"],
    "Memory, MB": ["eager_peak_mb", "peak_mb", "added_mb", "daemon_mb"],
}


def geomean(values: list[float]) -> float:
    """Geometric mean."""
    return math.exp(statistics.fmean(map(math.log, values)))


def small_calls() -> dict[str, float]:
    """What compiling adds to a call of `x + 1` on 8 floats, ns; less than zero where the compiled call is faster."""
    caches = Caches()
    try:
        ours, peer = caches.run("small_call.py", "flambeau"), caches.run("small_call.py", "torch")
    finally:
        caches.close()
    return {
        "eager_ns": ours["eager"],
        "added_ns": ours["compiled"] - ours["eager"],
        "peer_added_ns": peer["compiled"] - peer["eager"],
    }


def graph_breaks() -> dict[str, float]:
    """First calls of nested frames of 200 operations with a break in the innermost, s; what a break in a loop's body
    adds to an iteration, us."""
    caches = Caches()
    try:
        nested = {
            f"{name}_s": caches.run("nested.py", *call)["first"]
            for name, call in {
                "nested_50": ("50", "flambeau", "eager"),
                "nested_100": ("100", "flambeau", "eager"),
                "nested_100_native": ("100", "flambeau", "cpu"),
                "peer_nested_100": ("100", "torch", "eager"),
            }.items()
        }
        loops = {backend: caches.run("loop.py", "10000", backend) for backend in ("eager", "cpu")}
    finally:
        caches.close()
    added = {f"loop_{name}_us": (loop["compiled"] - loop["eager"]) * 1e6 for name, loop in loops.items()}
    counts = {f"loop_{key}": loops["cpu"][key] for key in ("graphs", "recompiles")}
    return {**nested, **added, **counts}


def own_costs() -> dict[str, dict[str, float]]:
    """What a call costs beside kernels and torch's functions, ns, by program (`own_cost.py`)."""
    caches, found = Caches(), {}
    try:
        for program in ("resnet50", "mlp", "tensors", "tensors_60"):
            ours, peer = (caches.run("own_cost.py", program, compiler) for compiler in ("flambeau", "torch"))
            found[program] = ours | {f"peer_{name}": ns for name, ns in peer.items()}
    finally:
        caches.close()
    return found


def many_frames() -> dict[str, float]:
    """Calls of functions with many compiled frames, ns (`many_frames.py`)."""
    caches = Caches()
    try:
        return caches.run("many_frames.py")
    finally:
        caches.close()


def batches() -> dict[str, dict]:
    """Models that are called with batches of 1 to 64 in random order (`batches.py`)."""
    caches = Caches()
    try:
        return {model: caches.run("batches.py", model, "2") for model in ("resnet18", "decoder")}
    finally:
        caches.close()


def table(rows: list[dict], columns: list[str]) -> str:
    """A Markdown table."""
    lines = ["| model | batch | " + " | ".join(columns) + " |", "|---" * (len(columns) + 2) + "|"]
    for row in rows:
        cells = [f"{row[c]:.1e}" if c == "error" else f"{row[c]:.4g}" for c in columns]
        lines.append(f"| {row['model']} | {row['batch']} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def report(rows: list[dict], beside: dict[str, dict], as_json: bool) -> None:
    """Prints everything; `beside`: what is not of the models."""
    small, breaks, own = beside["small_call"], beside["graph_breaks"], beside["own_cost"]
    for row in rows:
        row |= {f"{name} x": row[a] / row[b] for name, (a, b) in RATIOS.items()}
    ratios = {name: geomean([row[f"{name} x"] for row in rows]) for name in RATIOS}
    if as_json:
        print(json.dumps({"rows": rows, "ratios": ratios, **beside}))
        return
    for title, columns in SECTIONS.items():
        print(f"{title}\n\n{table(rows, columns)}\n")
    print(f"Ratios, torch.compile / flambeau\n\n{table(rows, [f'{name} x' for name in RATIOS])}\n")
    print("Geometric means: " + ", ".join(f"{k} {v:.3g}x" for k, v in ratios.items()))
    print(
        f"x + 1 on 8 floats: eager {small['eager_ns']:.0f} ns; flambeau adds {small['added_ns']:+.0f} ns, "
        f"torch.compile {small['peer_added_ns']:+.0f} ns"
    )
    print(
        "A break below nested frames, first call: 50 frames {nested_50_s:.3g} s, 100 {nested_100_s:.3g} s, native "
        "{nested_100_native_s:.3g} s, torch.compile {peer_nested_100_s:.3g} s\n"
        "A break in a loop of 10,000 adds {loop_eager_us:+.3g} us an iteration, native {loop_cpu_us:+.3g} us; "
        "{loop_graphs} graphs, {loop_recompiles} recompiles".format(**breaks)
    )
    print("Guards and dispatch of a call, ns, alone and between kernels: flambeau, torch.compile (the whole call)")
    for program, found in own.items():
        text = "  {}: {alone:.0f}, {peer_alone:.0f} and {own:.0f}, {peer_own:.0f} ({call:.0f}, {peer_call:.0f})"
        print(text.format(program, **found))
    each = {who: (own["tensors_60"][who] - own["tensors"][who]) / 50 for who in ("alone", "peer_alone")}
    print("  each tensor: {alone:.1f}, {peer_alone:.1f}".format(**each))
    print(
        "Calls, ns: one frame {one:.0f}, eight in turn {turns:.0f}; an attribute of a layer set {sets:.0f}, flipped "
        "{flips:.0f}; of a small function over the limit {over:.0f}, eager {eager:.0f}".format(**beside["many_frames"])
    )
    print("Batches of 1 to 64 in random order")
    for model, found in beside["batches"].items():
        worst = max(found["multiples"].values())
        print(
            f"  {model}: {found['compiles']} compiles, error {found['error']:.1e}; "
            f"at most {worst:.3g} times the time of kernels for one batch"
        )


def profile(model: str, batch: int, as_json: bool) -> None:
    """The steps of a model's plan beside torch.compile's, the longest first, in us of a call."""
    ours, peers = Caches(), Caches()
    try:
        pages = {
            name: caches.run("steps.py", model, str(batch), name)
            for name, caches in (("flambeau", ours), ("torch", peers))
        }
    finally:
        ours.close()
        peers.close()
    if as_json:
        print(json.dumps({"model": model, "batch": batch, **pages}, indent=1))
        return
    for name, page in pages.items():
        inside = sum(spent for _, spent in page["steps"])
        print(f"{name}: {page['whole']:.1f} us a call, {inside:.1f} in {len(page['steps'])} steps")
        for text, spent in sorted(page["steps"], key=lambda step: -step[1])[:MOST_STEPS]:
            print(f"  {spent:9.2f} {spent / page['whole']:6.1%}  {text}")


def main() -> None:
    options = arguments()
    if options.profile:
        profile(options.profile, options.batches[0], options.json)
        return
    rows = []
    for model in options.models:
        for batch in options.batches if model != "seawater" else options.batches[:1]:
            print(f"{model} batch {batch} ...", file=sys.stderr, flush=True)
            rounds = [measure(model, batch, options.steady) for _ in range(options.runs)]
            row = {key: statistics.median(r[key] for r in rounds) for key in rounds[0]}
            rows.append({"model": model, "batch": batch, **row})
    beside = {
        "small_call": small_calls(),
        "graph_breaks": graph_breaks(),
        "own_cost": own_costs(),
        "many_frames": many_frames(),
        "batches": batches(),
    }
    report(rows, beside, options.json)


if __name__ == "__main__":
    main()
