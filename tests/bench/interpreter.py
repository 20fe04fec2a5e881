"""What flambeau costs beside compiled code, on whichever Python runs this; prints JSON:

`entry`: nanoseconds of a call of a compiled function that does nothing, less its guards; `guards`: those. What the
timer itself takes is left out.
`flat`: how much longer the guards of a net of 200 modules without parameters take than those of one of 50.
`fib`: how much longer plain Python takes in a process that has compiled something than in one without flambeau.

Usage: interpreter.py
"""

import json
import statistics
import subprocess
import sys
import time

ROUNDS = 15


def fib(n: int) -> int:
    """Calls, comparisons and sums."""
    return n if n < 2 else fib(n - 1) + fib(n - 2)


def time_fib() -> float:
    """Seconds of the fastest of some rounds."""

    def once() -> float:
        begun = time.perf_counter()
        fib(24)
        return time.perf_counter() - begun

    return min(once() for _ in range(ROUNDS))


def beside(compiled: bool) -> None:
    """A process of its own: prints what `time_fib` gives, with flambeau in use or not."""
    import torch

    if compiled:
        import flambeau

        def below(x):
            flambeau.graph_break()
            return x + 1

        flambeau.compile(below)(torch.ones(3))
    print(time_fib())


def slower(rounds: int = 9) -> float:
    """The ratio of medians over processes that take turns."""

    def once(kind: str) -> float:
        return float(subprocess.run([sys.executable, __file__, kind], check=True, capture_output=True).stdout)

    found = [(once("with"), once("without")) for _ in range(rounds)]
    return statistics.median(a for a, _ in found) / statistics.median(b for _, b in found)


def main() -> None:
    """Prints everything."""
    import torch

    import flambeau

    timing = flambeau._native._testing
    counted, _ = timing.empty_section()

    def nothing():
        return 1

    class Plain(torch.nn.Module):
        def forward(self, x):
            return x

    def guards(compiled, *args) -> float:
        compiled(*args)
        compiled(*args)
        return min(timing.time_guards(20_000, compiled, *args) for _ in range(ROUNDS))

    entered = flambeau.compile(nothing)
    of_nothing = guards(entered)
    call = min(timing.time_calls(100_000, entered) for _ in range(ROUNDS)) - counted

    def net(modules: int):
        layers = torch.nn.Sequential(*(Plain() for _ in range(modules))).eval()
        return flambeau.compile(lambda x: layers(x) + 1), torch.ones(4)

    shallow, deep = (net(modules) for modules in (50, 200))
    pairs = [(guards(*deep), guards(*shallow)) for _ in range(5)]
    flat = statistics.median(a for a, _ in pairs) / statistics.median(b for _, b in pairs)
    print(json.dumps({"entry": call - of_nothing, "guards": of_nothing, "flat": flat, "fib": slower()}))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        beside(sys.argv[1] == "with")
    else:
        main()
