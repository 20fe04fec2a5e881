"""Small functions, each compared with eager in all that can be seen: Python semantics, views, mutation, effects."""

import functools
from collections import OrderedDict, namedtuple
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from mode import COUNTED
from support import check, inputs

import flambeau

Point = namedtuple("Point", "x y")
SCALE = 3.0
TABLE = {"gain": 2.0}


@dataclass
class Options:
    gain: float = 2.0
    shift: float = 1.0


def relu_add(a, b):
    return torch.relu(a + b) * 2


def folded(a, b):
    a0, a1, a2 = 0, 1, 2
    return a + b + (a0 + a1 + a2)


def inlined(a, b):
    def inner(x, *rest, scale=2.0, **extra):
        return x * scale + sum(rest) + extra.get("shift", 0)

    return inner(a, b, b, scale=SCALE, shift=1.5)


def loops(a, b):
    total = a
    for i, (x, y) in enumerate(zip([a, b], (b, a), strict=True)):
        if i % 2 == 0:
            total = total + x * y
        else:
            total = total - x
    while total.dim() < 3:
        total = total.unsqueeze(0)
    return total


def comprehension(a, b):
    parts = [t * i for i, t in enumerate((a, b, a)) if i != 1]
    named = {f"k{i}": p for i, p in enumerate(parts)}
    return named, tuple(p.sum() for p in parts), any(p.dim() > 5 for p in parts)


def closures(a, b):
    count = 0

    def bump(x):
        nonlocal count
        count += 1
        return x + count

    return bump(a) + bump(b), count


def containers(a, b):
    point = Point(a + 1, y=b)
    options = Options(shift=0.5)
    ordered = OrderedDict(first=a, second=b * options.gain)
    items = [point.x, *ordered.values()]
    items.append(point.y + options.shift)
    items[0] = items[0] * TABLE["gain"]
    return items, point, list(ordered), items[1:3], len(items)


def sums(a, b):
    tenths = [0.1] * 10
    return (
        [sum(tenths), sum(tenths, 1), sum([1e100, 1.0, -1e100]), sum([0.1, 0.2, 3, True, 0.3]), sum([1, 2, True])],
        [sum([-0.0]), sum([0.1, 1e308, 1e308]), sum([0.1, float("inf"), 0.2]), sum(tenths, False)],
        sum([a, *tenths]),
        sum([*tenths, b, *tenths]),
    )


def strings(a, b):
    name = f"{a.dim()}-{a.shape[0]:03d}-{1.5:.2f}"
    return a + len(name), name, name.split("-"), "x".join(["p", "q"])


def try_except(a, b):
    try:
        value = TABLE["missing"]
    except KeyError:
        value = 4.0
    finally:
        a = a + 1
    return a * value


def grad_modes(a, b):
    with torch.no_grad():
        c = a * b
    with torch.enable_grad():
        d = a + c
    return c, d, torch.is_grad_enabled()


def views(a, b):
    v = a[1:, ::2]
    w = a.transpose(0, 1).reshape(-1)
    return v, w, a.view(-1)[3], a.unsqueeze(1).expand(4, 2, 6), b[..., None, 0]


def in_place(a, b):
    a.add_(1)
    a[0] = 5
    b.mul_(a).clamp_(max=3.0)
    c = a[1:]
    c += 1
    return a, c


def out_argument(a, b):
    result = torch.empty_like(a)
    torch.add(a, b, out=result)
    return result


def mutate_list(items, a):
    items.append(a + 1)
    items[0] = a * 2
    return items


def mutate_dict(table, a):
    table["new"] = a + 1
    table.setdefault("old", a)
    del table["gone"]
    return len(table)


def dropout(a, b):
    return F.dropout(a, 0.5, training=True) + torch.rand_like(b)


def rng(a, b):
    return torch.rand(3), torch.randn(2, 2) + a.sum(), torch.bernoulli(torch.full((4,), 0.5))


def softmax_norm(a, b):
    return F.softmax(a, -1), F.layer_norm(b, (6,)), F.gelu(a), F.silu(b), a.mean(-1), a.var(0), a.max(-1).values


def promotion(a, b):
    i = torch.arange(6)
    return a + i, i / 2, i // 4, (i > 2) & (i < 5), i.float() * 1.5, a.double() + b, a.to(torch.bfloat16) * 2, ~(i > 3)


def special_values(a, b):
    x = torch.tensor([float("nan"), float("inf"), -float("inf"), -0.0, 0.0, 1e-40])
    return torch.relu(x), x.clamp(-1, 1), torch.exp(x), 1 / x, x.sign(), torch.maximum(x, a[0]), x.sigmoid()


