"""Tensors that a frame makes or asks about: legacy constructors, leaves, views, inference tensors, `out=`, dtypes.

Each program runs eagerly and compiled; with back ends that take FX too, as torch's compilers treat these on their own.
"""

import contextlib
import re
import weakref

import pytest
import torch
from support import assert_same, check
from torch import nn

import flambeau

pytestmark = pytest.mark.filterwarnings("ignore:flambeau", "ignore:An output with one or more elements was resized")

BACKENDS = ["cpu", "eager", "aot_eager"]


def six():
    return torch.arange(6.0).reshape(2, 3) + 1


def constructed(x):
    size = torch.Size([2, 3])
    return (
        *(x.new(size).fill_(1), x.new(2, 3).zero_(), x.new([1, 2]), x.new((4, 5)), x.new(x), x.new(), x.new(3).zero_()),
        *(
            torch.Tensor(size).zero_(),
            torch.Tensor(2, 3).zero_(),
            torch.Tensor([1, 2]),
            torch.Tensor((4, 5)),
            torch.Tensor(),
        ),
        *(
            torch.LongTensor(3).zero_(),
            torch.LongTensor([1, 2]),
            torch.FloatTensor(size).zero_(),
            torch.BoolTensor([True]),
        ),
        *(
            x.new_tensor([1, 2]),
            x.new_tensor(3, dtype=torch.int8),
            x.new_full((2,), 3),
            x.new_zeros(2, 3),
            x.new_ones(size),
        ),
        *(x.new(x.shape[0]).zero_(), torch.Tensor(x.shape[0]).zero_(), x.new(x.shape).zero_(), torch.Tensor(x), x * 2),
    )


def constructed_of_ints(x):
    i = x.long()
    return i.new([1, 2]), i.new(2).zero_(), i.new(i.shape).zero_(), i.new_tensor(2.5), i.new_tensor([1, 2])


def leaves(x):
    w = torch.ones(3, requires_grad=True)
    v = x.new_zeros(3, requires_grad=True)
    u = torch.zeros_like(x, requires_grad=True)
    r = torch.rand(3, requires_grad=True)
    return w, v, u, r, [t.is_leaf for t in (w, v, u, r, w * 2)], w * x + v, x.clone().requires_grad_()


def leaf_without_grad_mode(x):
    with torch.no_grad():
        w = torch.ones(3, requires_grad=True)
        b = w * 2
    return w, b, w * x, w.is_leaf, b.requires_grad


def leaf_written_to(x):
    w = torch.ones(3, requires_grad=True)
    try:
        w.add_(1)
    except RuntimeError as error:
        return w, str(error), w * x


def views(x):
    u = x * 2
    parts = x[0], x.t(), u, u[1:], u.view(3, 2), u.reshape(-1), u[1:].clone(), x.detach(), x.contiguous()
    return [t._is_view() for t in parts], [t._base is None for t in parts], u[1:]._base is u, u._version, x._version


def memory(x):
    u = x * 2
    pointers = u.data_ptr() == u.view(-1).data_ptr(), x[1].data_ptr() - x.data_ptr(), u[1].storage_offset()
    return pointers, x.untyped_storage().nbytes(), u.mul_(2)._version


def inference(x):
    with torch.inference_mode():
        a, b = x * 2, x[0]
        asked = a.is_inference(), b.is_inference(), x.is_inference(), a[0].is_inference(), torch.is_inference(x)
    return asked, a.is_inference(), (a + 1).is_inference(), x * 3


def inference_leaf(x):
    with torch.inference_mode():
        a = torch.ones(3)
        b = torch.ones(3, requires_grad=True)
    try:
        return b.is_leaf, b.requires_grad, a.requires_grad_() * x
    except RuntimeError as error:
        return str(error)


def weak(x):
    u = x * 2
    ref = weakref.ref(u)
    alive = ref() is u, weakref.ref(x)() is x
    del u
    return alive, ref() is None


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "program",
    [
        *(constructed, constructed_of_ints, leaves, leaf_without_grad_mode, leaf_written_to, views, memory),
        *(inference, inference_leaf, weak),
    ],
    ids=lambda f: f.__name__,
)
@flambeau.config.patch(recompile_limit=32)
def test_tensors_made_and_asked(program, backend):
    check(program, (six(),), backend=backend, graphs=None)


