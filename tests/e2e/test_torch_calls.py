"""Ops that the back end has no kernel for: each is one call of torch in the plan, and the graph is still compiled."""

import copy
import math
import sys
import warnings
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from support import assert_same, check, inputs

import flambeau

sys.path.insert(0, str(Path(__file__).parents[1] / "ops"))
import gen_aten


def functions_of_floats(x, y):
    return torch.lgamma(x + 1) * 2, x.asin(), (x * 2).acosh(), torch.special.i0(x), x.lgamma() + y, torch.sinc(x).relu()


def two_operands(x, y):
    return torch.atan2(x, y) * 2, x.hypot(y), torch.logaddexp(x, y), torch.fmod(x, y) + 1, x.copysign(y), x.nextafter(y)


def powers(x, y):
    i = torch.tensor([-3, 0, 2, 5])
    return x.abs() ** y, x**2.5, x**-3, 2**x, i**3, i**5 + 1, 2 ** i.abs(), x ** torch.tensor(2.0), x.double() ** y


def double_precision(x, y):
    x = x.double() * 3
    return x.erf() + 1, F.gelu(x), x.sin().relu(), x.cos() * 2


def bools(x, y):
    b = x > 0
    return b.max(), b.min(), b.amax(0), b.amin(1), b.max(1), b.sign(), b.any(0), torch.maximum(b, y > 0), b.cumsum(0)


def positions(x, y):
    return (x * 2).sort(1), (y + 1).topk(3), x.argsort(), x.kthvalue(2, 1), y.median(0), (x + y).cummax(0), x.mode(1)


def layouts(x, y):
    return x.t().atan() + 1, x[:, ::2].sinh(), (x.t() + 1).atan2(y.t()), x[None].expand(3, 4, 6).erfc(), x[0, 0].asin()


def written(x, y):
    x.atan_().add_(1)
    y.t().atan2_(x.t())
    z = torch.empty_like(x)
    torch.atan(x, out=z)
    x += x.abs() ** 1.5
    x.pow_(2)
    return x, z * 2


def random_numbers(x, y):
    a = torch.rand(3) + x[0, 0]
    b = x.clone().uniform_(1, 2) * 2
    c, d = torch.randn(2, 2), torch.bernoulli(torch.full((4,), 0.5))
    x.bernoulli_()
    y.t().exponential_()
    return a, b, c, d, x.clone().bernoulli_(0.3), torch.randint(5, (3,)), torch.rand_like(y) * 2, torch.randperm(6)


def losses(x, y):
    target = x.argmax(1)
    return (
        F.mse_loss(x, y), F.l1_loss(x, y * 2), F.huber_loss(x, y), F.smooth_l1_loss(x, y), F.cross_entropy(x, target),
        F.binary_cross_entropy_with_logits(x, y.sigmoid()), F.cross_entropy(x, target, label_smoothing=0.1) * 2,
        F.kl_div(x.log_softmax(1), y.softmax(1), reduction="batchmean"), F.cosine_similarity(x, y),
    )  # fmt: skip


def literals(x, y):
    scale = torch.tensor([1.0, 2.0, 3.0, 4.0])[:, None]
    return x * scale, torch.tensor(2) + y, torch.tensor([[1, 2], [3, 4]]), torch.tensor([True, False]), torch.tensor(())


def resampled(x, y):
    image = x.view(1, 1, 4, 6) * 2
    near = F.interpolate(image, scale_factor=2)
    return (
        near + 1,
        F.interpolate(image, size=(3, 5), mode="bilinear"),
        F.interpolate(image, scale_factor=2, mode="bicubic"),
    )


def broadcast(x, y):
    a, b = torch.broadcast_tensors(x[:, :1], y)
    return a + b, a


CASES = [
    functions_of_floats, two_operands, powers, double_precision, bools, positions, layouts, written, random_numbers,
    losses, literals, resampled, broadcast,
]  # fmt: skip


def compiled_natively(fn, *args):
    before = flambeau.counters()["eager_graph"]
    check(fn, *args)
    assert flambeau.counters()["eager_graph"] == before, flambeau.counters()["eager_graph_reasons"]


