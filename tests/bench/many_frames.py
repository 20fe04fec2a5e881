"""One process that times calls of functions with many compiled frames, and prints nanoseconds of a call as JSON:

- `one`: of a net of 100 layers, always the same frame; `turns`: of eight frames in turn, which differ in a constant;
- `flips`: of the same net, two frames in turn, which differ in an attribute of its last layer; `sets`: of one, the
  attribute set to what it was before each call;
- `over`: of a small function, calls that match none of as many frames as there may be; `eager`: of the function itself.

Usage: many_frames.py
"""

import json
import statistics
import warnings
from collections.abc import Callable

import torch

import flambeau

TIMING = flambeau._native._testing
MODES = [f"mode{i}" for i in range(8)]
MORE = [f"more{i}" for i in range(8)]


class Switched(torch.nn.Linear):
    """A layer with a switch."""

    switch = False

    def forward(self, x):
        return super().forward(x) + 1 if self.switch else super().forward(x)


LAYERS = torch.nn.Sequential(*[torch.nn.Linear(8, 8) for _ in range(99)], Switched(8, 8)).eval()


def by_mode(x, mode):
    return LAYERS(x) + len(mode), mode.upper()


def small(x, mode):
    return x + 1, mode.upper()


def timed(*call) -> float:
    """Nanoseconds of one call."""
    return TIMING.time_calls(1, *call)


def cost(call: Callable[[int], float]) -> float:
    """Median nanoseconds of eight calls in turn."""
    return statistics.median(statistics.mean(call(i) for i in range(8)) for _ in range(300))


def main() -> None:
    warnings.simplefilter("ignore")
    x = torch.randn(4, 8)
    compiled = flambeau.compile(by_mode, backend="cpu")
    switched, over = flambeau.compile(LAYERS, backend="cpu"), flambeau.compile(small, backend="cpu")

    def switch(on: bool) -> float:
        LAYERS[-1].switch = on
        return timed(switched, x)

    with torch.no_grad():
        for mode in MODES + MORE:
            assert compiled(x, mode)[1] == by_mode(x, mode)[1]
            assert over(x, mode)[1] == small(x, mode)[1]
        found = {
            "one": cost(lambda i: timed(compiled, x, MODES[0])),
            "turns": cost(lambda i: timed(compiled, x, MODES[i])),
            "sets": cost(lambda i: switch(False)),
            "flips": cost(lambda i: switch(i % 2 == 0)),
            "over": cost(lambda i: timed(over, x, MORE[i])),
            "eager": cost(lambda i: timed(small, x, MORE[i])),
        }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
