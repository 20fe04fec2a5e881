"""Plans that are recorded and replayed, for `mode="reduce-overhead"`.

CUDA graphs take a GPU. A graph that runs the plan again stands in for them here: on the tensors it was recorded with,
into the outputs it was recorded with, as a CUDA graph does.
"""

import threading
from contextlib import contextmanager

import pytest
import torch
from support import assert_same

import flambeau
from flambeau import _recording

pytestmark = pytest.mark.plain_only("counts runs, recordings and replays of one function's plans")


class Rerun:
    """Stands in for a graph of a device."""

    recording = False
    broken = False

    def __init__(self, device, work):
        assert device == torch.device("cpu")
        self.work, self.outputs = work, work()

    @classmethod
    def can_replay(cls, device):
        return not cls.recording

    def follow(self, inputs):
        self.read = inputs

    def replay(self):
        if self.broken:
            raise RuntimeError("the device is gone")
        with torch.inference_mode():
            for output, new in zip(self.outputs, self.work(), strict=True):
                output.copy_(new)


@pytest.fixture(autouse=True)
def graphs(monkeypatch):
    monkeypatch.setitem(_recording.GRAPHS, "cpu", Rerun)
    flambeau.reset()
    with torch.no_grad():
        yield


def compiled(fn, **options):
    return flambeau.compile(fn, backend="cpu", mode="reduce-overhead", **options)


@contextmanager
def counted(recordings=0, replays=0, unrecorded=None, falls_back=False):
    """What the calls within do."""
    before = flambeau.counters()
    yield
    after = flambeau.counters()
    done = {name: after[name] - before[name] for name in ("recordings", "replays")}
    assert done == {"recordings": recordings, "replays": replays}
    new = {k: n - before["unrecorded"].get(k, 0) for k, n in after["unrecorded"].items()}
    assert {k: n for k, n in new.items() if n} == (unrecorded or {})
    assert bool(after["eager_fallbacks"]) == falls_back


def affine(x, y):
    return (x * 2 + y).relu(), x.sum(-1) - 1


def inputs(count, *sizes):
    """So many pairs of tensors, all in memory of their own."""
    return [(torch.randn(sizes), torch.randn(sizes)) for _ in range(count)]


def test_other_modes_record_nothing():
    for mode, recordings in (("max-autotune-no-cudagraphs", 0), ("default", 0), (None, 0), ("max-autotune", 1)):
        flambeau.reset()
        fn = flambeau.compile(affine, backend="cpu", mode=mode)
        with counted(recordings=recordings, replays=2 * recordings):
            for args in inputs(4, 3, 5):
                assert_same(fn(*args), affine(*args))


def test_as_a_back_end_of_torch():
    torch._dynamo.reset()
    fn = torch.compile(affine, backend="flambeau", mode="reduce-overhead")
    with counted(recordings=1, replays=3):
        for args in inputs(5, 3, 5):
            assert_same(fn(*args), affine(*args))


def test_inputs_that_lie_elsewhere_are_copied():
    fn, calls = compiled(affine), inputs(10, 3, 5)
    with counted(recordings=1, replays=8):
        got = [fn(*args) for args in calls]
    # All at the end: a later replay changes no output of an earlier one.
    for given, args in zip(got, calls, strict=True):
        assert_same(given, affine(*args))


def test_parameters_are_read_where_they_are():
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.LayerNorm(16), torch.nn.Linear(16, 4))
    fn, calls = compiled(model), [torch.randn(3, 8) for _ in range(12)]

    def check(x):
        assert_same(fn(x), model(x))

    with counted(recordings=1, replays=2):
        for x in calls[:4]:
            check(x)
    for parameter in model.parameters():
        parameter.add_(0.5)
    with counted(replays=2):
        check(calls[4])
        check(calls[5])
    # New memory: one call is run, one recorded, the next ones are replayed without copying parameters.
    model.load_state_dict({k: v + 1 for k, v in model.state_dict().items()}, assign=True)
    with counted(recordings=1, replays=2):
        for x in calls[6:10]:
            check(x)


def test_what_moves_for_good_is_copied_in_the_end():
    model, calls = torch.nn.Linear(8, 4), [torch.randn(3, 8) for _ in range(20)]
    fn, kept = compiled(model), []
    with counted(recordings=3, replays=15):
        for number, x in enumerate(calls):
            if number > 4 and number % 2:
                kept.append(model.weight.data)
                model.weight.data = model.weight.data + 1
            assert_same(fn(x), model(x))


def test_each_size_is_recorded():
    fn = compiled(affine, dynamic=True)
    with counted(recordings=3, replays=9):
        for rows in (2, 3, 4, 4, 3, 2, 2, 3, 4, 2, 2, 3, 3, 4, 4):
            args = (torch.randn(rows, 5), torch.randn(rows, 5))
            assert_same(fn(*args), affine(*args))