@pytest.mark.parametrize("fn", CASES, ids=lambda fn: fn.__name__)
def test_calls(fn):
    compiled_natively(fn, inputs())


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("running", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_batch_statistics(dtype, running, affine):
    def fn(x, mean, var, weight, bias):
        return F.batch_norm(x * 2, mean, var, weight, bias, training=True).relu()

    stats = (torch.zeros(3, dtype=dtype), torch.ones(3, dtype=dtype)) if running else (None, None)
    scales = (torch.rand(3, dtype=dtype), torch.rand(3, dtype=dtype)) if affine else (None, None)
    image = torch.randn(2, 3, 4, 5, dtype=dtype)
    for x in (image, image.to(memory_format=torch.channels_last), image[..., 0]):
        flambeau.reset()
        compiled_natively(fn, (x, *stats, *scales))


def test_modules_in_training_mode_keep_their_statistics():
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU())
    model.requires_grad_(False)
    twin = copy.deepcopy(model)
    before = flambeau.counters()["eager_graph"]
    compiled = flambeau.compile(twin)
    for _ in range(3):
        x = torch.randn(2, 3, 8, 8)
        assert_same(compiled(x), model(x))
    assert_same(list(twin.buffers()), list(model.buffers()))
    assert flambeau.counters()["eager_graph"] == before


def test_special_values():
    x = torch.tensor([float("nan"), float("inf"), -float("inf"), -0.0, 0.0, 1.0, -1.0, 1e-45, 3e38, 1e-30])
    pairs = torch.cartesian_prod(x, x)
    compiled_natively(lambda a, b: (a.tan(), a**b, a.atan2(b), a.double().erf(), a.fmod(b)), (pairs[:, 0], pairs[:, 1]))


def test_errors_are_torchs():
    def fn(x):
        return (x * 2).bernoulli()

    check(fn, (torch.full((4,), 3.0),), graphs=None)


def test_a_tensor_that_a_call_returns_as_it_is_stays_itself():
    check(lambda x, y: (x + 1, torch.broadcast_tensors(x, y)[1]), inputs())


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(("rows", "columns"), [(3, 4), (5, 1), (1, 3)])
def test_grids_and_repeats(rows, columns, dynamic):
    def grids(x, y):
        return (
            *torch.meshgrid(x[:, 0], y[0], indexing="ij"),
            *torch.meshgrid(x[:, 0], y[0], x[0], indexing="xy"),
            *torch.meshgrid([x[0, :1], y[0, ::2]], indexing="xy"),
            *torch.meshgrid(y[0, :1], y[0, ::2], indexing="ij"),
            *torch.meshgrid(x[0], indexing="xy"),
        )

    def repeats(x, y):
        return (
            *(x.repeat_interleave(2), x.repeat_interleave(3, 1), torch.repeat_interleave(y, 2, dim=0), x.tile(2)),
            *(torch.tile(y, (2, 1, 3)), x.t().repeat_interleave(2, -1), x.repeat_interleave(1)),
            *(x.repeat_interleave(0, 1), (x * 2).repeat_interleave(2, 0) + 1),
        )

    before = flambeau.counters()["eager_graph"]
    for fn in (grids, repeats):
        compiled = flambeau.compile(fn, dynamic=dynamic)
        for more in (0, 2):
            x, y = torch.randn(rows + more, columns), torch.randn(rows + 1, columns + 1)
            assert_same(compiled(x, y), fn(x, y))
    assert flambeau.counters()["eager_graph"] == before


