"""Forks, threads, asyncio, interrupts, and code and objects that come and go while compiled functions live."""

import asyncio
import gc
import inspect
import json
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
import weakref
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from support import daemon_pid, fresh_function

import flambeau
from flambeau._native import _testing

pytestmark = pytest.mark.plain_only("about processes, threads and lifetimes; what is compiled is one expression")


def in_child(work):
    """Runs `work` in a forked child, which may not hang; true if it returned true. (Torch's own large kernels hang in
    such a child unless it calls `torch.set_num_threads(1)`, as a DataLoader's worker does.)"""
    pid = os.fork()
    if pid == 0:
        signal.alarm(30)
        try:
            os._exit(0 if work() else 1)
        finally:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_fork():
    fn, other = fresh_function(), fresh_function()
    compiled = flambeau.compile(fn)
    a = torch.randn(200_000)
    expected, expected_other = fn(a).numpy().tobytes(), other(a).numpy().tobytes()
    assert compiled(a).numpy().tobytes() == expected

    def work():
        old = compiled(a).numpy().tobytes() == expected
        new = flambeau.compile(other)(a).numpy().tobytes() == expected_other
        return old and new and flambeau.counters()["graphs"] == 2 and not flambeau.counters()["eager_fallbacks"]

    assert in_child(work)
    # The parent's connection is whole.
    another = fresh_function()
    assert torch.equal(flambeau.compile(another)(a), another(a))
    assert flambeau.counters()["graphs"] == 2 and not flambeau.counters()["eager_fallbacks"]


def test_parameters_replaced_while_a_call_runs():
    """A run uses the tensors that it began with, though nobody else keeps them."""
    net = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256)).requires_grad_(
        False
    )
    compiled, x, done = flambeau.compile(net, backend="cpu"), torch.ones(512, 256), threading.Event()

    def fill(value):
        for layer in (net[0], net[2]):
            layer.weight = torch.nn.Parameter(torch.full((256, 256), value), requires_grad=False)
            layer.bias = torch.nn.Parameter(torch.zeros(256), requires_grad=False)

    def replace():
        while not done.is_set():
            for value in (1 / 256, 2 / 256):
                fill(value)

    fill(1 / 256)
    compiled(x)
    other = threading.Thread(target=replace)
    other.start()
    try:
        seen = {round(float(value), 3) for _ in range(300) for value in compiled(x).flatten()[:: 256 * 64]}
    finally:
        done.set()
        other.join()
    assert seen <= {1.0, 2.0, 4.0}
    assert not flambeau.counters()["eager_fallbacks"]


def test_empty_keyword_arguments_are_another_dict_in_every_call():
    """Although one that nobody kept is used again."""
    compiled = flambeau.compile(lambda x, **more: (x + len(more), more))
    x = torch.zeros(2)
    kept = [compiled(x)[1] for _ in range(3)]
    assert len({id(more) for more in kept}) == 3
    kept[0]["a"] = 1
    compiled(x)
    compiled(x)[1]["b"] = 2
    assert compiled(x)[1] == {} and kept[1:] == [{}, {}]
    assert torch.equal(compiled(x, a=1)[0], x + 1) and torch.equal(compiled(x)[0], x)


def test_fork_leaves_no_descriptor_of_the_link_behind():
    daemon_pid()

    def sockets():
        found = set()
        for fd in os.listdir("/proc/self/fd"):
            with suppress(FileNotFoundError):  # the listing's own
                found.add(os.readlink(f"/proc/self/fd/{fd}"))
        return {name for name in found if name.startswith("socket")}

    # Others may be closed meanwhile: what earlier tests left.
    links = [name for name in sockets() if in_child(lambda name=name: name not in sockets())]
    assert len(links) == 1 and links[0] in sockets()


class Squares(torch.utils.data.Dataset):
    """Items computed by a compiled model."""

    def __init__(self):
        self.model = flambeau.compile(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()).eval())

    def __len__(self):
        return 8

    def __getitem__(self, i):
        with torch.no_grad():
            return self.model(torch.full((4,), float(i)))


@flambeau.compile
def collate(items):
    return torch.stack(items) * 2


@pytest.mark.parametrize("warm", [False, True])
def test_data_loader_workers(warm):
    data = Squares()
    expected = torch.stack(
        [data[i] if warm else data.model._flambeau_module(torch.full((4,), float(i))) for i in range(8)]
    )
    if warm:
        collate(list(expected[:4]))
    loader = torch.utils.data.DataLoader(data, batch_size=4, num_workers=2, collate_fn=collate, timeout=50)
    with torch.no_grad():
        torch.testing.assert_close(torch.cat(list(loader)), expected.detach() * 2)


