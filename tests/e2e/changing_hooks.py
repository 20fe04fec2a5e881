"""Programs that add, change and remove hooks of modules and tensors."""

from __future__ import annotations

import contextlib
import functools
import types
from typing import Any

import torch
from changing import Block, Net, World, program
from torch import nn
from torch.nn.modules import module as all_modules


@program()
def forward_hooks(w: World) -> Any:
    net = yield Net()
    yield
    handle = net.block.register_forward_hook(w.noting("seen"))
    yield
    other = net.block.register_forward_hook(lambda m, args, out: out * 3)
    yield
    handle.remove()
    yield
    net.register_forward_hook(lambda m, args, out: (out, args[0]))
    yield
    other.remove()
    yield


@program()
def forward_pre_hooks(w: World) -> Any:
    net = yield Net()
    yield
    net.block.register_forward_pre_hook(w.noting("seen"))
    yield
    bare = net.block.register_forward_pre_hook(lambda m, args: args[0] + 1)
    yield
    net.block.register_forward_pre_hook(lambda m, args: (args[0] * 2, 0.5))
    yield
    bare.remove()
    yield
    net.register_forward_pre_hook(w.noting("root"))
    yield


@program(breaks="exception")
def hooks_with_kwargs(w: World) -> Any:
    net = yield Block()
    yield
    yield w.x(), {"extra": 3.0}
    before = net.register_forward_pre_hook(lambda m, args, kw: (args, {**kw, "extra": 0.25}), with_kwargs=True)
    yield w.x(), {"extra": 3.0}
    after = net.register_forward_hook(lambda m, args, kw, out: w.log(sorted(kw.items()), out), with_kwargs=True)
    yield w.x(), {"extra": 3.0}
    before.remove()
    yield w.x(), {"extra": 3.0}
    net.register_forward_hook(lambda m, args, kw, out: out * kw["extra"], with_kwargs=True)
    yield w.x(), {"extra": 3.0}
    after.remove()
    yield w.x(), {"extra": 3.0}
    net.register_forward_pre_hook(lambda m, args, kw: 5, with_kwargs=True)
    yield w.x(), {"extra": 3.0}


@program(breaks="unsupported_call side_effect unsupported_object")
def prepended_hooks(w: World) -> Any:
    net = yield Net()
    net.block.register_forward_hook(lambda m, args, out: out + 1)
    net.block.register_forward_pre_hook(lambda m, args: (args[0] + 1,))
    yield
    net.block.register_forward_hook(lambda m, args, out: out * 2, prepend=True)
    yield
    net.block.register_forward_pre_hook(lambda m, args: (args[0] * 2,), prepend=True)
    yield
    net.block.register_full_backward_hook(w.noting("first"))
    net.block.register_full_backward_hook(w.noting("before"), prepend=True)
    net.block.register_full_backward_pre_hook(w.noting("pre"))
    net.block.register_full_backward_pre_hook(w.noting("earlier"), prepend=True)
    yield


class Failing(nn.Module):
    """Raises if told so."""

    fails = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.fails:
            raise ValueError("told to")
        return x * 2


@program(breaks="exception")
def hooks_always_called(w: World) -> Any:
    net = yield nn.Sequential(nn.Linear(4, 4), Failing())
    net[1].register_forward_hook(w.noting("ordinary"))
    net[1].register_forward_hook(w.noting("always"), always_call=True)
    yield
    net[1].fails = True
    yield
    net[1].register_forward_hook(lambda m, args, out: 1 / 0, always_call=True)
    yield
    net[1].fails = False
    yield


@program(breaks="exception")
def a_hook_that_raises(w: World) -> Any:
    def raising(m: Any, args: Any, out: Any) -> None:
        raise KeyError("from a hook")

    net = yield Net()
    yield
    handle = net.block.register_forward_hook(raising)
    yield
    net.first.register_forward_hook(w.noting("ran"), always_call=True)
    yield
    handle.remove()
    yield


@program()
def hooks_changed_in_their_dict(w: World) -> Any:
    net = yield Net()
    handle = net.block.register_forward_hook(lambda m, args, out: out + 1)
    yield
    net.block._forward_hooks[handle.id] = lambda m, args, out: out - 1
    yield
    net.block._forward_hooks.clear()
    yield
    net.block._forward_hooks = type(net.block._forward_hooks)({5: lambda m, args, out: out * 5})
    yield
    net.block._forward_hooks[6] = lambda m, args, out: out + 10
    yield
    net.block._forward_hooks.move_to_end(5)
    yield


