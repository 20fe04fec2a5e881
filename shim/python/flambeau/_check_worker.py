"""The process of `flambeau plugin check` that a plug-in may end: opens it, runs cases, writes a line of JSON for each.

`python -m flambeau._check_worker COMPILE LAUNCH FIRST PATTERN FD` runs the cases from number FIRST on whose name holds
PATTERN, and writes to the file descriptor FD, as plug-ins print.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from flambeau import _native
from flambeau._check_cases import Case, cases, large
from flambeau._check_kernels import Kernel, Tolerance

#: As `flambeau_plugin::abi` numbers them.
MEMORY_TORCH = 1

#: Most threads that a launch may use; with one it has to be right too.
THREADS = (1, 4)


class Wrong(Exception):
    """A plug-in's mistake, in one sentence."""


class Subject:
    """The plug-in under test, on its first device."""

    def __init__(self, compile_half: str, launch_half: str) -> None:
        self.plugin = _native.Plugin(compile_half, launch_half)
        self.said: dict[str, Any] = json.loads(self.plugin.describe())
        devices = self.said["launch"]["devices"]
        if not devices or not devices[0]["targets"]:
            raise RuntimeError(
                f"plug-in {launch_half} names no device with a target that kernels could be compiled for"
            )
        self.target = devices[0]["targets"][0]
        self.device = torch.device("cpu")
        if self.said["launch"]["memory"] == MEMORY_TORCH:
            self.device = torchs_device(launch_half)

    @property
    def on_gpu(self) -> bool:
        """Whether buffers are on torch's device."""
        return self.device.type == "cuda"

    def run(self, case: Case) -> str | None:
        """Raises `Wrong`; returns why the plug-in need not do it, `None` if it did it right."""
        kernel = case.make()
        text = json.dumps(kernel.json())
        refused = self.plugin.refusal(text)
        if refused is not None:
            return str(refused)
        loaded = self.loaded(text)
        for threads in THREADS if case.form == "threads" else THREADS[:1]:
            self.launch(loaded, kernel, threads)
        return None

    def loaded(self, text: str) -> _native.PluginKernel:
        """Compiled and made ready."""
        try:
            artifact = self.plugin.compile(text, self.target)
        except RuntimeError as error:
            raise Wrong(f"its capabilities list all of this kernel, but it was not compiled: {error}") from error
        try:
            return self.plugin.load(artifact, 0)
        except RuntimeError as error:
            raise Wrong(f"the launch half refused what the compile half made: {error}") from error

    def launch(self, loaded: _native.PluginKernel, kernel: Kernel, threads: int) -> None:
        """Launches on fresh copies of the buffers, and compares."""
        buffers = self.buffers(kernel)
        self.start(loaded, kernel, buffers, threads)
        self.finish(kernel, buffers)

    def buffers(self, kernel: Kernel) -> list[torch.Tensor]:
        """Fresh copies of what it is launched with."""
        return [fresh(tensor, self.device) for tensor, _ in kernel.params]

    def start(self, loaded: _native.PluginKernel, kernel: Kernel, buffers: list[torch.Tensor], threads: int) -> None:
        """Launches. On a GPU that is a place in the stream that is torch's current one."""
        places = [place(tensor) for tensor in buffers]
        stream = torch.cuda.current_stream(self.device).cuda_stream if self.on_gpu else 0
        try:
            loaded.launch(places, kernel.scalars, stream, threads)
        except RuntimeError as error:
            raise Wrong(f"the launch failed: {error}") from error

    def finish(self, kernel: Kernel, buffers: list[torch.Tensor]) -> None:
        """Waits for what was launched, and compares."""
        if self.on_gpu:
            try:
                torch.cuda.synchronize(self.device)
            except RuntimeError as error:
                # Nothing works any more in a process whose kernel failed on a GPU.
                raise SystemExit(str(error).split("\n")[0]) from None
        for param, expected, tolerance in kernel.expected:
            compare(buffers[param].cpu(), expected, tolerance)
            untouched(buffers[param])
        for (before, role), after in zip(kernel.params, buffers, strict=True):
            if role == "In" and not same_bits(after.cpu(), before).all():
                raise Wrong("a buffer that is only read was written to")