COMPOSED = {
    "einsum": lambda x, y: torch.einsum("bij,bjk->bik", x, y),
    "einsum of one row": lambda x, y: torch.einsum("bij,bjk->bik", x[:1], y[:1]),
    "padding": lambda x, y: F.pad(x, (1, 2), mode="reflect") * 2,
    "grid": lambda x, y: F.grid_sample(
        x[None], torch.tanh(y[:, None, :, :2]).repeat(1, 2, 1, 1)[:1], align_corners=False
    ),
    "norms": lambda x, y: (torch.linalg.matrix_norm(x), torch.cov(x[0]), torch.corrcoef(y[1])),
    "inverse": lambda x, y: torch.linalg.inv(x @ x.mT + torch.eye(3)) + 1,
    "quantiles": lambda x, y: torch.quantile(x, torch.tensor([0.25, 0.5])) + torch.diff(y).sum(),
    "stacks": lambda x, y: (torch.hstack([x, x]) + 1, torch.column_stack([x[0], y[0].mT]), torch.kron(x[0], y[0])),
    "counts of repeats": lambda x, y: x.repeat_interleave(torch.tensor([1, 3]), dim=0, output_size=4) + 1,
    "truths": lambda x, y: torch._is_all_true(x > -9) & torch._is_any_true(y > 9),
    "spectrum": lambda x, y: torch.fft.rfft(x).abs() + torch.fft.irfft(torch.fft.rfft(x, norm="ortho"), n=4)[..., :3],
}


@pytest.mark.parametrize("name", COMPOSED)
def test_ops_that_torch_composes(name):
    """Each is a step of a plan, where it makes a new tensor whose strides are certain, and no complex numbers."""
    before = flambeau.counters()["eager_graph_reasons"]
    compiled = flambeau.compile(COMPOSED[name])
    for _ in range(2):
        x, y = torch.randn(2, 3, 4), torch.randn(2, 4, 3)
        assert_same(compiled(x, y), COMPOSED[name](x, y))
    reasons = flambeau.counters()["eager_graph_reasons"]
    assert reasons == before or name == "spectrum", reasons


@pytest.mark.parametrize("heads", [(4, 4), (4, 2), (6, 1)], ids=str)
@pytest.mark.parametrize("more", [{}, {"is_causal": True}, {"attn_mask": torch.ones(3, 3).tril() > 0}], ids=str)
def test_attention_whose_heads_share_keys(heads, more):
    def fn(q, k, v):
        return F.scaled_dot_product_attention(q * 2, k, v, enable_gqa=True, **more) + 1

    before = flambeau.counters()["eager_graph"]
    compiled = flambeau.compile(fn)
    for rows in (3, 3, 2):
        q, k, v = (torch.randn(rows, 3, n, 5).transpose(1, 2) for n in (heads[0], heads[1], heads[1]))
        assert_same(compiled(q, k, v), fn(q, k, v))
    assert flambeau.counters()["eager_graph"] == before


def test_composed_ops_that_give_views():
    def fn(x, y):
        turned, same, joined = torch.einsum("ij->ji", x), torch.einsum("ij->ij", x), torch.hstack([x])
        x.add_(1)
        y.mul_(2)
        return turned + 1, turned, same, joined, torch.atleast_2d(y)

    check(fn, (torch.randn(3, 4), torch.randn(2, 2)), graphs=None)


def test_a_grid_is_a_view():
    def fn(x, y):
        a, b = torch.meshgrid(x, y, indexing="ij")
        x.add_(1)
        return a + b, a

    check(fn, (torch.arange(3.0), torch.arange(2.0)))


def test_what_has_no_overload_runs_op_by_op():
    before = flambeau.counters()["eager_graph"]
    check(lambda x: (x.view(torch.int32), x + 1), (torch.randn(3, 3),))
    assert flambeau.counters()["eager_graph"] == before + 1


