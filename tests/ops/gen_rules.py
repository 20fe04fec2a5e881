"""Writes the cases that `daemon/ops/tests/replay.rs` checks the metadata rules against.

Runs real torch on random shapes, layouts, dtypes and arguments (seeded) and records what came out: sizes, strides, dtype,
requires_grad, aliasing, mutation, use of the generator. Run by hand:

    python tests/ops/gen_rules.py                      # the committed fixture, a few cases per op
    python tests/ops/gen_rules.py --cases 300 --out F  # many, for FLAMBEAU_OPS_CASES=F cargo test -p flambeau-ops

To extend it, add a `case` function (or a name to one of the lists); its body draws arguments from `g` and returns
`(args, kwargs)`.
"""

import argparse
import json
import operator
import random
import warnings
from pathlib import Path

import torch

warnings.filterwarnings("ignore")

SHORT = {
    torch.uint8: "u8", torch.int8: "i8", torch.int16: "i16", torch.int32: "i32", torch.int64: "i64",
    torch.float16: "f16", torch.float32: "f32", torch.float64: "f64", torch.bfloat16: "bf16",
    torch.complex32: "c32", torch.complex64: "c64", torch.complex128: "c128", torch.bool: "b8",
}  # fmt: skip
FLOATS = [torch.float32, torch.float32, torch.float64, torch.bfloat16, torch.float16]
INTS = [torch.int64, torch.int32, torch.uint8, torch.int8, torch.int16]
PLAIN = [torch.float32] * 4 + [
    torch.float64,
    torch.bfloat16,
    torch.float16,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.int8,
    torch.bool,
]


class Draw:
    """Draws arguments."""

    def __init__(self, seed):
        self.r = random.Random(seed)

    def pick(self, *options):
        return self.r.choice(options)

    def chance(self, p):
        return self.r.random() < p

    def shape(self, low=0, high=4, sizes=(1, 2, 3, 4, 5), zero=0.03):
        ndim = self.r.randint(low, high)
        shape = [self.r.choice(sizes) for _ in range(ndim)]
        if ndim and self.chance(zero):
            shape[self.r.randrange(ndim)] = 0
        return shape

    def data(self, shape, dtype):
        if dtype == torch.bool:
            return torch.rand(shape) > 0.5
        if dtype.is_floating_point or dtype.is_complex:
            return (torch.rand(shape, dtype=torch.float64) + 0.1).to(dtype)
        return torch.randint(0, 2, shape).to(dtype) + (1 if dtype != torch.bool else 0)

    def tensor(self, shape=None, dtype=None, layout=None, grad=0.2, low=0, high=4, dtypes=PLAIN):
        shape = list(self.shape(low, high)) if shape is None else list(shape)
        dtype = dtype or self.r.choice(dtypes)
        ndim = len(shape)
        layout = layout or self.pick("c", "c", "c", "perm", "cl", "expand", "gap", "slice0", "ones")
        if layout == "perm" and ndim > 1:
            order = list(range(ndim))
            self.r.shuffle(order)
            inverse = [order.index(d) for d in range(ndim)]
            t = self.data([shape[d] for d in order], dtype).permute(inverse)
        elif layout == "cl" and ndim in (4, 5):
            t = self.data(shape, dtype)
            t = t.to(memory_format=torch.channels_last if ndim == 4 else torch.channels_last_3d)
        elif layout == "expand" and ndim:
            base = [1 if self.chance(0.4) else s for s in shape]
            t = self.data(base, dtype).expand(shape)
        elif layout == "gap" and ndim:
            d = self.r.randrange(ndim)
            wide = list(shape)
            wide[d] = wide[d] * 2 + 1
            t = self.data(wide, dtype).narrow(d, 1, shape[d])
        elif layout == "slice0" and ndim:
            d = self.r.randrange(ndim)
            wide = list(shape)
            wide[d] = wide[d] * 2
            index = [slice(None)] * ndim
            index[d] = slice(None, None, 2)
            t = self.data(wide, dtype)[tuple(index)]
        elif layout == "ones" and ndim:
            t = self.data(shape, dtype)
            strides = [s if shape[d] != 1 else self.pick(1, 2, 7, s) for d, s in enumerate(t.stride())]
            t = t.as_strided(shape, strides)
        else:
            t = self.data(shape, dtype)
        if (dtype.is_floating_point or dtype.is_complex) and self.chance(grad):
            t = t.detach().requires_grad_()
        return t

    def broadcastable(self, shape):
        out = [1 if self.chance(0.3) else s for s in shape]
        return out[self.r.randint(0, len(out)) :] if self.chance(0.3) else out

    def number(self):
        return self.pick(2, 3, 1.5, 0.5, True, 1, -1, 2.0)

    def dim(self, t):
        n = max(t.dim(), 1)
        return self.r.randint(-n, n - 1)

    def dims(self, t):
        n = t.dim()
        ds = [d for d in range(n) if self.chance(0.5)] or ([0] if n else [])
        self.r.shuffle(ds)
        return [d - n if self.chance(0.3) else d for d in ds]


CASES = []


def case(*targets):
    def register(body):
        for target in targets:
            CASES.append((target, body))
        return body

    return register


def fn(*names):
    return [f"torch.{n}" for n in names]


def methods(*names):
    return [f".{n}" for n in names]


