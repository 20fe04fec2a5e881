"""The CUDA back end on a GPU: what programs compute and draw there, streams, recordings."""

import json
import subprocess
import sys
import threading

import models
import pytest
import test_cuda_source
import torch
from support import assert_same, check, check_training, native
from torch import nn
from torch.nn import functional as F
from torch.utils._pytree import tree_map

import flambeau

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch has no GPU here"),
    pytest.mark.plain_only("what a GPU does, whatever the frames are"),
]

GPU = "cuda:0"
#: `loss` makes its targets on the processor.
ON_GPU = [case for case in test_cuda_source.CASES if case.values[0] is not test_cuda_source.loss]


@pytest.fixture(autouse=True)
def in_full_precision():
    """Rounding is as on the processor."""
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    yield
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


def random(*shape, dtype=torch.float32, seed=3):
    """On the GPU, the same every time."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(GPU, dtype)


def on_gpu(value):
    """A model, or tensors, moved there."""
    return tree_map(lambda part: part.to(GPU) if isinstance(part, torch.Tensor | nn.Module) else part, value)


@pytest.mark.parametrize(("fn", "shape"), ON_GPU)
def test_schedules(fn, shape):
    x = random(*shape)
    assert_same(native(flambeau.compile(fn, backend="cuda"), x), fn(x), slack=4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=str)
@pytest.mark.parametrize("fn", test_cuda_source.LONG, ids=lambda fn: fn.__name__)
def test_long_rows(fn, dtype):
    x = random(*test_cuda_source.LONG[fn], dtype=dtype)
    assert_same(native(flambeau.compile(fn, backend="cuda"), x), fn(x), slack=4)


def loss(x, target):
    return F.cross_entropy(x, target)


@pytest.mark.parametrize("shape", [(7, 768), (2, 40_000)])
def test_losses(shape):
    x, target = random(*shape), torch.arange(shape[0], device=GPU)
    assert_same(native(flambeau.compile(loss, backend="cuda"), x, target), loss(x, target), slack=4)


@pytest.mark.parametrize("dynamic", [False, True])
def test_sizes_change(dynamic):
    def f(x):
        return torch.softmax(x * 2, -1), x.sum(0), x.sum(), x.t().contiguous() + 1, x.var(-1)

    compiled = flambeau.compile(f, backend="cuda", dynamic=dynamic)
    for shape in ((3, 5), (4, 1000), (0, 7), (300, 72), (2, 0)):
        x = random(*shape)
        assert_same(native(compiled, x), f(x), slack=4)


@pytest.mark.parametrize("name", list(models.CASES))
def test_models(name):
    fn, args = on_gpu(models.build(name, 2))
    # Of its fused layers only the processor's have a rule.
    call = (lambda fn, *args: fn(*args)) if name == "transformer_encoder" else native
    with torch.no_grad():
        expected = fn(*args)
        compiled = flambeau.compile(fn, backend="cuda")
        for _ in range(2):
            assert_same(call(compiled, *args), expected, slack=20)


@pytest.mark.parametrize("name", ["resnet18", "decoder"])
def test_training(name):
    check_training(*on_gpu(models.build(name, 2)), backend="cuda", slack=20, gradients=2e-4, buffers=1e-5)
    assert not flambeau.counters()["eager_fallbacks"]


def writes(x, y):
    x.add_(1).mul_(y)
    x[0] = 3
    return x.view(-1)[1:], x + y


def broadcast(x, y):
    return torch.where(x > y[0], x, y), x.clamp(-1, 1) // 0.3, (x.int() & 3) | y.int(), x.argmax(-1), y.cumsum(0)


def moves_there_and_back(x, y):
    far = x.cpu() + 1
    return far, far.to(x.device) * y, (x + 2).to("cpu", torch.float64)


def number_on_the_cpu(x, y):
    return (
        x * torch.tensor(3.0) + y,
        x.new_zeros(3),
        torch.ones_like(x, dtype=torch.int32),
        torch.arange(4, device=x.device),
    )


def reads(x, y):
    if x.sum().item() > 0:
        return x + y
    return x - y.max().item()


def in_autocast(x, y):
    with torch.autocast("cuda", torch.bfloat16):
        z = x @ y.t()
        return z, torch.softmax(z, -1), (z.float() + 1).relu()


def laid_out(x, y):
    z = x.reshape(1, 2, 4, 3).to(memory_format=torch.channels_last)
    return (
        z * 2,
        F.group_norm(z, 2),
        F.conv2d(z, torch.ones(3, 2, 1, 1, device=x.device)),
        x.t() + y.t(),
        torch.cat([x, y], 1)[:, ::2],
    )


PROGRAMS = [writes, broadcast, moves_there_and_back, number_on_the_cpu, reads, in_autocast, laid_out]


@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda fn: fn.__name__)
def test_programs(fn):
    check(fn, (random(4, 6), random(4, 6, seed=4)), backend="cuda", graphs=None, slack=4)


def draws(x):
    y = F.dropout(x, 0.3) + torch.rand_like(x)
    return y, torch.randn(3, device=x.device), torch.randint(9, (4,), device=x.device), torch.bernoulli(x.sigmoid())


def test_random_numbers_are_those_of_eager():
    x, compiled = random(33, 70), flambeau.compile(draws, backend="cuda")
    for _ in range(3):
        torch.manual_seed(9)
        expected, state = (draws(x), draws(x)), torch.cuda.get_rng_state()
        torch.manual_seed(9)
        assert_same((compiled(x), compiled(x)), expected)
        assert torch.equal(torch.cuda.get_rng_state(), state)


def test_a_stream_of_the_program():
    x, stream = random(1024, 1024), torch.cuda.Stream()

    def f(x):
        for _ in range(20):
            x = torch.softmax(x, -1) + x
        return x

    compiled, expected = flambeau.compile(f, backend="cuda"), f(x)
    assert_same(native(compiled, x), expected, slack=4)
    for _ in range(20):
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            result = compiled(x * 1)
        torch.cuda.current_stream().wait_stream(stream)
        assert_same(result, expected, slack=4)


def test_a_graph_of_the_program():
    x = random(64, 64)

    def f(x):
        return torch.softmax(x @ x, -1).sum(0)

    compiled = flambeau.compile(f, backend="cuda")
    for _ in range(3):
        compiled(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = compiled(x)
    for seed in range(3):
        x.copy_(random(64, 64, seed=seed))
        graph.replay()
        assert_same(result, f(x), slack=4)


def test_threads():
    fns = [lambda x, n=n: torch.softmax(x * n, -1).sum(0) + n for n in range(4)]
    failed = []

    def run(fn):
        try:
            compiled = flambeau.compile(fn, backend="cuda")
            for seed in range(20):
                x = random(50, 60, seed=seed)
                assert_same(compiled(x), fn(x), slack=4)
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(fn,)) for fn in fns]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed[0]


def many(x):
    for _ in range(20):
        x = x - x.mean(0)
        x = torch.softmax(x, -1) + x
    return x, x.sum()


def test_recorded_calls():
    compiled = flambeau.compile(many, backend="cuda", mode="reduce-overhead")
    inputs = [random(40, 50, seed=seed) for seed in range(6)]
    with torch.no_grad():
        given = [compiled(x) for x in inputs]
        fixed = inputs[0].clone()
        for x in inputs:
            fixed.copy_(x)
            assert_same(compiled(fixed), many(x), slack=4)
    for x, results in zip(inputs, given, strict=True):
        assert_same(results, many(x), slack=4)
    counts = flambeau.counters()
    assert counts["recordings"] == 1 and counts["replays"] >= 9, counts
    assert not counts["unrecorded"] and not counts["eager_fallbacks"], counts


@pytest.mark.parametrize("name", ["resnet18", "decoder"])
def test_recorded_models(name):
    fn, args = on_gpu(models.build(name, 2))
    compiled = flambeau.compile(fn, backend="cuda", mode="reduce-overhead")
    with torch.no_grad():
        for _ in range(5):
            assert_same(compiled(*args), fn(*args), slack=20)
    counts = flambeau.counters()
    assert counts["recordings"] >= 1 and counts["replays"] >= 3, counts


def test_what_cannot_be_recorded_runs():
    def noisy(x):
        return (x + torch.rand_like(x)).relu()

    x, compiled = random(33, 70), flambeau.compile(noisy, backend="cuda", mode="reduce-overhead")
    with torch.no_grad():
        for _ in range(4):
            torch.manual_seed(9)
            expected = noisy(x)
            torch.manual_seed(9)
            assert_same(compiled(x), expected)
    assert flambeau.counters()["unrecorded"] == {"changes": 1}, flambeau.counters()


AGAIN = """
import json, torch, flambeau
def f(x):
    return torch.softmax(x * 2, -1).sum(0), x.relu() + 1
x = torch.arange(12., device="cuda").reshape(3, 4)
compiled = flambeau.compile(f, backend="cuda")
for _ in range(2):
    torch.testing.assert_close(compiled(x), f(x))
counts = flambeau.counters()
print(json.dumps([counts["frames_traced"], counts["eager_fallbacks"], counts["eager_graph_reasons"]]))
"""


def test_a_second_process_is_warm(tmp_path):
    script = tmp_path / "again.py"
    script.write_text(AGAIN)
    told = []
    for _ in range(2):
        done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=100)
        assert done.returncode == 0, done.stderr
        told.append(json.loads(done.stdout))
    assert told == [[1, {}, {}], [0, {}, {}]], told
