"""`mode="reduce-overhead"`: what a plan puts into a device's stream is recorded once, and replayed with one call.

`shim/src/run/recorded.rs` decides when. A graph of the device reads and writes the addresses that it was recorded with:
so inputs are copied to tensors of the recording, but for those that still lie where they lay, and outputs are copied
from it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

import torch

Work = Callable[[], list[torch.Tensor]]


class Graph(Protocol):
    """What some work put into a device's stream."""

    outputs: list[torch.Tensor]
    """Of the work; each replay writes them again."""

    def __init__(self, device: torch.device, work: Work) -> None: ...

    @staticmethod
    def can_replay(device: torch.device) -> bool:
        """Whether the current stream takes graphs now."""

    def follow(self, inputs: Sequence[torch.Tensor]) -> None:
        """Puts the current stream behind the device's latest replay. `inputs` are those that will be copied."""

    def replay(self) -> None:
        """Puts the same into the current stream."""


class Lane:
    """What all graphs of a device share. As they never run at once, they may use the same memory for what is between
    their inputs and outputs, workspaces of cuBLAS too."""

    def __init__(self, device: torch.device) -> None:
        self.pool = torch.cuda.graph_pool_handle()
        self.recorder = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self.last = torch.cuda.current_stream(device)
        """Has the latest replay."""


LANES: dict[torch.device, Lane] = {}


class CudaGraph:
    """A `torch.cuda.CUDAGraph`."""

    def __init__(self, device: torch.device, work: Work) -> None:
        self.device = device
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.device(device):
            self.stream = torch.cuda.current_stream(device)
            if device not in LANES:
                LANES[device] = Lane(device)
            self.lane = lane = LANES[device]
            torch._C._cuda_clearCublasWorkspaces()
            try:
                # Other threads may use the device meanwhile.
                with torch.cuda.graph(self.graph, lane.pool, lane.recorder, capture_error_mode="thread_local"):
                    self.outputs = work()
            finally:
                # Where recording fails, some versions of torch leave its stream the current one.
                torch.cuda.set_stream(self.stream)
                torch._C._cuda_clearCublasWorkspaces()

    @staticmethod
    def can_replay(device: torch.device) -> bool:
        with torch.cuda.device(device):
            return not torch.cuda.is_current_stream_capturing()

    def follow(self, inputs: Sequence[torch.Tensor]) -> None:
        stream = torch.cuda.current_stream(self.device)
        if stream != self.lane.last:
            stream.wait_stream(self.lane.last)
            self.lane.last = stream
        if stream != self.stream:
            for tensor in inputs:
                tensor.record_stream(stream)

    def replay(self) -> None:
        self.graph.replay()


GRAPHS: dict[str, type[Graph]] = {"cuda": CudaGraph}
"""By type of device."""

TURN = threading.Lock()
"""Held by the thread that records or replays."""


def getters() -> Iterator[Callable[[], Any]]:
    """What torch's functions ask when they choose kernels for a device, and so is part of what is recorded."""
    precision = getattr(torch._C, "_get_fp32_precision_getter", None)
    chosen = ("cublas", "cudnn", "deterministic", "sdp", "blas_preferred", "linalg_preferred")
    for name in dir(torch._C):
        # Where both exist, torch refuses to say the older of two.
        if name.startswith("_get_") and any(part in name for part in chosen) and not (precision and "tf32" in name):
            with suppress(TypeError):  # It takes arguments: it is no setting.
                getattr(torch._C, name)()
                yield getattr(torch._C, name)
    if precision:
        yield from (partial(precision, "cuda", op) for op in ("matmul", "conv", "rnn"))


GETTERS = tuple(getters())


class Unrecordable(Exception):
    """Replays would not do what the plan does; says why."""


class Recording:
    """A plan recorded for inputs of certain sizes."""

    def __init__(
        self,
        graph: type[Graph],
        plan: Callable[[list[torch.Tensor]], list[torch.Tensor]],
        inputs: list[torch.Tensor],
        copied: list[int],
    ) -> None:
        """Records `plan(inputs)`, but reads those at the indices `copied` from tensors of its own."""
        self.settings = [get() for get in GETTERS]
        given = inputs.copy()
        for index in copied:
            given[index] = twin(inputs[index])
        self.own = [given[index] for index in copied]
        self.device = given[0].device
        self.graph = graph(self.device, lambda: plan(given))
        check_outputs(self.graph.outputs, given)

    def is_outdated(self) -> bool:
        """Whether torch would choose other kernels now."""
        return self.settings != [get() for get in GETTERS]

    def replay(self, inputs: list[torch.Tensor]) -> list[torch.Tensor] | None:
        """The plan's outputs for these inputs, those that are copied; None where it has to be run instead.

        So it is while another thread records or replays, while the program does so itself, and once it is outdated.
        """
        if not TURN.acquire(blocking=False):
            return None
        try:
            if self.is_outdated() or not self.graph.can_replay(self.device):
                return None
            self.graph.follow(self.own)
            # In this mode tensors of both kinds may be written to.
            with torch.inference_mode():
                for own, given in zip(self.own, inputs, strict=True):
                    own.copy_(given)
            self.graph.replay()
            return [output.clone() for output in self.graph.outputs]
        finally:
            TURN.release()


def record(
    graph: type[Graph],
    plan: Callable[[list[torch.Tensor]], list[torch.Tensor]],
    inputs: list[torch.Tensor],
    copied: list[int],
) -> Recording | None:
    """See `Recording`; None where that has to wait."""
    if not TURN.acquire(blocking=False):
        return None
    try:
        return Recording(graph, plan, inputs, copied) if graph.can_replay(inputs[0].device) else None
    finally:
        TURN.release()


def twin(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor with the same elements and layout in memory of its own."""
    with torch.inference_mode(tensor.is_inference()):
        made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)
    with torch.inference_mode():
        return made.copy_(tensor)


def check_outputs(outputs: list[torch.Tensor], inputs: list[torch.Tensor]) -> None:
    """Raises unless each output is all of a memory of its own: its copy is as good then."""
    known = {tensor.untyped_storage().data_ptr() for tensor in inputs}
    for output in outputs:
        storage = output.untyped_storage()
        if storage.nbytes() and storage.data_ptr() in known:
            raise Unrecordable("an output shares memory with an input or with another output")
        known.add(storage.data_ptr())
        if storage.nbytes() != output.numel() * output.element_size() or output.clone().stride() != output.stride():
            raise Unrecordable("an output is part of a larger tensor")
