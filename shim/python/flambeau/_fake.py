"""What a torch call would return, by torch's fake tensors. Imported at the first op without a native shape rule."""

from __future__ import annotations

import contextlib
import functools
import logging
import warnings
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
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes


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
            for device, (enabled, number) in state["autocast"]:
                if device == "cpu" or enabled or torch.is_autocast_enabled(device):
                    dtype = _DTYPES.get(number)
                    stack.enter_context(torch.autocast(device, dtype=dtype, enabled=enabled))
            stack.enter_context(mode())
            stack.enter_context(_quiet())
            writes = stack.enter_context(_Writes())
            overload = _overload(target, args, kwargs)
            given = [*args, *kwargs.values()]
            result = target(*args, **kwargs)
            if overload is not None and writes.drew(overload):
                return "unknown", "it draws random numbers"
            written = [place for place, argument in enumerate(given) if any(map(writes.has, _tensors(argument)))]
            if written:
                return "written", (_meta(result, []), written)
            if name.endswith("_") or "out" in kwargs:  # what is written to is returned; how it is then matters
                return "value", _meta(result, [])
            for place, argument in enumerate(given):
                if result is argument and isinstance(argument, torch.Tensor):
                    return "same", place
            if not _is_fresh(result, given):
                return "value", _meta(result, given)
            if not all(map(_has_certain_strides, _tensors(result))):
                own = overload is None or overload.namespace == "aten"
                measured = _measured(target, args, kwargs, result) if own and not writes.drawing else None
                if measured is None:
                    return "value", _meta(result, given)
                result = measured
            return "fresh", (_meta(result, given), str(overload._schema) if overload else None)
    except UnsupportedOperatorException as error:
        return "no_fake_kernel", str(error)
    except (DataDependentOutputException, DynamicOutputShapeException) as error:
        return "data_dependent", str(error)
    except Exception as error:
        return "raised", f"{type(error).__name__}: {error}"


class _Writes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """What ops write to, by their schemas, and which draw: a fake kernel need not do what the op's own kernel does."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.written: list[torch.Tensor] = []
        self.drawing: list[Any] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded in func.tags:
            self.drawing.append(func)
        for place, parameter in enumerate(func._schema.arguments):
            if parameter.alias_info is not None and parameter.alias_info.is_write:
                argument = args[place] if place < len(args) else kwargs.get(parameter.name)
                self.written.extend(_tensors(argument))
        return func(*args, **kwargs)

    def drew(self, overload: torch._ops.OpOverload[..., Any]) -> bool:
        """Whether the op draws, or those that it is composed of, if it is torch's own: a fake kernel is free to."""
        return bool(self.drawing) if overload.namespace == "aten" else overload in self.drawing

    def has(self, tensor: torch.Tensor) -> bool:
        """Whether the tensor or a view of it was written to."""
        own = [tensor, tensor._base]
        return any(
            written is one or (one is not None and written._base is one) for written in self.written for one in own
        )


def _tensors(argument: Any) -> Iterator[torch.Tensor]:
    """The tensors of an argument."""
    if isinstance(argument, (list, tuple)):
        for item in argument:
            yield from _tensors(item)
    elif isinstance(argument, torch.Tensor):
        yield argument


def _is_fresh(result: Any, given: list[Any]) -> bool:
    """Whether tensors of a result share memory neither with an argument nor with each other."""
    tensors = list(_tensors(result))
    made = [tensor.untyped_storage()._cdata for tensor in tensors]
    held = {tensor.untyped_storage()._cdata for tensor in _tensors(given)}
    return len({*made}) == len(made) and held.isdisjoint(made)


def _overload(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch._ops.OpOverload[..., Any] | None:
    """The overload of `torch.ops` that such a call means; `None` for what is no op of the dispatcher."""
    if isinstance(target, torch._ops.OpOverloadPacket):
        overload = torch._C._jit_resolve_packet(target._qualified_op_name, *args, **kwargs)
        target = getattr(target, overload or "default")
    return target if isinstance(target, torch._ops.OpOverload) else None


def _has_certain_strides(tensor: torch.Tensor) -> bool:
    """Whether the op's own kernel gives these strides: those of single elements follow from how a kernel gets there."""
    return 1 not in tensor.shape or list(tensor.stride()) == list(
        torch._prims_common.make_contiguous_strides_for(tensor.shape)
    )


MOST_MEASURED = 1 << 25
"""Elements of all tensors of a call that is made for its strides."""


def _measured(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    """What the call gives for zeros; `None` where that takes long, is not for the CPU, raises, or is no such result."""
    fakes = [*_tensors([*args, *kwargs.values()]), *_tensors(result)]
    if any(fake.device.type != "cpu" for fake in fakes) or sum(fake.numel() for fake in fakes) > MOST_MEASURED:
        return None
    with _disable_current_modes(), torch._C.DisableTorchFunction():
        real_args = tuple(map(_zeros, args))
        real_kwargs = {name: _zeros(value) for name, value in kwargs.items()}
        try:
            measured = target(*real_args, **real_kwargs)
        except Exception:
            return None
        shapes = [[(t.shape, t.dtype) for t in _tensors(of)] for of in (result, measured)]
        is_alike = type(result) is FakeTensor or type(result) is type(measured)
        if not is_alike or shapes[0] != shapes[1] or not _is_fresh(measured, [*real_args, *real_kwargs.values()]):
            return None
        return measured


def _zeros(argument: Any) -> Any:
    """The argument with tensors of zeros in place of fake ones."""
    if isinstance(argument, (list, tuple)):
        return [_zeros(item) for item in argument]
    if not isinstance(argument, torch.Tensor):
        return argument
    return blank(argument, torch.device("cpu"))


def blank(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A leaf of zeros with the same sizes, strides and type, which has its memory for itself."""
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    room = last + 1 if tensor.numel() else 0
    made = torch.zeros(room, dtype=tensor.dtype, device=device).as_strided(tensor.shape, tensor.stride())
    return made.detach().requires_grad_(tensor.requires_grad)


_IGNORED = ("ignore", None, Warning, None, 0)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Says nothing of the call: torch logs one that raises as an error of its own, and warns. What it warns of once it
    does not count as said, nor do Python's registries of what was warned of change.
    """
    log = logging.getLogger("torch._subclasses.fake_tensor")
    disabled, log.disabled = log.disabled, True
    always = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    filters: list[Any] = warnings.filters  # type: ignore[assignment]
    filters.insert(0, _IGNORED)
    try:
        yield
    finally:
        filters.remove(_IGNORED)
        torch.set_warn_always(always)
        log.disabled = disabled


_DTYPES = {5: torch.float16, 6: torch.float32, 15: torch.bfloat16}


def _resolve(path: str) -> Any:
    import importlib

    module, names = path.split(".", 1)
    if module == "flambeau":
        module, names = path.rsplit(".", 1)
    found: Any = importlib.import_module(module)
    for part in names.split("."):
        found = getattr(found, part)
    return found


def _meta(value: Any, given: list[Any]) -> tuple[Any, ...]:
    if isinstance(value, torch.Tensor):
        if any(value is argument for argument in given):
            raise TypeError("the call returned one of its arguments among others")
        if type(value) not in (torch.Tensor, FakeTensor) or value.layout is not torch.strided:
            raise TypeError(f"the call returned a {type(value).__name__} with layout {value.layout}")
        strides = list(value.stride())
        return "tensor", list(value.shape), strides, value.dtype, value.device, value.requires_grad
    if isinstance(value, (tuple, list)):
        return "tuple", [_meta(item, given) for item in value]
    return "const", value