def test_the_list_of_overloads_is_what_torch_has():
    assert gen_aten.text() == gen_aten.TARGET.read_text()


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_cross_entropy(backend, reduction, dtype):
    """Numbers of classes that are ignored, all of them, none at all; scores that are infinite or no numbers."""
    x, target = torch.randn(8, 300).to(dtype) * 5, torch.randint(0, 300, (8,))
    strange = x.clone()
    strange[1], strange[2, 5], strange[4, :3], strange[5, 1] = -math.inf, math.inf, -math.inf, math.nan
    some, none = target.clone(), torch.full((8,), -100)
    some[3] = some[5] = -100
    calls = [(x, target), (x, some), (x, none), (x[0], target[0]), (x[:0], target[:0]), (strange, some)]
    calls += [(x.t().contiguous().t(), some), (x[:, 1::2], target // 2)]

    def plain(x, target):
        return F.cross_entropy(x, target, reduction=reduction)

    def own_number(x, target):
        return F.cross_entropy(x, target, reduction=reduction, ignore_index=7)

    def others(x, target):
        smoothed = F.cross_entropy(x, target, reduction=reduction, label_smoothing=0.1)
        return smoothed, F.cross_entropy(x, target, reduction=reduction, weight=x.new_ones(x.shape[-1]))

    for fn in plain, own_number, others:
        compiled = flambeau.compile(fn, backend=backend)
        for args in calls:
            if fn is not own_number or -100 not in args[1]:
                assert_same(compiled(*args), fn(*args))
    assert not flambeau.counters()["eager_graph_reasons"] and not flambeau.counters()["eager_fallbacks"]


@pytest.mark.parametrize("number", [300, -1])
def test_cross_entropy_of_no_class(backend, number):
    def fn(x, target):
        return F.cross_entropy(x * 2, target)

    x, target = torch.randn(3, 300), torch.tensor([1, number, 2])
    with pytest.raises(IndexError, match=f"Target {number} is out of bounds"):
        flambeau.compile(fn, backend=backend)(x, target)
    assert flambeau.counters()["eager_fallbacks"] == {"raises": 1}


def test_reductions_of_what_has_no_rows(backend):
    def fn(x):
        return x.sum(1).sum(), x.amax(1).prod(), x.sum(1).mean(), (x - x.amax(1, keepdim=True)).exp().sum(1).sum()

    compiled = flambeau.compile(fn, backend=backend)
    assert_same(compiled(torch.randn(0, 5)), fn(torch.randn(0, 5)))
    assert not flambeau.counters()["eager_graph_reasons"]


W = torch.randn(10, 32)
RESHAPED = [
    lambda x: F.layer_norm(x, (32,)).view(-1, 9, 32),
    lambda x: F.linear(F.layer_norm(x, (32,)).view(-1, 9, 32)[:, slice(0, None), :], W),
    lambda x: F.linear(x.view(-1, 9, 32), W),
    lambda x: (x * 2).view(-1, 9, 32)[:, 0:].contiguous(),
    lambda x: x.sum(0).reshape(-1, 3, 32) + 1,
    lambda x: torch.cat([x, x], 1).view(-1, 9, 32).softmax(0),
    lambda x: x.transpose(1, 2).reshape(-1, 9, 32) * 2,
]


@pytest.mark.plain_only("counts what runs op by op")
@pytest.mark.parametrize("fn", RESHAPED)
def test_reshapes_by_symbolic_sizes_run_as_kernels(fn):
    """That the sizes divide is a fact of the call, which symbols alone do not tell."""
    compiled = flambeau.compile(fn, backend="cpu", dynamic=True)
    for rows in (9, 18):
        x = torch.randn(2, rows, 32)
        assert_same(compiled(x), fn(x))
    assert not flambeau.counters()["eager_graph_reasons"] and not flambeau.counters()["eager_fallbacks"]


def test_reshapes_of_strided_memory_by_symbolic_sizes():
    def fn(x):
        return (x.transpose(0, 1) * 2).reshape(3, -1, 32).softmax(-1), x.reshape(-1, 9, 32).transpose(0, 1).sum(1)

    compiled = flambeau.compile(fn, backend="cpu", dynamic=True)
    for rows in (9, 18):
        for x in (torch.randn(2, rows, 32), torch.randn(rows, 2, 32).transpose(0, 1)):
            assert_same(compiled(x), fn(x))


def test_warnings_of_torch_are_the_programs():
    """What finds out the metadata of a call warns of nothing, and uses up no warning."""

    def fn(x):
        return torch.tensor([x.sum(), 1.0]) + 1, torch.vander(x.detach()).sum()

    x = torch.ones(3, requires_grad=True)
    seen = []
    torch.set_warn_always(True)
    try:
        for call in (fn, flambeau.compile(fn), flambeau.compile(lambda x: fn(x))):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                call(x)
            seen.append([(w.category, w.filename, w.lineno) for w in caught])
    finally:
        torch.set_warn_always(False)
    assert seen[0] == seen[1] == seen[2]
    assert seen[0]


def windows(x):
    y = x + 1
    seen = y.unfold(0, 2, 1)
    y.mul_(2)
    return (
        seen.sum(-1),
        x.unfold(-1, 3, 2),
        x.unfold(0, 2, 1).unfold(1, 2, 2)[1:].softmax(-1),
        x.unfold(0, 2, 1)[1:, :, 0].t(),
    )


def diagonals(x):
    seen = x.diagonal()
    x.mul_(2)
    parts = torch.diagonal(x[None] * 2, 1, 1, 2).exp(), torch.linalg.diagonal(x + 1) * 2, torch.trace(x)
    return seen + 1, seen, x.diagonal(-1), x.diagonal(2, 1, 0), x.diagonal(9) + 1, *parts


def strided(x):
    return x.as_strided((2, 2), (1, 2)) * 2, x.as_strided((3, 3), (4, 1)), (x + 1).as_strided((2, 3), (4, 1), 1).sum()


def subscripts(x):
    return x[[0, 1], [1, 2]] + 1, x[:, [0, 2, -1]] * 2, x[[1]], x[1:][[0, 1]], x[..., [1], None]


def norms(x):
    named = x.norm(), x.norm(dim=-1, keepdim=True), torch.norm(x, "fro", (0, 1)), torch.norm(x, p=1, dim=0)
    return *named, x.norm(float("inf")), x.norm(3, dim=1), torch.norm(x, dim=1), torch.linalg.vector_norm(x, 3, 0)


def sections(x):
    parts = (
        *x.tensor_split(3),
        *x.tensor_split((1, 3), dim=1),
        *x.hsplit(2),
        *torch.vsplit(x, [1, 9]),
        *x[0].hsplit([-1]),
    )
    return *parts, *x[None].dsplit((0, 2)), *torch.tensor_split(x + 1, 2, -1)


def complex_numbers(x):
    z = torch.complex(x * 2, x.relu())
    spectrum = torch.fft.fft(z) * z + 1
    return (z @ z.mT).abs() + 1, spectrum, spectrum.t(), torch.cat([z, z]).angle(), z[1:].sum(), z.clone(), -z.sum(0)


def copies(x):
    return x.index_copy(0, torch.tensor([1, 0]), x[:2] * 2) + 1, torch.isclose(x, x + 1)


def masks(x):
    y, z = x * 2, x + 0
    y[y > 0] = 1
    y[torch.tensor([True, False, True, False])] = x[0, 0]
    z[:, 1:][x[:, 1:] < 0] = -3.5
    x[x.sum(1) > 0] = 7
    return y, z


def data(x):
    sizes = torch.as_tensor(x.shape) + torch.as_tensor(x.shape[0])
    return torch.as_tensor(3.0) + x, torch.as_tensor([1, 2]), sizes, torch.as_tensor([[True], [False]])


IN_PLANS = [masks, data, windows, diagonals, strided, subscripts, norms, sections, complex_numbers, copies]


@pytest.mark.parametrize("fn", IN_PLANS, ids=lambda fn: fn.__name__)
def test_runs_in_a_plan(fn):
    before = flambeau.counters()["eager_graph_reasons"]
    compiled = flambeau.compile(fn)
    for _ in range(2):
        x = torch.randn(4, 4)
        given, own = x.clone(), x.clone()
        assert_same((compiled(own), own), (fn(given), given), slack=4)
    assert flambeau.counters()["eager_graph_reasons"] == before


def test_stores_by_masks_that_raise_or_need_the_data():
    def fn(x, mask, value):
        y = x * 2
        try:
            y[mask] = value
        except (RuntimeError, IndexError) as error:
            return str(error), y
        return y

    x = torch.randn(3, 3)
    values = (1, torch.tensor(2.0), torch.tensor(2), torch.tensor([2.0]), torch.ones(3), torch.ones(2))
    compiled = flambeau.compile(fn)
    for mask in (x > 9, torch.eye(3) > 0, torch.tensor([True, False]), torch.tensor(True)):
        for value in values:
            flambeau.reset()
            assert_same(compiled(x, mask, value), fn(x, mask, value))


def test_writes_through_diagonals_and_windows():
    def fn(x):
        y = x + 1
        y.diagonal().fill_(0)
        y.unfold(0, 2, 2).mul_(2)
        x.as_strided((2, 2), (4, 1)).add_(1)
        return y, y.fill_diagonal_(3)

    check(fn, (torch.randn(4, 4),), graphs=None)


def test_diagonals_without_elements():
    """Where they lie, and their strides, depend on it."""

    def fn(x):
        part = x[:, 3:].diagonal(-1)
        return part, part.softmax(0), x.diagonal(-4)[None], (x + 1).diagonal(9)

    compiled = flambeau.compile(fn, dynamic=True)
    for size in (4, 5, 6, 7):
        x = torch.randn(size, size)
        seen, expected = compiled(x), fn(x)
        assert_same(seen, expected)
        assert [t.storage_offset() for t in seen] == [t.storage_offset() for t in expected]


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_recurrent_modules(kind, batched, layers):
    """One step of a plan; what dropout draws is drawn in its place."""
    torch.manual_seed(0)
    model = getattr(torch.nn, kind)(6, 3, layers, dropout=0.5 if layers > 1 else 0.0, bidirectional=batched)
    model.requires_grad_(False)

    def fn(x):
        y, states = model(x * 0.5)
        return y * 2 + torch.rand_like(y), states

    x = torch.randn(5, 4, 6) if batched else torch.randn(5, 6)
    compiled_natively(fn, (x,))


def lists_of_tensors(x):
    scaled = torch._foreach_mul([x, x + 1], 2.0)
    sums = torch._foreach_add(scaled, [x, x])
    single = torch._foreach_neg([x.sum(0)])
    norms = torch._foreach_norm(sums)
    return [s + 1 for s in sums], single, torch.stack(norms), torch.cartesian_prod(x[0], x[1]) + 1


def test_ops_on_lists_of_tensors():
    compiled_natively(lists_of_tensors, (inputs()[0],))


def reductions_of_nothing(x):
    part = x[2:]
    y = x + 1
    return y * 1.5, part.softmax(0), (y[2:] - y[2:].exp().sum()).log(), y.sum(0) + part.sum(0), y[2:] * part.mean()


@pytest.mark.parametrize("dynamic", [False, True])
def test_reductions_of_nothing(dynamic):
    """What shares a kernel with a reduction over no elements is computed all the same."""
    compiled = flambeau.compile(reductions_of_nothing, dynamic=dynamic)
    for n in (2, 1, 3, 5, 2):
        x = torch.rand(n)
        for got, expected in zip(compiled(x), reductions_of_nothing(x), strict=True):
            torch.testing.assert_close(got, expected, equal_nan=True)


def test_asking_for_strides_draws_nothing():
    """Where fake tensors do not tell them, the op is called on zeros."""

    def fn(x):
        return torch.feature_dropout(x, 0.5, True) + 1, torch.linalg.cholesky_ex(x[0, 0] @ x[0, 0].mT)[0], x * 2

    compiled = flambeau.compile(fn)
    x = torch.randn(1, 3, 1, 4)
    for _ in range(2):
        seen = []
        for call in (fn, compiled):
            torch.manual_seed(3)
            seen.append((*call(x), torch.rand(3)))
        assert_same(*seen)


def test_parts_in_one_row_beside_others():
    def rows(x):
        row = x.reshape(-1)
        return torch.nn.functional.pad(row, (1, 0)), (row + 1).roll(1, 0), torch.cat([row[1:], row[:1]]) * 2

    part = torch.arange(64.0).view(8, 8)[:6:2, ::2]
    compiled = flambeau.compile(rows)
    for _ in range(2):
        assert_same(compiled(part), rows(part))
