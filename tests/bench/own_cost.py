"""One process that times what calls cost beside kernels and torch's own functions, and prints nanoseconds as JSON:
medians of a call (`call`), of what it spends outside the compiler (`outside`), the difference (`own`): guards,
dispatch, arguments of kernels, what is checked on the way; and of a call that leaves out what is outside (`alone`),
less what leaving out takes. Of calls that take milliseconds, whose kernels vary by more than all of that, `own` and
`outside` are of the same call, less what timing itself takes. Such kernels also empty the processor's caches
between any two steps of a plan: `own` has the price of filling them again, `alone` has not.

Outside are, of flambeau: kernels and calls of torch's C interface, each timed by itself, less what timing counts of
nothing. Of torch.compile: all of inductor's generated code, its checks, allocations and calls with it. What is left out
gives what it made in an earlier call.

Usage: own_cost.py resnet50|mlp|mlp_50|tensors|tensors_60 flambeau|torch
"""

import gc
import json
import statistics
import sys
import time
from collections.abc import Callable

import torch

import flambeau

SECONDS = 4.0
"""How long calls are timed."""
LONG = 1e6
"""Nanoseconds of a call from which on each one is compared with itself."""
ALONE = (20, 500)
"""How often so many calls are timed that leave out what is outside."""
TIMING = flambeau._native._testing


def mlp(layers: int):
    """A tiny net of that many linear layers with a bias."""
    parts = [part for _ in range(layers) for part in (torch.nn.Linear(8, 8), torch.nn.ReLU())]
    return torch.nn.Sequential(*parts).eval(), (torch.randn(4, 8),)


def resnet50():
    """As torchvision has it, on one image."""
    import torchvision

    return torchvision.models.resnet50().eval(), (torch.randn(1, 3, 224, 224),)


def tensors(count: int):
    """A sum of that many tensors, each a parameter of its own."""
    names, made = [f"t{i}" for i in range(count)], {}
    exec(f"def total({', '.join(names)}):\n    return {' + '.join(names)}", made)
    return made["total"], tuple(torch.randn(8) for _ in range(count))


PROGRAMS = {
    "resnet50": resnet50,
    "mlp": lambda: mlp(100),
    "mlp_50": lambda: mlp(50),
    "tensors": lambda: tensors(10),
    "tensors_60": lambda: tensors(60),
}


Outside = Callable[[], tuple[float, float]]
"""Calls a compiled program: nanoseconds spent outside, and of its own in the same call."""
Alone = Callable[[], list[float]]
"""Calls it without what is outside: nanoseconds of a call, many times."""


def time_alone(compiled: Callable, args: tuple) -> list[float]:
    """Times the calls, while something leaves out what is outside."""
    rounds, repeats = ALONE
    return [TIMING.time_calls(repeats, compiled, *args) for _ in range(rounds)]


def ours(program, args) -> tuple[Callable, Outside, Alone]:
    """The compiled program, what splits a call's time, and what leaves out the rest."""
    compiled, (counted, taken, left_out) = flambeau.compile(program, backend="cpu"), TIMING.empty_section()

    def outside() -> tuple[float, float]:
        TIMING.measure_outside(True)
        call = TIMING.time_calls(1, compiled, *args)
        spent, sections = TIMING.measure_outside(False)
        return spent - sections * counted, call - spent - sections * (taken - counted)

    def alone() -> list[float]:
        TIMING.measure_outside(True)
        compiled(*args)
        _, sections = TIMING.measure_outside(False)
        # What this records stays in memory, so it is done once.
        TIMING.leave_out(compiled, *args)
        took = time_alone(compiled, args)
        TIMING.leave_nothing_out()
        return [ns - sections * left_out for ns in took]

    return compiled, outside, alone


def peers(program, args) -> tuple[Callable, Outside, Alone]:
    """The same for inductor."""
    compiled = torch.compile(program)
    compiled(*args)
    graphs = [o for o in gc.get_objects() if type(o).__name__ == "CompiledFxGraph"]
    [graph] = [graph for graph in graphs if graph.current_callable]
    generated, spent = graph.current_callable, [0]

    def timed(inputs):
        begun = time.perf_counter_ns()
        made = generated(inputs)
        spent[0] = time.perf_counter_ns() - begun
        return made

    def outside() -> tuple[float, float]:
        graph.current_callable = timed
        call = TIMING.time_calls(1, compiled, *args)
        graph.current_callable = generated
        return spent[0], call - spent[0]

    def alone() -> list[float]:
        made = []
        graph.current_callable = lambda inputs: made.append(generated(inputs)) or made[0]
        compiled(*args)
        graph.current_callable = lambda inputs: made[0]
        took = time_alone(compiled, args)
        graph.current_callable = generated
        return took

    return compiled, outside, alone


def main() -> None:
    torch.set_num_threads(2)
    program, args = PROGRAMS[sys.argv[1]]()
    with torch.no_grad():
        compiled, outside, alone = {"flambeau": ours, "torch": peers}[sys.argv[2]](program, args)
        for _ in range(20):
            outside()
        repeats = max(1, int(1e5 / TIMING.time_calls(20, compiled, *args)))
        found: dict[str, list[float]] = {"call": [], "outside": [], "own": [], "alone": alone()}
        until = time.perf_counter() + SECONDS
        while time.perf_counter() < until:
            found["call"].append(TIMING.time_calls(repeats, compiled, *args))
            for spent, own in (outside() for _ in range(repeats)):
                found["outside"].append(spent)
                found["own"].append(own)
    medians = {name: statistics.median(values) for name, values in found.items()}
    if medians["call"] < LONG:
        medians["own"] = medians["call"] - medians["outside"]
    print(json.dumps(medians))


if __name__ == "__main__":
    main()
