"""Torch semantics where a tracer is easily wrong: views, mutation, dtypes, special values, modes, randomness, modules."""

# ruff: noqa

import operator

import pytest
import torch
import torch.nn.functional as F
from support import check, inputs

import flambeau


def view_then_write(a, b):
    v = a[1:, ::2]
    v.mul_(2)
    w = a.view(-1)
    w[0] = 5
    t = a.t()
    t[0] += b[:, 0]
    return v, w.sum(), t


def write_then_view(a, b):
    v = a.view(2, 12)
    before = v + 0
    a.zero_()
    return before, v, v is a


def chain_of_views(a, b):
    v = a.unsqueeze(0).transpose(0, 2).squeeze().reshape(-1)
    u = a[1:][1:][:, 2:].diagonal()
    u += 10
    return v, u, a.sum()


def expand_inplace_source(a, b):
    e = a[:1].expand(4, 6)
    a[0] += 1
    return e, e + b


def expand_write_error(a, b):
    e = a[:1].expand(4, 6)
    e.add_(1)
    return e


def split_chunk_unbind(a, b):
    x, y = a.chunk(2)
    p, q = a.split([2, 4], dim=1)
    rows = a.unbind(0)
    x.add_(1)
    q.mul_(2)
    rows[3].fill_(7)
    s = a.tensor_split(3)
    return x, y, p, q, rows, s[0], len(s)


def assign_index(a, b):
    a[1:, ::2] = b[1:, ::2]
    a[0] = 1
    a[..., -1] = b[..., 0]
    a[[0, 2]] = 3
    a[:, None, 1] = 9
    a[-1, -1] += 5
    return a


def assign_mask(a, b):
    a[a > 0] = 0
    b[b < 0] = -b[b < 0] if False else 1.5
    return a, b


def assign_mask_tensor(a, b):
    a[a > 0] = a[a > 0] * 2
    return a


def assign_tensor_index(a, b):
    i = torch.tensor([0, 0, 2])
    a[i] = b[:3]
    a[i, i] += 1
    a.index_put_((i,), b[:3], accumulate=True)
    a.scatter_(0, torch.zeros(1, 6, dtype=torch.long), b[:1])
    a.index_add_(0, i, b[:3])
    a.index_fill_(1, torch.tensor([5]), -1)
    a.index_copy_(0, torch.tensor([3]), b[:1])
    a.masked_fill_(b > 1, 0.25)
    return a


def overlapping(a, v):
    a.add_(1)
    return v * 2, a


def overlapping_view_write(a, v):
    v.mul_(3)
    return a + 1, v + a[1:]


def same_twice(a, b):
    a.mul_(2)
    b.add_(1)
    return a - b, a is b


def swap_data(a, b):
    t = a.clone()
    a.copy_(b)
    b.copy_(t)
    return a + b


def self_assign(a, b):
    a[1:] = a[:-1].clone()
    a[:, 1:].copy_(a[:, :-1].clone())
    a += a
    a -= a.mean()
    return a


def overlapping_copy(a, b):
    a[:2] = a[1:3]
    return a


def out_arguments(a, b):
    out = torch.empty(0)
    torch.add(a, b, out=out)
    values, indices = torch.empty(0), torch.empty(0, dtype=torch.long)
    result = torch.max(a, 1, out=(values, indices))
    view = torch.zeros(4, 12)
    torch.mul(a, 2, out=view[:, ::2])
    other = torch.empty(4, 4)
    got = torch.mm(a, b.t(), out=other)
    return out, values.shape, values, indices, result.values is values, view, got is other, out.shape


def metadata_inplace(a, b):
    a.t_()
    c = b.clone().unsqueeze_(0).squeeze_(0)
    d = b.clone().transpose_(0, 1)
    return a.shape, c.shape, d.stride(), a + 1


def resize(a, b):
    c = a.clone()
    c.resize_(2, 3)
    return c.shape, c


def set_and_data(a, b):
    c = a.clone()
    c.data.add_(1)
    d = c.detach()
    d.mul_(2)
    return c, d


