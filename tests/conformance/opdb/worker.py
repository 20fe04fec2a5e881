"""A child process: runs the samples of some operators eagerly and compiled; an event per line of JSON.

{"start": name}   {"done": name, "status", "samples", "native", "detail", "said"}   {"end": true}

The job: {"names": [name, ...], "gradients": bool}. Status: `right`, `wrong`, `broken` (raises only when compiled),
`none` (no sample runs eagerly). `native`: samples of which every graph became a plan.
"""

from __future__ import annotations

import json
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from tests.conformance import children

MOST_SAMPLES = 12
"""Samples of one operator that are run."""
FLOOR = 2e-5
"""Error that is no fault, in units of the largest magnitude: some hundred roundings of float32."""
UNINITIALISED = ("empty", "new_empty")
"""What these give is compared by its metadata."""

Step = tuple[list[torch.Tensor], list[torch.Tensor | None]]


def operators() -> dict[str, Any]:
    """Operators with float32 by their names, those of variants apart."""
    from torch.testing._internal.common_methods_invocations import op_db

    named = {f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name: op for op in op_db}
    return {name: op for name, op in sorted(named.items()) if torch.float32 in op.dtypes}


def copied(tensor: torch.Tensor, dtype: torch.dtype | None) -> torch.Tensor:
    """A leaf with the same numbers and strides; of another type if it is a float."""
    own = tensor.detach()
    if dtype and own.is_floating_point():
        own = own.to(dtype)
    if own.layout is torch.strided and 0 not in own.stride():
        own = torch.empty_strided(own.shape, own.stride(), dtype=own.dtype).copy_(own)
    else:
        own = own.clone()
    return own.requires_grad_(tensor.requires_grad)


def program(op: Callable[..., Any]) -> Callable[..., Any]:
    """The operator with something after it: graphs of fewer calls are left to autograd."""

    def scaled(value: Any) -> Any:
        is_number = isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex())
        return (value * 2 + 1) * 0.5 if is_number else value

    def run(*args: Any, **kwargs: Any) -> Any:
        made = op(*args, **kwargs)
        return [scaled(item) for item in made] if isinstance(made, (tuple, list)) else scaled(made)

    return run


