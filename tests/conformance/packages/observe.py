"""What a call leaves behind, as plain data: result, arguments, state, gradients, output, exception; and how two
differ."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import enum
import gc
import io
import random
import re
import types
from collections.abc import Callable, Mapping, Set
from typing import Any

import numpy as np
import torch

_ADDRESS = re.compile(r"0x[0-9a-f]+")
_PLAIN = (
    type(None),
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    range,
    slice,
    torch.dtype,
    torch.device,
    torch.Size,
    type(...),
)
_NAMED = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.MethodType)
_DEPTH = 12


@dataclasses.dataclass(frozen=True)
class Numbers:
    """A tensor or array as it was: facts are compared exactly, values to a tolerance."""

    facts: tuple[Any, ...]
    values: torch.Tensor | None


class Freezer:
    """Turns values into nested tuples. What is met twice becomes a reference: aliasing is part of the result."""

    def __init__(self) -> None:
        self.seen: dict[int, int] = {}
        self.storages: dict[int, int] = {}
        self.kept: list[Any] = []  # so that no id is used twice

    def freeze(self, value: Any, depth: int = 0) -> Any:
        """`value` as data."""
        if isinstance(value, (enum.Enum, *_PLAIN)):
            text = repr(value)
            return type(value).__name__, float(value) if isinstance(value, float) else _ADDRESS.sub("0x", text)
        if isinstance(value, _NAMED):
            return type(value).__name__, getattr(value, "__qualname__", getattr(value, "__name__", ""))
        if id(value) in self.seen:
            return "seen", self.seen[id(value)]
        if depth > _DEPTH:
            return "deep", type(value).__name__
        if type(value) is not tuple:
            self.seen[id(value)] = len(self.seen)
            self.kept.append(value)
        if isinstance(value, torch.Tensor):
            return "tensor", self.tensor(value)
        if isinstance(value, (np.ndarray, np.generic)):
            return "array", self.array(value)
        return type(value).__qualname__, *self.parts(value, depth + 1)

    def tensor(self, value: torch.Tensor) -> Numbers:
        facts: tuple[Any, ...] = (
            type(value).__name__,
            value.dtype,
            tuple(value.shape),
            str(value.device),
            str(value.layout),
        )
        facts += value.requires_grad, value.is_leaf, value.grad_fn is None, value.is_inference()
        with torch._C.DisableTorchFunctionSubclass(), torch.no_grad():
            if value.is_meta:
                return Numbers((*facts, value.stride()), None)
            held = value.detach().resolve_conj().resolve_neg().clone()
            if value.layout != torch.strided:
                return Numbers(facts, held.to_dense())
            storage = value.untyped_storage().data_ptr() if value.numel() else id(value)
        place = self.storages.setdefault(storage, len(self.storages))
        strides = tuple(s for s, n in zip(value.stride(), value.shape, strict=True) if n > 1) if value.numel() else ()
        return Numbers((*facts, strides, value.storage_offset(), place), held)

    def array(self, value: Any) -> Numbers:
        value = np.asarray(value)
        facts = "array", str(value.dtype), value.shape
        if value.dtype.kind not in "biufc":
            return Numbers((*facts, repr(value.tolist())), None)
        return Numbers(
            facts, torch.from_numpy(value.copy()) if value.dtype.kind != "u" else torch.from_numpy(value.astype("i8"))
        )

    def parts(self, value: Any, depth: int) -> tuple[Any, ...]:
        """What an object consists of."""

        def f(part: Any) -> Any:
            return self.freeze(part, depth)

        match value:
            case torch.nn.Module():
                held = {**dict(value.named_parameters()), **dict(value.named_buffers())}
                grads = {name: p.grad for name, p in value.named_parameters()}
                return f(held), f(grads), value.training
            case torch.optim.Optimizer():
                return (f(value.state_dict()),)
            case torch.Generator():
                return (f(value.get_state()),)
            case BaseException():
                return (_ADDRESS.sub("0x", str(value)),)
            case list() | tuple() | collections.deque():
                return tuple(map(f, value))
            case Mapping():
                return tuple((f(k), f(v)) for k, v in value.items())
            case Set():
                return tuple(sorted(map(f, value), key=repr))
        held = dict(getattr(value, "__dict__", {}))
        for kind in type(value).__mro__:
            slots = kind.__dict__.get("__slots__", ())
            for name in (slots,) if isinstance(slots, str) else slots:
                with contextlib.suppress(AttributeError):
                    held[name] = getattr(value, name)
        return tuple((name, f(part)) for name, part in held.items() if name not in ("__dict__", "__weakref__"))


def tensors(value: Any, found: list[torch.Tensor], seen: set[int], depth: int = 0) -> list[torch.Tensor]:
    """The tensors of a value: those of modules are their parameters."""
    if id(value) in seen or depth > _DEPTH or isinstance(value, (*_PLAIN, *_NAMED)):
        return found
    seen.add(id(value))
    if isinstance(value, torch.Tensor):
        found.append(value)
        return found
    if isinstance(value, torch.nn.Module):
        parts: Any = value.parameters()
    elif isinstance(value, Mapping):
        parts = value.values()
    elif isinstance(value, (list, tuple, collections.deque)):
        parts = value
    elif dataclasses.is_dataclass(value):
        parts = [getattr(value, f.name, None) for f in dataclasses.fields(value)]
    else:
        return found
    for part in parts:
        tensors(part, found, seen, depth + 1)
    return found


def seed(number: int) -> None:
    """Of all generators that programs draw from."""
    torch.manual_seed(number)
    np.random.seed(number)
    random.seed(number)


def observe(call: Callable[..., Any], args: tuple[Any, ...], state: Any, backward: bool) -> dict[str, Any]:
    """Calls and looks. `backward`: also what the result gives arguments and state when it is differentiated."""
    result, error, gradients, output = None, None, None, io.StringIO()
    with contextlib.redirect_stdout(output):
        try:
            result = call(*args)
        except Exception as raised:
            error = raised
    drawn = torch.get_rng_state().sum().item(), float(np.random.rand()), random.random()
    freezer = Freezer()
    seen = {
        "exception": error and (type(error).__name__, _ADDRESS.sub("0x", str(error))),
        "result": freezer.freeze(result),
        "arguments": freezer.freeze(args),
        "state": freezer.freeze(state),
        "output": _ADDRESS.sub("0x", output.getvalue()),
        "random": ("drawn", *drawn),
        "modes": (torch.is_grad_enabled(), torch.is_autocast_enabled("cpu"), str(torch.get_default_dtype())),
    }
    if error is None and backward:
        gradients = differentiate(result, args, state)
    return {**seen, "gradients": gradients}


def differentiate(result: Any, args: Any, state: Any) -> Any:
    """Calls `backward` with fixed factors and gives the gradients of all leaves; they are taken away again."""
    outs = [t for t in tensors(result, [], set()) if t.requires_grad and t.grad_fn is not None]
    if not outs:
        return None
    leaves = [t for t in tensors((args, state), [], set()) if t.requires_grad and t.is_leaf]
    before = [leaf.grad for leaf in leaves]
    for leaf in leaves:
        leaf.grad = None
    generator = torch.Generator().manual_seed(7)
    factors = [torch.rand(t.shape, generator=generator, dtype=torch.float64).add_(0.5).to(t.dtype) for t in outs]
    try:
        torch.autograd.backward(outs, factors)
    except RuntimeError as error:
        return type(error).__name__, str(error)
    frozen = Freezer().freeze([leaf.grad for leaf in leaves])
    for leaf, old in zip(leaves, before, strict=True):
        leaf.grad = old
    return frozen


def widened(args: Any) -> Any:
    """The arguments in float64; all modules that are alive as well."""
    for thing in gc.get_objects():
        # Not `isinstance`: some objects answer that by importing what they stand for.
        if issubclass(type(thing), torch.nn.Module):
            thing.double()

    def wide(value: Any) -> Any:
        return value.double() if isinstance(value, torch.Tensor) and value.dtype == torch.float32 else value

    return torch.utils._pytree.tree_map(wide, args)


def difference(
    eager: dict[str, Any], compiled: dict[str, Any], tolerance: float, exact: dict[str, Any] | None = None
) -> str:
    """Where two calls differ first: "result[1][2]: 3.0 instead of 4.0". Empty if nowhere.

    `exact` is the same call in float64: numbers that are at most twice as far from it as eager's do not differ."""
    for name in eager:
        found = _differ(eager[name], compiled[name], tolerance, exact and exact[name])
        if found:
            return f"{name}{found}"
    return ""


