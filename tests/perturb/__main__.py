"""`python -m perturb [--backend cpu] [--dynamic] [--seed N] [NAME ...]`, in the folder `tests`:
all changes of entries of the corpus, or of a random program.
"""

from __future__ import annotations

import argparse
import time

from fuzz import program

from .absent import ABSENT
from .changes import absences, every
from .check import check
from .corpus import ENTRIES
from .world import Entry, World


def main() -> int:
    """Runs what the command line says; 1 if anything differed."""
    parser = argparse.ArgumentParser(prog="python -m perturb", description=__doc__)
    parser.add_argument("names", nargs="*", help="entries of the corpus; all by default")
    parser.add_argument("--backend", default="eager")
    parser.add_argument("--dynamic", action="store_true", help="sizes and ints may become symbolic")
    parser.add_argument("--seed", type=int, action="append", default=[], help="a random program of the fuzzer instead")
    parser.add_argument("--most", type=int, help="so many changes of each entry")
    parser.add_argument("--change", help="only changes whose name contains this")
    parser.add_argument("--absent", action="store_true", help="what was not there appears, in all entries")
    args = parser.parse_args()
    entries = [Entry(f"seed {seed}", program.source(seed, 0.2), seed, reach=3) for seed in args.seed]
    known = [*ABSENT, *ENTRIES] if args.absent else ENTRIES
    entries = entries or [e for e in known if not args.names or e.name in args.names]
    wrong = 0
    for entry in entries:
        try:
            World(entry)
        except Exception as error:
            print(f"{entry.name}: cannot be loaded: {error}")
            continue
        began = time.process_time()
        report = check(
            entry,
            args.backend,
            None if args.dynamic else False,
            args.most,
            args.change,
            absences if args.absent else every,
        )
        seconds = time.process_time() - began
        counts = f"{report.changes} changes, {len(report.refused)} refused, {len(report.wrong)} wrong, {seconds:.1f} s"
        print(f"{entry.name}: {counts}; {len(report.guards)} guards", flush=True)
        for found in report.wrong:
            print(f"  {found}")
        for guard in report.unbroken():
            print(f"  broken by nothing: {guard}")
        wrong += len(report.wrong)
    return int(wrong > 0)


if __name__ == "__main__":
    raise SystemExit(main())
