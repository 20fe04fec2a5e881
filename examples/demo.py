"""Compiles the example models and prints, per model: eager time, first calls (cold, in a second process, after a daemon
restart), steady time, graphs, breaks and the largest relative error. `--json` prints the same as JSON."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests/bench"))

from processes import Caches

NAMES = ["resnet18", "mobilenet_v2", "vit_tiny_patch16_224", "transformer_encoder", "decoder", "seawater"]
COLUMNS = ["model", "eager ms", "cold ms", "2nd process ms", "restart ms", "steady ms", "graphs", "breaks", "max error"]


def measure(model: str) -> dict[str, object]:
    """All figures of one model, on an empty cache and with its own daemon."""
    caches = Caches()
    try:
        cold = caches.call(model, "flambeau", "cpu", "--steady", "2")
        second = caches.call(model, "flambeau", "cpu")
        caches.stop_daemon()
        restart = caches.call(model, "flambeau", "cpu")
    finally:
        caches.close()
    milliseconds = [cold["eager"], cold["first"], second["first"], restart["first"], cold["steady"]]
    counters = cold["counters"]
    figures = [
        model,
        *(round(s * 1e3, 2) for s in milliseconds),
        counters["graphs"],
        sum(counters["graph_breaks"].values()),
    ]
    return dict(zip(COLUMNS, [*figures, f"{cold['error']:.1e}"], strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=NAMES, metavar="MODEL", help=", ".join(NAMES))
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args()
    rows = []
    for model in options.models:
        print(f"compiling {model} ...", file=sys.stderr, flush=True)
        rows.append(measure(model))
    if options.json:
        print(json.dumps(rows))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(
        *COLUMNS, title="flambeau, batch 1; first calls are from before `import flambeau`, less one eager call"
    )
    for row in rows:
        table.add_row(*(str(v) for v in row.values()))
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
