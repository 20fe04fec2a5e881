"""Times this checkout and an older one in pairs of fresh processes: own cost per call, first calls, steady calls.

Each pair runs both, in turn first; its ratio is old time / new time, so more is better. Printed are medians and the
interval of the median ratio with a confidence of at least 95 % (order statistics, which assume no distribution; seven
pairs give the smallest and the largest). "No worse" is an interval that is not wholly below 0.97.

Both checkouts need what `cargo xtask develop` builds. The scripts are this checkout's, the packages each one's own.

Usage: against.py CHECKOUT [--pairs N] [--only own first steady] [--models ...] [--programs ...] [--json]
"""

import argparse
import json
import math
import os
import statistics
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from processes import Caches

MODELS = ["resnet18", "mobilenet_v2", "vit_tiny_patch16_224", "transformer_encoder", "decoder", "seawater"]
PROGRAMS = ["mlp", "tensors", "tensors_60", "resnet50"]
NEW = Path(__file__).parents[2]
NO_WORSE = 0.97
CONFIDENCE = 0.95

Sample = Callable[[Caches], dict[str, float]]
"""Seconds or nanoseconds of one run in fresh caches, by figure."""


def own(program: str) -> Sample:
    """A call, ns: the whole, what it spends beside kernels and torch's functions, and alone, without these
    (`own_cost.py`). The second is a difference of two times, and timing a section costs other builds some nanoseconds
    more or less: of short calls, compare the others."""
    return lambda caches: {
        name: ns for name, ns in caches.run("own_cost.py", program, "flambeau").items() if name != "outside"
    }


def first(model: str) -> Sample:
    """First calls, s: nothing stored, in a second process, and in one after the daemon has ended."""

    def sample(caches: Caches) -> dict[str, float]:
        found = {"cold": caches.call(model, "flambeau", "cpu")["first"]}
        found["second"] = caches.call(model, "flambeau", "cpu")["first"]
        caches.stop_daemon()
        found["restart"] = caches.call(model, "flambeau", "cpu")["first"]
        return found

    return sample


def steady(model: str) -> Sample:
    """A later call, s."""
    return lambda caches: {"steady": caches.run("steady.py", model, "1", "1.5", "flambeau")["median"]}


def samples(options: argparse.Namespace) -> Iterator[tuple[str, Sample]]:
    """What is measured, by what it is of."""
    for kind in options.only:
        for name in options.programs if kind == "own" else options.models:
            yield name, {"own": own, "first": first, "steady": steady}[kind](name)


def run(sample: Sample, checkout: Path) -> dict[str, float]:
    """One run of a checkout's package."""
    os.environ["PYTHONPATH"] = str(checkout / "shim/python")
    caches = Caches()
    try:
        return sample(caches)
    finally:
        caches.close()


def interval(ratios: list[float]) -> tuple[float, float]:
    """Bounds of the median: the innermost order statistics that hold it with the confidence."""
    ordered, count = sorted(ratios), len(ratios)
    outside, rank = 0.0, 0
    while 2 * (outside + math.comb(count, rank) / 2**count) <= 1 - CONFIDENCE:
        outside += math.comb(count, rank) / 2**count
        rank += 1
    return ordered[max(rank - 1, 0)], ordered[count - max(rank, 1)]


def compare(sample: Sample, old: Path, pairs: int) -> Iterator[tuple[str, dict[str, float | bool]]]:
    """Medians, ratio and bounds of each figure."""
    runs: dict[Path, list[dict[str, float]]] = {old: [], NEW: []}
    for i in range(pairs):
        for checkout in (old, NEW) if i % 2 else (NEW, old):
            runs[checkout].append(run(sample, checkout))
    for figure in runs[NEW][0]:
        before, after = ([one[figure] for one in runs[checkout]] for checkout in (old, NEW))
        ratios = [a / b for a, b in zip(before, after, strict=True)]
        low, high = interval(ratios)
        yield (
            figure,
            {
                "old": statistics.median(before),
                "new": statistics.median(after),
                "ratio": statistics.median(ratios),
                "low": low,
                "high": high,
                "no_worse": high >= NO_WORSE,
            },
        )


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path, metavar="CHECKOUT", help="the older checkout, built")
    parser.add_argument("--pairs", type=int, default=7, help="pairs of processes for each figure (default: 7)")
    parser.add_argument("--only", nargs="+", default=["own", "first", "steady"], choices=["own", "first", "steady"])
    parser.add_argument("--models", nargs="+", default=MODELS, choices=MODELS, help="for first and steady calls")
    parser.add_argument("--programs", nargs="+", default=PROGRAMS, choices=PROGRAMS, help="for own cost")
    parser.add_argument("--json", action="store_true", help="print JSON only")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    old, rows = options.old.resolve(), []
    if not (old / "shim/python/flambeau").is_dir():
        sys.exit(f"{old} is no checkout: it has no shim/python/flambeau")
    for name, sample in samples(options):
        for figure, row in compare(sample, old, options.pairs):
            rows.append({"of": name, "figure": figure, **row})
            line = "{of} {figure}: {old:.6g} -> {new:.6g}, {ratio:.3f} [{low:.3f}, {high:.3f}]".format(**rows[-1])
            print(line + ("" if row["no_worse"] else "  WORSE"), file=sys.stderr if options.json else sys.stdout)
            sys.stdout.flush()
    if options.json:
        print(json.dumps(rows))
    sys.exit(any(not row["no_worse"] for row in rows))


if __name__ == "__main__":
    main()