def torchs_device(launch_half: str) -> torch.device:
    """The first, for a plug-in that wants its buffers there; a `RuntimeError` says why there is none."""
    if torch.cuda.is_available():
        return torch.device("cuda", 0)
    why = "finds none" if torch.version.cuda else "was built without CUDA; install one with it"
    raise RuntimeError(
        f"plug-in {launch_half} computes in the memory of torch's GPU, and torch {torch.__version__} {why}"
    )


def fresh(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A copy in memory of its own, with the same strides; the gaps between elements are zero."""
    reach = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True)) if tensor.numel() else 0
    storage = torch.zeros(max(reach, tensor.untyped_storage().nbytes() // tensor.itemsize), dtype=tensor.dtype)
    view = torch.as_strided(storage, tensor.shape, tensor.stride(), tensor.storage_offset())
    whole = torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage())
    storage[: len(whole)] = whole[: len(storage)]
    return torch.as_strided(storage.to(device), view.shape, view.stride(), view.storage_offset())


def place(tensor: torch.Tensor) -> tuple[int, int, int]:
    """Where its memory begins, bytes from there to element 0, bytes in all."""
    storage = tensor.untyped_storage()
    return storage.data_ptr(), int(tensor.storage_offset()) * tensor.itemsize, storage.nbytes()


def untouched(tensor: torch.Tensor) -> None:
    """What lies between the elements of a result is as it was."""
    storage = torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(tensor.untyped_storage()).cpu()
    if storage.numel() == tensor.numel():
        return
    between = torch.ones(storage.numel(), dtype=torch.bool)
    torch.as_strided(between, tensor.shape, tensor.stride(), tensor.storage_offset()).fill_(False)
    if storage[between].any():
        raise Wrong("memory between the elements of a result was written to")


def same_bits(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Equal, zeros of two signs apart; all NaNs are the same."""
    if not a.is_floating_point():
        return a == b
    return ((a == b) & (torch.signbit(a) == torch.signbit(b))) | (a.isnan() & b.isnan())


def compare(found: torch.Tensor, expected: torch.Tensor, tolerance: Tolerance) -> None:
    """Raises `Wrong` with the first element that is too far from torch's."""
    right = same_bits(found, expected)
    if tolerance.zeros:
        right |= found == expected
    if tolerance.relative or tolerance.absolute:
        a, b = found.double(), expected.double()
        bound = tolerance.relative * torch.finfo(expected.dtype).eps * b.abs() + tolerance.absolute
        right |= a.isfinite() & b.isfinite() & ((a - b).abs() <= bound)
    if not right.all():
        wrong = (~right).nonzero()
        at = tuple(wrong[0].tolist())
        where = f"element {list(at)}" if at else "the element"
        told = f"{where} is {found[at].item()!r} where torch has {expected[at].item()!r}"
        raise Wrong(f"{len(wrong)} of {right.numel()} elements are wrong: {told}")


def halves_agree(subject: Subject) -> None:
    """One build's halves say the same of it, and the one compiles for the other's devices."""
    compiles, launches = subject.said["compile"], subject.said["launch"]
    for what in ("name", "version", "kernel_ir", "memory", "capabilities"):
        if compiles[what] != launches[what]:
            raise Wrong(f"the halves say different things of its {what}: are they of one build?")
    known = set(compiles["targets"])
    for device in launches["devices"]:
        if not known & set(device["targets"]):
            raise Wrong(f"the compile half has none of the targets of device {device['name']!r}: {device['targets']}")


def refuses_unknown_targets(subject: Subject) -> None:
    """An artifact for what is not known would run on nothing."""
    kernel = json.dumps(large(torch.float32, 2, 2).json())
    try:
        subject.plugin.compile(kernel, "no such target")
    except RuntimeError as error:
        if str(error):
            return
    raise Wrong("it compiles for a target that it does not list, or refuses it without a sentence")


def refuses_foreign_artifacts(subject: Subject) -> None:
    """Bytes of something else, and none."""
    for foreign in (b"", b"no artifact", bytes(4096), b"\x7fELF" + bytes(range(256)) * 16):
        try:
            subject.plugin.load(foreign, 0)
        except RuntimeError as error:
            if str(error):
                continue
        raise Wrong(
            f"it loads {len(foreign)} bytes that are no artifact of its own, or refuses them without a sentence"
        )


def launches_at_once(subject: Subject) -> None:
    """One handle, four threads, each with buffers (and, on a GPU, a stream) of its own."""
    kernels = [large(torch.float32, 50, 300) for _ in range(4)]
    loaded = subject.loaded(json.dumps(kernels[0].json()))
    wrong: list[BaseException] = []

    def repeat(kernel: Kernel) -> None:
        stream: AbstractContextManager[Any] = nullcontext()
        if subject.on_gpu:
            stream = torch.cuda.stream(torch.cuda.Stream(subject.device))  # type: ignore[no-untyped-call]
        try:
            with stream:
                for _ in range(5):
                    subject.launch(loaded, kernel, 2)
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=repeat, args=(kernel,)) for kernel in kernels]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if wrong:
        raise wrong[0]