def trigonometry(a, b):
    far = torch.tensor([1e5, 1.2e9, -3.4e38, 1e20, 16367173 * 2.0**72, 3.1415927, -0.0, float("inf"), float("nan")])
    return a.sin() * 2, (a * 1e5).cos() + b, b.tan(), far.sin() + 0, far.cos() * 1, far.tan() + 0, a.half().sin()


def powers(a, b):
    x = torch.tensor([0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, 1e30, float("inf"), -float("inf"), float("nan"), -1e-30])
    grid = torch.cartesian_prod(x, x)
    return grid[:, 0] ** grid[:, 1] * 1, a.abs() ** b + 1, a**3.0, (a.abs() + 1) ** 2.5 * b, 2**b + 1, a.bfloat16() ** 5


def indexing(a, b):
    i = torch.tensor([0, 2, 1])
    return a[i], a[:, i], a[a > 0].sum(), torch.where(a > 0, a, b), a.gather(1, i.expand(4, 3)), F.embedding(i, a)


def partials(a, b):
    add = functools.partial(torch.add, alpha=2)
    return add(a, b), functools.reduce(lambda x, y: x * y, [a, b, a])


def same_input(a, b):
    return a, b, a


def multiple_returns(a, b):
    if a.shape[0] > 2 and not a.requires_grad:
        return {"a": a, "sum": a + b, "n": 1, "none": None}
    return a


def data_dependent(a, b):
    if a.sum() > 0:
        return a + b
    return a - b


def raising(a, b):
    c = a + 1
    raise ValueError(f"bad {c.dim()}")


WHOLE = [
    relu_add,
    folded,
    inlined,
    loops,
    comprehension,
    closures,
    containers,
    sums,
    strings,
    try_except,
    grad_modes,
    views,
    in_place,
    out_argument,
    dropout,
    rng,
    softmax_norm,
    promotion,
    trigonometry,
    powers,
    special_values,
    partials,
    same_input,
    multiple_returns,
]


@pytest.mark.parametrize("fn", WHOLE, ids=lambda f: f.__name__)
def test_one_graph(fn, backend):
    check(fn, inputs(), backend=backend)


@pytest.mark.parametrize("fn", [indexing, data_dependent, raising], ids=lambda f: f.__name__)
def test_right_with_breaks(fn, backend):
    check(fn, inputs(), tuple(-t for t in inputs()), backend=backend, graphs=None)


def test_container_mutation(backend):
    a = torch.randn(3)
    check(mutate_list, ([a, 1, "x"], a), backend=backend)
    check(mutate_dict, ({"gone": 1, "kept": a}, a), backend=backend)


@pytest.mark.parametrize("fn", [relu_add, softmax_norm, views, promotion], ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_dtypes(fn, dtype, backend):
    check(fn, tuple(t.to(dtype) for t in inputs()), backend=backend)


def layouts():
    a, b = inputs()
    yield a.t().contiguous().t(), b
    yield a.repeat(1, 2)[:, ::2], b
    yield a[:1].expand(4, 6), b
    yield torch.randn(2, 3, 4, 6).to(memory_format=torch.channels_last), b
    yield torch.randn(0, 6), torch.randn(0, 6)
    yield torch.randn(1, 6), b


@pytest.mark.parametrize("fn", [relu_add, lambda a, b: (a.exp() + b, a * 2, a.sum(-1))], ids=["relu_add", "mixed"])
def test_layouts(fn, backend):
    check(fn, *layouts(), backend=backend, graphs=None)


def test_guards_recompile(backend):
    def simple_kernel(a, b, actived: bool):
        return a + b if actived else a - b

    a, b = inputs()
    check(simple_kernel, (a, b, True), (a, b, False), (a.double(), b, True), backend=backend, graphs=None)


def test_globals_and_defaults_are_guarded(backend):
    global SCALE
    fn = inlined
    a, b = inputs()
    check(fn, (a, b), backend=backend)
    old, SCALE = SCALE, 7.0
    try:
        check(fn, (a, b), backend=backend)
    finally:
        SCALE = old


def test_names_of_a_renamed_function():
    """Its code and `__qualname__` say another name than `__name__` does."""

    def named():
        return 1

    def read(x):
        return x + 1, named.__name__, named.__qualname__

    compiled = flambeau.compile(read)
    x = torch.ones(2)
    for name in ("named", "other", "third", "named"):
        named.__name__ = name
        assert compiled(x)[1:] == read(x)[1:] == (name, named.__qualname__)
    assert flambeau.counters()["graph_breaks"] == {} or not COUNTED


def test_a_function_renamed_in_the_trace():
    def named():
        return 1

    def renames(x):
        before = named.__name__
        named.__name__ = before + "'"
        return x + 1, before, named.__name__

    compiled = flambeau.compile(renames)
    for n in range(3):
        assert compiled(torch.ones(2))[1:] == ("named" + "'" * n, "named" + "'" * (n + 1))
