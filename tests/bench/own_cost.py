"""One process that times what calls cost beside kernels and torch's own functions, and prints nanoseconds as JSON:
medians of a call (`call`), of what it spends outside the compiler (`outside`), and of the difference (`own`): guards,
dispatch, arguments of kernels, what is checked on the way.

Outside are, of flambeau: kernels and calls of torch's C interface, each timed by itself, without what timing adds. Of
torch.compile: all of inductor's generated code, its checks, allocations and calls with it.

Usage: own_cost.py resnet50|mlp|mlp_50|tensors|tensors_60 flambeau|torch
"""

import gc
import json
import statistics
import sys
import time

import torch

SECONDS = 4.0
"""How long calls are timed."""


def mlp(layers: int):
    """A tiny net of that many linear layers with a bias."""
    parts = [part for _ in range(layers) for part in (torch.nn.Linear(8, 8), torch.nn.ReLU())]
    return torch.nn.Sequential(*parts).eval(), (torch.randn(4, 8),)


def resnet50():
    """As torchvision has it, on one image."""
    import torchvision

    return torchvision.models.resnet50().eval(), (torch.randn(1, 3, 224, 224),)


def tensors(count: int):
    """A sum of that many tensors."""

    def total(*tensors):
        found = tensors[0]
        for tensor in tensors[1:]:
            found = found + tensor
        return found

    return total, tuple(torch.randn(8) for _ in range(count))


PROGRAMS = {
    "resnet50": resnet50,
    "mlp": lambda: mlp(100),
    "mlp_50": lambda: mlp(50),
    "tensors": lambda: tensors(10),
    "tensors_60": lambda: tensors(60),
}


def flambeau_calls(program, args):
    """Compiles it: a function that calls it and gives the nanoseconds spent outside."""
    import flambeau

    compiled, testing = flambeau.compile(program, backend="cpu"), flambeau._native._testing
    compiled(*args)
    cost = testing.measuring_cost()

    def call() -> tuple[float, float]:
        testing.measure_outside(True)
        begun = time.perf_counter_ns()
        compiled(*args)
        taken = time.perf_counter_ns() - begun
        outside, sections = testing.measure_outside(False)
        return taken - sections * cost, outside

    return call


def torch_calls(program, args):
    """The same for inductor."""
    compiled = torch.compile(program)
    compiled(*args)
    graphs = [o for o in gc.get_objects() if type(o).__name__ == "CompiledFxGraph"]
    [graph] = [graph for graph in graphs if graph.current_callable]
    generated, spent = graph.current_callable, [0]

    def timed(inputs):
        begun = time.perf_counter_ns()
        made = generated(inputs)
        spent[0] += time.perf_counter_ns() - begun
        return made

    graph.current_callable = timed

    def call() -> tuple[float, float]:
        spent[0] = 0
        begun = time.perf_counter_ns()
        compiled(*args)
        return time.perf_counter_ns() - begun, spent[0]

    return call


def main() -> None:
    torch.set_num_threads(2)
    program, args = PROGRAMS[sys.argv[1]]()
    with torch.no_grad():
        call = {"flambeau": flambeau_calls, "torch": torch_calls}[sys.argv[2]](program, args)
        for _ in range(20):
            call()
        found = []
        until = time.perf_counter() + SECONDS
        while time.perf_counter() < until and len(found) < 20_000:
            found.append(call())
    own = [total - outside for total, outside in found]
    columns = {"call": [t for t, _ in found], "outside": [o for _, o in found], "own": own}
    print(json.dumps({name: statistics.median(values) for name, values in columns.items()}))


if __name__ == "__main__":
    main()