def requires_grad_flow(a, b):
    w = torch.ones(4, 6, requires_grad=True)
    z = torch.zeros(4, 6)
    v = z[0]
    z.add_(w)
    y = torch.zeros(4, 6)
    y[1] = w[1]
    u = torch.zeros(4, 6)
    u[0].add_(w[0])
    return v.requires_grad, z.requires_grad, y.requires_grad, u.requires_grad, u, z, (w * 2).detach().requires_grad


def grad_modes_nested(a, b):
    w = torch.ones(4, 6, requires_grad=True)
    with torch.no_grad():
        x = w * 2
        with torch.enable_grad():
            y = w * 3
        z = w + y
    torch.set_grad_enabled(False)
    q = w * 5
    torch.set_grad_enabled(True)
    return x, y, z, q, torch.is_grad_enabled()


@torch.no_grad()
def no_grad_decorator(a, b):
    return a * torch.ones(4, 6, requires_grad=True)


def grad_left_disabled(a, b):
    torch.set_grad_enabled(False)
    return a + 1


def backward_inside(a, b):
    w = torch.ones(4, 6, requires_grad=True)
    (w * a).sum().backward()
    return w.grad


def autograd_grad(a, b):
    w = torch.ones(4, 6, requires_grad=True)
    return torch.autograd.grad((w * a).sum(), w)


def scalar_item(a, b):
    n = a[0, 0].item()
    return b * n, type(n).__name__


def scalar_conversions(a, b):
    return float(a.sum()), int(b[0, 0]), bool(a[0, 0] > 0), a.tolist(), a[0].numpy().sum()


def zero_dim(a, b):
    s = a.sum()
    return (
        s.shape,
        s.dim(),
        s + 1,
        s * b,
        s[None],
        s.unsqueeze(0),
        s.view(1, 1),
        s.reshape(-1),
        s.expand(3),
        s[...],
        s.t(),
        s.transpose(0, -1),
        s.movedim(0, 0),
        s.flip(0),
    )


def scalar_tensors(a, b):
    s = torch.tensor(2)
    f = torch.tensor(2.5, dtype=torch.float64)
    h = torch.tensor(1.5, dtype=torch.float16)
    i = torch.arange(3)
    return i * f, i + s, a * f, a + h, i * 2.5, i / 2, i // 2, i**2, 2**i, i * True, s / 2, s + f, (a > 0) + 1


def promotion(u8, i32, i64, bl):
    return (
        u8 + 10, u8 * u8, u8 - 20, -u8, u8 + i32, i32 + 1, i32 * 2, -i32, i32.abs(), i64 * 4, i64 + i32, bl + bl,
        bl * 3, bl & bl, bl | u8.bool(), ~u8, u8 << 1, i32 >> 1, u8 / 3, u8 // 3, u8 % 7, -7 // i32,
        (i32 + 5) % i64.sign() , (i64 + 7) // (i32 + 3), bl.sum(),
        u8.sum(), i32.sum(), u8.float().mean(), (i32 / 3) % 2, (i32 / 3) // 2,
        torch.remainder(i32 / 7, 3), torch.fmod(i32 / 7, 3), i32.to(torch.uint8),
        (u8 / 7).int(), (u8 / 7).to(torch.uint8), (u8 * 1e8).double().long(),
        bl.float(), u8 == 250, u8 > 9.5, i32 == i64, torch.where(bl, 1, 2), torch.where(bl, u8, 1.5), u8.pow(2),
    )  # fmt: skip


def inplace_promotion(a, b):
    i = torch.arange(3)
    i += 2
    i *= 3
    f = torch.ones(3)
    f += i
    f //= 2
    f **= 2
    return i, f


def inplace_promotion_error(a, b):
    i = torch.arange(3)
    i += 1.5
    return i


