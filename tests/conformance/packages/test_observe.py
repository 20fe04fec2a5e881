"""What counts as a difference between two calls."""

import torch

from . import observe


def seen(values):
    """A call that gave a tensor and a number."""
    return {"result": observe.Freezer().freeze((values, float(values.sum())))}


def test_rounding_is_judged_against_float64():
    exact = torch.full((4,), 1e-9, dtype=torch.float64)
    eager = torch.tensor([3e-8, -2e-8, 1e-8, 0.0])
    for other, differs in [
        (eager, False),
        (torch.tensor([-4e-8, 1e-8, 0.0, 3e-8]), False),  # noise as well, and no more of it
        (torch.tensor([9e-8, -2e-8, 1e-8, 0.0]), True),
        (torch.tensor([3e-8, float("nan"), 1e-8, 0.0]), True),
    ]:
        assert bool(observe.difference(seen(eager), seen(other), 1e-4, seen(exact))) is differs
        assert bool(observe.difference(seen(eager), seen(other), 1e-4)) is (other is not eager)