def test_is_inference_in_a_frame_of_the_mode():
    def asked(x, a):
        return x.is_inference(), a.is_inference(), x[0].is_inference(), (x * 2).is_inference()

    compiled, ordinary = flambeau.compile(asked), six()
    with torch.inference_mode():
        made = torch.ones(2)
        for _ in range(2):
            assert compiled(ordinary, made) == (False, True, False, True)


@pytest.mark.parametrize("backend", BACKENDS)
def test_requires_grad_of_parameters_that_the_frame_switches(backend):
    def switched(m, x):
        m.requires_grad_(False)
        off = [p.requires_grad for p in m.parameters()], m(x)
        m.requires_grad_(True)
        return off, [p.requires_grad for p in m.parameters()], m(x), m.weight.is_leaf

    model = nn.Linear(3, 2)
    compiled = flambeau.compile(switched, backend=backend)
    for _ in range(2):
        assert_same(compiled(model, six()), switched(model, six()))


def casts(x):
    return [
        torch.mul(x, 2, out=torch.empty(2, 3, dtype=torch.float64)),
        torch.lt(x, 2, out=torch.empty(2, 3)),
        torch.exp(x, out=torch.empty(2, 3, dtype=torch.float16)),
    ]


def resized(x):
    small, large, flag = torch.empty(0), torch.empty(12), torch.empty(0, dtype=torch.bool)
    torch.mul(x, 2, out=small)
    torch.add(x, 2, out=large)
    assert torch.lt(x, 2.0, out=flag) is flag
    return small, large, flag, torch.matmul(x, x.t(), out=torch.empty(0)), torch.cat([x, x], out=torch.empty(1))


def laid_out(x):
    rows, turned, gaps = torch.zeros(4, 3), torch.zeros(3, 2), torch.zeros(2, 6)
    torch.mul(x, 2, out=rows[1:3])
    torch.mul(x, 2, out=turned.t())
    return rows, turned, torch.add(x, 1, out=gaps[:, ::2]), gaps, torch.exp(x, out=torch.empty(3, 2).t())


def view_resized(x):
    rows = torch.zeros(4, 3)
    torch.mul(x, 2, out=rows[1:2])
    return rows


def several(x):
    values, places = torch.empty(0), torch.empty(0, dtype=torch.long)
    found = torch.max(x, 1, out=(values, places))
    return values, places, found[0] is values, torch.sort(x, 1, True, out=(torch.empty(0), torch.empty(0).long()))


def aliased(x):
    torch.add(x, 1, out=x)
    y = x * 2
    torch.sub(y[1], y[0], out=y[0])
    return x, torch.mul(y, y, out=y)


def overlapping(x):
    return torch.add(x.view(-1)[:3], 1, out=x.view(-1)[1:4])


def of_the_wrong_dtype(x):
    return torch.mul(x, 2.5, out=torch.empty(2, 3, dtype=torch.int64))


def of_the_wrong_dtype_exactly(x):
    return torch.mm(x, x.t(), out=torch.empty(2, 2, dtype=torch.float64))


def of_a_leaf(x):
    return torch.mul(x, 2, out=torch.empty(2, 3, requires_grad=True))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "program",
    [
        *(casts, resized, laid_out, view_resized, several, aliased, overlapping),
        *(of_the_wrong_dtype, of_the_wrong_dtype_exactly, of_a_leaf),
    ],
    ids=lambda f: f.__name__,
)
def test_out(program, backend):
    check(program, (six(),), backend=backend, graphs=None)


@pytest.mark.parametrize("backend", BACKENDS)
def test_out_of_an_argument_that_grows(backend):
    def into(x, out):
        torch.mul(x, 2, out=out)
        return out + 1

    check(
        into, (six(), torch.empty(0)), (six(), torch.empty(2, 3)), (six(), torch.empty(9)), backend=backend, graphs=None
    )


@contextlib.contextmanager
def default_dtype(dtype):
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


def of_the_default(x):
    i = torch.arange(6).reshape(2, 3)
    large = torch.tensor([16777217])
    return (
        *(
            large > 16777216.5,
            large * 1.0,
            large / 3,
            i + 0.1,
            i.sqrt(),
            torch.where(i > 2, 1.5, 0.25),
            i.true_divide(7),
        ),
        *(torch.ones(2), torch.tensor(1.5), torch.full((2,), 0.1), torch.Tensor([1]), torch.arange(3.0), torch.eye(2)),
        *(i.to(torch.get_default_dtype()), torch.result_type(i, 1.5), x + 16777217.0, i * 1.1 > 2.2),
    )


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float16], ids=str)
def test_default_dtypes(dtype, backend):
    with default_dtype(dtype):
        check(of_the_default, (six(),), backend=backend, graphs=None)
    check(of_the_default, (six(),), backend=backend, graphs=None)