def step(run: Callable[..., Any], sample: Any, gradients: bool, dtype: torch.dtype | None = None) -> Step:
    """The tensors that a call gives, and the gradients of its arguments."""
    given = tree_map(
        lambda leaf: copied(leaf, dtype) if isinstance(leaf, torch.Tensor) else leaf,
        (sample.input, sample.args, sample.kwargs),
    )
    torch.manual_seed(7)
    with torch.set_grad_enabled(gradients):
        made = [leaf for leaf in tree_leaves(run(given[0], *given[1], **given[2])) if isinstance(leaf, torch.Tensor)]
    outputs = [output for output in made if output.requires_grad]
    leaves = [leaf for leaf in tree_leaves(given) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    if not outputs:
        return made, []
    weights = [torch.linspace(-1, 1.5, o.numel(), dtype=torch.float64).view(o.shape).to(o.dtype) for o in outputs]
    found = torch.autograd.grad(outputs, leaves, weights, allow_unused=True)
    return [output.detach() for output in made], [*found]


def error(found: torch.Tensor, exact: torch.Tensor) -> float:
    """The largest difference, in units of the largest magnitude; infinite where one is finite and the other is not."""
    wide = torch.complex128 if exact.is_complex() else torch.float64
    found, exact = found.to(wide), exact.to(wide)
    finite = exact.isfinite()
    if not torch.equal(found[~finite].nan_to_num(7.0), exact[~finite].nan_to_num(7.0)):
        return float("inf")
    if not finite.any():
        return 0.0
    return float((found[finite] - exact[finite]).abs().max() / max(1.0, float(exact[finite].abs().max())))


def differs(eager: torch.Tensor | None, ours: torch.Tensor | None, exact: torch.Tensor | None, numbers: bool) -> str:
    """How a tensor differs from eager's more than eager's does from float64's; empty if it does not."""
    if eager is None or ours is None:
        return "" if eager is ours else f"{'no' if ours is None else 'a'} gradient"
    if (eager.shape, eager.dtype, eager.layout) != (ours.shape, ours.dtype, ours.layout):
        return f"{ours.shape} {ours.dtype} {ours.layout} instead of {eager.shape} {eager.dtype} {eager.layout}"
    if not numbers or eager.numel() == 0:
        return ""
    if eager.layout is not torch.strided:
        eager, ours, exact = eager.to_dense(), ours.to_dense(), None
    if not (eager.is_floating_point() or eager.is_complex()):
        return "" if torch.equal(eager, ours) else "other integers"
    apart = error(ours, eager)
    if apart <= FLOOR:
        return ""
    if exact is None or exact.shape != eager.shape:
        return f"off by {apart:.1e}"
    own, reference = error(ours, exact), error(eager, exact)
    return "" if own <= max(FLOOR, 2 * reference) else f"off by {own:.1e}, eager by {reference:.1e}"


def compare(name: str, op: Any, sample: Any, gradients: bool) -> dict[str, Any] | None:
    """What one sample gives; `None` if it does not run eagerly."""
    import flambeau

    run = program(op.op)
    try:
        eager = step(run, sample, gradients)
    except Exception:
        return None
    try:
        exact: Step | None = step(run, sample, gradients, torch.float64)
    except Exception:
        exact = None
    flambeau.reset()
    compiled = flambeau.compile(run)
    try:
        ours = step(compiled, sample, gradients)
    except Exception as raised:
        return {"status": "broken", "detail": f"{type(raised).__name__}: {raised}"[:200]}
    found = {"status": "right", **bodies(compiled)}
    if [output.requires_grad for output in eager[0]] != [output.requires_grad for output in ours[0]]:
        return {**found, "status": "wrong", "detail": "requires_grad"}
    exacts = [*exact[0], *exact[1]] if exact else []
    numbers = not name.startswith(UNINITIALISED)
    for at, (theirs, own) in enumerate(zip([*eager[0], *eager[1]], [*ours[0], *ours[1]], strict=True)):
        if why := differs(theirs, own, exacts[at] if at < len(exacts) else None, numbers):
            return {**found, "status": "wrong", "detail": f"tensor {at}: {why}"}
    return found


def bodies(compiled: Any) -> dict[str, Any]:
    """Whether all graphs became plans, and why not."""
    from flambeau import _native

    frames = json.loads(_native.explain_data(compiled))["frames"]
    said = [frame["fallback"].split(". ")[0].splitlines()[0][:120] for frame in frames if frame["fallback"]]
    graphs = [frame for frame in frames if frame["calls"]]
    return {"native": bool(graphs) and all(frame["body"] == "native" for frame in graphs), "said": said}


def samples(op: Any, gradients: bool) -> Iterator[Any]:
    """Torch's samples in float32; none where it has none."""
    try:
        yield from list(op.sample_inputs("cpu", torch.float32, requires_grad=gradients))[:MOST_SAMPLES]
    except Exception:
        return


def row(name: str, op: Any, gradients: bool) -> dict[str, Any]:
    """What all samples of an operator give."""
    found = [compare(name, op, sample, gradients) for sample in samples(op, gradients)]
    run = [sample for sample in found if sample]
    if not run or (gradients and not op.supports_autograd):
        return {"status": "none"}
    bad = [sample for sample in run if sample["status"] != "right"]
    said = Counter(reason for sample in run for reason in sample.get("said", []))
    made = {"samples": len(run), "native": sum(sample.get("native", False) for sample in run), "said": said}
    return {"status": bad[0]["status"] if bad else "right", "detail": bad[0]["detail"] if bad else "", **made}


def main() -> None:
    """Runs the job."""
    voice, job = children.Voice(), children.job()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    known = operators()
    for name in job["names"]:
        voice.say(start=name)
        voice.say(done=name, **row(name, known[name], job["gradients"]))
    voice.say(end=True)


if __name__ == "__main__":
    main()
