"""Training steps as flambeau, eager torch and torch.compile run them: forward, loss, backward, optimizer.

Fresh processes take turns; each compiler keeps its own caches between them, so that the first process is cold and the
later ones are warm. Printed are medians, and the interval of the median of the pairs' ratios with a confidence of at
least 95 %. Ratios are theirs / ours, so more is better.

Usage: training.py [--models ...] [--batch N] [--optimizer SGD|AdamW] [--compiled model|whole] [--pairs N]
                   [--peers eager torch] [--json]
"""

import argparse
import json
import math
import statistics
import sys
from typing import Any

from against import interval
from processes import Caches
from training_step import MODELS

FIGURES = {"step": "ms", "first": "s", "peak_mb": "MB"}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--optimizer", default="SGD", choices=["SGD", "AdamW"])
    parser.add_argument("--compiled", default="model", choices=["model", "whole"], help="what is compiled")
    parser.add_argument("--pairs", type=int, default=7, help="processes of each (default: 7)")
    parser.add_argument("--peers", nargs="+", default=["eager", "torch"], choices=["eager", "torch"])
    parser.add_argument("--steady", type=float, default=1.5, help="seconds of steps, per process")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", action="store_true", help="print JSON only")
    return parser.parse_args()


def measure(model: str, options: argparse.Namespace) -> dict[str, Any]:
    """All figures of one model."""
    runs: dict[str, list[dict[str, float]]] = {compiler: [] for compiler in ("flambeau", *options.peers)}
    caches = Caches()
    call = (model, str(options.batch), str(options.steady))
    how = (str(options.threads), options.optimizer, options.compiled)
    try:
        for pair in range(options.pairs):
            for compiler in list(runs) if pair % 2 else reversed(list(runs)):
                runs[compiler].append(caches.run("training_step.py", *call, compiler, *how))
    finally:
        caches.close()
    row: dict[str, Any] = {"model": model, "batch": options.batch}
    for figure in FIGURES:
        # First steps: of the later processes, which are warm; of the first one by itself.
        used = {compiler: [run[figure] for run in found][figure == "first" :] for compiler, found in runs.items()}
        row[figure] = {compiler: statistics.median(found) for compiler, found in used.items()}
        for peer in options.peers:
            ratios = [theirs / ours for theirs, ours in zip(used[peer], used["flambeau"], strict=True)]
            row[f"{figure}_{peer}"] = (statistics.median(ratios), *interval(ratios))
    row["cold"] = {compiler: found[0]["first"] for compiler, found in runs.items()}
    return row


def text(row: dict[str, Any], peers: list[str]) -> str:
    """A line for each figure."""
    lines = [f"{row['model']}, batch {row['batch']}"]
    for figure, unit in FIGURES.items():
        scale = 1e3 if unit == "ms" else 1.0
        values = ", ".join(f"{compiler} {value * scale:.4g}" for compiler, value in row[figure].items())
        compared = [peer for peer in peers if figure != "first" or peer == "torch"]
        ratios = "; ".join("{} {:.3f} [{:.3f}, {:.3f}]".format(peer, *row[f"{figure}_{peer}"]) for peer in compared)
        lines.append(f"  {figure} {unit}: {values}; ratios: {ratios}")
    lines.append("  first cold s: " + ", ".join(f"{compiler} {value:.3g}" for compiler, value in row["cold"].items()))
    return "\n".join(lines)


def main() -> None:
    options = arguments()
    rows = []
    for model in options.models:
        rows.append(measure(model, options))
        print(text(rows[-1], options.peers), file=sys.stderr if options.json else sys.stdout, flush=True)
    if options.json:
        print(json.dumps(rows))
        return
    for peer in options.peers:
        for figure in ("step", "peak_mb"):
            logs = [math.log(row[f"{figure}_{peer}"][0]) for row in rows]
            print(f"geomean of {figure}, {peer} / flambeau: {math.exp(statistics.mean(logs)):.3f}")


if __name__ == "__main__":
    main()
