"""Launch plans: allocation, views, torch ops by C function and by vectorcall, commit point."""

import gc

import pytest
import torch
from frames import CPU, Frame, const

pytestmark = pytest.mark.plain_only("plans are made by hand")


def function(*args):
    """Something to call."""
    return args


def dims(values):
    """Constant dims."""
    return [{"Const": v} for v in values]


def alloc(reg, like):
    """A step that allocates a tensor of this shape."""
    sizes, strides = dims(like.size()), dims(like.stride())
    return {"Alloc": {"reg": reg, "dtype": "F32", "device": CPU, "sizes": sizes, "strides": strides}}


def view(reg, base, sizes, strides, offset=0, dtype="F32"):
    """A step that makes a view."""
    fields = {"reg": reg, "base": base, "sizes": dims(sizes), "strides": dims(strides), "offset": {"Const": offset}}
    return {"View": {**fields, "dtype": dtype}}


def call(op, overload, *args, results=()):
    """A call step; a set of one int is a register."""

    def arg(value):
        match value:
            case set():
                return {"Reg": next(iter(value))}
            case list():
                return {"List": [arg(v) for v in value]}
        return {"Const": const(value)}

    fields = {"op": op, "overload": overload, "args": [arg(a) for a in args], "results": list(results)}
    return {"Call": fields}


def install(args, steps, outputs, commit=None):
    """A plan over tensor arguments."""
    frame = Frame()
    inputs = [frame.source({"Arg": i}) for i in range(len(args))]
    for source, tensor in zip(inputs, args, strict=True):
        frame.guard_tensor(source, tensor)
    frame.native(inputs, steps, outputs, commit)
    return frame.install(function, *args)


def test_matmuls_into_allocated_memory():
    a, b, bias = torch.randn(3, 4), torch.randn(4, 5), torch.randn(5)
    out = torch.empty(3, 5)
    steps = [
        alloc(3, out),
        call("aten::addmm", "out", {2}, {0}, {1}, 1, 1, {3}),
        alloc(4, out),
        call("aten::mm", "out", {0}, {1}, {4}),
    ]
    first, second = install((a, b, bias), steps, [3, 4])(a, b, bias)
    torch.testing.assert_close(first, torch.addmm(bias, a, b))
    torch.testing.assert_close(second, a @ b)
    assert type(first) is torch.Tensor and first.grad_fn is None and not first.requires_grad
    assert not first.is_inference()


def test_ops_that_return_tensors():
    x, w = torch.randn(2, 3, 8, 8), torch.randn(4, 3, 3, 3)
    steps = [
        call("aten::convolution", "default", {0}, {1}, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1, results=[2]),
        call("aten::max_pool2d_with_indices", "default", {2}, [2, 2], [2, 2], [0, 0], [1, 1], False, results=[3, 4]),
        {"Free": 2},
    ]
    pooled, where = install((x, w), steps, [3, 4])(x, w)
    expected = torch.nn.functional.max_pool2d(torch.conv2d(x, w, padding=1), 2, return_indices=True)
    torch.testing.assert_close((pooled, where), expected)


def test_attention():
    q, k, v = (torch.randn(1, 2, 5, 8) for _ in range(3))
    op = "aten::_scaled_dot_product_flash_attention_for_cpu"
    steps = [call(op, "default", {0}, {1}, {2}, 0.0, True, None, None, results=[3, 4])]
    out = install((q, k, v), steps, [3])(q, k, v)
    torch.testing.assert_close(out, torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True))


def test_ops_through_python():
    table, index = torch.randn(10, 4), torch.tensor([1, 3])
    steps = [
        call("aten::embedding", "default", {0}, {1}, -1, False, False, results=[2]),
        call("aten::var_mean", "correction", {2}, [0], 1, False, results=[3, 4]),
    ]
    rows, var, mean = install((table, index), steps, [2, 3, 4])(table, index)
    torch.testing.assert_close(rows, table[index])
    torch.testing.assert_close((var, mean), torch.var_mean(table[index], [0], correction=1))