FLOAT_UNARY = (
    "exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh "
    "sigmoid erf erfc erfinv lgamma digamma sinc deg2rad rad2deg logit"
).split()
SAME_UNARY = (
    "neg abs sign sgn floor ceil trunc frac round square nan_to_num positive relu bitwise_not logical_not".split()
)
TESTS = "isnan isinf isfinite isposinf isneginf signbit".split()
BINARY = (
    "add sub mul div floor_divide remainder fmod pow atan2 copysign xlogy eq ne lt le gt ge "
    "bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift true_divide rsub"
).split()
TENSOR_BINARY = (
    "maximum minimum fmax fmin hypot logaddexp logaddexp2 nextafter gcd lcm logical_and logical_or logical_xor".split()
)
OPERATORS = "add sub mul truediv floordiv mod pow and_ or_ xor lshift rshift eq ne lt le gt ge".split()
IN_OPERATORS = "iadd isub imul itruediv ifloordiv imod ipow iand ior ixor".split()


@case(
    *fn(*FLOAT_UNARY), *fn(*SAME_UNARY), *fn(*TESTS), *[f".{n}_" for n in FLOAT_UNARY + SAME_UNARY if n != "positive"]
)
@case("_operator.neg", "_operator.invert", "_operator.abs", "_operator.pos")
def _(g):
    return [g.tensor()], {}


@case(*fn(*BINARY), *["_operator." + n for n in OPERATORS])
def _(g):
    a = g.tensor()
    roll = g.r.random()
    if roll < 0.3:
        return [a, g.number()], {}
    if roll < 0.4:
        return [g.number(), a], {}
    if roll < 0.5:
        return [a, g.tensor([])], {}
    if roll < 0.7:
        return [a, g.tensor(a.shape)], {}
    return [a, g.tensor(g.broadcastable(list(a.shape)))], {}


@case(
    *[f".{n}_" for n in BINARY[:18]],
    *["_operator." + n for n in IN_OPERATORS],
    ".__radd__",
    ".__rsub__",
    ".__add__",
    ".__eq__",
    ".__rpow__",
    ".__rtruediv__",
)
def _(g):
    a = g.tensor(grad=0)
    if g.chance(0.4):
        return [a, g.number()], {}
    return [a, g.tensor(g.broadcastable(list(a.shape)))], {}


@case(*fn(*TENSOR_BINARY))
def _(g):
    a = g.tensor()
    if g.chance(0.2):
        return [a, g.tensor([])], {}
    return [a, g.tensor(a.shape if g.chance(0.5) else g.broadcastable(list(a.shape)))], {}


@case(".div", "torch.div")
def _(g):
    a = g.tensor()
    other = g.number() if g.chance(0.5) else g.tensor(g.broadcastable(list(a.shape)))
    return [a, other], {"rounding_mode": g.pick(None, "trunc", "floor")}


@case("torch.add", ".sub", "torch.rsub")
def _(g):
    a = g.tensor()
    return [a, g.tensor(a.shape)], {"alpha": g.pick(2, 0.5)}


@case("torch.add", "torch.mul", "torch.exp")
def _(g):
    a = g.tensor()
    out = g.tensor(a.shape, grad=0)
    args = [a, g.tensor(a.shape)]
    return args, {"out": out}


ACTIVATIONS = "relu6 hardtanh silu mish hardswish hardsigmoid elu leaky_relu"


@case(
    *["torch._C._nn." + n for n in ACTIVATIONS.split()],
    "torch._C._nn.gelu",
    "torch._C._nn.softplus",
    "torch.selu",
    "torch.celu",
)
@case("torch._C._nn.softshrink", "torch.hardshrink", ".hardshrink", "torch._C._nn.log_sigmoid", "torch._C._nn.relu6_")
@case(
    "torch._C._nn.hardtanh_",
    "torch._C._nn.silu_",
    "torch._C._nn.leaky_relu_",
    "torch._C._nn.elu_",
    "torch.relu_",
    "torch.selu_",
)
def _(g):
    return [g.tensor(dtypes=FLOATS, grad=0.1)], {}


@case("torch._C._nn.gelu")
def _(g):
    return [g.tensor(dtypes=FLOATS)], {"approximate": g.pick("none", "tanh")}


@case("torch.threshold")
def _(g):
    return [g.tensor(dtypes=FLOATS), 0.1, 20], {}


@case("torch.prelu")
def _(g):
    a = g.tensor(low=1, dtype=torch.float32)
    channels = a.shape[1] if a.dim() > 1 and g.chance(0.6) else 1
    return [a, g.tensor([channels], torch.float32, "c")], {}


@case("torch._C._nn.glu")
def _(g):
    a = g.tensor([g.pick(2, 4, 6) for _ in range(g.r.randint(1, 4))], dtypes=FLOATS)
    return [a, g.dim(a)], {}


@case("torch.where")
def _(g):
    a = g.tensor()
    c = g.tensor(g.broadcastable(list(a.shape)), torch.bool)
    b = g.number() if g.chance(0.3) else g.tensor(g.broadcastable(list(a.shape)))
    args = [c, a, b] if g.chance(0.7) else [c, b, a]
    if g.chance(0.1):
        args = [c, g.number(), g.number()]
    return args, {}


@case(".where")
def _(g):
    a = g.tensor()
    return [a, g.tensor(a.shape, torch.bool), g.tensor(a.shape)], {}


