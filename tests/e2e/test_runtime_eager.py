"""Torch-level graphs run op by op, and exits: values, effects, the commit point."""

import pytest
import torch
from frames import Frame, const

from flambeau._native import _testing

pytestmark = pytest.mark.plain_only("frames are made by hand")


def function(x):
    """Something to call."""
    return x


def add_relu():
    """`relu(x + 1)`."""
    frame = Frame()
    x = frame.placeholder(frame.source({"Arg": 0}))
    frame.returns(frame.call("torch.relu", frame.call("_operator.add", x, 1)))
    return frame


def test_values_and_gradients():
    x = torch.randn(5, requires_grad=True)
    result = add_relu().install(function, x)(x)
    torch.testing.assert_close(result, torch.relu(x + 1))
    result.sum().backward()
    torch.testing.assert_close(x.grad, (x > -1).float())


def test_methods_keywords_slices_and_several_outputs():
    frame = Frame()
    x = frame.placeholder(frame.source({"Arg": 0}))
    part = frame.call("_operator.getitem", x, (slice(0, 2, None), 1))
    total = frame.call("sum", x, dim=[0], keepdim=True)
    pair = frame.call("torch.max", x, 1)
    frame.returns(part, total, frame.call("_operator.getitem", pair, 1))
    x = torch.randn(4, 3)
    part, total, where = frame.install(function, x)(x)
    torch.testing.assert_close(part, x[0:2, 1])
    torch.testing.assert_close(total, x.sum(dim=[0], keepdim=True))
    torch.testing.assert_close(where, x.max(1)[1])
    assert part._base is x


def test_an_error_before_the_commit_point_falls_back():
    frame = Frame()
    x = frame.placeholder(frame.source({"Arg": 0}))
    frame.returns(frame.call("torch.mm", x, x))
    with pytest.raises(NotImplementedError, match="cannot be multiplied"):
        frame.install(function, torch.zeros(2, 3))(torch.zeros(2, 3))


def test_an_error_after_a_mutation_is_raised():
    frame = Frame()
    x = frame.placeholder(frame.source({"Arg": 0}))
    frame.call("add_", x, 1)
    frame.returns(frame.call("torch.mm", x, x))
    x = torch.zeros(2, 3)
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        frame.install(function, x)(x)
    assert x.sum() == 6


def test_grad_mode_is_restored_on_failure():
    frame = Frame()
    x = frame.placeholder(frame.source({"Arg": 0}))
    frame.call("torch._C._set_grad_enabled", False)
    frame.returns(frame.call("torch.mm", x, x))
    with pytest.raises(NotImplementedError):
        frame.install(function, torch.zeros(2, 3))(torch.zeros(2, 3))
    assert torch.is_grad_enabled()


def test_intermediates_are_freed_after_their_last_use():
    import weakref

    seen = []
    frame = Frame()
    x = frame.placeholder(frame.source({"Arg": 0}))
    frame.returns(frame.call("torch.relu", frame.call("_operator.add", x, 1)))
    installed = frame.install(function, torch.zeros(3))
    result = installed(torch.zeros(3))
    seen.append(weakref.ref(result))
    del result
    assert seen[0]() is None


def test_builds_and_effects():
    frame = Frame()
    holder = frame.source({"Arg": 1})
    x = frame.placeholder(frame.source({"Arg": 0}))
    frame.outputs = [int(frame.call("_operator.mul", x, 2))]
    out = frame.build({"Output": 0})
    held = frame.build({"Source": holder})
    three = frame.build({"Const": const(3)})
    key = frame.build({"Const": const("k")})
    items = frame.build({"List": [out, three]})
    table = frame.build({"Dict": [[[key, items]], None]})
    frame.effects = [{"SetAttr": [held, "seen", out]}, {"SetDict": [table, [[key, three]]]}]
    frame.gives(frame.tuple(table, items, held))

    class Holder:
        def __setattr__(self, name, value):
            raise AssertionError("no user code may run")

    holder, x = Holder(), torch.ones(2)
    table, items, same = frame.install(function, x, holder)(x, holder)
    assert same is holder and table == {"k": 3}
    assert holder.seen is items[0] and items[1] == 3
    torch.testing.assert_close(holder.seen, torch.full((2,), 2.0))


def test_classes_and_functions_of_the_exit():
    frame = Frame()
    x = frame.placeholder(frame.source({"Arg": 0}))
    frame.outputs = [int(frame.call("_operator.mul", x, 2))]
    out = frame.build({"Output": 0})
    size = frame.build({"Path": "torch.Size"})
    ordered = frame.build({"Path": "collections.OrderedDict"})
    two = frame.build({"Const": const(2)})
    key = frame.build({"Const": const("k")})
    shape = frame.build({"Tuple": [[two, two], size]})
    table = frame.build({"Dict": [[[key, out]], ordered]})
    module_class = frame.build({"Path": "torch.nn.Identity"})
    instance = frame.build({"Instance": {"class": module_class, "dict": [["training", two]]}})
    frame.gives(frame.tuple(shape, table, instance))
    x = torch.ones(2)
    shape, table, instance = frame.install(function, x)(x)
    assert type(shape) is torch.Size and shape == (2, 2)
    assert type(table).__name__ == "OrderedDict" and list(table) == ["k"]
    table.move_to_end("k")
    assert type(instance) is torch.nn.Identity and instance.__dict__ == {"training": 2}
    assert _testing.code_hash(function.__code__) is not None


@pytest.mark.parametrize(
    ("step", "error", "left"),
    [(0, NotImplementedError, 1.0), (1, RuntimeError, 1.0), (2, RuntimeError, 3.0)],
)
def test_a_failure_injected_at_each_step(step, error, left):
    frame = Frame()
    x = frame.placeholder(frame.source({"Arg": 0}))
    y = frame.call("_operator.add", x, 1)
    frame.call("add_", x, y)
    frame.returns(frame.call("_operator.mul", x, 2))
    x = torch.ones(2)
    installed = frame.install(function, x)
    _testing.fail_step(step)
    try:
        with pytest.raises(error, match="failure injected"):
            installed(x)
    finally:
        _testing.fail_step(None)
    assert x.tolist() == [left, left]


def test_a_graph_leaves_as_fx():
    modules = []

    def backend(module, examples):
        modules.append(module)
        assert [type(e) for e in examples] == [torch.Tensor]
        return module.forward

    frame = add_relu()
    frame.kind = "Fx"
    x = torch.randn(3)
    installed = frame.install(function, x, fx_backend=backend)
    for _ in range(2):
        torch.testing.assert_close(installed(x), torch.relu(x + 1))
    (module,) = modules
    assert [n.op for n in module.graph.nodes] == ["placeholder", "call_function", "call_function", "output"]


def test_a_back_end_that_raises_falls_back():
    def backend(module, examples):
        raise ValueError("no")

    frame = add_relu()
    frame.kind = "Fx"
    with pytest.raises(NotImplementedError, match="refused the graph"):
        frame.install(function, torch.ones(2), fx_backend=backend)(torch.ones(2))
