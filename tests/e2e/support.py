"""Comparing compiled with eager calls: values, dtypes, strides, aliasing, mutation of inputs, exceptions, RNG."""

from __future__ import annotations

import copy
import itertools
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from mode import COUNTED
from torch.utils._pytree import tree_flatten

import flambeau

_numbers = itertools.count(1000)


def fresh_function() -> Callable[[torch.Tensor], torch.Tensor]:
    """A function of code that was never compiled before."""
    scope: dict[str, Any] = {}
    exec(f"def f(a):\n    return (a + {next(_numbers)}).relu() * 2", scope)
    fresh: Callable[[torch.Tensor], torch.Tensor] = scope["f"]
    return fresh


def daemon_pid() -> int:
    """The process id of a daemon that answers; one is started if none does."""
    for _ in range(600):
        flambeau.compile(lambda a: a)
        try:
            status = flambeau.status()
        except RuntimeError:  # it died while it was asked
            status = {}
        if "pid" in status:
            return int(status["pid"])
        time.sleep(0.05)
    raise TimeoutError("no daemon answers")


def run(fn: Callable[..., Any], args: tuple[Any, ...]) -> tuple[str, Any, torch.Tensor]:
    """Calls `fn` from a fixed seed: ("value", result) or ("raised", (type, message)), and the RNG state after."""
    torch.manual_seed(1234)
    try:
        outcome = ("value", fn(*args))
    except Exception as error:
        outcome = ("raised", (type(error), str(error)))
    return (*outcome, torch.get_rng_state())


def inputs() -> tuple[torch.Tensor, torch.Tensor]:
    """Two (4, 6) tensors, the same every time; sets the seed."""
    torch.manual_seed(0)
    return torch.randn(4, 6), torch.randn(4, 6)


def tolerance(dtype: torch.dtype) -> float:
    """Relative tolerance to max|b| for results in `dtype`."""
    return {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}.get(dtype, 0.0)


def assert_same_tensor(a: torch.Tensor, b: torch.Tensor, where: str, slack: float = 1.0, least: float = 0.0) -> None:
    """`a` (compiled) equals `b` (eager) in all that a user can see. `least`: what rounding is judged by at least."""
    assert type(a) is type(b), f"{where}: {type(a)} instead of {type(b)}"
    for what in ("dtype", "device", "shape", "requires_grad", "is_leaf"):
        assert getattr(a, what) == getattr(b, what), f"{where}: {what} {getattr(a, what)} != {getattr(b, what)}"
    assert a.stride() == b.stride(), f"{where}: strides {a.stride()} != {b.stride()}"
    assert (a.grad_fn is None) == (b.grad_fn is None), f"{where}: grad_fn {a.grad_fn} {b.grad_fn}"
    a, b = a.detach(), b.detach()
    if not (a.is_floating_point() or a.is_complex()):
        assert torch.equal(a, b), f"{where}: values differ"
        return
    assert torch.equal(torch.isnan(a), torch.isnan(b)), f"{where}: NaNs differ"
    assert torch.equal(torch.isinf(a), torch.isinf(b)), f"{where}: infinities differ"
    finite = torch.isfinite(b)
    if finite.any():
        error = (a[finite] - b[finite]).abs().max().item()
        scale = max(b[finite].abs().max().item(), 1e-30 if slack == 1.0 else 1.0, least)
        assert error <= slack * tolerance(a.dtype) * scale, f"{where}: relative error {error / scale:.2e}"


def assert_same_gradients(
    a: dict[str, torch.Tensor], b: dict[str, torch.Tensor], where: str, slack: float = 1.0
) -> None:
    """Gradients by name. Rounding is judged by the largest: some are zero but for it, as a bias's before a norm."""
    assert list(a) == list(b), f"{where}: {list(a)} instead of {list(b)}"
    least = max((gradient.abs().max().item() for gradient in b.values() if gradient.numel()), default=0.0)
    for name, gradient in b.items():
        assert_same_tensor(a[name], gradient, f"{where} of {name}", slack, least)


def aliasing(tensors: list[torch.Tensor]) -> list[tuple[int, int]]:
    """For each tensor: index of the first one with the same storage, and of the first one that is the same object."""
    storages = [t.untyped_storage().data_ptr() if t.numel() else id(t) for t in tensors]
    return [(storages.index(s), [id(u) for u in tensors].index(id(t))) for s, t in zip(storages, tensors, strict=True)]