def special(x, y):
    # For floats in a row torch calls oneDNN, whose gelu(inf) is NaN; torch's own is inf.
    strided = torch.stack([x, x], 1)[:, 0]
    return (
        x + y, x * 0, x / 0, 0 / x, x % 2, x.max(), x.min(), x.nansum(), torch.maximum(x, y), torch.minimum(x, y),
        torch.fmax(x, y), x.clamp(min=0), x.clamp(max=0), x == x, x != x, x > y, x.sign(), x.abs(), x.sqrt(), x.log(),
        x.rsqrt(), x.round(), x.floor(), x.trunc(), x.exp(), x.tanh(), x.sigmoid(), F.relu(x), F.gelu(strided), F.silu(x),
        F.softplus(x), F.leaky_relu(x), F.elu(x), F.hardswish(x), F.hardtanh(x), x.isnan(), x.isinf(), x.isfinite(),
        torch.nan_to_num(x), x.softmax(0), x.argmax(), x.argmin(), x.sort().values, x.pow(2), x.pow(0.5), x.pow(0),
        x.pow(-1), torch.copysign(y, x), x.sin(), x.logical_not(), x.bool(), x.cumsum(0), x.prod(), x.erf(),
        torch.atan2(x, y), x.log1p(), x.expm1(), x.reciprocal(), x.square(), -x, x.lerp(y, 0.5), x.hypot(y), x.frac(),
        x.std(), x.var(), x.mean(), x.norm(), torch.signbit(x), x.any(), x.all(), F.log_softmax(x, 0), x.logsumexp(0),
    )  # fmt: skip


def empty_tensors(a, b):
    e = torch.empty(0, 3)
    return (
        e + 1, e.sum(), e.sum(0), e.mean(1), e.prod(), e @ torch.ones(3, 2), torch.ones(2, 0) @ e, e.t(), e.reshape(3, 0),
        torch.cat([e, torch.ones(1, 3)]), e.softmax(1), e.any(), e.all(), e.view(-1), e[:, 1], e.max(1).values,
        F.linear(e, torch.ones(2, 3)), torch.stack([e, e]), e.expand(2, 0, 3), e.cumsum(0), F.layer_norm(e, (3,)), e * e,
    )  # fmt: skip


def too_few_to_reduce(a, b):
    e, one = a[:, :0], a[:, :1]
    return (
        e.var(-1), e.var(), e.std(1), e.var(-1, correction=0), e.mean(-1), e.logsumexp(1), one.var(1), one.std(1, keepdim=True),
        a.var(1, correction=7), a.var(0, correction=-2), torch.var_mean(e, 1), torch.std_mean(one, 1), e.sum(1), e.prod(1),
    )  # fmt: skip


def empty_reduction_error(a, b):
    return torch.empty(0).max()


def shape_errors(a, b):
    return a @ b


def caught_shape_error(a, b):
    try:
        return a @ b
    except RuntimeError:
        return a + 1


def random_mix(a, b):
    x = torch.rand(3)
    y = F.dropout(a, 0.3)
    z = torch.randint(0, 10, (4,))
    w = torch.randn_like(b)
    p = torch.randperm(5)
    n = torch.empty(3).normal_(1, 2)
    u = torch.empty(3).uniform_(-1, 1)
    m = torch.multinomial(torch.ones(5), 2)
    e = torch.bernoulli(torch.full((3,), 0.4))
    return x, y, z, w, p, n, u, m, e, torch.normal(0.0, 1.0, (2,)), a.clone().bernoulli_(0.5), F.dropout(a, 0.0)


def unused_random(a, b):
    torch.rand(7)
    F.dropout(a, 0.5)
    return a + torch.rand(1)


def seeds(a, b):
    torch.manual_seed(3)
    return torch.rand(2)


def generator_argument(a, b):
    g = torch.Generator().manual_seed(5)
    return torch.rand(3, generator=g), torch.rand(2)


def rrelu_and_alpha(a, b):
    return (
        F.rrelu(a, training=True),
        F.alpha_dropout(a, 0.3, training=True),
        F.dropout1d(a[None], 0.5),
        F.gumbel_softmax(a),
    )


def functions_without_rules(a, b):
    v = a.unfold(1, 2, 2)
    v.add_(1)
    d = a.diagonal()
    d.zero_()
    s = torch.as_strided(a, (2, 2), (6, 1), 1)
    s.mul_(5)
    m = a.movedim(0, 1)
    m[0] = 4
    n = a.narrow(0, 1, 2)
    n.sub_(1)
    w = a.swapaxes(0, 1)
    w[1, 1] = 77
    f = a.flatten()
    f[2] = -3
    i = torch.view_as_complex(torch.ones(3, 2))
    return v, d, s, m, n, w, a, f, a.ravel(), i.real, torch.view_as_real(i), a.view_as(b), a.select(0, 1), a.mT


