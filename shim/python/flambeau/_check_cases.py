"""What `flambeau plugin check` runs: for every form, type, layout and edge value a kernel, and torch's answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from flambeau._check_kernels import DTYPES, EXACT, NAMES, Kernel, Tolerance

INTS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
FLOATS = [torch.float32, torch.float64]

#: Torch's function for each operation, and the error allowed: none for those that round once.
UNARY: dict[str, tuple[Callable[..., torch.Tensor], float]] = {
    "Neg": (torch.neg, 0),
    "Abs": (torch.abs, 0),
    "Sign": (torch.sign, 0),
    "Not": (torch.logical_not, 0),
    "BitNot": (torch.bitwise_not, 0),
    "Exp": (torch.exp, 4),
    "Exp2": (torch.exp2, 4),
    "Expm1": (torch.expm1, 4),
    "Log": (torch.log, 4),
    "Log2": (torch.log2, 4),
    "Log10": (torch.log10, 4),
    "Log1p": (torch.log1p, 4),
    "Sqrt": (torch.sqrt, 1),
    "Rsqrt": (torch.rsqrt, 4),
    "Reciprocal": (torch.reciprocal, 1),
    "Sin": (torch.sin, 4),
    "Cos": (torch.cos, 4),
    "Tan": (torch.tan, 8),
    "Asin": (torch.asin, 4),
    "Acos": (torch.acos, 4),
    "Atan": (torch.atan, 4),
    "Sinh": (torch.sinh, 4),
    "Cosh": (torch.cosh, 4),
    "Tanh": (torch.tanh, 4),
    "Asinh": (torch.asinh, 4),
    "Acosh": (torch.acosh, 4),
    "Atanh": (torch.atanh, 4),
    "Sigmoid": (torch.sigmoid, 4),
    "Erf": (torch.erf, 4),
    "Erfc": (torch.erfc, 16),
    "Floor": (torch.floor, 0),
    "Ceil": (torch.ceil, 0),
    "Round": (torch.round, 0),
    "Trunc": (torch.trunc, 0),
    "IsNan": (torch.isnan, 0),
    "IsInf": (torch.isinf, 0),
}
BINARY: dict[str, tuple[Callable[..., torch.Tensor], float]] = {
    "Add": (torch.add, 0),
    "Sub": (torch.sub, 0),
    "Mul": (torch.mul, 0),
    "Div": (torch.div, 1),
    "FloorDiv": (torch.floor_divide, 0),
    "TruncDiv": (partial(torch.div, rounding_mode="trunc"), 0),
    "Rem": (torch.remainder, 0),
    "Fmod": (torch.fmod, 0),
    "Pow": (torch.pow, 8),
    "Atan2": (torch.atan2, 4),
    "Max": (torch.maximum, 0),
    "Min": (torch.minimum, 0),
    "And": (torch.bitwise_and, 0),
    "Or": (torch.bitwise_or, 0),
    "Xor": (torch.bitwise_xor, 0),
    "Shl": (torch.bitwise_left_shift, 0),
    "Shr": (torch.bitwise_right_shift, 0),
    "Eq": (torch.eq, 0),
    "Ne": (torch.ne, 0),
    "Lt": (torch.lt, 0),
    "Le": (torch.le, 0),
    "Gt": (torch.gt, 0),
    "Ge": (torch.ge, 0),
}
REDUCE: dict[str, Callable[..., torch.Tensor]] = {
    "Sum": lambda x, dims: torch.sum(x, dims, dtype=x.dtype),
    "Prod": lambda x, dims: x.flatten(-len(dims)).prod(-1, dtype=x.dtype),
    "Max": torch.amax,
    "Min": torch.amin,
    "Any": torch.any,
    "All": torch.all,
}


@dataclass(frozen=True)
class Case:
    """One kernel to run: `form` is what the report counts it under, `about` says which of that."""

    form: str
    about: str
    make: Callable[[], Kernel]


def edges(dtype: torch.dtype) -> torch.Tensor:
    """Values at which implementations differ: one dimension, the same every time."""
    if dtype == torch.bool:
        return torch.tensor([False, True, True, False, True])
    if not dtype.is_floating_point:
        bounds = torch.iinfo(dtype)
        numbers = [0, 1, 2, 3, 7, 8, 63, 64, bounds.max, bounds.max - 1, bounds.min, bounds.min + 1]
        numbers += [-n for n in (1, 2, 3, 7, 8, 63, 64) if bounds.min < 0]
        return torch.tensor(numbers, dtype=dtype)
    limits = torch.finfo(dtype)
    tiny, least = limits.tiny, limits.smallest_normal * limits.eps
    positive = [0.0, torch.inf, limits.max, limits.eps, tiny, tiny / 2, least, 0.25, 0.5, 1.0, 1 + limits.eps]
    positive += [1 - limits.eps, 1.5, 2.0, 2.5, 3.5, 0.1, 3.0, 7.0, 1.570796, 3.141592, 10.3, 88.7, 100.0, 709.7, 1e-5]
    positive += [1e4, 8388607.5, 1e30]
    values = torch.tensor([torch.nan, *positive, *(-n for n in positive)], dtype=torch.float64)
    return values.to(dtype)


def samples(dtype: torch.dtype, *sizes: int) -> torch.Tensor:
    """Random values, the same every time: floats of about one, any integers."""
    random = torch.Generator().manual_seed(7)
    if dtype == torch.bool:
        return torch.rand(sizes, generator=random) < 0.5
    if dtype.is_floating_point:
        return torch.randn(sizes, generator=random, dtype=torch.float64).to(dtype)
    bounds = torch.iinfo(dtype)
    return torch.randint(max(bounds.min, -(2**40)), min(bounds.max, 2**40), sizes, generator=random).to(dtype)


def near(dtype: torch.dtype, units: float) -> Tolerance:
    """Within so many units of the type's precision; results below the normal range may be zero."""
    if units == 0 or not dtype.is_floating_point:
        return EXACT
    return Tolerance(units, torch.finfo(dtype).tiny, zeros=True)


