"""Steps of AdamW as flambeau runs them, and as torch does: one call after another, its foreach and its fused form.

Fresh processes take turns. Printed are medians, and the interval of the median of the pairs' ratios, theirs / ours,
with a confidence of at least 95 %.

Usage: optimizers.py [--parameters N] [--pairs N] [--peers eager foreach fused torch] [--json]
"""

import argparse
import json
import statistics

from against import interval
from processes import Caches

PEERS = ["eager", "foreach", "fused", "torch"]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parameters", type=int, default=200)
    parser.add_argument("--pairs", type=int, default=7, help="processes of each (default: 7)")
    parser.add_argument("--peers", nargs="+", default=PEERS[:3], choices=PEERS)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", action="store_true", help="print JSON only")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    runs: dict[str, list[float]] = {way: [] for way in ("flambeau", *options.peers)}
    caches = Caches()
    try:
        for pair in range(options.pairs):
            for way in list(runs) if pair % 2 else reversed(list(runs)):
                found = caches.run("optimizer_step.py", str(options.parameters), "1.5", way, str(options.threads))
                runs[way].append(found["step"])
    finally:
        caches.close()
    rows = {}
    for peer in options.peers:
        ratios = [theirs / ours for theirs, ours in zip(runs[peer], runs["flambeau"], strict=True)]
        rows[peer] = (statistics.median(ratios), *interval(ratios))
    medians = {way: statistics.median(found) for way, found in runs.items()}
    if options.json:
        print(json.dumps({"seconds": medians, "ratios": rows}))
        return
    print("ms: " + ", ".join(f"{way} {seconds * 1e3:.3g}" for way, seconds in medians.items()))
    for peer, (ratio, low, high) in rows.items():
        print(f"{peer} / flambeau: {ratio:.2f} [{low:.2f}, {high:.2f}]")


if __name__ == "__main__":
    main()