def test_views_share_storage_as_in_eager():
    x = torch.randn(4, 6)
    steps = [view(1, 0, (2, 6), (6, 1), 12), view(2, 1, (6, 2), (1, 6)), alloc(3, x), view(4, 3, (24,), (1,))]
    of_input, fresh = install((x,), steps, [2, 4])(x)
    torch.testing.assert_close(of_input, x[2:].t())
    assert of_input._base is x and of_input.storage_offset() == 12
    version = x._version
    of_input.add_(1)
    assert x._version == version + 1
    assert fresh._base is None and fresh.shape == (24,)


def test_a_view_of_another_type():
    x = torch.randn(4, dtype=torch.float64)
    bits = install((x,), [view(1, 0, (2,), (2,), 1, "I64")], [1])(x)
    torch.testing.assert_close(bits, x.view(torch.int64)[1::2])


def test_an_output_that_is_an_input_is_the_same_object():
    x = torch.randn(4)
    assert install((x,), [], [0])(x) is x


def test_memory_is_freed():
    def alive():
        gc.collect()
        return sum(type(o) is torch.Tensor and o.shape == (7, 7) for o in gc.get_objects())

    x = torch.randn(7, 7)
    plan = install((x,), [alloc(1, x), call("aten::mm", "out", {0}, {0}, {1})], [1])
    plan(x)
    before = alive()
    for _ in range(50):
        plan(x)
    assert alive() == before


def test_errors_before_and_after_the_commit_point():
    x = torch.randn(2, 3)
    bad = call("aten::mm", "out", {0}, {0}, {1})
    with pytest.raises(NotImplementedError):
        install((x,), [alloc(1, x), bad], [1])(x)
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        install((x,), [alloc(1, x), bad], [1], commit=0)(x)


def test_a_missing_back_end_is_named():
    frame = Frame()
    frame.kernels = [{"name": "k", "artifact": [0] * 32, "buffers": 0, "scalars": 0}]
    frame.native([], [], [])
    with pytest.raises(RuntimeError, match=r"libflambeau_cpu_launch\.so"):
        frame.install(function)


def expect(reg, like, sizes=None, strides=None, dtype="F32"):
    """A step that compares a register with what was predicted."""
    fields = {"reg": reg, "dtype": dtype, "device": CPU, "sizes": dims(sizes or like.size())}
    return {"Expect": {**fields, "strides": dims(strides or like.stride())}}


def sums(**predicted):
    """A call whose result a later step reads by the strides that were predicted."""
    x = torch.randn(3, 4, 5).transpose(1, 2)
    steps = [
        call("aten::add", "Tensor", {0}, {0}, results=[1]),
        expect(1, x, **predicted),
        view(2, 1, (60,), (1,)),
    ]
    return x, steps


def test_a_right_prediction_passes():
    x, steps = sums()
    flat = install((x,), steps, [2])(x)
    torch.testing.assert_close(flat, (x + x).transpose(1, 2).reshape(-1))


@pytest.mark.parametrize(
    "predicted", [{"strides": (20, 4, 1)}, {"sizes": (3, 4, 5)}, {"sizes": (60,), "strides": (1,)}, {"dtype": "F64"}]
)
def test_a_wrong_prediction_falls_back(predicted):
    x, steps = sums(**predicted)
    with pytest.raises(NotImplementedError, match=r"aten::add.Tensor returned F32 sizes.*where flambeau predicted"):
        install((x,), steps, [2])(x)


def test_a_wrong_prediction_after_the_commit_point_is_raised():
    x, steps = sums(strides=(20, 4, 1))
    with pytest.raises(RuntimeError, match="cannot be taken back"):
        install((x,), steps, [2], commit=0)(x)


def test_strides_of_single_elements_are_free():
    x = torch.randn(4, 1)
    steps = [call("aten::mul", "Tensor", {0}, {0}, results=[1]), expect(1, x, strides=(1, 9))]
    torch.testing.assert_close(install((x,), steps, [1])(x), x * x)


def test_an_output_that_torch_resized_is_noticed():
    a, b = torch.randn(2, 3), torch.randn(3, 4)
    small = torch.empty(2, 2)
    steps = [alloc(2, small), call("aten::mm", "out", {0}, {1}, {2}), expect(2, small)]
    with pytest.raises((NotImplementedError, RuntimeError)):
        install((a, b), steps, [2])(a, b)