@case("torch.clamp", ".clamp", ".clamp_", "torch.clip")
def _(g):
    a = g.tensor(grad=0.1)
    roll = g.r.random()
    if roll < 0.3:
        return [a, g.number(), g.number()], {}
    if roll < 0.5:
        return [a], {g.pick("min", "max"): g.number()}
    if roll < 0.75:
        return [a, g.tensor(g.broadcastable(list(a.shape)))], {}
    return [a, g.tensor(a.shape), g.tensor(g.broadcastable(list(a.shape)))], {}


@case("torch.clamp_min", "torch.clamp_max", ".clamp_min_")
def _(g):
    a = g.tensor(grad=0.1)
    return [a, g.number() if g.chance(0.6) else g.tensor(g.broadcastable(list(a.shape)))], {}


@case("torch.lerp", ".lerp_")
def _(g):
    a = g.tensor(dtypes=FLOATS, grad=0.1)
    b = g.tensor(a.shape, a.dtype)
    return [a, b, 0.3 if g.chance(0.5) else g.tensor(g.broadcastable(list(a.shape)), a.dtype)], {}


@case("torch.addcmul", "torch.addcdiv", ".addcmul_", ".addcdiv_")
def _(g):
    a = g.tensor(dtypes=FLOATS, grad=0.1)
    same = a.dtype if g.chance(0.8) else None
    return [a, g.tensor(g.broadcastable(list(a.shape)), same), g.tensor(a.shape, same)], {"value": g.pick(1, 0.5, 2)}


@case("torch.masked_fill", ".masked_fill", ".masked_fill_")
def _(g):
    a = g.tensor(grad=0.1)
    m = g.tensor(g.broadcastable(list(a.shape)), torch.bool)
    return [a, m, g.number() if g.chance(0.7) else g.tensor([])], {}