def test_threads():
    functions = [fresh_function() for _ in range(4)]
    compiled = [flambeau.compile(f) for f in functions]
    a = torch.randn(1000)
    wrong = []
    start = threading.Barrier(4)

    def work(k):
        start.wait()
        for i in range(20):
            j = (i + k) % 4
            if not torch.equal(compiled[j](a), functions[j](a)):
                wrong.append(j)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_threads_beside_changes_of_hooks_and_sizes():
    """Eight threads, ten thousand calls each: no wrong result, no deadlock, no warning, no memory that stays."""
    command = [
        sys.executable,
        "-X",
        "faulthandler",
        "-X",
        "dev",
        str(Path(__file__).with_name("threads.py")),
        "8",
        "10000",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    assert not done.stderr
    found = json.loads(done.stdout)
    assert found["wrong"] == 0 and found["calls"] == 80_000 and not found["eager_fallbacks"], found
    assert found["grown"] < 8 << 20, found


def test_grad_mode_is_the_thread_s_own():
    fn = fresh_function()
    compiled = flambeau.compile(fn)
    w = torch.randn(8, requires_grad=True)
    found = {}

    def work(enabled):
        for _ in range(20):
            with torch.set_grad_enabled(enabled):
                found.setdefault(enabled, set()).add(compiled(w).requires_grad)

    threads = [threading.Thread(target=work, args=(enabled,)) for enabled in (True, False)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert found == {True: {True}, False: {False}}


def test_asyncio():
    fn = fresh_function()
    compiled = flambeau.compile(fn)

    async def call(i):
        await asyncio.sleep(0)
        return compiled(torch.full((4,), float(i)))

    async def main():
        return await asyncio.gather(*(call(i) for i in range(8)))

    for i, result in enumerate(asyncio.run(main())):
        assert torch.equal(result, fn(torch.full((4,), float(i))))


def test_interrupt_during_a_compile():
    """Ctrl-C while the daemon is busy raises KeyboardInterrupt at once, and the next call compiles."""
    # A background job of a shell ignores it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    pid = daemon_pid()
    fn = fresh_function()
    compiled = flambeau.compile(fn)
    a = torch.ones(4)
    os.kill(pid, signal.SIGSTOP)
    try:
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        begun = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            compiled(a)
        assert time.monotonic() - begun < 30
    finally:
        os.kill(pid, signal.SIGCONT)
    assert torch.equal(compiled(a), fn(a))
    assert flambeau.counters()["graphs"] == 1


def test_redefined_functions_and_classes_are_seen():
    cell = {"torch": torch, "flambeau": flambeau, "__name__": "__main__"}
    exec("def g(x):\n    return x + 1\n@flambeau.compile\ndef f(x):\n    return g(x) * 2", cell)
    x = torch.ones(3)
    assert torch.equal(cell["f"](x), torch.full((3,), 4.0))
    exec("def g(x):\n    return x - 1", cell)
    assert torch.equal(cell["f"](x), torch.zeros(3))
    exec("g = torch.neg", cell)
    assert torch.equal(cell["f"](x), torch.full((3,), -2.0))

    model = (
        "class Net(torch.nn.Module):\n    def forward(self, x):\n        return x {} 2\nnet = flambeau.compile(Net())"
    )
    for op, expected in (("*", 2.0), ("+", 3.0), ("*", 2.0)):
        old = cell.get("net")
        exec(model.format(op), cell)
        assert torch.equal(cell["net"](x), torch.full((3,), expected))
        if old is not None:
            assert torch.equal(old(x), torch.full((3,), 5.0 - expected))
    exec("Net.forward = lambda self, x: x - 7", cell)
    assert torch.equal(cell["net"](x), torch.full((3,), -6.0))


def test_the_same_cell_again_is_no_recompile():
    cell = {"torch": torch}
    source = "def g(x):\n    return x + 1\ndef f(x):\n    return g(x) * 2"
    x = torch.ones(3)
    for _ in range(3):
        exec(source, cell)
        assert torch.equal(flambeau.compile(cell["f"])(x), torch.full((3,), 4.0))
    assert flambeau.counters()["frames_traced"] == 1


@pytest.mark.parametrize("grad", [False, True])
def test_deleted_model_is_freed(backend, grad):
    for _ in range(2):
        model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU()).eval()
        compiled = flambeau.compile(model, backend=backend)
        with torch.set_grad_enabled(grad):
            compiled(torch.ones(1, 8))
            compiled(torch.ones(1, 8))
        gone = weakref.ref(model[0].weight)
        del model, compiled
        gc.collect()
        assert gone() is None


def test_arguments_and_intermediates_are_freed_when_the_call_ends(backend):
    compiled = flambeau.compile(fresh_function(), backend=backend)
    seen = []
    with torch.no_grad():
        for _ in range(3):
            a = torch.randn(100)
            result = compiled(a)
            seen += [weakref.ref(a), weakref.ref(result)]
            del a, result
            assert [ref() for ref in seen] == [None] * len(seen)


def test_a_compiled_function_looks_like_the_function():
    def scale(x, by: float = 2.0, *, shift=0):
        """Scales."""
        return x * by + shift

    compiled = flambeau.compile(scale)
    for name in ("__name__", "__qualname__", "__module__", "__doc__", "__annotations__"):
        assert getattr(compiled, name) == getattr(scale, name)
    assert compiled.__wrapped__ is scale
    assert inspect.signature(compiled) == inspect.signature(scale)


@pytest.mark.provokes_internal("a plan's steps fail")
def test_failures_at_each_step_of_a_plan(backend):
    """A failing step before the commit point means that the call runs eagerly; inputs are as eager leaves them."""

    def fn(a, b):
        return (a @ b).relu().softmax(-1), a.sum(0) * 2

    compiled = flambeau.compile(fn, backend=backend)
    args = torch.randn(6, 6), torch.randn(6, 6)
    copies = [t.clone() for t in args]
    expected = fn(*args)
    failed = 0
    try:
        with torch.no_grad(), pytest.warns(RuntimeWarning, match="injected"):
            torch.testing.assert_close(compiled(*args), expected)
            for step in range(40):
                _testing.fail_step(step)
                torch.testing.assert_close(compiled(*args), expected)
                failed = flambeau.counters()["eager_fallbacks"].get("run_failed", 0)
                if failed <= step:
                    break
    finally:
        _testing.fail_step(None)
    assert failed >= 3 and failed == step
    assert all(torch.equal(a, b) for a, b in zip(args, copies, strict=True))


@pytest.mark.provokes_internal("a plan's steps fail")
def test_failures_at_each_step_never_leave_an_input_half_written(backend):
    def fn(a, b):
        c = a @ b
        a.add_(1)
        return c.relu() + a

    compiled = flambeau.compile(fn, backend=backend)
    b = torch.randn(6, 6)

    def call(f):
        a = torch.ones(6, 6)
        return f(a, b), a

    expected = call(fn)
    outcomes = set()
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            torch.testing.assert_close(call(compiled), expected)
            for step in range(12):
                _testing.fail_step(step)
                a = torch.ones(6, 6)
                try:
                    torch.testing.assert_close((compiled(a, b), a), expected)
                    outcomes.add("eager")
                except RuntimeError as error:
                    assert "injected" in str(error)
                    # Raised after the commit point: the whole write is there, or none of it yet.
                    assert torch.equal(a, torch.ones(6, 6)) or torch.equal(a, torch.full((6, 6), 2.0))
                    outcomes.add("raised")
    finally:
        _testing.fail_step(None)
    assert "eager" in outcomes


@pytest.mark.provokes_internal("a plan's steps fail")
def test_a_frame_whose_prediction_fails_is_given_up(monkeypatch):
    """An op that returns other strides than the rules say: the call runs eagerly, and so do all like it."""

    class Transposed:
        def __init__(self, real):
            self.real, self._schema, self.calls = real, real._schema, 0

        def __call__(self, *args):
            self.calls += 1
            return self.real(*args).t().contiguous().t()

    other = Transposed(torch.ops.aten.index.Tensor)
    monkeypatch.setattr(torch.ops.aten.index, "Tensor", other)

    def fn(x, i):
        return x[:, i].relu() * 2

    x, i = torch.randn(3, 4), torch.tensor([2, 0, 1])
    compiled = flambeau.compile(fn)
    with torch.no_grad(), pytest.warns(RuntimeWarning, match="aten::index.Tensor returned") as caught:
        for _ in range(3):
            assert torch.equal(compiled(x, i), fn(x, i))
    assert len(caught) == 1 and other.calls == 1
    assert flambeau.counters()["eager_fallbacks"] == {"output_mismatch": 1}
