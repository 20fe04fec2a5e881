"""A process whose threads call one compiled module while another one changes its hooks, its sizes and its attributes.

Prints as JSON how many results were what no state of the module gives, and how much memory grew.

Usage: threads.py THREADS CALLS
"""

import gc
import json
import sys
import threading
import time

import torch

import flambeau


class Scaled(torch.nn.Module):
    """A layer, times an attribute."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)
        self.scale = 1.0

    def forward(self, x):
        """Two operations and a constant."""
        return self.layer(x).relu() * self.scale


def memory() -> int:
    """Bytes that the process holds."""
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096


def main() -> None:
    threads, calls = map(int, sys.argv[1:])
    torch.set_num_threads(1)
    torch.manual_seed(0)
    flambeau.config.recompile_limit = 64
    module = Scaled()
    compiled = flambeau.compile(module, backend="cpu")
    inputs = [torch.randn(size, 8) for size in (1, 2, 3, 5)]
    scales, shifts = (1.0, 2.0), (0.0, 10.0)
    with torch.no_grad():
        plain = [module(x) for x in inputs]
    states = [[value * scale + shift for scale in scales for shift in shifts] for value in plain]
    wrong, done, traced, stop = [0] * threads, [0] * threads, [0], threading.Event()

    def call(number: int) -> None:
        for i in range(calls):
            k = (i + number) % len(inputs)
            # Grad mode is the thread's own.
            with torch.set_grad_enabled(number % 2 == 1):
                result = compiled(inputs[k])
            fits = any(torch.allclose(result.detach(), state, rtol=1e-5, atol=1e-6) for state in states[k])
            wrong[number] += not fits or result.requires_grad != (number % 2 == 1)
            done[number] = i + 1

    def change() -> None:
        handle, turn = None, 0
        while not stop.is_set():
            turn += 1
            module.scale = scales[turn % 2]
            if handle is None:
                handle = module.register_forward_hook(lambda module, args, result: result + shifts[1])
            else:
                handle.remove()
                handle = None
            if turn % 50 == 0:
                traced[0] += flambeau.counters()["frames_traced"]
                flambeau.reset()
            time.sleep(0.002)

    workers = [threading.Thread(target=call, args=(number,)) for number in range(threads)]
    changer = threading.Thread(target=change)
    for thread in [changer, *workers]:
        thread.start()
    while min(done) < calls // 4:
        time.sleep(0.01)
    gc.collect()
    before = memory()
    for thread in workers:
        thread.join()
    stop.set()
    changer.join()
    gc.collect()
    grown = memory() - before
    counters = flambeau.counters()
    facts = {"wrong": sum(wrong), "calls": sum(done), "grown": grown, "traced": traced[0] + counters["frames_traced"]}
    print(json.dumps(facts | {"eager_fallbacks": counters["eager_fallbacks"]}))


if __name__ == "__main__":
    main()