@pytest.mark.parametrize("backend", [*BACKENDS, "inductor"])
def test_tensors_swapped_after_compiling(backend):
    def sums(x, y):
        return x.sum(-1) + 1, y.sum(-1) * 2

    compiled = flambeau.compile(sums, backend=backend)
    x, y = six(), torch.ones(3, 2)
    for _ in range(2):
        compiled(x, y)
    torch.utils.swap_tensors(x, y)
    assert x.shape == (3, 2)
    for got, expected in zip(compiled(x, y), sums(x, y), strict=True):
        torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("backend", [*BACKENDS, "inductor"])
def test_parameters_swapped_on_loading(backend):
    model = nn.Linear(3, 2)
    weight = model.weight
    compiled = flambeau.compile(model, backend=backend)
    compiled(six())
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        model.load_state_dict({"weight": torch.ones(2, 3), "bias": torch.zeros(2)})
        torch.testing.assert_close(compiled(six()), six() @ torch.ones(3, 2))
        model.double()
        assert model.weight is weight and compiled(six().double()).dtype == torch.float64
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)


@pytest.mark.parametrize("backend", ["eager", "cpu"])
@pytest.mark.parametrize(
    "fn",
    [
        lambda x: (x * x.shape[0], tuple(x.shape)),
        lambda x: (x.sum() / len(x), x.size(0) + 1, x.size()),
        lambda x: (x.reshape(x.shape[0] * x.shape[1]) + x.numel(), [i for i in x.shape]),
    ],
    ids=["shape", "size", "product"],
)
def test_sizes_that_are_symbolic(fn, backend):
    """A frame that is compiled for any size gives each call its own."""
    compiled = flambeau.compile(fn, backend=backend, dynamic=True)
    for size in (3, 5, 4):
        x = torch.arange(size * 2.0).reshape(size, 2)
        found, want = compiled(x), fn(x)
        assert torch.equal(found[0], want[0]) and found[1:] == want[1:]


class Meta:
    def __init__(self, scale):
        self.scale = scale


def of_new_tensors(x):
    y = x + 1
    y.note, y.meta = "made", Meta(2)
    z = (y * y.meta.scale).add_(1)
    z.of = y
    return y, z, z.of is y, hasattr(x, "note"), y.clone().__dict__, getattr(z, "missing", 3)


def of_arguments(x):
    x.seen = getattr(x, "seen", 0) + 1
    x.last = [x.seen]
    x.last.append(x.seen)
    return x * x.seen, x.last


def deleted(x):
    x.first = 1
    x.second = 2
    del x.first
    try:
        del x.first
    except AttributeError as error:
        return hasattr(x, "first"), x.second, type(error)
    return None


def across_a_break(x):
    y = x * 2
    y.note = ["before"]
    x.note = "set"
    flambeau.graph_break()
    y.note.append(x.note)
    del x.note
    return y, y.note, hasattr(x, "note")


def as_a_dict(x):
    y = x + 1
    vars(y)["one"] = 1
    y.two = 2
    x.three = 3
    return y.one, dict(vars(y)), vars(x), x.__dict__ is vars(x)


def of_parameters(x):
    p = torch.nn.Parameter(x.detach().clone())
    p.is_special = True
    p.lr_scale = 0.5
    return p, p.is_special


@pytest.mark.parametrize(
    "program",
    [of_new_tensors, of_arguments, deleted, across_a_break, as_a_dict, of_parameters],
    ids=lambda f: f.__name__,
)
def test_attributes_of_tensors(program, backend):
    def seen(fn):
        x = torch.arange(3.0)
        results = [fn(x), fn(x), fn(torch.ones(2))]
        tensors = [t for result in results for t in (result if isinstance(result, tuple) else ()) if torch.is_tensor(t)]
        return str(results), str([sorted((k, str(v)) for k, v in vars(t).items()) for t in [x, *tensors]])

    def without_addresses(text):
        return [re.sub(r"0x[0-9a-f]+", "", part) for part in text]

    assert without_addresses(seen(flambeau.compile(program, backend=backend))) == without_addresses(seen(program))


def test_attributes_of_tensors_are_no_breaks():
    check(of_arguments, (torch.ones(2),))
    check(lambda x: of_new_tensors(x)[1].of, (torch.ones(2),))
