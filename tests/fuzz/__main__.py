"""`python -m tests.fuzz --seeds 0:1000 --mode plain,wrap,leaf,flat,warm --jobs 2 --time-limit 600 --report out.json`."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from dataclasses import asdict
from pathlib import Path

from .driver import Options, Run

MODES = ("plain", "wrap", "leaf", "flat", "warm")


def seeds(text: str) -> list[int]:
    """`3`, `0:1000`, or several with commas."""
    made: list[int] = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition(":")
        made += range(int(first), int(last)) if last else [int(first)]
    return made


def main() -> int:
    """Runs what the command line says; 1 if anything differed."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seeds", type=seeds, default=seeds("0:1000"), help="3, 0:1000, or several with commas")
    parser.add_argument("--mode", default="plain", help=f"of {', '.join(MODES)}; several with commas")
    parser.add_argument("--backend", default="alternate", help="eager, cpu, both with a comma, or alternate by seed")
    parser.add_argument(
        "--device", default="cpu", help="torch's default device, like cuda:0, for tensors that are made"
    )
    parser.add_argument("--unshrunk", default="", help="kinds of failures not to shrink, like traceback,state")
    parser.add_argument("--breaks", type=float, help="how often programs break, 0 to 1, instead of by seed")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--batch", type=int, default=400, help="programs in one process")
    parser.add_argument("--time-limit", type=float, default=3600, help="seconds")
    parser.add_argument("--shrink", type=int, default=8, help="failures to shrink of each kind and mode")
    parser.add_argument("--shrink-seconds", type=float, default=40)
    parser.add_argument("--report", type=Path, help="where to write a JSON report")
    parser.add_argument("--file", action="append", default=[], help="a program to run besides, named SEED_what.txt")
    parser.add_argument("--show", action="store_true", help="print the programs and run nothing")
    args = parser.parse_args()
    wanted = args.mode.split(",")
    if unknown := set(wanted) - set(MODES):
        parser.error(f"no mode {', '.join(sorted(unknown))}; there are {', '.join(MODES)}")
    if args.show:
        from . import program

        for seed in args.seeds:
            print(f"# seed {seed}\n{program.source(seed, args.breaks)}")
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the run's daemons are stopped
    options = Options(
        seeds=args.seeds,
        modes=wanted,
        backends=args.backend,
        device=args.device,
        jobs=args.jobs,
        batch=args.batch,
        seconds=args.time_limit,
        shrink=args.shrink,
        shrink_seconds=args.shrink_seconds,
        unshrunk=args.unshrunk.split(","),
        breaks=args.breaks,
        files=args.file,
    )
    report = Run(options).all()
    if args.report:
        args.report.write_text(json.dumps(asdict(report), indent=1))
    kinds: dict[str, int] = {}
    for failure in report.failures:
        name = f"{failure['mode']} {failure['kind']}"
        kinds[name] = kinds.get(name, 0) + 1
    print(f"{report.programs} programs in {report.seconds} s; failures: {kinds or 'none'}")
    print("counts:", dict(sorted(report.counts.items(), key=lambda item: -item[1])))
    if 2 * report.counts.get("left out", 0) > sum(report.programs.values()):
        print("most programs could not be loaded, or were too slow eagerly: this run says nothing", file=sys.stderr)
        return 1
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
