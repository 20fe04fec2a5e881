"""The command line of fuzzers whose programs are quick: `--seeds`, `--show`, and a loop over the seeds."""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable

import torch


def told(source: Callable[[int], str], failure: Callable[[int], str]) -> Callable[[int], str]:
    """What is printed of a seed's failure, which is empty if there is none: how it differs, and the program."""
    return lambda seed: f"{found[:900]}\n{source(seed)}" if (found := failure(seed)) else ""


def run(name: str, description: str | None, shown: Callable[[int], str], failed: Callable[[int], str]) -> int:
    """Runs what the command line says; 1 if a program failed. Of a seed `shown` gives the program, and `failed` what to
    print of its failure, if it has one."""
    parser = argparse.ArgumentParser(prog=f"python -m tests.fuzz.{name}", description=description)
    parser.add_argument("--seeds", default="0:500", help="3 or 0:1000")
    parser.add_argument("--show", action="store_true", help="print the programs and run nothing")
    options = parser.parse_args()
    first, _, last = options.seeds.partition(":")
    seeds = range(int(first), int(last)) if last else [int(first)]
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    count = 0
    for seed in seeds:
        if options.show:
            print(shown(seed))
        elif found := failed(seed):
            count += 1
            print(f"FAIL {seed}: {found}", flush=True)
        if seed % 250 == 249:
            print(f"{seed + 1}: {count} failures", file=sys.stderr, flush=True)
    print(f"{len(seeds)} programs, {count} failures")
    return 1 if count else 0
