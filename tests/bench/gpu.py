"""What the CUDA back end reaches on the first GPU: of pointwise and row kernels over many elements the share of a
device copy's bandwidth, measured here as well; and what a call takes on the host that launches about 100 small kernels,
one by one and as a CUDA graph. Both beside eager and torch.compile.

A kernel's traffic is what it has to move at least: each argument read once, each result written once. Each program's
result is compared with eager's, and one that was not compiled is no figure. Status 3: there is no GPU.

Usage: gpu.py [--rows 8192] [--columns 8192] [--seconds 1] [--json]
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

import flambeau

NO_DEVICE = 3
COMPILERS = ("flambeau", "torch_compile", "eager")
PAIRS = 50
"""Pairs of a kernel over columns and one over rows, which cannot be one."""


def affine(x: torch.Tensor) -> torch.Tensor:
    return x * 1.5 + 0.25


def gated(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    return F.gelu(x, approximate="tanh") * y + z


def several(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return x.sin(), x.cos(), x.abs()


def softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, -1)


def layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x, x.shape[-1:], weight, bias)


def rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return F.rms_norm(x, x.shape[-1:], weight)


def cross_entropy(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(x, target, reduction="none")


def many_kernels(x: torch.Tensor) -> torch.Tensor:
    for _ in range(PAIRS):
        x = x - x.mean(0)
        x = x - x.mean(1, keepdim=True)
    return x


def programs(rows: int, columns: int, dtype: torch.dtype, device: torch.device) -> dict[str, tuple[Callable, tuple]]:
    """Each with its arguments."""
    x, y, z = (torch.randn(rows, columns, device=device).to(dtype) for _ in range(3))
    weight, bias = (torch.randn(columns, device=device).to(dtype) for _ in range(2))
    target = torch.randint(columns, (rows,), device=device)
    return {
        "affine": (affine, (x,)),
        "gated": (gated, (x, y, z)),
        "several results": (several, (x,)),
        "softmax": (softmax, (x,)),
        "layer_norm": (layer_norm, (x, weight, bias)),
        "rms_norm": (rms_norm, (x, weight)),
        "cross_entropy": (cross_entropy, (x, target)),
    }


def tensors(value: Any) -> tuple[torch.Tensor, ...]:
    """A result's."""
    return value if isinstance(value, tuple) else (value,)


def seconds_of(call: Callable[[], Any], seconds: float) -> float:
    """Of one among many that follow each other, from the median of rounds."""

    def batch(count: int) -> float:
        torch.cuda.synchronize()
        begun = time.perf_counter()
        for _ in range(count):
            call()
        torch.cuda.synchronize()
        return (time.perf_counter() - begun) / count

    batch(3)
    count = max(3, int(0.05 / batch(3)))
    return statistics.median(batch(count) for _ in range(max(3, int(seconds / 0.05))))


def host_seconds_of(call: Callable[[], Any], seconds: float) -> float:
    """Until a call returns, while the GPU has nothing else to do: the median."""
    times: list[float] = []
    until = time.perf_counter() + seconds
    while time.perf_counter() < until or len(times) < 20:
        torch.cuda.synchronize()
        begun = time.perf_counter()
        call()
        times.append(time.perf_counter() - begun)
    return statistics.median(times)