def foreach_ops(a, b):
    torch._foreach_add_([a, b], 1.0)
    torch._foreach_mul_([a, b], [2.0, 3.0])
    return a + b


def view_dtype(a, b):
    v = a.view(torch.int32)
    v.bitwise_and_(0x7FFFFFFF)
    return a, v


def return_types(a, b):
    s = a.sort(dim=1, descending=True)
    m = torch.max(b, 0)
    t = a.topk(2)
    return (
        s,
        m.values,
        m[1],
        t,
        torch.aminmax(a),
        type(s).__name__,
        a.median(1),
        torch.linalg.qr(a).Q.shape,
        a.kthvalue(1),
    )


def sizes_out(a, b):
    n, m = a.shape
    return (
        a.shape,
        a.size(),
        a.view(m, n).shape,
        torch.Size([n * m]),
        a.numel(),
        n,
        list(a.shape[::-1]),
        a.new_zeros(a.shape),
    )


def tensor_makers(a, b):
    return (
        torch.tensor([[1, 2], [3, 4]]), torch.tensor([1.0, 2]), torch.tensor([True]), torch.tensor(3.0), torch.tensor([]),
        torch.arange(1, 10, 3), torch.arange(0, 1, 0.25), torch.linspace(0, 1, 5), torch.eye(2), torch.full((2,), 7),
        torch.zeros(2, dtype=torch.int), torch.ones_like(a), a.new_tensor([1, 2]), a.new_full((2,), 3), torch.full_like(a, 2),
        torch.zeros(()), torch.empty_like(a).fill_(1), torch.scalar_tensor(3), torch.as_tensor([1]), torch.tril(a),
        torch.arange(5.0), torch.tensor([1, 2.5]), torch.tensor((1, 2), dtype=torch.float16), torch.stack([a, b]).shape,
        torch.meshgrid(torch.arange(2), torch.arange(3), indexing="ij"), torch.tensor([a.shape[0], 2]), torch.one_hot if False else 1,
    )  # fmt: skip


def tensor_of_tensors(a, b):
    return torch.tensor([a[0, 0], b[0, 0]]), torch.stack([a[0, 0], b[0, 0]])


def operators_mix(a, b):
    return (
        a + 1, 1 - a, 2 / a, a**2, 2**a, a // 2, a % 2, -a, abs(a), a @ b.t(), a == b, a != 1, a < b, ~(a > 0), (a > 0) & (b > 0),
        (a > 0) ^ (b > 0), divmod(a, 2), round(a), a.__radd__(1), +a, a.bool() | True, 5 % a, 5 // a, pow(a, 3), sum([a, b]), max(1, 2) * a,
    )  # fmt: skip


def einsum_and_friends(a, b):
    return (
        torch.einsum("ij,kj->ik", a, b), torch.tensordot(a, b, dims=([1], [1])), torch.bmm(a[None], b.t()[None]),
        torch.addmm(torch.ones(4), a, b.t()), torch.outer(a[0], b[0]), torch.dot(a[0], b[0]), a.matmul(b[0]), torch.baddbmm(torch.ones(1, 4, 4), a[None], b.t()[None], beta=0.5),
        F.linear(a, b), F.bilinear(a, b, torch.ones(2, 6, 6)), torch.kron(a[:2], b[:2]), torch.linalg.norm(a), torch.cdist(a, b), F.cosine_similarity(a, b),
        F.normalize(a), torch.cumsum(a, 1), torch.diff(a), torch.roll(a, 1, 0), torch.flip(a, [0]), torch.rot90(a), torch.tile(a, (1, 2)), a.repeat_interleave(2, 0),
        F.pad(a, (1, 1)), F.pad(a[None], (1, 2), mode="reflect"), F.one_hot(torch.arange(3)), F.cross_entropy(a, torch.arange(4)), F.mse_loss(a, b), F.interpolate(a[None, None], scale_factor=2),
        F.scaled_dot_product_attention(a[None], b[None], b[None], is_causal=True), torch.searchsorted(a[0].sort().values, b[0]), torch.bincount(torch.tensor([1, 1, 2])), torch.histc(a),
    )  # fmt: skip