def mapped(kernel: Kernel, body: Callable[..., int], inputs: list[torch.Tensor], result: int) -> Kernel:
    """Loads one element of each input, and stores what the body makes of them."""
    params = [kernel.param(x) for x in inputs]
    kernel.row()
    kernel.store(result, body(*[kernel.load(p) for p in params]))
    return kernel


def unary(op: str, dtype: torch.dtype) -> Kernel:
    """On edges, and on a few hundred others; against torch's answer in f64 where the type is f32."""
    function, units = UNARY[op]
    x = torch.cat([edges(dtype), samples(dtype, 300)])
    wide = units > 0 and dtype == torch.float32
    expected = function(x.double()).to(dtype) if wide else function(x)
    kernel = Kernel([len(x)])
    result = kernel.out(expected, near(dtype, units))
    return mapped(kernel, lambda a: kernel.unary(op, expected.dtype, a), [x], result)


def binary(op: str, dtype: torch.dtype) -> Kernel:
    """Each edge with each, and a few hundred others."""
    function, units = BINARY[op]
    e = edges(dtype)
    a = torch.cat([e.repeat_interleave(len(e)), samples(dtype, 300)])
    b = torch.cat([e.repeat(len(e)), samples(dtype, 600)[300:]])
    if op in ("FloorDiv", "TruncDiv", "Rem", "Fmod") and not dtype.is_floating_point:
        # Never asked for; and torch itself ends the process at the quotient that is too large by one.
        defined = b != 0
        if dtype != torch.uint8:
            defined &= ~((a == torch.iinfo(dtype).min) & (b == -1))
        a, b = a[defined], b[defined]
    if op in ("Rem", "Fmod") and dtype.is_floating_point:
        # Torch's own vectors have no rest of quotients beyond the type's precision.
        usual = ~(a.isfinite() & b.isfinite()) | (b == 0) | ((a / b).abs() < 1e6)
        a, b = a[usual], b[usual]
    wide = units > 1 and dtype == torch.float32
    expected = function(a.double(), b.double()).to(dtype) if wide else function(a, b)
    tolerance = near(dtype, units)
    if op in ("Max", "Min"):
        tolerance = Tolerance(zeros=True)
    elif dtype.is_floating_point and op in ("FloorDiv", "Rem", "TruncDiv"):
        tolerance = Tolerance(1, zeros=True)
    kernel = Kernel([len(a)])
    result = kernel.out(expected, tolerance)
    return mapped(kernel, lambda v, w: kernel.binary(op, expected.dtype, v, w), [a, b], result)


