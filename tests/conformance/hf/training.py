"""A child process, as `worker`: two training steps of each architecture, loss, backward, plain SGD.

Gradients are judged by eager's, and where they differ by those of float64: they may be twice as far from these as
eager's, or by some roundings of the largest gradient of the model. Status as in `worker`; `none` also where eager has
no gradient.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from tests.conformance import children
from tests.conformance.packages import observe
from tests.conformance.packages.worker import compiler, counts

from . import build
from .worker import main, report, since

FLOOR, MOST = 2e-5, 2e-3
"""Errors in units of the largest gradient: what is no fault; and what is one whatever float64 gives, as other random
numbers may have been drawn there."""
RATE = 1e-3


@dataclass
class Steps:
    """The losses, and the gradients of each step."""

    losses: list[float]
    gradients: list[dict[str, torch.Tensor]]
    error: tuple[str, str] | None = None

    def largest(self, step: int) -> float:
        """The largest magnitude among the gradients of a step."""
        return max((float(g.abs().max()) for g in self.gradients[step].values() if g.numel()), default=0.0)


def train(model: Any, call: Callable[..., Any], given: dict[str, Any], dtype: torch.dtype | None = None) -> Steps:
    """Trains a model by `call`, from equal states of the generators."""
    found = Steps([], [])
    observe.seed(2)
    wide = {
        key: value.to(dtype) if dtype and isinstance(value, torch.Tensor) and value.is_floating_point() else value
        for key, value in given.items()
    }
    try:
        for _ in range(2):
            outputs = [t for t in observe.tensors(call(**wide), [], set()) if t.requires_grad]
            loss = sum((t * torch.linspace(0.5, 1.5, t.numel(), dtype=t.dtype).view(t.shape)).mean() for t in outputs)
            if not isinstance(loss, torch.Tensor):
                raise ValueError("no output requires grad")
            loss.backward()
            found.losses.append(loss.item())
            named = {name: p for name, p in model.named_parameters() if p.grad is not None}
            found.gradients.append({name: p.grad.detach().to_dense() for name, p in named.items()})
            with torch.no_grad():
                for parameter in named.values():
                    parameter -= RATE * parameter.grad
                    parameter.grad = None
    except Exception as error:
        found.error = type(error).__name__, str(error)
    return found


def apart(a: torch.Tensor, b: torch.Tensor) -> float:
    """The largest difference; what is not finite in both does not count."""
    numbers = (a.double() - b.double()).abs()
    same = (a == b) | (a.isnan() & b.isnan())
    numbers = torch.where(same, torch.zeros_like(numbers), numbers).nan_to_num(nan=float("inf"))
    return float(numbers.max()) if numbers.numel() else 0.0


def difference(eager: Steps, ours: Steps, exact: Callable[[], Steps]) -> str:
    """How ours differs; empty if it does not."""
    if eager.error != ours.error:
        return f"{ours.error} instead of {eager.error}"
    wide: Steps | None = None
    for step, (theirs, own) in enumerate(zip(eager.gradients, ours.gradients, strict=True)):
        if set(theirs) != set(own):
            return f"step {step}: gradients of {sorted(set(theirs) ^ set(own))[:4]} on one side alone"
        largest = max(eager.largest(step), 1e-30)
        for name, gradient in theirs.items():
            off = apart(gradient, own[name]) / largest
            if off <= FLOOR:
                continue
            wide = wide or exact()
            if off <= MOST and step < len(wide.gradients) and name in wide.gradients[step]:
                reference, error = (apart(g, wide.gradients[step][name]) / largest for g in (gradient, own[name]))
                if error <= max(FLOOR, 2 * reference):
                    continue
            return f"step {step}: the gradient of {name} is off by {off:.1e} of the largest"
    return ""


def compare(name: str, way: str) -> dict[str, Any]:
    """Runs one architecture."""
    try:
        model, given, _ = build.ready(name)
    except Exception as error:
        return {"status": "none", "detail": str(error)[:200]}
    model.train()
    start = copy.deepcopy(model.state_dict())
    eager = train(model, model, given)
    if eager.error:
        return {"status": "none", "detail": str(eager.error)[:200]}

    def exact() -> Steps:
        model.load_state_dict(start)
        model.double()
        return train(model, model, given, torch.float64)

    model.load_state_dict(start)
    before = counts(way)
    compiled = compiler(way)(model)
    ours = train(model, compiled, given)
    found = {**since(before, counts(way)), **report(compiled)}
    if not (differs := difference(eager, ours, exact)):
        return {"status": "right", **found}
    return {"status": "broken" if ours.error else "wrong", "detail": differs[:300], **found}


if __name__ == "__main__":
    main(children.job(), children.Voice(), compare)