# Views.
@case(".view", ".reshape")
def _(g):
    a = g.tensor()
    n = a.numel()
    shape = list(a.shape)
    roll = g.r.random()
    if roll < 0.3 and len(shape) > 1:
        i = g.r.randrange(len(shape) - 1)
        shape[i : i + 2] = [shape[i] * shape[i + 1]]
    elif roll < 0.5:
        shape.insert(g.r.randint(0, len(shape)), 1)
    elif roll < 0.6:
        shape = [n]
    elif roll < 0.7 and n % 2 == 0:
        shape = [2, n // 2]
    elif roll < 0.8:
        shape = [g.pick(1, 2, 3), g.pick(2, 3, 4)]
    if shape and g.chance(0.3):
        shape[g.r.randrange(len(shape))] = -1
    return ([a, *shape] if g.chance(0.6) and shape else [a, tuple(shape)]), {}


@case(".view")
def _(g):
    return [g.tensor(), g.pick(*PLAIN)], {}


@case(".view_as", ".reshape_as", ".expand_as", ".type_as")
def _(g):
    a = g.tensor()
    return [a, g.tensor(a.shape if g.chance(0.7) else None)], {}


@case("torch.flatten", ".flatten")
def _(g):
    a = g.tensor()
    return ([a, g.dim(a), g.dim(a)] if g.chance(0.6) else [a, 1]), {}


@case(
    "torch.ravel", "torch.t", ".adjoint", "torch.squeeze", ".detach", "torch.detach", ".clone", ".contiguous", ".T_like"
)
def _(g):
    return [g.tensor()], {}


@case("torch.unflatten")
def _(g):
    a = g.tensor([g.pick(2, 4, 6), g.pick(4, 6), g.pick(3, 4)])
    return [a, g.dim(a), g.pick([2, -1], [-1, 2], [2, 2], [3, 2])], {}


@case("torch.permute", ".permute")
def _(g):
    a = g.tensor(low=1)
    order = list(range(a.dim()))
    g.r.shuffle(order)
    order = [d - a.dim() if g.chance(0.2) else d for d in order]
    return [a, order], {}


@case(".permute")
def _(g):
    a = g.tensor(low=2)
    order = list(range(a.dim()))
    g.r.shuffle(order)
    return [a, *order], {}


@case("torch.transpose", ".transpose", ".swapaxes", "torch.movedim")
def _(g):
    a = g.tensor()
    return [a, g.dim(a), g.dim(a)], {}


@case("torch.movedim")
def _(g):
    a = g.tensor(low=2)
    return [a, [0, 1], g.pick([1, 0], [-1, 0], [0, -1], [-1, -2])], {}


@case(".expand", "torch.broadcast_to")
def _(g):
    a = g.tensor(g.broadcastable(g.shape(1, 4)))
    shape = [g.pick(2, 3) if s == 1 and g.chance(0.6) else (-1 if g.chance(0.3) else s) for s in a.shape]
    shape = [g.pick(1, 2, 3) for _ in range(g.pick(0, 0, 1, 2))] + shape
    return [a, shape], {}


@case("torch.squeeze", "torch.unsqueeze", "torch.select", "torch.unbind", ".unbind")
def _(g):
    a = g.tensor(low=0)
    return [a, g.dim(a)], {}


@case("torch.squeeze")
def _(g):
    a = g.tensor(low=1)
    return [a, tuple(g.dims(a))], {}


@case("torch.select", ".select")
def _(g):
    a = g.tensor(low=1)
    return [a, g.dim(a), g.pick(0, 1, -1, 2)], {}


@case("torch.narrow", ".narrow")
def _(g):
    a = g.tensor(low=1)
    return [a, g.dim(a), g.pick(0, 1, -1), g.pick(0, 1, 2)], {}


@case("torch._C._VariableFunctions.split", "torch.chunk", ".chunk")
def _(g):
    a = g.tensor(low=1)
    return [a, g.pick(1, 2, 3), g.dim(a)], {}


@case("torch._C._VariableFunctions.split_with_sizes")
def _(g):
    a = g.tensor(low=1)
    d = g.dim(a)
    first = g.r.randint(0, a.shape[d])
    return [a, [first, a.shape[d] - first], d], {}


@case("torch.diagonal")
def _(g):
    a = g.tensor(low=2)
    return [a, g.pick(0, 1, -1, 2), *g.pick((0, 1), (1, 0), (-1, -2), (0, -1))], {}


@case(".unfold")
def _(g):
    a = g.tensor(low=1)
    return [a, g.dim(a), g.pick(1, 2), g.pick(1, 2, 3)], {}


@case(".contiguous", ".clone")
def _(g):
    a = g.tensor(low=4, high=4)
    return [a], {"memory_format": g.pick(torch.channels_last, torch.contiguous_format, torch.preserve_format)}


@case(".to")
def _(g):
    a = g.tensor()
    options = [
        ([a, g.pick(*PLAIN)], {}),
        ([a], {"dtype": g.pick(*PLAIN)}),
        ([a, "cpu"], {}),
        ([a, torch.device("cpu"), g.pick(*PLAIN)], {}),
        ([a, g.tensor()], {}),
        ([a, a.dtype], {"copy": True}),
        ([a], {"memory_format": g.pick(torch.channels_last, torch.contiguous_format, torch.preserve_format)}),
    ]
    return g.r.choice(options)


@case(*methods(*"float double half bfloat16 long int short char byte bool cpu".split()))
def _(g):
    return [g.tensor()], {}


@case(".type")
def _(g):
    return [g.tensor(), g.pick(*PLAIN)], {}


@case(".copy_")
def _(g):
    a = g.tensor(grad=0)
    return [a, g.tensor(g.broadcastable(list(a.shape)))], {}


# Reductions.
REDUCE = "sum mean std var any all amax amin argmax argmin prod max min median logsumexp count_nonzero nansum".split()


@case(*fn(*REDUCE))
def _(g):
    return [g.tensor()], {}


@case(*fn(*"sum mean std var any all amax amin argmax argmin prod max min median logsumexp".split()))
def _(g):
    a = g.tensor()
    return [a, g.dim(a)], ({"keepdim": True} if g.chance(0.4) else {})


@case(*fn(*"sum mean std var any all amax amin logsumexp std_mean var_mean nansum count_nonzero".split()))
def _(g):
    a = g.tensor()
    return [a, g.dims(a)], {}


@case(".sum", ".mean", "torch.prod")
def _(g):
    a = g.tensor()
    return [a], {"dtype": g.pick(*PLAIN)}


@case(".var", ".std")
def _(g):
    a = g.tensor(dtypes=FLOATS)
    return [a], {"dim": g.dims(a), "correction": g.pick(0, 1), "keepdim": g.chance(0.5)}


@case(".var", ".std")
def _(g):
    a = g.tensor(dtypes=FLOATS)
    return [a, g.dim(a)], {"unbiased": False, "keepdim": g.chance(0.5)}


@case("torch._C._linalg.linalg_vector_norm")
def _(g):
    a = g.tensor(dtypes=FLOATS)
    return [a, g.pick(2, 1, 0.5), g.dims(a) if g.chance(0.7) else None, g.chance(0.5)], {}


@case("torch.max", "torch.min")
def _(g):
    a = g.tensor()
    return [a, g.tensor(g.broadcastable(list(a.shape)))], {}


@case(
    *fn(*"softmax log_softmax cumsum cumprod logcumsumexp cummax cummin sort argsort mode".split()),
    ".softmax",
    ".cumsum_",
)
def _(g):
    a = g.tensor(dtypes=FLOATS if g.chance(0.7) else PLAIN, grad=0.1)
    return [a, g.dim(a)], {}


@case("torch.softmax", ".log_softmax")
def _(g):
    a = g.tensor()
    return [a, g.dim(a)], {"dtype": g.pick(torch.float32, torch.float64)}


@case("torch.topk", "torch.kthvalue")
def _(g):
    a = g.tensor(low=1)
    return [a, 1 if g.chance(0.6) else 2, g.dim(a)], {}


@case("torch.sort", ".argsort")
def _(g):
    a = g.tensor()
    return [a], {"stable": True, "dim": g.dim(a), "descending": g.chance(0.5)}


# Products.
@case("torch._C._nn.linear")
def _(g):
    dtype = g.pick(torch.float32, torch.float64, torch.bfloat16)
    k, n = g.pick(1, 3, 4), g.pick(1, 2, 5)
    a = g.tensor([*g.shape(0, 3), k], dtype)
    args = [a, g.tensor([n, k], dtype)]
    return ([*args, g.tensor([n], dtype)] if g.chance(0.6) else args), {}


@case("torch.matmul", "_operator.matmul", ".__rmatmul__")
def _(g):
    dtype = g.pick(torch.float32, torch.float64, torch.int64)
    m, k, n = (g.pick(1, 2, 3, 4) for _ in range(3))
    batch = g.shape(0, 2)
    a = [*g.broadcastable(batch), m, k] if g.chance(0.8) else [k]
    b = [*g.broadcastable(batch), k, n] if g.chance(0.8) else [k]
    return [g.tensor(a, dtype), g.tensor(b, dtype)], {}


@case("torch.mm", "torch.bmm", "torch.addmm", "torch.baddbmm", ".addmm_")
def _(g):
    return None


def product_case(name, batched, added):
    @case(name)
    def _(g):
        dtype = g.pick(torch.float32, torch.float64)
        m, k, n = (g.pick(0, 1, 2, 3, 4) for _ in range(3))
        b = [g.pick(1, 2, 3)] if batched else []
        args = [g.tensor([*b, m, k], dtype), g.tensor([*b, k, n], dtype)]
        if added:
            first = [*b, m, n] if name.endswith("_") else g.broadcastable([*b, m, n])
            args.insert(0, g.tensor(first, dtype, grad=0 if name.endswith("_") else 0.2))
        return args, {}


for _name, _batched, _added in [
    ("torch.mm", False, False), ("torch.bmm", True, False), ("torch.addmm", False, True), ("torch.baddbmm", True, True),
    (".addmm_", False, True),
]:  # fmt: skip
    product_case(_name, _batched, _added)


@case("torch.mv", "torch.dot", "torch.outer")
def _(g):
    return None


@case("torch.outer")
def _(g):
    return [g.tensor(low=1, high=1), g.tensor(low=1, high=1)], {}


@case("torch.mv")
def _(g):
    return [g.tensor([2, 3], torch.float32), g.tensor([3], torch.float32)], {}


@case("torch.dot")
def _(g):
    return [g.tensor([3], torch.float32), g.tensor([3], torch.float32)], {}


# Images.
def image(g, n, channels, dtype, size=(5, 6, 7, 8), batched=True):
    shape = ([g.pick(1, 2, 3)] if batched else []) + [channels] + [g.pick(*size) for _ in range(n)]
    return g.tensor(shape, dtype, g.pick("c", "c", "cl", "cl", "perm", "gap", "expand", "ones", "slice0"))


def conv_case(n, transposed):
    @case(f"torch.conv{'_transpose' if transposed else ''}{n}d")
    def _(g):
        dtype = g.pick(torch.float32, torch.float32, torch.float64, torch.bfloat16)
        groups = g.pick(1, 1, 2)
        cin, cout = groups * g.pick(1, 2, 3), groups * g.pick(1, 2, 4)
        if g.chance(0.2):
            groups, cin, cout = 4, 4, 4
        k = [g.pick(1, 2, 3) for _ in range(n)]
        shape = [cin, cout // groups, *k] if transposed else [cout, cin // groups, *k]
        weight = g.tensor(shape, dtype, g.pick("c", "c", "c", "cl"))
        x = image(g, n, cin, dtype, batched=g.chance(0.85))
        bias = g.tensor([cout], dtype, "c") if g.chance(0.5) else None
        kwargs = {
            "stride": g.pick(1, 2, [2] * n),
            "padding": g.pick(0, 1, [1] * n),
            "dilation": g.pick(1, 1, 2),
            "groups": groups,
        }
        if not transposed and g.chance(0.15):
            kwargs["padding"] = g.pick("same", "valid")
        return [x, weight, bias], kwargs


for _n in (1, 2, 3):
    conv_case(_n, False)
    conv_case(_n, True)


@case("torch.batch_norm")
def _(g):
    c = g.pick(1, 2, 3, 4)
    x = image(g, g.pick(0, 1, 2, 2, 2, 3), c, g.pick(torch.float32, torch.float64))
    vec = lambda grad=0.3: g.tensor([c], x.dtype, "c", grad=grad) if g.chance(0.8) else None
    return [x, vec(), vec(), vec(0), vec(0), g.chance(0.5), 0.1, 1e-5, True], {}


@case("torch.group_norm")
def _(g):
    c = g.pick(2, 4)
    x = image(g, g.pick(0, 1, 2, 2, 3), c, torch.float32)
    w = g.tensor([c], torch.float32, "c") if g.chance(0.5) else None
    return [x, 2, w, w], {}


@case("torch.instance_norm")
def _(g):
    x = image(g, g.pick(1, 2, 2, 3), 3, torch.float32)
    return [x, None, None, None, None, True, 0.1, 1e-5, True], {}


@case("torch.layer_norm", "torch.rms_norm")
def _(g):
    x = g.tensor(low=1, dtypes=[torch.float32, torch.float64, torch.bfloat16])
    shape = list(x.shape[g.r.randint(0, x.dim() - 1) :])
    w = g.tensor(shape, x.dtype) if g.chance(0.6) else None
    return [x, shape, w], {}


@case("torch.layer_norm")
def _(g):
    x = g.tensor(low=1, dtype=torch.float32)
    shape = list(x.shape[g.r.randint(0, x.dim() - 1) :])
    return [x, shape, g.tensor(shape, torch.float32), g.tensor(shape, torch.float32), 1e-5, True], {}


@case("torch.max_pool2d")
def _(g):
    x = image(g, 2, g.pick(1, 2, 3), g.pick(torch.float32, torch.float64), batched=g.chance(0.85))
    k = g.pick(2, 3, [2, 3])
    return [x, k], {
        "stride": g.pick(1, 2, [2, 1]),
        "padding": g.pick(0, 1),
        "dilation": g.pick(1, 1, 2),
        "ceil_mode": g.chance(0.4),
    }


@case("torch.max_pool2d")
def _(g):
    return [image(g, 2, 3, torch.float32), 2], {}


@case("torch._C._nn.avg_pool2d")
def _(g):
    x = image(g, 2, g.pick(1, 2, 3), torch.float32, batched=g.chance(0.85))
    return [x, g.pick(2, 3, [2, 3]), g.pick(1, 2), g.pick(0, 1), g.chance(0.4)], {}


@case("torch._C._nn.adaptive_avg_pool2d")
def _(g):
    x = image(g, 2, g.pick(1, 2, 3), torch.float32, batched=g.chance(0.85))
    return [x, g.pick([1, 1], 1, [2, 3], [1, 2])], {}


@case("torch._C._nn.upsample_nearest2d", "torch._C._nn.upsample_bilinear2d", "torch._C._nn.upsample_bicubic2d")
def _(g):
    x = image(g, 2, g.pick(1, 2, 3, 5), torch.float32)
    return [x, [g.pick(3, 9), g.pick(4, 10)], None], {}


@case("torch._C._nn.upsample_bilinear2d", "torch._C._nn.upsample_bicubic2d")
def _(g):
    x = image(g, 2, g.pick(1, 2, 3, 5), torch.float32)
    return [x, [g.pick(3, 9), g.pick(4, 10)], g.chance(0.5), None], {}


@case("torch.pixel_shuffle")
def _(g):
    return [image(g, 2, 4, torch.float32), 2], {}


# Indexing.
@case("_operator.getitem")
def _(g):
    a = g.tensor(low=1)
    items = []
    n = a.dim()
    while n > 0:
        roll = g.r.random()
        if roll < 0.25:
            items.append(g.pick(0, -1, 1))
        elif roll < 0.6:
            items.append(
                slice(g.pick(None, None, 0, 1, -2, 9), g.pick(None, None, 1, 2, -1, 9), g.pick(None, None, 1, 2))
            )
        elif roll < 0.7:
            items.append(None)
            continue
        elif roll < 0.75 and Ellipsis not in items:
            items.append(Ellipsis)
            n -= g.r.randint(0, n)
            continue
        elif roll < 0.85:
            break
        else:
            items.append(slice(None))
        n -= 1
    return [a, tuple(items) if len(items) != 1 else items[0]], {}


def index_tensor(g, shape, size):
    t = torch.randint(0, max(size, 1), shape)
    if g.chance(0.3) and len(shape) > 1:
        t = torch.randint(0, max(size, 1), shape[::-1]).permute(*reversed(range(len(shape))))
    return t


@case("_operator.getitem")
def _(g):
    a = g.tensor(low=1)
    shape = g.shape(1, 2, zero=0)
    items = []
    for d in range(a.dim()):
        roll = g.r.random()
        if roll < 0.5:
            items.append(index_tensor(g, g.broadcastable(shape) or shape, a.shape[d]))
        elif roll < 0.6:
            items.append([0, 0])
        elif roll < 0.7:
            items.append(0)
        elif roll < 0.75:
            items.append(None)
            items.append(slice(None))
        else:
            items.append(slice(None))
    return [a, tuple(items)], {}


@case("_operator.setitem")
def _(g):
    a = g.tensor(low=1, grad=0)
    item = g.pick(0, slice(None), slice(0, 2), None, Ellipsis, (Ellipsis, 0))
    return [a, item, g.number() if g.chance(0.5) else g.tensor([1], grad=0)], {}


@case("torch.embedding")
def _(g):
    w = g.tensor([5, g.pick(1, 3)], g.pick(torch.float32, torch.bfloat16))
    return [w, index_tensor(g, g.shape(0, 3), 5), g.pick(-1, 0), False, False], {}


@case("torch.index_select")
def _(g):
    a = g.tensor(low=1)
    d = g.dim(a)
    return [a, d, index_tensor(g, [g.pick(1, 3)], a.shape[d])], {}


@case("torch.gather")
def _(g):
    a = g.tensor(low=1)
    d = g.dim(a)
    return [a, d, index_tensor(g, list(a.shape), a.shape[d])], {}


@case("torch.scatter", ".scatter_add", ".scatter_", ".scatter_add_")
def _(g):
    a = g.tensor(low=1, grad=0.1)
    d = g.dim(a)
    return [a, d, index_tensor(g, list(a.shape), a.shape[d]), g.tensor(a.shape, a.dtype)], {}


@case("torch.scatter", ".scatter_")
def _(g):
    a = g.tensor(low=1, grad=0.1)
    d = g.dim(a)
    return [a, d, index_tensor(g, list(a.shape), a.shape[d]), g.number()], {}


@case("torch.index_add", ".index_copy", ".index_add_")
def _(g):
    a = g.tensor(low=1, grad=0.1)
    d = g.dim(a)
    return [a, d, torch.randperm(a.shape[d]), g.tensor(a.shape, a.dtype)], {}


@case("torch.index_fill")
def _(g):
    a = g.tensor(low=1)
    d = g.dim(a)
    return [a, d, torch.randperm(a.shape[d]), g.number()], {}


@case("torch.tril", ".triu", ".tril_")
def _(g):
    return [g.tensor(low=2, grad=0.1), g.pick(0, 1, -1)], {}


@case("torch._C._nn.one_hot")
def _(g):
    return [index_tensor(g, g.shape(0, 3), 4), 4], {}


@case("torch.roll")
def _(g):
    a = g.tensor(low=1)
    return [a, 1, g.dim(a)], {}


@case("torch.flip")
def _(g):
    a = g.tensor(low=1)
    return [a, g.dims(a)], {}


@case(".repeat", "torch.tile")
def _(g):
    a = g.tensor(high=3)
    return [a, [g.pick(1, 2, 3) for _ in range(g.r.randint(0, 4))]], {}


@case("torch.repeat_interleave")
def _(g):
    a = g.tensor()
    return [a, g.pick(1, 2)], ({"dim": g.dim(a)} if g.chance(0.7) else {})


@case("torch.cat", "torch.stack")
def _(g):
    a = g.tensor(low=1)
    rest = [g.tensor(a.shape, a.dtype if g.chance(0.8) else None) for _ in range(g.pick(0, 1, 2))]
    return [[a, *rest], g.dim(a)], {}


@case("torch._C._nn.pad", "torch.constant_pad_nd")
def _(g):
    a = g.tensor(low=1)
    return [a, [g.pick(0, 1, 2) for _ in range(2 * g.r.randint(1, a.dim()))]], {}


# Creation.
@case(*fn(*"zeros ones empty rand randn".split()))
def _(g):
    shape = g.shape()
    kwargs = {}
    if g.chance(0.4):
        kwargs["dtype"] = g.pick(torch.float64, torch.bfloat16)
    if g.chance(0.2):
        kwargs["device"] = "cpu"
    if g.chance(0.2):
        kwargs["requires_grad"] = True
    return ([tuple(shape)] if g.chance(0.5) or not shape else shape), kwargs


@case("torch.full")
def _(g):
    return [g.shape(), g.number()], ({"dtype": g.pick(*PLAIN)} if g.chance(0.4) else {})


@case(*fn(*"zeros_like ones_like empty_like rand_like randn_like".split()))
def _(g):
    return [g.tensor()], ({"dtype": g.pick(*PLAIN)} if g.chance(0.4) else {})


@case("torch.full_like")
def _(g):
    return [g.tensor(), g.number()], {}


@case("torch.zeros_like")
def _(g):
    return [g.tensor(low=4, high=4)], {"memory_format": g.pick(torch.channels_last, torch.contiguous_format)}


@case(".new_zeros", ".new_ones", ".new_empty")
def _(g):
    return [g.tensor(), tuple(g.shape())], ({"dtype": g.pick(*PLAIN)} if g.chance(0.4) else {})


@case(".new_full")
def _(g):
    return [g.tensor(), tuple(g.shape()), g.number()], {}


@case("torch.arange")
def _(g):
    args = g.pick([5], [2.5], [1, 7], [1, 7, 2], [0.0, 1.0, 0.1], [7, 1, -2], [0, 1, 0.3], [0], [True])
    return list(args), ({"dtype": g.pick(torch.int64, torch.int32, torch.float32)} if g.chance(0.3) else {})


@case("torch.linspace")
def _(g):
    return [g.pick(0, 0.5), g.pick(1, 2.5), g.pick(1, 5)], {}


@case("torch.eye")
def _(g):
    return g.pick([3], [3, 4], [0, 2]), {}


@case(".fill_", ".zero_", "torch.fill")
def _(g):
    return [g.tensor(grad=0)], {}


@case(".fill_", "torch.fill")
def _(g):
    return [g.tensor(grad=0), g.number() if g.chance(0.6) else g.tensor([])], {}


@case("torch.tensor")
def _(g):
    def nested(depth):
        return g.number() if depth == 0 else [nested(depth - 1) for _ in range(2)]

    return [nested(g.r.randrange(3))], ({"dtype": g.pick(*PLAIN)} if g.chance(0.4) else {})


@case("torch.scalar_tensor")
def _(g):
    return [g.number()], ({"dtype": g.pick(*PLAIN)} if g.chance(0.4) else {})


# Random.
@case("torch.dropout", "torch.dropout_")
def _(g):
    return [g.tensor(dtypes=FLOATS, grad=0.1), g.pick(0.0, 0.5, 1.0, 0.1), g.chance(0.7)], {}


@case(".bernoulli_", ".uniform_", ".normal_", "torch.bernoulli")
def _(g):
    t = g.tensor(dtypes=FLOATS, grad=0)
    return [t.clamp(0, 1)], {}


# Losses.
@case("torch._C._nn.cross_entropy_loss", "torch._C._nn.nll_loss_nd")
def _(g):
    extra = g.pick([], [], [2], [2, 3])
    n, c = g.pick(1, 4), g.pick(2, 5)
    shape = [n, c, *extra] if g.chance(0.9) else [c]
    target = [n, *extra] if len(shape) > 1 else []
    return [g.tensor(shape, torch.float32), torch.randint(0, c, target), None, g.pick(0, 1, 2), -100], {}


@case(*["torch._C._nn." + n for n in "mse_loss l1_loss smooth_l1_loss huber_loss".split()])
def _(g):
    a = g.tensor(dtype=torch.float32)
    return [a, g.tensor(g.broadcastable(list(a.shape)), torch.float32), g.pick(0, 1, 2)], {}


@case("torch.binary_cross_entropy_with_logits")
def _(g):
    a = g.tensor(dtype=torch.float32)
    return [a, g.tensor(a.shape, torch.float32), None, None, g.pick(0, 1, 2)], {}


@case("torch._C._nn.scaled_dot_product_attention")
def _(g):
    dtype = g.pick(torch.float32, torch.float64, torch.bfloat16)
    b, h, s, t, d = g.pick(1, 2), g.pick(1, 3), g.pick(1, 4), g.pick(1, 4, 5), g.pick(1, 4)
    head = lambda n, heads=h: g.tensor([b, heads, n, d], dtype, g.pick("c", "c", "perm", "gap", "expand"))
    kwargs = {}
    if g.chance(0.3):
        kwargs["is_causal"] = True
    elif g.chance(0.4):
        kwargs["attn_mask"] = g.tensor(
            g.pick([s, t], [b, h, s, t], [b, 1, s, t], [1, 1, 1, t]), g.pick(torch.bool, dtype), "c", grad=0.1
        )
    if g.chance(0.2):
        kwargs["scale"] = 0.5
    if g.chance(0.1):
        kwargs["dropout_p"] = 0.5
    q, k, v = head(s), head(t), head(t)
    if g.chance(0.3):
        qkv = g.tensor([b, s, 3, h, d], dtype, "c").permute(2, 0, 3, 1, 4)
        q, k, v = [t.detach() for t in qkv.unbind(0)]
    if g.chance(0.1):
        v = g.tensor([*v.shape[:3], 5], dtype)
    if g.chance(0.2):
        kwargs["enable_gqa"] = True
        q = head(s, h * g.pick(1, 2, 3))
    return [q, k, v], kwargs


@case("torch._C._nn.binary_cross_entropy")
def _(g):
    shape = g.shape(1, 4)
    of = [g.tensor(shape, torch.float32).clamp(0, 1) for _ in range(2)]
    return [*of, None, g.pick(0, 1, 2)], {}


@case("torch.cosine_similarity")
def _(g):
    shape = g.shape(1, 4, zero=0)
    dtype = g.pick(*FLOATS)
    return [g.tensor(shape, dtype), g.tensor(shape, dtype), g.r.randrange(-1, len(shape))], {}


# Encoding.
def tensor_text(t):
    grad = " g" if t.requires_grad else ""
    return f"T {SHORT[t.dtype]} {','.join(map(str, t.shape))} {','.join(map(str, t.stride()))}{grad}"


def encode(v):
    if isinstance(v, torch.Tensor):
        return tensor_text(v)
    if v is None or isinstance(v, (bool, int)):
        return v
    if isinstance(v, float):
        return f"F {v!r}"
    if isinstance(v, str):
        return f"S {v}"
    if isinstance(v, torch.dtype):
        return f"D {SHORT[v]}"
    if isinstance(v, torch.memory_format):
        return f"M {str(v).removeprefix('torch.')}"
    if isinstance(v, torch.device):
        return "C cpu"
    if v is Ellipsis:
        return "E"
    if isinstance(v, slice):
        return ["X", encode(v.start), encode(v.stop), encode(v.step)]
    return ["U" if isinstance(v, tuple) else "L", *map(encode, v)]


def resolve(target):
    if target.startswith("."):
        return getattr(torch.Tensor, target[1:], None)
    if target.startswith("_operator."):
        return getattr(operator, target.removeprefix("_operator."))
    value = torch
    for part in target.split(".")[1:]:
        value = getattr(value, part, None)
    return value


def flat_tensors(v):
    if isinstance(v, torch.Tensor):
        return [v]
    if isinstance(v, (list, tuple)):
        return [t for i in v for t in flat_tensors(i)]
    return []


def observe(function, args, kwargs):
    given = [*args, *kwargs.values()]
    encoded = [[encode(a) for a in args], {k: encode(v) for k, v in kwargs.items()}]
    versions = [v._version if isinstance(v, torch.Tensor) else 0 for v in given]
    before = [v.detach().clone() if isinstance(v, torch.Tensor) else v for v in given]
    state = torch.get_rng_state()
    try:
        result = function(*args, **kwargs)
    except Exception as error:  # what raises is an answer too
        if "leaf Variable" in str(error) or "ZeroDivision" in str(error):  # leaves are the tracer's business
            return None
        return [*encoded, {"error": str(error)[:40]}]
    seen = {"meta": encode(result)}
    if not torch.is_grad_enabled():
        seen["no_grad"] = True
    if not torch.equal(state, torch.get_rng_state()):
        seen["rng"] = True
    first = next(iter(flat_tensors(result)), None)
    for i, v in enumerate(given):
        if isinstance(v, torch.Tensor):
            if v is result:
                seen["same"] = i
            elif first is not None and first.untyped_storage()._cdata == v.untyped_storage()._cdata:
                seen["view"] = i
            if v._version != versions[i] or not torch.equal(v.nan_to_num(), before[i].nan_to_num()):
                seen.setdefault("writes", []).append(i)
    return [*encoded, seen]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=4)
    parser.add_argument("--only", default="")
    parser.add_argument("--out", default=Path(__file__).parents[2] / "daemon/ops/tests/cases.json")
    options = parser.parse_args()
    torch.manual_seed(0)
    lines = []
    for number, (target, body) in enumerate(CASES):
        function = resolve(target)
        if function is None or options.only not in target:
            continue
        seen = set()
        for i in range(options.cases):
            drawn = body(Draw(number * 100003 + i))
            if drawn is None:
                break
            with torch.set_grad_enabled(i % 4 != 3):
                observed = observe(function, *drawn)
            line = json.dumps([target, *(observed or [])], separators=(",", ":"))
            if observed and line not in seen:
                seen.add(line)
                lines.append(line)
    Path(options.out).write_text("[\n" + ",\n".join(lines) + "\n]\n")
    print(f"{len(lines)} cases, {Path(options.out).stat().st_size // 1024} KiB")


if __name__ == "__main__":
    main()
