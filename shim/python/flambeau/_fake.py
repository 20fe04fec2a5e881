"""What a torch call would return, by torch's fake tensors. Imported at the first op without a native shape rule."""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    UnsupportedOperatorException,
)
from torch.utils._python_dispatch import _disable_current_modes


@functools.cache
def mode() -> FakeTensorMode:
    """One mode for the process: answers are metadata, nothing accumulates in it."""
    return FakeTensorMode(allow_non_fake_inputs=True)


def tensor(sizes: list[int], strides: list[int], dtype: torch.dtype, device: torch.device, requires_grad: bool) -> Any:
    """A fake tensor with this metadata."""
    with _disable_current_modes(), torch._C.DisableTorchFunction(), mode():
        made = torch.empty_strided(sizes, strides, dtype=dtype, device=device)
        return made.requires_grad_() if requires_grad else made


def call(
    method: bool, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], state: dict[str, Any]
) -> tuple[str, Any]:
    """Metadata of `name(*args)` under the thread state of the trace, or why there is none."""
    target = getattr(torch.Tensor, name) if method else _resolve(name)
    try:
        with contextlib.ExitStack() as stack:
            stack.enter_context(_disable_current_modes())
            stack.enter_context(torch.inference_mode(state["inference_mode"]))
            stack.enter_context(torch.set_grad_enabled(state["grad_enabled"]))
            for device in ("cpu", "cuda"):
                enabled, number = state[f"autocast_{device}"]
                if device == "cpu" or enabled:
                    dtype = _DTYPES.get(number)
                    stack.enter_context(torch.autocast(device, dtype=dtype, enabled=enabled))
            stack.enter_context(mode())
            stack.enter_context(_quiet())
            given = [*args, *kwargs.values()]
            before = [_versions(argument) for argument in given]
            result = target(*args, **kwargs)
            written = [place for place, old in enumerate(before) if _versions(given[place]) != old]
            if written:
                return "written", (_meta(result, []), written)
            if name.endswith("_") or "out" in kwargs:  # what is written to is returned; how it is then matters
                return "value", _meta(result, [])
            for place, argument in enumerate(given):
                if result is argument and isinstance(argument, torch.Tensor):
                    return "same", place
            return "value", _meta(result, given)
    except UnsupportedOperatorException as error:
        return "no_fake_kernel", str(error)
    except (DataDependentOutputException, DynamicOutputShapeException) as error:
        return "data_dependent", str(error)
    except Exception as error:
        return "raised", f"{type(error).__name__}: {error}"


def _versions(argument: Any) -> list[int]:
    """How often each tensor of an argument was written to."""
    if isinstance(argument, (list, tuple)):
        return [version for item in argument for version in _versions(item)]
    return [argument._version] if isinstance(argument, torch.Tensor) else []


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Torch logs a call that raises as an error of its own; here it is an answer like others."""
    log = logging.getLogger("torch._subclasses.fake_tensor")
    disabled, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = disabled


_DTYPES = {5: torch.float16, 6: torch.float32, 15: torch.bfloat16}


def _resolve(path: str) -> Any:
    import importlib

    parts = path.split(".")
    found: Any = importlib.import_module(parts[0])
    for part in parts[1:]:
        found = getattr(found, part)
    return found


def _meta(value: Any, given: list[Any]) -> tuple[Any, ...]:
    if isinstance(value, torch.Tensor):
        if any(value is argument for argument in given):
            raise TypeError("the call returned one of its arguments among others")
        if not isinstance(value, FakeTensor) or value.layout is not torch.strided:
            raise TypeError(f"the call returned a {type(value).__name__} with layout {value.layout}")
        strides = list(value.stride())
        return "tensor", list(value.shape), strides, value.dtype, value.device, value.requires_grad
    if isinstance(value, (tuple, list)):
        return "tuple", [_meta(item, given) for item in value]
    return "const", value
