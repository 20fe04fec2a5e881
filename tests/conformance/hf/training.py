"""A child process, as `worker`: two training steps of each architecture, loss, backward, plain SGD.

Gradients are judged by eager's. They may differ by some roundings of the largest gradient of the model, or by a few
times what eager's own are moved by when inputs and parameters are changed by one rounding: some models have no gradient
that is more certain. Status as in `worker`; `none` also where eager has no gradient.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch

from tests.conformance import children
from tests.conformance.packages import observe
from tests.conformance.packages.worker import compiler, counts

from . import build
from .worker import main, report, since

FLOOR = 2e-5
"""Errors that are no fault, in units of the largest gradient."""
FACTOR = 4.0
"""How many times as much as roundings move them gradients may differ."""
ROUNDING = 6e-8
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


def train(model: Any, call: Callable[..., Any], given: dict[str, Any]) -> Steps:
    """Trains a model by `call`, from equal states of the generators."""
    found = Steps([], [])
    observe.seed(2)
    try:
        for _ in range(2):
            outputs = [t for t in observe.tensors(call(**given), [], set()) if t.requires_grad]
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


def moved(model: Any, given: dict[str, Any]) -> Steps:
    """Trains a model whose parameters and inputs are changed by about one rounding."""
    generator = torch.Generator().manual_seed(3)

    def changed(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or not value.is_floating_point():
            return value
        return value.detach() * (1 + ROUNDING * torch.randn(value.shape, generator=generator, dtype=value.dtype))

    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(changed(parameter))
    return train(model, model, {key: changed(value) for key, value in given.items()})


def difference(eager: Steps, ours: Steps, move: Callable[[], Steps]) -> str:
    """How ours differs; empty if it does not."""
    if eager.error != ours.error:
        return f"{ours.error} instead of {eager.error}"
    other: Steps | None = None
    for step, (theirs, own) in enumerate(zip(eager.gradients, ours.gradients, strict=True)):
        if set(theirs) != set(own):
            return f"step {step}: gradients of {sorted(set(theirs) ^ set(own))[:4]} on one side alone"
        largest = max(eager.largest(step), 1e-30)
        off = max((apart(gradient, own[name]), name) for name, gradient in theirs.items())
        if off[0] <= FLOOR * largest:
            continue
        other = other or move()
        if step >= len(other.gradients) or set(other.gradients[step]) != set(theirs):
            return f"step {step}: roundings change what has a gradient"
        noise = max(apart(gradient, other.gradients[step][name]) for name, gradient in theirs.items())
        if off[0] > FACTOR * noise:
            apart_by, moved_by = off[0] / largest, noise / largest
            return f"step {step}: off by {apart_by:.1e} of the largest at {off[1]}, roundings by {moved_by:.1e}"
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

    def again(train: Callable[[], Steps]) -> Steps:
        model.load_state_dict(start)
        return train()

    model.load_state_dict(start)
    before = counts(way)
    compiled = compiler(way)(model)
    ours = train(model, compiled, given)
    found = {**since(before, counts(way)), **report(compiled)}
    differs = difference(eager, ours, lambda: again(lambda: moved(model, given)))
    if not differs:
        return {"status": "right", **found}
    with mock.patch("torch.compiler.is_compiling", return_value=True):
        other = again(lambda: train(model, model, given))
        if not difference(other, ours, lambda: again(lambda: moved(model, given))):
            return {"status": "asks", **found}
    return {"status": "broken" if ours.error else "wrong", "detail": differs[:300], **found}


if __name__ == "__main__":
    main(children.job(), children.Voice(), compare)