def test_more_sizes_than_are_remembered():
    fn = compiled(affine, dynamic=True)
    with counted(recordings=1, replays=3):
        for rows in [*range(2, 40), 40, 40, 40, *range(41, 80), 40, 40]:
            args = (torch.randn(rows, 5), torch.randn(rows, 5))
            assert_same(fn(*args), affine(*args))


@pytest.mark.parametrize("change", [lambda x: x.t(), lambda x: x[:, ::2], lambda x: x[1:, 1:], lambda x: x[None]])
def test_layouts_of_inputs(change):
    def fn(x):
        return x * 2, x.flatten() + 1

    f = compiled(fn)
    with counted(recordings=1, replays=3):
        for _ in range(5):
            x = change(torch.randn(6, 8))
            assert_same(f(x), fn(x))


def test_inputs_whose_elements_share_memory_are_not_copied():
    f, calls = compiled(affine), [(torch.randn(5).expand(4, 5), torch.randn(4, 5)) for _ in range(6)]
    with counted(unrecorded={"failed": 1}):
        for args in calls:
            assert_same(f(*args), affine(*args))


def test_changes_are_not_recorded():
    def writes(x):
        return x.add_(1) * 2

    def draws(x):
        return torch.nn.functional.dropout(x, 0.5)

    for fn in writes, draws:
        flambeau.reset()
        f = compiled(fn)
        with counted(unrecorded={"changes": 1}):
            for seed in range(4):
                x = torch.randn(3, 5)
                torch.manual_seed(seed)
                expected = fn(x.clone())
                torch.manual_seed(seed)
                assert_same(f(x.clone()), expected)


def test_outputs_that_share_memory():
    def fn(x):
        y = x * 2
        return y, y[1:], x.t()

    f = compiled(fn)
    for _ in range(5):
        x = torch.randn(3, 5)
        y, part, turned = f(x)
        assert_same((y, part, turned), fn(x))
        part.zero_(), turned.zero_()
        assert not y[1:].any() and not x.any()


def test_results_of_a_call_as_arguments_of_the_next():
    def step(x):
        return torch.tanh(x @ x.t() @ x) + 0.5

    f, a = compiled(step), torch.randn(4, 6)
    b = a
    with counted(recordings=1, replays=10 - 2):
        for _ in range(10):
            a, b = f(a), step(b)
            assert_same(a, b)


def test_threads_do_not_wait_for_each_other():
    fn, wrong = compiled(affine), []
    for args in inputs(3, 64, 300):
        fn(*args)

    def work(seed):
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for _ in range(150):
                args = (torch.randn(64, 300, generator=generator), torch.randn(64, 300, generator=generator))
                got, expected = fn(*args), affine(*args)
                wrong.extend(a for a, b in zip(got, expected, strict=True) if not torch.allclose(a, b, atol=1e-4))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    [thread.start() for thread in threads], [thread.join() for thread in threads]
    assert not wrong and flambeau.counters()["replays"] > 10


def test_a_call_of_another_thread_while_one_is_recorded(monkeypatch):
    def fn(x, weight):
        return x @ weight

    f, first, second = compiled(fn), torch.randn(5, 5), torch.randn(5, 5)

    class Disturbed(Rerun):
        disturb = True

        def __init__(self, device, work):
            super().__init__(device, work)
            if Disturbed.disturb:
                Disturbed.disturb = False
                thread = threading.Thread(target=torch.no_grad()(f), args=(torch.randn(3, 5), second))
                thread.start(), thread.join()

    monkeypatch.setitem(_recording.GRAPHS, "cpu", Disturbed)
    for weight in (first, first, second, first, second, second):
        x = torch.randn(3, 5)
        assert_same(f(x, weight), fn(x, weight))
    assert not Disturbed.disturb


def test_while_the_program_records_itself(monkeypatch):
    fn, calls = compiled(affine), inputs(8, 3, 5)
    with counted(recordings=1, replays=4):
        for number, args in enumerate(calls):
            monkeypatch.setattr(Rerun, "recording", number in (1, 5))
            assert_same(fn(*args), affine(*args))


def test_settings_of_torch_are_part_of_a_recording():
    fn, calls = compiled(affine), inputs(8, 3, 5)
    with counted(recordings=2, replays=4):
        for number, args in enumerate(calls):
            with torch.backends.cudnn.flags(enabled=True, benchmark=number >= 4):
                assert_same(fn(*args), affine(*args))