def data_dependent_shapes(a, b):
    i = (a > 0).nonzero()
    return i, a[a > 0], torch.unique(torch.tensor([1, 1, 2])), torch.masked_select(a, b > 0)


def autocast_inside(a, b):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return a @ b.t()


def inference_inside(a, b):
    with torch.inference_mode():
        return a + 1


def default_dtype_inside(a, b):
    torch.set_default_dtype(torch.float64)
    try:
        return torch.ones(2) + a[0, :2]
    finally:
        torch.set_default_dtype(torch.float32)


def tensor_attributes(a, b):
    a.tag = 3
    return a.tag, a + 1


def iteration(a, b):
    return [row.sum() for row in a], list(zip(a, b, strict=True))[0], len(a), sum(a), max(a.shape), tuple(a[0]), *a


def complex_numbers(a, b):
    c = torch.complex(a, b)
    return c * 2, c.conj().imag, c.abs(), c.angle(), c.real, (c * c.conj()).real, torch.fft.fft(a).abs()


def tensor_identity_ops(a, b):
    c = a.contiguous()
    d = a.to(torch.float32)
    e = a.float()
    f = a.expand_as(b)
    g = a.view_as(b)
    h = a.reshape(4, 6)
    return (
        c is a,
        d is a,
        e is a,
        f is a,
        g is a,
        h is a,
        a.detach() is a,
        a.data is a,
        a.requires_grad_(False) is a,
        c,
        d,
        g,
    )


def inplace_returns(a, b):
    c = a.add_(1)
    d = a.clamp_(0)
    d.mul_(2)
    e = F.relu(b, inplace=True)
    return c is a, d is a, e is b, c, e


def inplace_functional(a, b):
    F.relu_(a)
    torch.relu_(b)
    torch.nn.init.constant_(a, 3.0)
    F.threshold(b, 0.1, 20, inplace=True)
    return F.dropout(a, 0.5, training=False, inplace=True), b


def nontrivial_strides(a, b):
    x = torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last)
    return (
        x + 1, x.contiguous(), x.clone(), torch.empty_like(x).stride(), x.mean(1), x.permute(0, 2, 3, 1), x.relu(), x * x.contiguous(),
        a.t() + 1, a.t() + b.t(), a.t() * torch.ones(6, 4), torch.zeros_like(a.t()).stride(), a.t().clone(), a.t().contiguous(), a[:, ::2] + 1,
        a.expand(3, 4, 6) + 1, F.conv2d(x, torch.ones(2, 3, 3, 3)), F.max_pool2d(x, 2), x.flatten(1), x.reshape(-1), x.sum((2, 3)), torch.cat([x, x], 1), x.softmax(1),
    )  # fmt: skip


def custom_autograd(a, b):
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2

    return Double.apply(a)


def checkpointing(a, b):
    from torch.utils.checkpoint import checkpoint

    return checkpoint(lambda x: x * 2, a, use_reentrant=False)


def vmapped(a, b):
    return torch.vmap(lambda x: x * 2)(a)


ALL = [
    view_then_write, write_then_view, chain_of_views, expand_inplace_source, expand_write_error, split_chunk_unbind,
    assign_index, assign_mask, assign_mask_tensor, assign_tensor_index, overlapping, overlapping_view_write, same_twice,
    swap_data, self_assign, overlapping_copy, out_arguments, metadata_inplace, resize, set_and_data, requires_grad_flow,
    grad_modes_nested, no_grad_decorator, backward_inside, autograd_grad, scalar_item, scalar_conversions,
    zero_dim, scalar_tensors, promotion, inplace_promotion, inplace_promotion_error, special, empty_tensors, too_few_to_reduce,
    empty_reduction_error, shape_errors, caught_shape_error, random_mix, unused_random, seeds, generator_argument,
    rrelu_and_alpha, functions_without_rules, foreach_ops, view_dtype, return_types, sizes_out, tensor_makers,
    tensor_of_tensors, operators_mix, einsum_and_friends, data_dependent_shapes, autocast_inside,
    inference_inside, default_dtype_inside, tensor_attributes, iteration, complex_numbers, tensor_identity_ops,
    inplace_returns, inplace_functional, nontrivial_strides, custom_autograd, checkpointing, vmapped,
]  # fmt: skip
# These run eagerly as a whole (or compile once more for other inputs); what counts is that they are right.
BREAKS = {
    assign_index,
    assign_mask_tensor,
    autocast_inside,
    autograd_grad,
    backward_inside,
    caught_shape_error,
    checkpointing,
    custom_autograd,
    data_dependent_shapes,
    default_dtype_inside,
    einsum_and_friends,
    empty_reduction_error,
    expand_write_error,
    generator_argument,
    inference_inside,
    inplace_promotion_error,
    nontrivial_strides,
    operators_mix,
    out_arguments,
    overlapping,
    overlapping_copy,
    overlapping_view_write,
    same_twice,
    scalar_conversions,
    scalar_item,
    seeds,
    shape_errors,
    swap_data,
    tensor_attributes,
    tensor_of_tensors,
    vmapped,
}