def captured_in_a_graph(subject: Subject) -> None:
    """What was captured computes from what the buffers hold when it is replayed, many rows and few long ones."""
    for rows, columns in ((50, 300), (3, 20_000)):
        kernel = large(torch.float32, rows, columns)
        loaded, buffers = subject.loaded(json.dumps(kernel.json())), subject.buffers(kernel)
        roles = [role for _, role in kernel.params]
        inputs = [(b, b.clone()) for b, role in zip(buffers, roles, strict=True) if role == "In"]
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                subject.start(loaded, kernel, buffers, 1)
        except RuntimeError as error:
            raise Wrong(f"a launch cannot be captured in a CUDA graph: {error}") from error
        for buffer, _ in inputs:
            buffer.zero_()
        graph.replay()
        for buffer, before in inputs:
            buffer.copy_(before)
        graph.replay()
        subject.finish(kernel, buffers)


#: What is asked of a plug-in beyond kernels.
CONTRACT = {
    "the halves agree": halves_agree,
    "unknown targets are refused": refuses_unknown_targets,
    "foreign artifacts are refused": refuses_foreign_artifacts,
    "launches from several threads": launches_at_once,
}

#: What is asked too of one that computes on torch's device.
ON_TORCHS_DEVICE = {
    "launches captured in a CUDA graph": captured_in_a_graph,
}


def main() -> None:
    """Writes lines with `ready` once all is imported, with `opened`, and with `begin` and `end` for each case."""
    compile_half, launch_half, first, pattern, descriptor = sys.argv[1:]
    torch.set_num_threads(max(THREADS))
    with os.fdopen(int(descriptor), "w", buffering=1) as out:

        def say(**line: Any) -> None:
            out.write(json.dumps(line) + "\n")

        say(ready=True)
        try:
            subject = Subject(compile_half, launch_half)
        except RuntimeError as error:
            say(unusable=str(error))
            return
        every = list(cases(subject.said["all"]))
        contract = {**CONTRACT, **ON_TORCHS_DEVICE} if subject.on_gpu else CONTRACT
        chosen: list[tuple[str, str, Any]] = [("contract", about, ask) for about, ask in contract.items()]
        chosen += [(case.form, case.about, case) for case in every]
        chosen = [c for c in chosen if pattern in f"{c[0]}, {c[1]}"]
        say(opened=subject.said, cases=len(chosen))
        for number, (form, about, what) in list(enumerate(chosen))[int(first) :]:
            say(begin=number, form=form, about=about)
            refused, failed = None, None
            try:
                refused = subject.run(what) if isinstance(what, Case) else what(subject)
            except Wrong as error:
                failed = str(error)
            say(end=number, refused=refused, failed=failed)


if __name__ == "__main__":
    main()
