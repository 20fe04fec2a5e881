"""The guard evaluator: each fact holds where it should, and fails when what it is about changes."""

import collections
import functools
import types

import pytest
import torch
from frames import Frame, const

from flambeau._native import _testing

pytestmark = pytest.mark.plain_only("frames are made by hand")


def passes(build, function, *args):
    """Whether a frame whose guards `build` adds accepts the arguments."""
    frame = Frame()
    build(frame)
    return frame.install(function, *args).check(*args) is None


def function(x=1):
    """Something to call."""
    return x


def test_constants_are_compared_by_type_and_bits():
    def is_const(value):
        return lambda f: f.guard(f.source({"Arg": 0}), {"Equals": const(value)})

    for value, same in [(1, 1), (1.5, 1.5), ("a", "a"), (None, None), (True, True), ((1, "b"), (1, "b"))]:
        assert passes(is_const(value), function, same)
    for value, other in [(1, True), (1, 1.0), (0.0, -0.0), ("a", "b"), ((1,), (True,)), (1, 2), (1, 1 << 70)]:
        assert not passes(is_const(value), function, other)
    assert passes(is_const(torch.float32), function, torch.float32)
    assert not passes(is_const(torch.float32), function, torch.float64)


def test_containers():
    item = lambda key: lambda f: f.guard(f.path({"Arg": 0}, {"Item": const(key)}), {"Equals": const(1)})
    assert passes(item("a"), function, {"a": 1})
    assert not passes(item("a"), function, {"a": 2})
    assert not passes(item("a"), function, {"b": 1})
    assert passes(item(3), function, {3: 1})
    index = lambda f: f.guard(f.path({"Arg": 0}, {"Index": 1}), {"Equals": const(1)})
    assert passes(index, function, [0, 1])
    assert passes(index, function, (0, 1))
    assert not passes(index, function, [0])
    length = lambda f: f.guard(f.source({"Arg": 0}), {"Len": 2})
    for value in ([1, 2], (1, 2), {1: 1, 2: 2}, {1, 2}, frozenset((1, 2))):
        assert passes(length, function, value)
    assert not passes(length, function, [1])
    keys = lambda f: f.guard(f.source({"Arg": 0}), {"Keys": [const("a"), const("b")]})
    assert passes(keys, function, {"a": 1, "b": 2})
    assert not passes(keys, function, {"b": 1, "a": 2})
    ordered = collections.OrderedDict(a=1, b=2)
    assert passes(keys, function, ordered)
    ordered.move_to_end("a")
    assert not passes(keys, function, ordered)
    missing = lambda f: f.guard(f.source({"Arg": 0}), {"NoItem": const("z")})
    assert passes(missing, function, {"a": 1})
    assert not passes(missing, function, {"z": 1})
    elements = lambda f: f.guard(f.source({"Arg": 0}), {"Elements": [const(1), const("x")]})
    assert passes(elements, function, {"x", 1})
    assert not passes(elements, function, {"x", 2})


class Spy:
    """Counts calls of its hash and equality."""

    calls = 0

    def __hash__(self):
        Spy.calls += 1
        return hash("a")

    def __eq__(self, other):
        Spy.calls += 1
        return True


def test_no_user_code_runs():
    table = {Spy(): 5}
    Spy.calls = 0
    build = lambda f: f.guard(f.source({"Arg": 0}), {"NoItem": const("a")})
    assert passes(build, function, table)
    assert Spy.calls == 0


class Thing:
    """An object with a dict, a slot-like attribute on its type and a method."""

    factor = 3

    def __init__(self):
        self.size = 4

    def method(self):
        return self.size


def test_instances_and_types():
    thing = Thing()
    kind = {"module": __name__, "qualname": "Thing"}
    typed = lambda f: f.guard(f.source({"Arg": 0}), {"Type": kind})
    assert passes(typed, function, thing)
    assert not passes(typed, function, 3)
    attr = lambda f: f.guard(f.path({"Arg": 0}, "Dict", {"Item": const("size")}), {"Equals": const(4)})
    assert passes(attr, function, thing)
    class_attr = lambda f: f.guard(f.path({"Arg": 0}, "Class", {"TypeAttr": "factor"}), {"Equals": const(3)})
    assert passes(class_attr, function, thing)
    absent = lambda f: f.guard(f.path({"Arg": 0}, "Class"), {"NoTypeAttr": "nothing"})
    assert passes(absent, function, thing)
    code = list(_testing.code_hash(Thing.method.__code__))
    coded = lambda f: f.guard(f.path({"Arg": 0}, "Class", {"TypeAttr": "method"}), {"Function": {"code": code}})
    assert passes(coded, function, thing)
    other = types.FunctionType(function.__code__, globals())
    assert not passes(lambda f: f.guard(f.source({"Arg": 0}), {"Function": {"code": code}}), function, other)