def cast(source: torch.dtype, target: torch.dtype) -> Kernel:
    """Edges and others that the target holds: what becomes of a float that it does not is nowhere said."""
    x = torch.cat([edges(source), samples(source, 100)])
    if source.is_floating_point and not target.is_floating_point and target != torch.bool:
        bounds, whole = torch.iinfo(target), x.double().trunc()
        x = x[(whole >= bounds.min) & (whole <= min(bounds.max, 2**62))]
    expected = x.to(target)
    kernel = Kernel([len(x)])
    return mapped(kernel, lambda a: kernel.cast(target, a), [x], kernel.out(expected))


def values(form: str, dtype: torch.dtype) -> Kernel:
    """A constant, a scalar argument, an index or a choice, written to memory."""
    kernel = Kernel([3, 17])
    number = {torch.bool: 1.0}.get(dtype, -1.5 if dtype.is_floating_point else 37.0)
    full = torch.full((3, 17), number).to(dtype)
    if form == "index":
        places = torch.arange(17).expand(3, 17).contiguous()
        result = kernel.out(places.to(dtype) if dtype != torch.bool else places != 0)
        return mapped(kernel, lambda: kernel.cast(dtype, kernel.index(1)), [], result)
    if form == "select":
        cond, a, b = samples(torch.bool, 3, 17), samples(dtype, 3, 17), full
        result = kernel.out(torch.where(cond, a, b))
        return mapped(kernel, partial(kernel.select, dtype), [cond, a, b], result)
    make = kernel.const if form == "const" else kernel.scalar
    return mapped(kernel, lambda: make(dtype, number), [], kernel.out(full))