def assert_same(a: Any, b: Any, where: str = "result", slack: float = 1.0) -> None:
    """Compares nested results; `slack` widens the tolerance where cancellation magnifies rounding."""
    leaves_a, spec_a = tree_flatten(a)
    leaves_b, spec_b = tree_flatten(b)
    assert spec_a == spec_b, f"{where}: structure {spec_a} != {spec_b}"
    for i, (x, y) in enumerate(zip(leaves_a, leaves_b, strict=True)):
        if isinstance(y, torch.Tensor):
            assert_same_tensor(x, y, f"{where}[{i}]", slack)
        else:
            assert type(x) is type(y), f"{where}[{i}]: {type(x)} != {type(y)}"
            assert x == y or (x != x and y != y), f"{where}[{i}]: {x!r} != {y!r}"


def tensors_of(*values: Any) -> list[torch.Tensor]:
    """All tensors in nested values, in order."""
    return [leaf for leaf in tree_flatten(values)[0] if isinstance(leaf, torch.Tensor)]


def native(compiled: Callable[..., Any], *args: Any) -> Any:
    """Its result, without a warning; all of it came from kernels and torch's own functions."""
    before = flambeau.counters()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = compiled(*args)
    after = flambeau.counters()
    for count in ("eager_fallbacks", "eager_graph_reasons"):
        assert after[count] == before[count], after[count]
    return result


def check(
    fn: Callable[..., Any],
    *inputs: tuple[Any, ...],
    backend: str = "cpu",
    graphs: int | None = 1,
    slack: float = 1.0,
    **options: Any,
) -> Any:
    """Runs `fn` eagerly and compiled on each tuple of inputs (twice each) and compares all that can be seen.

    `graphs`: how many graphs all calls together may make; `None` for any number. No call may fall back. A mode that
    changes such numbers compares the rest.
    """
    assert inputs and all(isinstance(args, tuple) for args in inputs), "each call has a tuple of arguments"
    before = flambeau.counters()
    compiled = flambeau.compile(fn, backend=backend, **options)
    for round_ in range(2):
        for i, args in enumerate(inputs):
            eager_args, compiled_args = copy.deepcopy(args), copy.deepcopy(args)
            kind_b, b, rng_b = run(fn, eager_args)
            kind_a, a, rng_a = run(compiled, compiled_args)
            where = f"call {i} round {round_}"
            assert kind_a == kind_b, f"{where}: {kind_a} {a!r} instead of {kind_b} {b!r}"
            if kind_b == "raised":
                assert a == b, f"{where}: raised {a} instead of {b}"
            else:
                assert_same(a, b, where, slack)
                assert aliasing(tensors_of(a, compiled_args)) == aliasing(tensors_of(b, eager_args)), (
                    f"{where}: aliasing"
                )
            assert_same(compiled_args, eager_args, f"{where}: inputs after the call", slack)
            assert torch.equal(rng_a, rng_b), f"{where}: RNG state"
    after = flambeau.counters()
    if graphs is not None and COUNTED:
        made, ops = (after[name] - before[name] for name in ("graphs", "ops"))
        assert made == graphs or (graphs == 1 and ops == 0), f"graphs: {after}"
        assert after["graph_breaks"] == before["graph_breaks"], f"breaks: {after['graph_breaks']}"
        assert after["eager_fallbacks"] == before["eager_fallbacks"], f"fallbacks: {after['eager_fallbacks']}"
    return compiled


def check_training(
    fn: torch.nn.Module,
    args: tuple[Any, ...],
    backend: str = "cpu",
    slack: float = 1.0,
    gradients: float = 1e-5,
    buffers: float = 1e-6,
) -> None:
    """Two forward and backward passes of `fn` in training, compiled, against those of a copy that is not.

    `gradients`: tolerance relative to the largest of all. `buffers`: relative and absolute.
    """
    fn.train()
    twin = copy.deepcopy(fn)
    compiled = flambeau.compile(fn, backend=backend)
    for _ in range(2):
        expected, actual = twin(*args), compiled(*args)
        assert_same(actual, expected, slack=slack)
        expected.square().mean().backward()
        actual.square().mean().backward()
    # Some gradients are zero but for rounding: that is judged by the largest.
    scale = max(p.grad.abs().max().item() for p in twin.parameters())
    for (key, a), (_, b) in zip(fn.named_parameters(), twin.named_parameters(), strict=True):
        assert (a.grad - b.grad).abs().max().item() <= gradients * scale, key
    for (key, a), (_, b) in zip(fn.named_buffers(), twin.named_buffers(), strict=True):
        torch.testing.assert_close(a, b, rtol=buffers, atol=buffers, msg=key)
