"""Torch's metadata functions say of CUDA what they say of the CPU, as GPUs do: why the rules of `daemon/ops` hold."""

import contextlib
import importlib
import json
from pathlib import Path

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import flambeau

CASES = Path(__file__).parents[2] / "daemon" / "ops" / "tests" / "cases.json"
LAID_OUT_OTHERWISE = {"torch.pixel_shuffle", "torch._C._nn.scaled_dot_product_attention"}
"""What has rules for the CPU only (`Mark::CpuOnly`)."""
UNRULED = {"torch.group_norm", "torch.rms_norm"}
"""What has no rule for CUDA where it may be laid out otherwise: in channels last, by torch's version; empty."""
SHORT = {
    "u8": torch.uint8, "i8": torch.int8, "i16": torch.int16, "i32": torch.int32, "i64": torch.int64,
    "f16": torch.float16, "f32": torch.float32, "f64": torch.float64, "bf16": torch.bfloat16,
    "c32": torch.complex32, "c64": torch.complex64, "c128": torch.complex128, "b8": torch.bool,
}  # fmt: skip


def argument(value, device: str):
    """An argument in the form of `tests/ops/gen_rules.py`, with tensors and devices on a device."""
    if isinstance(value, list):
        parts = [argument(part, device) for part in value[1:]]
        return parts if value[0] == "L" else slice(*parts) if value[0] == "X" else tuple(parts)
    if not isinstance(value, str):
        return value
    kind, _, rest = value.partition(" ")
    match kind:
        case "T":
            dtype, sizes, strides, *grad = rest.split(" ")
            sizes, strides = ([int(n) for n in text.split(",") if n] for text in (sizes, strides))
            requires_grad = grad == ["g"]
            return torch.empty_strided(sizes, strides, dtype=SHORT[dtype], device=device, requires_grad=requires_grad)
        case "F":
            return float(rest)
        case "D":
            return SHORT[rest]
        case "M":
            return getattr(torch, rest.rpartition(".")[2])
        case "C":
            return torch.device(device)
        case "E":
            return ...
    return rest


def function(name: str):
    """By its full import path."""
    module, _, attribute = name.rpartition(".")
    with contextlib.suppress(ImportError):
        return getattr(importlib.import_module(module), attribute)
    found = torch
    for part in name.split(".")[1:]:
        found = getattr(found, part)
    return found


def said(value):
    """What is compared: no device."""
    if isinstance(value, torch.Tensor):
        return str(value.dtype), tuple(value.shape), value.stride(), value.requires_grad
    if isinstance(value, tuple | list):
        return [said(part) for part in value]
    return value


def outcome(case, device: str, mode):
    """Metadata of a call's result on a device, or what it raised."""
    name, args, kwargs, recorded = case
    grads = not recorded.get("no_grad", False)
    try:
        with torch.set_grad_enabled(grads), mode:
            args = [filled(argument(arg, device)) for arg in args]
            kwargs = {key: filled(argument(arg, device)) for key, arg in kwargs.items()}
            if name.startswith("."):
                return said(getattr(args[0], name[1:])(*args[1:], **kwargs))
            return said(function(name)(*args, **kwargs))
    except Exception as error:
        return type(error).__name__


def filled(value):
    """With elements that every op takes: indices in bounds, probabilities."""
    for tensor in value if isinstance(value, tuple | list) else [value]:
        if isinstance(tensor, torch.Tensor):
            tensor.detach().fill_(0.5 if tensor.is_floating_point() or tensor.is_complex() else 0)
    return value


def differing(mode):
    """The ops of which CUDA says otherwise."""
    cases = [case for case in json.loads(CASES.read_text()) if "meta" in case[3]]
    found, raised = set(), 0
    for case in cases:
        on_cpu, on_cuda = outcome(case, "cpu", mode()), outcome(case, "cuda:0", mode())
        raised += isinstance(on_cpu, str)
        # What it raises is no metadata: division by zero, or that there is no kernel.
        if on_cpu != on_cuda and not isinstance(on_cpu, str) and on_cuda != "NotImplementedError":
            found.add(case[0])
    assert raised < len(cases) / 100, f"{raised} of {len(cases)} calls were not made"
    return found


def test_cuda_gives_the_metadata_of_the_cpu():
    found = differing(lambda: FakeTensorMode(allow_non_fake_inputs=True))
    assert found - UNRULED == LAID_OUT_OTHERWISE


@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch has no GPU here")
def test_a_gpu_gives_the_metadata_of_the_cpu():
    assert differing(contextlib.nullcontext) - UNRULED == LAID_OUT_OTHERWISE


@pytest.mark.parametrize("kind", ["cpu", "cuda", "xla", "xpu", "mps", "meta", "maia", "vulkan", "ipu", "mtia"])
def test_kinds_have_torchs_names(kind):
    def fn(x):
        device = torch.device(kind, 1)
        return x + 1, device.type, device.index, str(device), device, getattr(x, f"is_{kind}")

    x = torch.ones(2)
    assert flambeau.compile(fn, fullgraph=True)(x)[1:] == fn(x)[1:]