def overlaps():
    a, b = inputs()
    return [(a, b[1:]), (a, a[1:]), (a, b[1:]), (a, a[1:])]


def twins():
    a, b = inputs()
    return [(a, b), (a, a), (a, a.view(4, 6)), (a, b)]


def special_values():
    x = torch.tensor([float("nan"), float("inf"), -float("inf"), -0.0, 0.0, 1.0, -1.0, 1e-45, 3e38])
    return x, x.flip(0)


def integers():
    u8 = torch.tensor([250, 10], dtype=torch.uint8)
    i32 = torch.tensor([2**31 - 1, -(2**31)], dtype=torch.int32)
    return u8, i32, torch.tensor([2**62, -(2**62)]), torch.tensor([True, False])


INPUTS = {
    "promotion": integers,
    "special": special_values,
    "overlapping": overlaps,
    "overlapping_view_write": overlaps,
    "same_twice": twins,
    "swap_data": twins,
    "assign_index": twins,
}


@pytest.mark.parametrize("fn", ALL, ids=lambda f: f.__name__)
def test_torch(fn, backend):
    args = INPUTS.get(fn.__name__, inputs)()
    check(fn, *(args if isinstance(args, list) else [args]), backend=backend, graphs=None if fn in BREAKS else 1)


OPERATORS = "and_ or_ xor add sub mul floordiv mod pow lshift rshift eq lt matmul".split()


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_write_to_no_argument(name, backend):
    """Whatever their names end in; `check` compares the arguments after the call."""

    def f(a, b):
        c = getattr(operator, name)(a, b)
        return c, getattr(operator, name)(c, b), a

    whole = torch.arange(1, 37).view(6, 6)
    check(f, (whole[:, :4][:4], whole[2:, 1:5] % 5 + 1), backend=backend)
    if name in ("and_", "or_", "xor"):
        check(f, (whole[:, :4] % 3 > 1, whole[:, 2:] % 2 > 0), backend=backend)


def test_compiling_flags(backend):
    """A library's path for compilers is taken while tracing, and only then."""

    def flags(a):
        return flambeau.is_compiling(), torch.compiler.is_compiling(), torch.compiler.is_exporting(), a + 1

    assert flambeau.compile(flags, backend=backend)(torch.ones(1))[:3] == (True, True, False)
    assert flags(torch.ones(1))[:3] == (False, False, False)

    def broken(a):
        flambeau.graph_break()
        return flags(a)

    assert flambeau.compile(broken, backend=backend)(torch.ones(1))[:3] == (True, True, False), (
        "resuming is compiling too"
    )


def test_windows_of_windows():
    """A kernel that computes each from the one before multiplies their sizes: 15625 elements for one, here."""
    layer, pool = torch.nn.Conv2d(4, 4, 1), torch.nn.MaxPool2d(5, 1, 2)

    def pyramid(x):
        x = F.silu(layer(x))
        a = pool(x)
        b = pool(a)
        return torch.cat([x, a, b, pool(b)], 1)

    compiled = flambeau.compile(pyramid)
    with torch.no_grad():
        for x in (torch.randn(2, 4, 3, 2), torch.randn(2, 4, 12, 8)):
            torch.testing.assert_close(compiled(x), pyramid(x))
    assert not flambeau.counters()["eager_graph_reasons"]