def kernels_of(call: Callable[[], Any]) -> int:
    """How many a call runs on the GPU."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        call()
        torch.cuda.synchronize()
    return sum(event.device_type == torch.autograd.DeviceType.CUDA for event in profile.events())


def compiled(fn: Callable, args: tuple, mode: str = "default") -> tuple[Callable, str]:
    """By this back end, and what is wrong with that, or nothing."""
    flambeau.reset()
    made, expected = flambeau.compile(fn, backend="cuda", mode=mode), tensors(fn(*args))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            for found, wanted in zip(tensors(made(*args)), expected, strict=True):
                torch.testing.assert_close(found, wanted)
    counts = flambeau.counters()
    whole = counts["graphs"] and not (counts["eager_fallbacks"] or counts["eager_graph_reasons"])
    whole = whole and (counts["replays"] > 0) == (mode == "reduce-overhead")
    said = "; ".join(str(w.message) for w in caught if "flambeau" in str(w.message) or "back end" in str(w.message))
    return made, "" if whole else f"not compiled: {said or counts}"


def bandwidths(options: argparse.Namespace, device: torch.device) -> list[dict[str, Any]]:
    """Of each program in f32 and bf16."""
    found = []
    for dtype in (torch.float32, torch.bfloat16):
        made = programs(options.rows, options.columns, dtype, device)
        x = made["affine"][1][0]
        into = torch.empty_like(x)
        copied = 2 * x.nbytes / seconds_of(lambda into=into, x=x: into.copy_(x), options.seconds)
        for name, (fn, args) in made.items():
            ours, wrong = compiled(fn, args)
            moved = sum(tensor.nbytes for tensor in (*args, *tensors(fn(*args))))
            row = {"program": name, "dtype": str(dtype).removeprefix("torch.")}
            row |= {"copy_gb_s": copied / 1e9, "wrong": wrong}
            for compiler, call in zip(COMPILERS, (ours, torch.compile(fn), fn), strict=True):
                speed = moved / seconds_of(lambda call=call, args=args: call(*args), options.seconds)
                row[f"{compiler}_gb_s"], row[f"{compiler}_share"] = speed / 1e9, speed / copied
            found.append(row)
    return found


def overhead(options: argparse.Namespace, device: torch.device, mode: str) -> dict[str, Any]:
    """Of a call that launches many small kernels."""
    x = torch.randn(64, 64, device=device)
    ours, wrong = compiled(many_kernels, (x,), mode)
    found: dict[str, Any] = {"mode": mode, "wrong": wrong}
    for compiler, call in zip(COMPILERS, (ours, torch.compile(many_kernels, mode=mode), many_kernels), strict=True):
        for _ in range(3):
            call(x)
        found[f"{compiler}_us"] = host_seconds_of(lambda call=call: call(x), options.seconds) * 1e6
        found[f"{compiler}_kernels"] = kernels_of(lambda call=call: call(x))
    return found


def text(found: dict[str, Any]) -> str:
    """For people."""
    lines = [f"{found['device']}, torch {found['torch']}, {found['elements']:,} elements; shares of a device copy"]
    lines.append(f"{'':28}{'copy GB/s':>10}{'flambeau':>10}{'t.compile':>10}{'eager':>10}")
    for row in found["bandwidth"]:
        name = f"{row['program']} {row['dtype']}"
        shares = "".join(f"{row[f'{compiler}_share']:>10.1%}" for compiler in COMPILERS)
        lines.append(f"{name:28}{row['copy_gb_s']:>10.0f}{shares}  {row['wrong']}".rstrip())
    lines.append("a call on the host that launches many")
    for of in found["overhead"]:
        each = [f"{name} {of[f'{name}_us']:.0f} us, {of[f'{name}_kernels']} kernels" for name in COMPILERS]
        lines.append(f"{of['mode']:28}{'; '.join(each)}  {of['wrong']}".rstrip())
    return "\n".join(lines)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=8192)
    parser.add_argument("--columns", type=int, default=8192)
    parser.add_argument("--seconds", type=float, default=1.0, help="for each figure")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print(f"torch {torch.__version__} finds no CUDA device here, so there is nothing to measure", file=sys.stderr)
        raise SystemExit(NO_DEVICE)
    device = torch.device("cuda", 0)
    with torch.no_grad():
        found = {
            "device": torch.cuda.get_device_name(device),
            "torch": torch.__version__,
            "elements": options.rows * options.columns,
            "bandwidth": bandwidths(options, device),
            "overhead": [overhead(options, device, mode) for mode in ("default", "reduce-overhead")],
        }
    print(json.dumps(found) if options.json else text(found))
    raise SystemExit(1 if any(row["wrong"] for row in (*found["overhead"], *found["bandwidth"])) else 0)


if __name__ == "__main__":
    main()
