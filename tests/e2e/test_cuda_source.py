"""What the CUDA back end's generated code computes: its text, unchanged, compiled by g++ and run on the processor.

The threads of a block take turns, and wait for each other where the text says so. Neither a GPU's functions nor its
memory are tried by this.
"""

import json

import models
import pytest
import torch
from support import assert_same, native

import flambeau
import plugins
from flambeau import _check
from flambeau._check_kernels import EXACT, Kernel
from flambeau._check_worker import Subject

pytestmark = [pytest.mark.plain_only("compiles slowly, and does the same whatever the frames are"), pytest.mark.slow]

NAME = "cuda_source_on_cpu"


@pytest.fixture(scope="module", params=["", "_plain"], ids=["fast where it fits", "plain"])
def backend(request, tmp_path_factory):
    """The name of the back end: as artifacts say, or always with what is right for all arguments."""
    folder, name = tmp_path_factory.mktemp("plugins"), NAME + request.param
    plugins.install(folder, name, NAME)
    with flambeau.config.patch(plugin_path=[str(folder)]):
        yield name, folder


@pytest.mark.parametrize("pattern", ["stages", "threads", "f32, rows"])
def test_conformance(backend, pattern):
    """Slices: `flambeau plugin check` does all."""
    name, folder = backend
    report = _check.check(str(plugins.half(folder, name, "compile")), pattern)
    assert report.ok, str(report)


def softmax(x):
    return torch.softmax(x, -1)


def norm(x):
    return torch.nn.functional.layer_norm(x, x.shape[-1:])


def totals(x):
    return x.sum(-1), (x * x).mean(), x.amax(-1), x.amin()


def columns(x):
    return x.sum(0), x.amax(0), (x - x.mean(0)).abs()


def loss(x):
    return torch.nn.functional.cross_entropy(x, torch.arange(x.shape[0]) % x.shape[1])


def pointwise(x):
    return (x * 2 + x[:1]).relu() - x[:, :1], x.t().contiguous() * 3, (x > 0) & (x < 1)


def variance(x):
    return x.var(-1), x.mean(-1), x.var(-1, correction=0)


def column_statistics(x):
    return x.mean(0), x.var(0), (x - x.mean(0)) / (x.var(0) + 1)


def group_norm(x):
    return torch.nn.functional.group_norm(x.reshape(1, 2, -1), 2)


def exponentials(x):
    return torch.softmax(x, -1), torch.log_softmax(x, -1), torch.logsumexp(x, -1)


def distances(x):
    """From a number that is not the mean, and from the maximum as it is."""
    off = x - x.sum(-1, keepdim=True) / 100
    return (off * off).sum(-1), (x - x.amax(-1, keepdim=True)).exp().sum(-1)


def column_exponentials(x):
    return torch.softmax(x, 0), torch.logsumexp(x, 0)


#: Rows for parts of warps, warps, blocks and several blocks, of lengths that vectors divide and that they do not;
#: columns for few and for many threads.
SHAPES = {
    softmax: [(5, 3), (7, 768), (600, 640), (3, 5001), (2, 40_000), (1, 300_001), (2, 262_144)],
    norm: [(300, 24), (2, 40_000)],
    totals: [(3, 5001), (1, 300_001), (2, 262_144)],
    columns: [(300, 24), (70_000, 6), (20_000, 33)],
    loss: [(7, 768), (2, 40_000)],
    pointwise: [(300, 24), (3, 5001)],
}
CASES = [pytest.param(fn, shape, id=f"{fn.__name__} {shape}") for fn, shapes in SHAPES.items() for shape in shapes]


@pytest.mark.parametrize(("fn", "shape"), CASES)
def test_schedules(backend, fn, shape):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(3))
    assert_same(native(flambeau.compile(fn, backend=backend[0]), x), fn(x))