def test_a_recording_that_fails(monkeypatch):
    def fail(device, work):
        work()
        raise RuntimeError("operation not permitted when stream is capturing")

    fail.can_replay = Rerun.can_replay
    monkeypatch.setitem(_recording.GRAPHS, "cpu", fail)
    fn = compiled(affine)
    with counted(unrecorded={"failed": 1}):
        for args in inputs(6, 3, 5):
            assert_same(fn(*args), affine(*args))


@pytest.mark.provokes_internal("the replay fails")
def test_a_replay_that_fails(monkeypatch):
    fn, calls = compiled(affine), inputs(6, 3, 5)
    with counted(recordings=1, replays=2, falls_back=True), pytest.warns(RuntimeWarning, match="the device is gone"):
        for number, args in enumerate(calls):
            monkeypatch.setattr(Rerun, "broken", number > 3)
            assert_same(fn(*args), affine(*args))


def test_inference_mode():
    fn = compiled(affine)
    for inside, replays in ((True, 3), (False, 3)):
        with counted(recordings=1, replays=replays):
            for _ in range(5):
                with torch.inference_mode(inside):
                    args = inputs(1, 3, 5)[0]
                    got = fn(*args)
                    assert_same(got, affine(*args))
                    assert [x.is_inference() for x in got] == [inside, inside]


def test_graph_breaks_and_training():
    def broken(x):
        y = x * 2
        flambeau.graph_break()
        return y + 1

    fn = compiled(broken)
    with counted(recordings=2, replays=6):
        for x in torch.randn(5, 3, 4):
            assert_same(fn(x), broken(x))
    x = torch.randn(3, 4, requires_grad=True)
    with torch.enable_grad(), counted():
        for _ in range(4):
            assert_same(fn(x), broken(x))


class Cuda:
    """Writes down what torch is asked for, in place of `torch.cuda`."""

    def __init__(self, monkeypatch):
        self.calls, self.stream = [], Stream("the program's", self)
        for name in ("CUDAGraph", "current_stream", "device", "graph", "graph_pool_handle", "set_stream", "Stream"):
            monkeypatch.setattr(torch.cuda, name, getattr(self, name))
        monkeypatch.setattr(torch._C, "_cuda_clearCublasWorkspaces", lambda: self.calls.append("clear"), raising=False)
        monkeypatch.setattr(_recording, "LANES", {})

    def called(self):
        """Since the last time."""
        calls, self.calls = self.calls, []
        return calls

    def CUDAGraph(self):
        return self

    def Stream(self, device):
        return Stream(f"one of {device}", self)

    def current_stream(self, device):
        return self.stream

    def set_stream(self, stream):
        self.stream = stream

    def graph_pool_handle(self):
        self.calls.append("pool")
        return "the pool"

    @contextmanager
    def device(self, device):
        yield

    @contextmanager
    def graph(self, graph, pool, stream, capture_error_mode):
        assert graph is self
        self.calls.append((pool, stream.name, capture_error_mode))
        self.stream = stream
        # As torch 2.11 does, no `finally`.
        yield
        self.stream = "none"

    def replay(self):
        self.calls.append("replay")


class Stream:
    def __init__(self, name, cuda):
        self.name, self.cuda = name, cuda

    def wait_stream(self, other):
        self.cuda.calls.append((self.name, "waits for", other.name))


class Input:
    def record_stream(self, stream):
        stream.cuda.calls.append(("read in", stream.name))


def test_how_cuda_graphs_are_made(monkeypatch):
    cuda = Cuda(monkeypatch)
    first = cuda.stream
    graphs = [_recording.CudaGraph("cuda:1", lambda: cuda.calls.append(cuda.stream.name) or ["output"]) for _ in "12"]
    assert graphs[0].outputs == ["output"] and cuda.stream is first
    each = ["clear", ("the pool", "one of cuda:1", "thread_local"), "one of cuda:1", "clear"]
    assert cuda.called() == ["pool", *each, *each]
    # Those of other streams come behind what was replayed before, whichever graph it was.
    graphs[0].follow([Input()])
    cuda.stream = Stream("another", cuda)
    for graph in graphs:
        graph.follow([Input()])
        graph.replay()
    cuda.stream = first
    graphs[0].follow([Input()])
    waits = [
        ("another", "waits for", "the program's"),
        ("read in", "another"),
        "replay",
        ("read in", "another"),
        "replay",
    ]
    assert cuda.called() == [*waits, ("the program's", "waits for", "another")]


def test_the_programs_stream_stays_the_current_one(monkeypatch):
    cuda = Cuda(monkeypatch)
    first = cuda.stream

    def fail():
        raise RuntimeError("operation not permitted when stream is capturing")

    with pytest.raises(RuntimeError, match="not permitted"):
        _recording.CudaGraph("cuda:1", fail)
    assert cuda.stream is first and cuda.calls[-1] == "clear"