def layouts(dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """Tensors of every kind of strides that torch makes."""
    x = samples(dtype, 5, 6, 7)
    return {
        "contiguous": x,
        "transposed": x.transpose(0, 2),
        "permuted": x.permute(1, 2, 0),
        "sliced": x[1:, ::2, 2:],
        "every third": samples(dtype, 100)[::3],
        "one column": x[:, :, 3],
        "broadcast": x[:, :1, :].expand(5, 6, 7),
        "one element repeated": x[2, 3, 4].expand(40),
        "sizes of 1": x[:1, :, :1],
        "0-d": x[2, 3, 4],
        "empty": x[:, :0, :],
        "empty row": x[:0],
        "channels last": samples(dtype, 2, 3, 4, 5).contiguous(memory_format=torch.channels_last),
    }


def copy(dtype: torch.dtype, layout: str, outer: int, reverse: bool) -> Kernel:
    """Reads from this layout, or writes to it."""
    x = layouts(dtype)[layout]
    kernel = Kernel(list(x.shape), min(outer, x.dim()))
    if reverse:
        # The gaps between its elements have to stay as they are.
        storage = torch.zeros(x.untyped_storage().nbytes() // x.itemsize, dtype=dtype)
        fresh = torch.as_strided(storage, x.shape, x.stride(), x.storage_offset())
        return mapped(kernel, lambda a: a, [x.contiguous()], kernel.out(x, like=fresh))
    return mapped(kernel, lambda a: a, [x], kernel.out(x.contiguous()))


def lengths(dtype: torch.dtype, n: int) -> Kernel:
    """Rows that fill vectors and rows that do not."""
    x = samples(dtype, 2, n)
    kernel = Kernel([2, n], 1)
    return mapped(kernel, lambda a: a, [x], kernel.out(x.clone()))


def padded(dtype: torch.dtype) -> Kernel:
    """Conditional reads, at addresses outside of the buffer where they are not to happen."""
    x, number = samples(dtype, 4, 9), 1.0
    expected = torch.full((4, 14), number).to(dtype)
    expected[:, 3:12] = x
    kernel = Kernel([4, 14], 1)
    source, result = kernel.param(x), kernel.out(expected)
    kernel.row()
    place = kernel.index(1)
    low = kernel.binary("Ge", torch.bool, place, kernel.const(torch.int64, 3))
    high = kernel.binary("Lt", torch.bool, place, kernel.const(torch.int64, 12))
    inside = kernel.binary("And", torch.bool, low, high)
    kernel.store(result, kernel.load_if(inside, source, [9, 1], -3, kernel.const(dtype, number)))
    return kernel


#: Shape of the input, dimensions of the row (the last ones), and its order in memory.
REDUCED: dict[str, tuple[tuple[int, ...], int, tuple[int, ...]]] = {
    "rows": ((4, 37), 1, (0, 1)),
    "columns": ((5, 33), 1, (1, 0)),
    "long row": ((3, 1000), 1, (0, 1)),
    "all": ((4, 37), 2, (0, 1)),
    "two row dimensions": ((3, 4, 5), 2, (0, 1, 2)),
    "two row dimensions, permuted": ((3, 4, 5), 2, (2, 0, 1)),
    "one element": ((6, 1), 1, (0, 1)),
    "empty row": ((3, 0), 1, (0, 1)),
    "no rows": ((0, 8), 1, (0, 1)),
}


def reduction(op: str, dtype: torch.dtype, about: str, special: float | None = None) -> Kernel:
    """Reduces the row; `special` is put into each other row."""
    shape, row, order = REDUCED[about]
    x = samples(dtype, *shape)
    if op == "Prod":
        x = (1 + x.double() / 100).to(dtype) if dtype.is_floating_point else x | 1
    if special is not None:
        x[::2, shape[1] // 2] = special
    x = x.permute(order).contiguous().permute([order.index(d) for d in range(len(order))])
    dims = tuple(range(x.dim() - row, x.dim()))
    length = max(1, x[(0,) * (x.dim() - row)].numel() if x.numel() else 1)
    if 0 in (x.shape[d] for d in dims) and op in ("Max", "Min"):
        bounds = torch.iinfo(dtype) if not dtype.is_floating_point else torch.tensor([-torch.inf, torch.inf])
        least, most = (bounds.min, bounds.max) if isinstance(bounds, torch.iinfo) else (-torch.inf, torch.inf)
        expected = torch.full(x.shape[: x.dim() - row], least if op == "Max" else most, dtype=dtype)
    else:
        expected = REDUCE[op](x.double() if op in ("Sum", "Prod") and dtype.is_floating_point else x, dims).to(dtype)
    tolerance = Tolerance(zeros=True)
    if dtype.is_floating_point and op in ("Sum", "Prod"):
        mass = x.double().abs().nan_to_num(0, 0, 0).sum(dims).max().item() if x.numel() else 0.0
        tolerance = Tolerance(4 * length, torch.finfo(dtype).eps * 4 * mass, zeros=True)
    kernel = Kernel(list(x.shape), x.dim() - row)
    source, result = kernel.param(x), kernel.out(expected, tolerance)
    kernel.row()
    total = kernel.reduce(op, dtype, kernel.load(source))
    kernel.outside()
    kernel.store(result, total, [*expected.stride(), *[0] * row])
    return kernel


def softmax(dtype: torch.dtype) -> Kernel:
    """Three stages over the row, each with what the one before reduced."""
    x = samples(dtype, 6, 50)
    kernel = Kernel([6, 50], 1)
    source, result = kernel.param(x), kernel.out(torch.softmax(x.double(), 1).to(dtype), near(dtype, 64))
    kernel.row()
    most = kernel.reduce("Max", dtype, kernel.load(source))

    def raised() -> int:
        return kernel.unary("Exp", dtype, kernel.binary("Sub", dtype, kernel.load(source), most))

    kernel.row()
    total = kernel.reduce("Sum", dtype, raised())
    kernel.row()
    kernel.store(result, kernel.binary("Div", dtype, raised(), total))
    return kernel


def normalised(dtype: torch.dtype) -> Kernel:
    """Two reductions of one stage, values of an outer stage, and writes from both kinds of stage."""
    x = samples(dtype, 5, 40)
    wide = x.double()
    mean, square = wide.mean(1), (wide * wide).mean(1)
    scale = (square - mean * mean + 1e-5).rsqrt()
    expected = (wide - mean[:, None]) * scale[:, None]
    kernel = Kernel([5, 40], 1)
    source, result = kernel.param(x), kernel.out(expected.to(dtype), Tolerance(256, 256 * torch.finfo(dtype).eps))
    means = kernel.out(mean.to(dtype), Tolerance(256, 64 * torch.finfo(dtype).eps))
    kernel.row()
    v = kernel.load(source)
    squared = kernel.binary("Mul", dtype, v, v)
    total, squares = kernel.reduce("Sum", dtype, v), kernel.reduce("Sum", dtype, squared)
    kernel.outside()
    part = kernel.const(dtype, 1 / 40)
    middle = kernel.binary("Mul", dtype, total, part)
    spread = kernel.binary("Mul", dtype, squares, part)
    spread = kernel.binary("Sub", dtype, spread, kernel.binary("Mul", dtype, middle, middle))
    factor = kernel.unary("Rsqrt", dtype, kernel.binary("Add", dtype, spread, kernel.const(dtype, 1e-5)))
    kernel.store(means, middle, [1, 0])
    kernel.row()
    shifted = kernel.binary("Sub", dtype, kernel.load(source), middle)
    kernel.store(result, kernel.binary("Mul", dtype, shifted, factor))
    return kernel


def in_place(dtype: torch.dtype) -> Kernel:
    """One buffer that is read and written."""
    x = samples(dtype, 4, 33)
    kernel = Kernel([4, 33], 1)
    both = kernel.param(x.clone(), "InOut")
    kernel.expected.append((both, torch.where(torch.arange(33) < 20, x[:, :1].clone(), x), EXACT))
    other = kernel.param(x[:, :1].clone())
    kernel.row()
    early = kernel.binary("Lt", torch.bool, kernel.index(1), kernel.const(torch.int64, 20))
    kernel.store(both, kernel.select(dtype, early, kernel.load(other, [1, 0]), kernel.load(both)))
    return kernel


def several(dtype: torch.dtype) -> Kernel:
    """Several inputs of several types, several outputs."""
    x, y, cond = samples(dtype, 7, 21), samples(torch.int64, 7, 21), samples(torch.bool, 21).expand(7, 21)
    kernel = Kernel([7, 21], 1)
    a, b, c = kernel.param(x.t().contiguous().t()), kernel.param(y), kernel.param(cond)
    first, second = kernel.out(torch.where(cond, x, x.flip(1)[:, :1])), kernel.out(torch.where(cond, y, 5))
    third = kernel.out(~cond.contiguous())
    last = kernel.param(x[:, -1:])
    kernel.row()
    test = kernel.load(c)
    kernel.store(first, kernel.select(dtype, test, kernel.load(a), kernel.load(last, [21, 0])))
    kernel.store(second, kernel.select(torch.int64, test, kernel.load(b), kernel.const(torch.int64, 5)))
    kernel.store(third, kernel.unary("Not", torch.bool, test))
    return kernel


def symbolic(dtype: torch.dtype, rows: int, columns: int) -> Kernel:
    """Sizes, strides and an offset that are arguments of the launch."""
    x = samples(dtype, 9, 40)[1 : 1 + rows, 2 : 2 + columns]
    kernel = Kernel([], 1)
    size = [{"Scalar": kernel.argument(n)} for n in (rows, columns)]
    kernel.dims = size
    strides: list[Any] = [{"Scalar": kernel.argument(40)}, 1]
    source, result = kernel.param(x.as_strided(x.shape, x.stride(), 0)), kernel.out(x.contiguous())
    kernel.row()
    v = kernel.load(source, strides, {"Scalar": kernel.argument(int(x.storage_offset()))})
    kernel.store(result, v, [size[1], 1])
    return kernel


def large(dtype: torch.dtype, rows: int, columns: int) -> Kernel:
    """Enough work for several threads, with a reduction of each row."""
    x = samples(dtype, rows, columns)
    kernel = Kernel([rows, columns], 1)
    source, result = kernel.param(x), kernel.out(x.clone())
    most = kernel.out(x.amax(1), Tolerance(zeros=True))
    kernel.row()
    v = kernel.load(source)
    kernel.store(result, v)
    greatest = kernel.reduce("Max", dtype, v)
    kernel.outside()
    kernel.store(most, greatest, [1, 0])
    return kernel


def short(dtype: torch.dtype) -> str:
    """As in reports: f32."""
    return {"Bool": "bool", "Bf16": "bf16"}.get(NAMES[dtype], NAMES[dtype].lower())


def cases(all_there_is: dict[str, Any]) -> Iterator[Case]:
    """All of them, in the order of the report. `all_there_is` are the capabilities that a back end can have at most."""
    dtypes = list(DTYPES.values())
    for table, make in (("unary", unary), ("binary", binary)):
        for op, name in all_there_is[table]:
            dtype = DTYPES[name]
            yield Case(f"{table} {op}", short(dtype), partial(make, op, dtype))
    for source, target in all_there_is["casts"]:
        a, b = DTYPES[source], DTYPES[target]
        yield Case(f"cast from {short(a)}", f"to {short(b)}", partial(cast, a, b))
    for op, name in all_there_is["reduces"]:
        dtype = DTYPES[name]
        for about in REDUCED:
            yield Case(f"reduce {op}", f"{short(dtype)}, {about}", partial(reduction, op, dtype, about))
        for special in (torch.nan, torch.inf, -torch.inf) if dtype.is_floating_point else ():
            make_special = partial(reduction, op, dtype, "rows", special)
            yield Case(f"reduce {op}", f"{short(dtype)}, rows with {special}", make_special)
    for form in ("const", "scalar", "index", "select"):
        for dtype in dtypes:
            yield Case(form, short(dtype), partial(values, form, dtype))
    for dtype in dtypes:
        for layout, x in layouts(dtype).items():
            for outer in sorted({0, x.dim()}):
                about = f"{short(dtype)}, {layout}, {outer} outer of {x.dim()}"
                yield Case("load", about, partial(copy, dtype, layout, outer, False))
                if "broadcast" not in layout and "repeated" not in layout:
                    yield Case("store", about, partial(copy, dtype, layout, outer, True))
        for n in (1, 2, 3, 7, 15, 16, 17, 31, 33, 63, 64, 65, 257):
            yield Case("row length", f"{short(dtype)}, {n}", partial(lengths, dtype, n))
        yield Case("load if", short(dtype), partial(padded, dtype))
        yield Case("in place", short(dtype), partial(in_place, dtype))
        yield Case("several buffers", short(dtype), partial(several, dtype))
        for rows, columns in ((8, 38), (1, 1), (3, 0), (7, 16)):
            yield Case("symbolic sizes", f"{short(dtype)}, {rows} x {columns}", partial(symbolic, dtype, rows, columns))
    for dtype in FLOATS:
        yield Case("stages", f"{short(dtype)}, softmax", partial(softmax, dtype))
        yield Case("stages", f"{short(dtype)}, layer norm", partial(normalised, dtype))
        yield Case("threads", f"{short(dtype)}, many rows", partial(large, dtype, 700, 96))
        yield Case("threads", f"{short(dtype)}, long rows", partial(large, dtype, 3, 20_000))
