"""A child process: one program in one way, its calls observed; the answer is a file of JSON.

The ways: `eager`, `exact` (eager in float64), `flambeau`, `torch`. What the first two see is kept beside the answer
(`torch.save`); the others are compared with that here.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

import torch

from . import observe

KEPT = ("eager", "exact")


def compiler(way: str) -> Any:
    """What a program calls as `compile`."""
    if way == "flambeau":
        import flambeau

        return flambeau.compile
    if way == "torch":
        return lambda f, **options: torch.compile(f, backend="eager", **options)
    return lambda f, **_: f


def counts(way: str) -> dict[str, Any]:
    """Graphs, breaks and fallbacks of this process."""
    if way == "flambeau":
        import flambeau

        now = flambeau.counters()
        names = "graphs", "ops", "frames_traced", "recompiles", "recompile_limit_hits", "left_alone"
        found = {name: now[name] for name in names}
        found |= {"breaks": dict(now["graph_breaks"]), "fallbacks": dict(now["eager_fallbacks"])}
        return {**found, "op_by_op": dict(now["eager_graph_reasons"])}
    if way == "torch":
        from torch._dynamo.utils import counters

        return {
            "graphs": counters["stats"]["unique_graphs"],
            "breaks": sum(counters["graph_break"].values()),
            "reasons": {key.split("\n")[0][:100]: n for key, n in counters["graph_break"].items()},
        }
    return {}


def run(name: str, way: str, folder: Path) -> dict[str, Any]:
    """Runs a program and compares it with the eager run, if this is not that."""
    torch.set_num_threads(1)
    module = importlib.import_module(f"{__package__}.programs.{name}")
    observe.seed(0)
    program = module.program(compiler(way))
    seen, number = [], 0

    def kept(way: str) -> Any:
        file = folder / f"{name}.{way}"
        return torch.load(file, weights_only=False) if file.exists() else None

    expected, exact = (None, None) if way in KEPT else (kept("eager"), kept("exact"))
    for make in program.inputs:
        for _ in range(program.times):
            observe.seed(1000 + number)
            args = make()
            if way == "exact":
                args = observe.widened(args)
            observe.seed(2000 + number)
            found = observe.observe(program.call, args, program.state, program.backward)
            if expected is None:
                if found["exception"]:
                    return {"status": "broken", "detail": f"call {number}: {found['exception']}"}
                seen.append(found)
            else:
                differs = observe.difference(expected[number], found, program.tolerance, exact and exact[number])
                if differs:
                    return {"status": "wrong", "detail": f"call {number}: {differs}", **counts(way)}
            number += 1
    if expected is None:
        torch.save(seen, folder / f"{name}.{way}")
    return {"status": "right", **counts(way)}


def main(name: str, way: str, folder: str) -> None:
    warnings.simplefilter("ignore")
    warnings.filterwarnings("always", message="a compiled frame ran eagerly|flambeau")  # for the logs
    began = time.perf_counter()
    try:
        answer = run(name, way, Path(folder))
    except Exception as error:
        traceback.print_exc()
        answer = {"status": "broken" if way in KEPT else "wrong", "detail": f"{type(error).__name__}: {error}"}
    answer["seconds"] = round(time.perf_counter() - began, 1)
    (Path(folder) / f"{name}.{way}.json").write_text(json.dumps(answer))


if __name__ == "__main__":
    main(*sys.argv[1:])
