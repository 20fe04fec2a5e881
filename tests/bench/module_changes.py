"""Sequences of changes to a module under flambeau and torch.compile: calls that are right, graphs compiled. A table.

The programs are those of the tests (`tests/e2e/changing*.py`), in training. "right": values, gradients, logs of hooks,
buffers after a call are those of the plain module. Changes are made to the module itself, as what torch.compile gives
has other names of parameters. Graphs are what the back end is given, in all calls. One process; not a timing.

Usage: module_changes.py [PROGRAM ...]
"""

import sys
import warnings
from pathlib import Path

import torch

E2E = Path(__file__).parents[1] / "e2e"
sys.path[:0] = [str(E2E), str(E2E.parent)]

import changing  # noqa: E402
import changing_hooks  # noqa: E402, F401
import changing_modules  # noqa: E402, F401
import changing_state  # noqa: E402, F401
from support import assert_same  # noqa: E402

import flambeau  # noqa: E402

PARTS = ("outcome", "gradients", "state", "log")


class Counted:
    """A back end that counts the graphs it is given."""

    def __init__(self) -> None:
        self.graphs = 0

    def __call__(self, module, inputs):
        self.graphs += 1
        return module.forward


def wrong(seen, expected, slack) -> str:
    """The parts of a call that are not as expected."""
    parts = []
    for part in PARTS:
        try:
            assert_same(getattr(seen, part), getattr(expected, part), part, slack)
        except AssertionError:
            parts.append(part)
    return ", ".join(parts)


def row(program, compiling, counted) -> tuple[str, int]:
    """How the calls of a program went, and how many graphs were compiled."""
    expected = changing.drive(program, lambda module: module, True)
    try:
        seen = changing.drive(program, compiling, True, "module")
    except Exception as error:
        return f"the program fails: {type(error).__name__}", counted.graphs
    bad = {i: wrong(a, b, max(program.slack, 10.0)) for i, (a, b) in enumerate(zip(seen, expected, strict=False))}
    bad = {i: what for i, what in bad.items() if what}
    words = "; ".join(f"call {i}: {what}" for i, what in bad.items())
    return f"{len(expected) - len(bad)} of {len(expected)} right{': ' if words else ''}{words}", counted.graphs


def main() -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(2)
    flambeau.config.recompile_limit = torch._dynamo.config.recompile_limit = 16
    print("| program | flambeau | graphs | torch.compile | graphs |\n|---|---|---|---|---|")
    totals = [0, 0]
    for name, program in changing.PROGRAMS.items():
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        flambeau.reset()
        torch._dynamo.reset()
        ours, theirs = Counted(), Counted()
        cells = [
            *row(program, lambda module, b=ours: flambeau.compile(module, backend=b), ours),
            *row(program, lambda module, b=theirs: torch.compile(module, backend=b), theirs),
        ]
        totals = [totals[0] + ours.graphs, totals[1] + theirs.graphs]
        print(f"| {name.replace('_', ' ')} | {' | '.join(str(cell) for cell in cells)} |", flush=True)
    print(f"| all | | {totals[0]} | | {totals[1]} |")


if __name__ == "__main__":
    main()