def test_functions_cells_partials_and_modules():
    def outer(n):
        return lambda: n

    inner = outer(7)
    cell = lambda f: f.guard(f.path("Function", {"Closure": 0}, "CellContents"), {"Equals": const(7)})
    assert passes(cell, inner)
    default = lambda f: f.guard(f.path("Function", "Defaults", {"Index": 0}), {"Equals": const(1)})
    assert passes(default, function)
    no_default = lambda f: f.guard(f.path("Function", "Defaults"), {"Equals": const(None)})
    assert passes(no_default, inner)
    of_globals = lambda f: f.guard(f.path("Function", "Globals", {"Item": const("torch")}), {"IsPath": "torch"})
    assert passes(of_globals, function)
    part = functools.partial(function, x=2)
    keyword = lambda f: f.guard(f.path({"Arg": 0}, {"Part": [2, 2]}, {"Item": const("x")}), {"Equals": const(2)})
    assert passes(keyword, function, part)
    module = lambda f: f.guard(
        f.path({"SysModule": "math"}, "Dict", {"Item": const("pi")}), {"Equals": const(3.141592653589793)}
    )
    assert passes(module, function)
    builtin = lambda f: f.guard(f.path("Builtins", {"Item": const("len")}), {"IsPath": "builtins.len"})
    assert passes(builtin, function)
    bound = lambda f: f.guard(f.path({"Arg": 0}, "Receiver"), {"Type": {"module": __name__, "qualname": "Thing"}})
    assert passes(bound, function, Thing().method)


def test_tensors():
    x = torch.randn(4, 3)
    build = lambda f: f.guard_tensor(f.source({"Arg": 0}), x)
    assert passes(build, function, torch.zeros(4, 3))
    for other in [
        torch.zeros(4, 4),
        torch.zeros(3, 4).t(),
        torch.zeros(4, 3, dtype=torch.float64),
        torch.zeros(4, 3, requires_grad=True),
        torch.zeros(4, 3, device="meta"),
        torch.nn.Parameter(torch.zeros(4, 3), requires_grad=False),
        torch.zeros(4, 3, dtype=torch.complex64),
        torch.zeros(4, 3).to_sparse(),
        3,
    ]:
        assert not passes(build, function, other), other
    with torch.inference_mode():
        assert not passes(build, function, torch.zeros(4, 3))


def test_identity_and_overlap():
    a, b = [1], [1]

    def same(f):
        f.guard(f.source({"Arg": 0}), {"Same": f.source({"Arg": 1})})

    def distinct(f):
        f.guard(f.source({"Arg": 0}), {"NotSame": f.source({"Arg": 1})})

    assert passes(same, function, a, a) and not passes(same, function, a, b)
    assert passes(distinct, function, a, b) and not passes(distinct, function, a, a)

    def disjoint(f):
        sources = [f.source({"Arg": 0}), f.source({"Arg": 1})]
        f.guard(sources[0], {"DisjointStorage": sources})

    x, y = torch.zeros(8), torch.zeros(8)
    assert passes(disjoint, function, x, y)
    assert not passes(disjoint, function, x, x)
    assert not passes(disjoint, function, x[:4], x[4:])


def test_gradients():
    x = torch.zeros(2, requires_grad=True)
    build = lambda f: f.guard(f.path({"Arg": 0}, "Grad"), {"Equals": const(None)})
    assert passes(build, function, x)
    x.sum().backward()
    assert not passes(build, function, x)


def test_symbols_bind_and_are_bounded():
    frame = Frame()
    source = frame.source({"Arg": 0})
    frame.guard_tensor(source, torch.zeros(4), sizes=[{"Const": 4}])
    frame.symbols.append({"id": 0, "source": source, "of": {"Size": 0}, "hint": 4, "min": 2, "max": 8})
    installed = frame.install(function, torch.zeros(4))
    assert installed.check(torch.zeros(4)) is None
    frame.symbols[0]["max"] = 3
    assert "outside 2..=3" in frame.install(function, torch.zeros(4)).check(torch.zeros(4))