#: Functions of rows that are read once for two reductions, along the row and along the points.
LONG = {
    variance: (2, 33_000),
    norm: (1, 50_001),
    group_norm: (1, 80_000),
    exponentials: (1, 128_256),
    distances: (2, 33_000),
    column_statistics: (20_000, 33),
    column_exponentials: (20_000, 33),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("fn", LONG, ids=lambda fn: fn.__name__)
def test_long_rows(backend, fn, dtype):
    x = torch.randn(LONG[fn], generator=torch.Generator().manual_seed(3), dtype=torch.float64).to(dtype)
    assert_same(native(flambeau.compile(fn, backend=backend[0]), x), fn(x))


@pytest.mark.parametrize("fn", [norm, variance, exponentials, column_statistics, column_exponentials])
def test_rows_that_might_be_long(backend, fn):
    compiled = flambeau.compile(fn, backend=backend[0], dynamic=True)
    for shape in ((3, 5000), (2, 30), (7, 777)):
        x = torch.randn(shape, generator=torch.Generator().manual_seed(3))
        assert_same(native(compiled, x), fn(x))


def strange(length):
    """Rows with infinities and nan where they matter, rows whose maximum changes often, and large numbers."""
    x = torch.randn(15, length, generator=torch.Generator().manual_seed(5))
    x[0, : length // 2] = -torch.inf
    x[1, length // 2 :] = -torch.inf
    x[2] = -torch.inf
    x[3, length // 3] = torch.inf
    x[4, 0] = torch.inf
    x[5] = torch.inf
    x[6, 0], x[6, -1] = torch.inf, -torch.inf
    x[7, 0] = torch.nan
    x[8, : length // 2], x[8, -1] = -torch.inf, torch.nan
    x[9] = torch.linspace(-1000, 1500, length)
    x[10] = torch.linspace(1500, -1000, length)
    x[11] = 3
    x[12, 1::2] = -torch.inf
    x[13, 0] = -1e30
    x[14, -1] = 200
    return x


@pytest.mark.parametrize(("length", "dynamic"), [(33_000, False), (5_000, True)], ids=["known sizes", "unknown sizes"])
@pytest.mark.parametrize("fn", [exponentials, distances, column_exponentials, variance, column_statistics])
def test_long_rows_that_are_strange(backend, fn, length, dynamic):
    columns = fn in (column_exponentials, column_statistics)
    x = strange(length).t().contiguous() if columns else strange(length)
    compiled = flambeau.compile(fn, backend=backend[0], dynamic=dynamic)
    for result, expected in zip(native(compiled, x), fn(x), strict=True):
        for row, pair in enumerate(zip(result.unbind(-columns), expected.unbind(-columns), strict=True)):
            said = f"row {row}: {{}}".format
            torch.testing.assert_close(*pair, rtol=1e-4, atol=1e-6, equal_nan=True, msg=said)


@pytest.mark.parametrize("shape", [(2, 33_000), (33, 20_000)], ids=str)
def test_variances_far_from_zero(backend, shape):
    """They are not lost beside the mean, nor beside an element that is far off."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(7)) + 10_000
    x[0, 0] = 9_000
    x, dim = (x, 1) if len(x) < 3 else (x.t().contiguous(), 0)
    expected = x.double().var(dim)
    # A mean in f32 is not exact either: with as many elements for a thread as with unknown sizes, that is seen.
    for dynamic, tolerance in ((False, 1e-5), (True, 2e-4)):
        var = native(flambeau.compile(lambda x: x.var(dim), backend=backend[0], dynamic=dynamic), x)
        torch.testing.assert_close(var.double(), expected, rtol=tolerance, atol=0)


@pytest.mark.parametrize("backend", [""], ids=[""], indirect=True)
@pytest.mark.parametrize("name", ["resnet18", "vit_tiny_patch16_224", "decoder"])
def test_models(backend, name):
    fn, args = models.build(name, 1)
    with torch.no_grad():
        assert_same(native(flambeau.compile(fn, backend=backend[0]), *args), fn(*args))


def test_sizes_that_are_not_known(backend):
    def f(x):
        return torch.softmax(x * 2, -1), x.sum(0), x.sum(), x.t().contiguous() + 1

    compiled = flambeau.compile(f, backend=backend[0], dynamic=True)
    for shape in ((3, 5), (4, 1000), (0, 7), (300, 72), (2, 0)):
        x = torch.randn(shape)
        assert_same(compiled(x), f(x))
    assert not flambeau.counters()["eager_fallbacks"]


def test_one_row_of_a_size_that_is_not_known(backend):
    """Blocks share it, as it might be long: several launches, and the last needs some of what the first ones found."""

    def f(x):
        y = torch.nn.functional.layer_norm(x, x.shape)
        return torch.softmax(y, 0), x.sum(), (y.float() * y.float()).sum(), y.abs().amax()

    compiled = flambeau.compile(f, backend=backend[0], dynamic=True)
    for length in (100, 5003, 200_000):
        x = torch.randn(length)
        assert_same(compiled(x), f(x), slack=2)
    assert not flambeau.counters()["eager_fallbacks"] and not flambeau.counters()["eager_graph_reasons"]


def test_what_a_row_changes_is_read_by_all_its_threads_first(backend):
    """No other stage has them wait for each other."""
    name, folder = backend
    x, scale = torch.ones(3, 4096), torch.tensor([[1.0], [2.0], [3.0]])
    kernel = Kernel([3, 4096], 1)
    both, source = kernel.param(scale.clone(), "InOut"), kernel.param(x)
    kernel.expected.append((both, scale + 1, EXACT))
    result = kernel.out(scale.expand(3, 4096).contiguous())
    kernel.outside()
    old = kernel.load(both, [1, 0])
    kernel.store(both, kernel.binary("Add", torch.float32, old, kernel.const(torch.float32, 1)), [1, 0])
    kernel.row()
    kernel.store(result, kernel.binary("Mul", torch.float32, kernel.load(source), old))
    subject = Subject(*(str(plugins.half(folder, name, half)) for half in plugins.HALVES))
    subject.launch(subject.loaded(json.dumps(kernel.json())), kernel, 1)