def _differ(a: Any, b: Any, tolerance: float, exact: Any = None) -> str:
    if isinstance(a, Numbers) and isinstance(b, Numbers):
        if a.facts != b.facts:
            return f": {b.facts} instead of {a.facts}"
        found = _differ_in_value(a.values, b.values, tolerance)
        return "" if found and _as_near(a.values, b.values, getattr(exact, "values", None)) else found
    if type(a) is type(b) and isinstance(a, tuple):
        exact = exact if isinstance(exact, tuple) else ()
        for k, (u, v) in enumerate(zip(a, b, strict=False)):
            found = _differ(u, v, tolerance, exact[k] if k < len(exact) else None)
            if found:
                key = f"[{a[0][1]}]" if k == 1 and isinstance(a[0], tuple) and a[0][:1] == ("str",) else f"[{k}]"
                return key + found
        return (
            ""
            if len(a) == len(b)
            else f": {len(b)} instead of {len(a)} items: {str(b)[:200]} instead of {str(a)[:200]}"
        )
    if type(a) is float and type(b) is float:
        a, b = torch.tensor(a), torch.tensor(b)
        found = _differ_in_value(a, b, tolerance)
        return "" if found and type(exact) is float and _as_near(a, b, torch.tensor(exact)) else found
    return "" if a == b else f": {str(b)[:300]} instead of {str(a)[:300]}"


def _as_near(a: torch.Tensor | None, b: torch.Tensor | None, exact: torch.Tensor | None) -> bool:
    """Whether `b` is at most twice as far from the exact numbers as `a`."""
    if a is None or b is None or exact is None or exact.shape != a.shape or not a.is_floating_point() or not a.numel():
        return False
    exact = exact.double()
    return bool((b.double() - exact).abs().max() <= 2 * (a.double() - exact).abs().max())


def _differ_in_value(a: torch.Tensor | None, b: torch.Tensor | None, tolerance: float) -> str:
    if a is None or b is None or torch.equal(a, b):
        return ""
    if not (a.is_floating_point() or a.is_complex()):
        return f": {b.flatten()[:8].tolist()} instead of {a.flatten()[:8].tolist()}"
    wide = torch.complex128 if a.is_complex() else torch.float64
    a, b = a.to(wide), b.to(wide)
    finite = a.abs()[torch.isfinite(a.abs())]
    scale = finite.max().item() if finite.numel() else 1.0
    if torch.allclose(a, b, rtol=tolerance, atol=max(tolerance * scale, 1e-30), equal_nan=True):
        return ""
    at = int((a - b).abs().nan_to_num(float("inf")).argmax())
    return f": {b.flatten()[at].item()} instead of {a.flatten()[at].item()} (the largest is {scale:.3g})"