@pytest.mark.parametrize("change", ["weight", "type", "dict", "list"])
def test_changes_after_the_first_check_are_seen(change):
    model = torch.nn.Sequential(torch.nn.Linear(3, 3))
    model.extra = [1, 2]
    frame = Frame()
    root = frame.source({"Arg": 0})
    frame.guard(root, {"Type": {"module": "torch.nn.modules.container", "qualname": "Sequential"}})
    modules = frame.path({"Arg": 0}, "Dict", {"Item": const("_modules")})
    frame.guard(modules, {"Keys": [const("0")]})
    linear = frame.source({"Item": const("0")}, modules)
    frame.guard(linear, {"Type": {"module": "torch.nn.modules.linear", "qualname": "Linear"}})
    weight = frame.path({"Arg": 0}, "Dict", {"Item": const("_modules")}, {"Item": const("0")}, "Dict")
    weight = frame.source({"Item": const("_parameters")}, weight)
    weight = frame.source({"Item": const("weight")}, weight)
    frame.guard_tensor(weight, model[0].weight)
    extra = frame.path({"Arg": 0}, "Dict", {"Item": const("extra")})
    frame.guard(frame.source({"Index": 1}, extra), {"Equals": const(2)})
    installed = frame.install(function, model)
    for _ in range(3):
        assert installed.check(model) is None
    if change == "weight":
        model[0].weight.data = torch.zeros(3, 4)
    elif change == "type":
        model[0].__class__ = type("Linear", (torch.nn.Linear,), {})
    elif change == "dict":
        model.add_module("1", torch.nn.Linear(3, 3))
    else:
        model.extra[1] = 5
    assert installed.check(model) is not None


def guard_module(frame, module, path):
    """Guards a tree of modules as a trace does: types, dicts, parameters, code of `forward`."""
    kind = type(module)
    source = frame.path(*path)
    frame.guard(source, {"Type": {"module": kind.__module__, "qualname": kind.__qualname__}})
    code = list(_testing.code_hash(kind.forward.__code__))
    frame.guard(frame.path(*path, "Class", {"TypeAttr": "forward"}), {"Function": {"code": code}})
    frame.guard(frame.path(*path, "Dict", {"Item": const("training")}), {"Equals": const(module.training)})
    frame.guard(frame.path(*path, "Dict"), {"NoItem": const("forward")})
    for hooks in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"):
        frame.guard(frame.path(*path, "Dict", {"Item": const(hooks)}), {"Len": 0})
    inputs = []
    for name, tensor in module._parameters.items():
        where = frame.path(*path, "Dict", {"Item": const("_parameters")}, {"Item": const(name)})
        if tensor is None:
            frame.guard(where, {"Equals": const(None)})
        else:
            frame.guard_tensor(where, tensor)
            inputs.append(where)
    for name, child in module._modules.items():
        inputs += guard_module(frame, child, [*path, "Dict", {"Item": const("_modules")}, {"Item": const(name)}])
    return inputs


def deep_model():
    """A hundred modules."""
    return torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()) for _ in range(33)])


def guarded(model):
    """A frame over all of a model's parameters, which returns one of them."""
    frame = Frame()
    inputs = guard_module(frame, model, [{"Arg": 0}])
    frame.nodes = [
        {
            "name": f"p{i}",
            "op": {"Placeholder": s},
            "meta": {"Const": "None"},
            "location": None,
            "stack": [],
            "effect": "None",
            "view": False,
            "torchs": False,
            "fresh": False,
            "schema": None,
        }
        for i, s in enumerate(inputs)
    ]
    frame.returns(frame.nodes and 0)
    return frame.install(function, model)


KEPT = []


def other_dict(module):
    """The old one lives on."""
    KEPT.append(module.__dict__)
    return {**module.__dict__, "training": not module.training}


def test_a_pinned_tree_is_cheap_and_sees_every_change():
    model = deep_model()
    installed = guarded(model)
    assert installed.check(model) is None
    assert installed(model) is model[0][0].weight
    nanoseconds = installed.time_check(2000, model)
    assert nanoseconds < 20_000, nanoseconds
    state = {k: v.clone() for k, v in model.state_dict().items()}
    model.load_state_dict(state)
    assert installed.check(model) is None
    model[5].unrelated = 3
    assert installed.check(model) is None
    model[5][0].weight = torch.nn.Parameter(torch.zeros(4, 4))
    assert installed.check(model) is None
    changes = [
        lambda m: m[7][0].half(),
        lambda m: m.eval(),
        lambda m: m[3][1].register_forward_hook(lambda *a: None),
        lambda m: setattr(m[3][1], "forward", lambda x: x),
        lambda m: m[9][0].weight.requires_grad_(False),
        lambda m: setattr(m[9][0].weight, "data", torch.zeros(2, 8)),
        lambda m: m[9].__dict__.update(_modules={}),
        lambda m: setattr(m[2], "__class__", torch.nn.ModuleList),
        lambda m: object.__setattr__(m[2], "__class__", torch.nn.ModuleList),
        lambda m: object.__dict__["__class__"].__set__(m[2], torch.nn.ModuleList),
        lambda m: object.__setattr__(m[4][0], "training", False),
        lambda m: setattr(m[4][0], "__dict__", other_dict(m[4][0])),
        lambda m: object.__setattr__(m[4][0], "__dict__", other_dict(m[4][0])),
        lambda m: torch.nn.Module.__dict__["__dict__"].__set__(m[4][0], other_dict(m[4][0])),
        lambda m: setattr(m[1][0], "bias", None),
    ]
    for change in changes:
        model = deep_model()
        for _ in range(3):
            assert installed.check(model) is None
        change(model)
        assert installed.check(model) is not None