@program()
def what_a_hook_refers_to(w: World) -> Any:
    factor = 2.0

    def scale(m: Any, args: Any, out: torch.Tensor, add: float = 1.0) -> torch.Tensor:
        return out * factor + add

    def other(m: Any, args: Any, out: torch.Tensor, add: float = 1.0) -> torch.Tensor:
        return out / factor + add

    net = yield Net()
    net.block.register_forward_hook(scale)
    yield
    factor = 3.0
    yield
    scale.__defaults__ = (7.0,)
    yield
    scale.__code__ = other.__code__
    yield


class Collector:
    """Keeps what passes; a callable object and a method are both hooks."""

    def __init__(self) -> None:
        self.outputs: dict[str, Any] = {}
        self.calls = 0

    def __call__(self, module: nn.Module, args: Any, output: Any) -> None:
        self.calls += 1
        self.outputs[type(module).__name__] = output

    def method(self, module: nn.Module, args: Any, output: Any) -> None:
        self.calls += 10

    def named(self, name: str, module: nn.Module, args: Any, output: torch.Tensor) -> None:
        self.outputs[name] = output.mean()


@program()
def hooks_that_are_objects(w: World) -> Any:
    collector = Collector()
    net = yield Net()
    net.block.register_forward_hook(collector)
    yield
    w.log(collector.calls, collector.outputs)
    net.last.register_forward_hook(collector.method)
    yield
    net.first.register_forward_hook(functools.partial(collector.named, "first"))
    yield
    w.log(collector.calls, collector.outputs)
    assert collector.calls == 23
    assert list(collector.outputs) == ["Block", "first"]
    collector.outputs = {}
    yield
    assert list(collector.outputs) == ["first", "Block"] and collector.calls == 34, collector.calls


@program(breaks="unsupported_call live_iterator")
def a_hook_that_removes_itself(w: World) -> Any:
    net = yield Net()
    handles = []

    def once(m: Any, args: Any, out: torch.Tensor) -> torch.Tensor:
        handles.pop().remove()
        return out + 1

    yield
    handles.append(net.block.register_forward_pre_hook(lambda m, args: (args[0] + 1,)))
    yield
    handles.pop().remove()
    handles.append(net.block.register_forward_hook(once))
    yield
    yield
    assert not net.block._forward_hooks


