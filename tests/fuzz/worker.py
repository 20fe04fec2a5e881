"""A child process: checks the programs of one job, or shrinks one failure; an event per line of JSON on standard output.

{"start": place}   {"survived": place, its eager run}   {"done": place, "failure": null or {...}, "tried": whether it was run compiled, "limited": whether it reached the limit of compiles}   {"end": {...counts}}
"""

from __future__ import annotations

import gc
import json
import os
import re
import resource
import sys
import time
import warnings
from functools import partial
from typing import Any

import torch

import flambeau

from . import check, program, shrink, world

MEMORY = 6 << 30
"""What a child may have, in bytes."""
OWN = re.compile(r"![rsa]:|\b(time\.(time|time_ns|perf_counter|monotonic)|datetime\.now|id|os\.getpid)\(")
"""What gives a process its own values (clocks, addresses, texts with addresses): a frame that computes with one after a
break is traced in each process."""


def main(job: dict[str, Any]) -> None:
    """Runs a job: {"programs": [[seed, source or null]], "mode", "backend", "device", "until", "second", "limited"} or
    {"shrink": failure, "device", "seconds"}."""
    events = os.fdopen(os.dup(1), "w", buffering=1)
    torch.set_num_threads(1)
    if job["device"] == "cpu":
        # A program that asks for more gets a MemoryError, and no other process is killed for it.
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    else:  # whose driver maps all of its memory
        torch.set_default_device(job["device"])
    with warnings.catch_warnings():  # the first use imports a lot, with warnings
        warnings.simplefilter("ignore")
        world.kept(world.off, torch.ones(1))
    gc.collect()
    gc.freeze()  # programs have their garbage collected, and torch has half a million objects to look at each time

    def say(event: dict[str, Any]) -> None:
        events.write(json.dumps(event) + "\n")

    if "shrink" in job:
        failure = check.Failure(**job["shrink"])
        smaller = shrink.shrink(failure, job["seconds"])
        say({"shrunk": smaller.data() if smaller else None})
        return
    counts: dict[str, int] = {}
    for at, (seed, given) in enumerate(job["programs"]):
        if time.time() > job["until"]:
            break
        text = program.source(seed) if given is None else given
        say({"start": at})
        flambeau.reset()
        said = partial(say, {"survived": at})
        failure = check.check(text, seed, job["mode"], job["backend"], survived=said)
        now = flambeau.counters()
        traced = now["frames_traced"]
        limited = "recompile_limit" in now["eager_fallbacks"] or seed in job["limited"]
        if job["second"] and traced and not failure and not limited and not OWN.search(text):
            detail = f"{traced} frames traced in the second process"
            failure = check.Failure("warm", detail, seed, job["mode"], job["backend"], text)
        fallbacks = {f"eager: {name}": count for name, count in now["eager_fallbacks"].items()}
        for name, count in {"graphs": now["graphs"], "traced": traced, **now["graph_breaks"], **fallbacks}.items():
            counts[name] = counts.get(name, 0) + count
        tried = bool(failure or traced or sum(now["cache"]["hits"].values()))
        counts["left out"] = counts.get("left out", 0) + (not tried)
        say({"done": at, "failure": failure and failure.data(), "tried": tried, "limited": limited})
    say({"end": counts})


if __name__ == "__main__":
    main(json.load(sys.stdin))