def test_a_dict_at_the_address_of_a_pinned_one_is_seen_to_change():
    frame = Frame()
    frame.guard(frame.path({"Arg": 0}, {"Item": const("a")}), {"Equals": const(1)})
    installed = frame.install(function, {"a": 1})
    addresses = set()
    for _ in range(20):
        new = {"a": 1, "b": 2}
        addresses.add(id(new))
        for _ in range(3):
            assert installed.check(new) is None
        del new["a"]
        assert installed.check(new) is not None
    assert len(addresses) < 20, "no dict came to the address of an earlier one"


def test_methods_replaced_on_a_class_are_seen():
    class Own(torch.nn.Module):
        def forward(self, x):
            return x

    model = torch.nn.Sequential(Own())
    installed = guarded(torch.nn.Sequential(torch.nn.Linear(2, 2), Own()))
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), Own())
    for _ in range(3):
        assert installed.check(model) is None
    Own.forward = lambda self, x: x + 1
    assert "forward" in installed.check(model)


def test_pins_keep_no_model_alive():
    import gc
    import weakref

    installed = None
    for _ in range(3):
        model = deep_model()
        installed = installed or guarded(model)
        for _ in range(3):
            assert installed.check(model) is None
        gone = weakref.ref(model[0][0].weight)
        model = None
        gc.collect()
        assert gone() is None


def test_many_instances_share_a_frame():
    models = [deep_model() for _ in range(12)]
    installed = guarded(models[0])
    for _ in range(3):
        for model in models:
            assert installed.check(model) is None
    models[4][0][0].half()
    assert [installed.check(m) is None for m in models].count(False) == 1


def ambient_frame():
    """A frame guarded on the thread's state as it is now."""
    import json

    frame = Frame()
    frame.guard(frame.source("Function"), {"Ambient": json.loads(_testing.ambient())})
    return frame.install(function)


def test_ambient_state_is_compared_on_every_call():
    installed = ambient_frame()
    for _ in range(3):
        assert installed.check() is None
    contexts = [
        lambda: torch.no_grad(),
        lambda: torch.inference_mode(),
        lambda: torch.autocast("cpu", dtype=torch.bfloat16),
        lambda: torch.autograd.forward_ad.dual_level(),
        lambda: torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x),
        lambda: torch.autograd.set_detect_anomaly(True),
        lambda: torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH),
        lambda: torch.device("meta"),
        lambda: torch._C.DisableTorchFunctionSubclass(),
    ]
    for number, context in enumerate(contexts):
        with context():
            assert installed.check() is not None, number
        assert installed.check() is None, number


def test_ambient_settings_are_compared():
    installed = ambient_frame()
    switches = [
        (lambda: torch.set_default_dtype(torch.float64), lambda: torch.set_default_dtype(torch.float32)),
        (lambda: torch.use_deterministic_algorithms(True), lambda: torch.use_deterministic_algorithms(False)),
        (lambda: torch.set_float32_matmul_precision("high"), lambda: torch.set_float32_matmul_precision("highest")),
        (lambda: torch.set_default_device("meta"), lambda: torch.set_default_device(None)),
        (lambda: torch.set_autocast_cache_enabled(False), lambda: torch.set_autocast_cache_enabled(True)),
    ]
    for change, restore in switches:
        assert installed.check() is None
        change()
        assert installed.check() is not None
        restore()
    assert installed.check() is None


def test_ambient_state_is_the_threads_own():
    import threading

    installed = ambient_frame()
    results = []

    def other():
        with torch.no_grad():
            results.append(installed.check())
        results.append(installed.check())

    with torch.no_grad():
        assert installed.check() is not None
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert results[0] is not None and results[1] is None