@program(breaks="unsupported_call live_iterator")
def a_hook_added_by_a_forward(w: World) -> Any:
    class Adds(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if len(self._forward_hooks) < 2:
                self.register_forward_hook(lambda m, args, out: out + 1)
            return x * 2

    yield nn.Sequential(Adds())
    for _ in range(4):
        yield


@program(breaks="unsupported_call side_effect unsupported_object")
def full_backward_hooks(w: World) -> Any:
    net = yield Net()
    yield
    handle = net.block.register_full_backward_hook(w.noting("back"))
    yield
    other = net.block.register_full_backward_hook(lambda m, inputs, outputs: tuple(g * 2 for g in inputs))
    yield
    net.block.register_full_backward_pre_hook(lambda m, outputs: tuple(g + 1 for g in outputs))
    yield
    handle.remove()
    yield
    net.register_full_backward_hook(w.noting("root"))
    yield
    other.remove()
    yield
    yield (w.x().detach(),)


@program(breaks="unsupported_object unsupported_call live_iterator unguardable_object")
def backward_hooks_of_the_old_kind(w: World) -> Any:
    net = yield Net()
    yield
    handle = net.last.register_backward_hook(w.noting("old"))
    yield
    handle.remove()
    yield
    net.register_backward_hook(lambda m, inputs, outputs: tuple(g if g is None else g * 2 for g in inputs))
    yield


@program(graphs=1)
def hooks_of_tensors(w: World) -> Any:
    net = yield Net()
    yield
    handle = net.first.weight.register_hook(lambda g: g * 2)
    yield
    net.first.bias.register_post_accumulate_grad_hook(lambda p: w.log("accumulated", p.grad))
    yield
    handle.remove()
    yield


@program(breaks="side_effect live_iterator")
def a_tensor_hook_set_in_a_hook(w: World) -> Any:
    net = yield Net()
    yield
    handle = net.block.register_forward_hook(
        lambda m, args, out: out.register_hook(lambda g: w.log("grad", g)) and None
    )
    if w.grad:
        yield
        yield
    handle.remove()
    yield


@program(breaks="exception unsupported_call side_effect unsupported_object")
def global_hooks(w: World) -> Any:
    net = yield Net()
    yield
    handles = [all_modules.register_module_forward_hook(w.noting("forward"))]
    for handle in handles:
        w.after.callback(handle.remove)
    yield
    pre = all_modules.register_module_forward_pre_hook(lambda m, args: (args[0] + 1, *args[1:]))
    w.after.callback(pre.remove)
    yield
    handles[0].remove()
    yield
    kwargs = all_modules.register_module_forward_hook(
        lambda m, args, kw, out: out * 2 if isinstance(m, Block) else None, with_kwargs=True
    )
    w.after.callback(kwargs.remove)
    yield
    pre.remove()
    kwargs.remove()
    yield
    if w.grad:
        back = all_modules.register_module_full_backward_hook(w.noting("back"))
        w.after.callback(back.remove)
        yield
        back.remove()
        yield
    always = all_modules.register_module_forward_hook(w.noting("always"), always_call=True)
    w.after.callback(always.remove)
    net.first.register_forward_hook(lambda m, args, out: 1 / 0)
    yield


@program(breaks="unsupported_call live_iterator side_effect unsupported_object")
def hooks_on_leaves_of_torch(w: World) -> Any:
    net = yield nn.Sequential(nn.Conv1d(1, 3, 2), nn.BatchNorm1d(3), nn.Flatten(1), nn.LayerNorm(9))
    x = lambda: (w.x(3, 1, 4),)
    yield x()
    for child in net:
        child.register_forward_hook(w.noting("leaf"))
    yield x()
    if w.grad:
        for child in net:
            child.register_full_backward_hook(w.noting("leaf back"))
        yield x()
    net[1]._forward_hooks.clear()
    yield x()


@program()
def hooks_on_an_rnn(w: World) -> Any:
    net = yield nn.LSTM(4, 3, batch_first=True)
    yield (w.x(2, 5, 4),)
    net.register_forward_hook(lambda m, args, out: out[0] * 2)
    yield (w.x(2, 5, 4),)
    net.register_forward_pre_hook(lambda m, args: (args[0] + 1,))
    yield (w.x(2, 5, 4),)


@program()
def a_method_of_the_module_as_its_hook(w: World) -> Any:
    class Counting(nn.Linear):
        calls = 0

        def __init__(self) -> None:
            super().__init__(4, 4)
            self.register_forward_hook(self.count)
            self.register_forward_pre_hook(Counting.before)

        def count(self, module: nn.Module, args: Any, out: Any) -> Any:
            self.calls += 1
            return out * 2

        def before(self, args: Any) -> Any:
            return (args[0] + 1,)

    net = yield nn.Sequential(Counting(), Counting())
    for _ in range(3):
        yield
    assert [m.calls for m in net] == [3, 3]
    Counting.count = lambda self, module, args, out: None  # type: ignore[method-assign]
    yield  # the hooks are bound methods, which keep the function
    net[0].register_forward_hook(types.MethodType(lambda self, m, args, out: out - 1, w))
    yield


@program(graphs=2)
def activations_collected(w: World) -> Any:
    """As tools for feature extraction do."""
    net = yield nn.Sequential(nn.Linear(4, 4), nn.ReLU(), Block(), nn.Linear(4, 2))
    yield
    features: dict[str, torch.Tensor] = {}

    def keep(name: str) -> Any:
        def hook(module: nn.Module, args: Any, out: torch.Tensor) -> None:
            features[name] = out

        return hook

    handles = [child.register_forward_hook(keep(name)) for name, child in net.named_modules() if name]
    for _ in range(2):
        yield
        w.log({k: v for k, v in features.items()})
        assert list(features) == ["0", "1", "2.linear", "2", "3"], list(features)
        assert features["2"].requires_grad == w.grad
        features.clear()
    for handle in handles:
        handle.remove()
    yield
    assert not features


@program(graphs=5)
def hooks_registered_for_one_call(w: World) -> Any:
    """Each call with a hook of its own: only the first one of a kind is compiled for."""
    net = yield Net()
    for kind, options in [
        ("forward", {}),
        ("forward", {"with_kwargs": True}),
        ("forward_pre", {}),
        ("forward_pre", {"with_kwargs": True}),
    ]:
        for _ in range(4):
            with contextlib.closing(Registered(net.block, kind, w.noting(kind), **options)):
                yield
    yield


class Registered:
    """A hook, until it is closed."""

    def __init__(self, module: nn.Module, kind: str, hook: Any, **options: Any) -> None:
        self.handle = getattr(module, f"register_{kind}_hook")(hook, **options)

    def close(self) -> None:
        self.handle.remove()


@program(graphs=3)
def calls_counted_by_a_hook(w: World) -> Any:
    """An int that each call changes is symbolic from the third call on."""

    class Counting(nn.Linear):
        calls = 0

        def count(self, args: Any) -> Any:
            self.calls += 1
            return (args[0] * self.calls,)

    net = yield nn.Sequential(Counting(4, 4), nn.ReLU())
    net[0].register_forward_pre_hook(Counting.count)
    for _ in range(8):
        yield
    assert net[0].calls == 8
