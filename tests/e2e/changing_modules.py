"""Programs that change what a module is made of, and how it is called."""

from __future__ import annotations

import copy
import types
from typing import Any

import torch
from changing import Block, Net, World, program
from torch import nn
from torch.nn.utils import fusion, parametrizations, parametrize, prune


@program()
def forward_replaced_on_the_instance(w: World) -> Any:
    net = yield Net()
    yield
    net.block.forward = lambda x: x * 5
    yield
    net.block.forward = types.MethodType(lambda self, x: self.linear(x) + 1, net.block)
    yield
    original = type(net.last).forward
    net.last.forward = lambda x: original(net.last, x) * 2
    yield
    del net.block.forward
    yield
    del net.last.forward
    yield
    net.forward = lambda x: net.first(x)
    yield
    del net.forward
    yield


@program()
def forward_replaced_on_the_class(w: World) -> Any:
    class Own(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + 1

    class Derived(Own):
        pass

    yield nn.Sequential(nn.Linear(4, 4), Own(), Derived())
    yield
    original = Own.forward
    Own.forward = lambda self, x: x * 3  # type: ignore[method-assign]
    yield
    Derived.forward = lambda self, x: original(self, x) - 5  # type: ignore[method-assign]
    yield
    del Derived.forward
    yield
    Own.forward = original  # type: ignore[method-assign]
    yield


@program()
def calls_overridden(w: World) -> Any:
    class Doubled(nn.Linear):
        def __call__(self, x: torch.Tensor, *rest: Any) -> torch.Tensor:
            return super().__call__(x, *rest) * 2

    class Inner(nn.Linear):
        def _call_impl(self, *args: Any, **kwargs: Any) -> Any:
            w.log("inner")
            return super()._call_impl(*args, **kwargs) + 1

    net = yield nn.Sequential(Doubled(4, 4), Inner(4, 4))
    yield
    Doubled.__call__ = lambda self, x: nn.Module.__call__(self, x) * 3  # type: ignore[method-assign]
    yield
    del Doubled.__call__
    yield
    net[1]._call_impl = lambda x: x - 1
    yield
    del net[1]._call_impl
    Inner._call_impl = lambda self, x: x - 2  # type: ignore[method-assign]
    yield
    del Inner._call_impl
    yield
    net[0].register_forward_hook(w.noting("hook"))
    yield


@program()
def the_roots_call_replaced(w: World) -> Any:
    class Root(nn.Linear):
        pass

    net = yield Root(4, 4)
    yield
    Root.__call__ = lambda self, x: nn.Module.__call__(self, x) * 3  # type: ignore[method-assign]
    yield
    Root._call_impl = lambda self, x: self.forward(x) - 1  # type: ignore[method-assign]
    yield
    del Root.__call__
    yield
    del Root._call_impl
    yield
    net.register_forward_hook(w.noting("hook"))
    yield


@program()
def attribute_access_overridden(w: World) -> Any:
    class Fallback(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Block()
            self.unit = 3.0

        def __getattr__(self, name: str) -> Any:
            try:
                return super().__getattr__(name)
            except AttributeError:
                return getattr(self.inner, name)

        @property
        def twice(self) -> float:
            return self.unit * 2

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(x) * self.scale * self.twice

    class Counting(nn.Module):
        total = 0

        def __setattr__(self, name: str, value: Any) -> None:
            w.log("set", name)
            super().__setattr__(name, value)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.total = self.total + 1
            return x * self.total

    class Watching(nn.Linear):
        def __getattribute__(self, name: str) -> Any:
            if name == "weight":
                return super().__getattribute__(name) * 2
            return super().__getattribute__(name)

    net = yield nn.Sequential(Fallback(), Counting(), Watching(4, 4))
    yield
    net[0].inner.scale = 4.0
    yield
    net[0].inner = Block()
    yield
    net[0].scale = 0.5
    yield
    net[0].unit = 7.0
    type(net[0]).twice = property(lambda self: self.unit + 1)  # type: ignore[assignment]
    yield
    del Watching.__getattribute__
    yield
    assert net[1].total == 6


@program()
def the_class_of_a_module_changed(w: World) -> Any:
    class Other(Block):
        def forward(self, x: torch.Tensor, extra: float = 1.0) -> torch.Tensor:
            return self.linear(x) - extra

    net = yield Net()
    yield
    net.block.__class__ = Other
    yield
    Other.__bases__ = (nn.Module,)
    yield
    net.block.__class__ = Block
    yield


class Double(nn.Module):
    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        return weight * 2

    def right_inverse(self, weight: torch.Tensor) -> torch.Tensor:
        return weight / 2


class Symmetric(nn.Module):
    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        return weight.triu() + weight.triu(1).transpose(-1, -2)


@program(breaks="unsupported_call unsupported_object unguardable_object")
def parametrizations_registered(w: World) -> Any:
    net = yield Net()
    yield
    parametrize.register_parametrization(net.first, "weight", Symmetric())
    yield
    parametrize.register_parametrization(net.block.linear, "bias", Double())
    yield
    net.block.linear.bias = torch.ones(4)
    yield
    with parametrize.cached():
        yield
        yield
    parametrize.remove_parametrizations(net.first, "weight")
    yield
    parametrize.remove_parametrizations(net.block.linear, "bias", leave_parametrized=False)
    yield


@program(slack=10)
def norms_of_weights(w: World) -> Any:
    net = yield Net()
    yield
    parametrizations.weight_norm(net.first)
    yield
    parametrizations.spectral_norm(net.last)
    yield
    net.eval()
    yield
    net.train()
    yield
    parametrize.remove_parametrizations(net.first, "weight")
    yield


@program(slack=10)
def norms_of_weights_of_the_old_kind(w: World) -> Any:
    net = yield Net()
    yield
    nn.utils.weight_norm(net.first)
    yield
    net.first.weight_g.data.mul_(2)
    yield
    nn.utils.spectral_norm(net.last)
    yield
    yield
    nn.utils.remove_weight_norm(net.first)
    yield


@program()
def pruned(w: World) -> Any:
    net = yield Net()
    yield
    prune.l1_unstructured(net.first, "weight", amount=0.5)
    yield
    prune.random_structured(net.first, "weight", amount=1, dim=0)
    yield
    prune.remove(net.first, "weight")
    yield
    prune.custom_from_mask(net.last, "bias", torch.tensor([1, 0]))
    yield


@program(slack=10)
def fused(w: World) -> Any:
    net = yield nn.Sequential(nn.Conv1d(1, 2, 2), nn.BatchNorm1d(2), nn.Flatten(), nn.Linear(6, 4), nn.BatchNorm1d(4))
    x = lambda: (w.x(3, 1, 4),)
    yield x()
    net.eval()
    yield x()
    net[0] = fusion.fuse_conv_bn_eval(net[0], net[1])
    net[1] = nn.Identity()
    yield x()
    net[3] = fusion.fuse_linear_bn_eval(net[3], net[4])
    del net[4]
    yield x()


@program()
def lists_of_modules(w: World) -> Any:
    class Listed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(4, 4), nn.ReLU()])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for i, layer in enumerate(self.layers):
                x = layer(x) + i
            return x * len(self.layers)

    net = yield Listed()
    yield
    net.layers.append(nn.Linear(4, 4))
    yield
    net.layers.insert(0, nn.Tanh())
    yield
    net.layers[1] = nn.Linear(4, 4, bias=False)
    yield
    del net.layers[2]
    yield
    net.layers.extend([nn.Sigmoid(), nn.Linear(4, 3)])
    yield
    net.layers.pop(0)
    yield
    net.layers = net.layers[:2]
    yield
    net.layers += [nn.Linear(4, 4)]
    yield


@program()
def dicts_of_modules(w: World) -> Any:
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleDict({"a": nn.Linear(4, 4), "b": nn.ReLU()})

        def forward(self, x: torch.Tensor) -> Any:
            out = {}
            for name, layer in self.layers.items():
                x = out[name] = layer(x)
            return out, x if "c" in self.layers else None

    net = yield Named()
    yield
    net.layers["c"] = nn.Linear(4, 4)
    yield
    net.layers["a"] = nn.Linear(4, 4)
    yield
    net.layers.pop("b")
    yield
    net.layers.update({"d": nn.Tanh(), "a": nn.ReLU()})
    yield
    net.layers.clear()
    yield


@program()
def sequences_of_modules(w: World) -> Any:
    net = yield nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    yield
    net.append(nn.Linear(4, 4))
    yield
    net.insert(1, nn.Tanh())
    yield
    net[0] = nn.Linear(4, 4, bias=False)
    yield
    del net[1:3]
    yield
    net.add_module("named", nn.Sigmoid())
    yield
    net.extend([nn.Linear(4, 1)])
    yield
    net.named = nn.ReLU()
    yield
    del net.named
    yield


@program(breaks="exception")
def modules_replaced(w: World) -> Any:
    net = yield Net()
    yield
    net.block = nn.Tanh()
    yield
    net.set_submodule("last", nn.Linear(4, 3, bias=False))
    yield
    net.add_module("block", Block())
    yield
    net.block.linear = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    yield
    net.last = net.first
    yield
    del net.block
    yield
    net.block = Block()
    yield


@program()
def optional_modules(w: World) -> Any:
    class Optional(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.main = nn.Linear(4, 4)
            self.extra = None
            self.register_module("other", None)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.main(x)
            if self.extra is not None:
                x = self.extra(x)
            return x if self.other is None else self.other(x) * 2

    net = yield Optional()
    yield
    net.other = nn.Linear(4, 4)
    yield
    net.extra = nn.Tanh()
    yield
    net.other = None
    yield
    net.extra = None
    yield


@program(breaks="unusual_tensor")
def a_module_made_lazily(w: World) -> Any:
    net = yield nn.Sequential(nn.LazyLinear(3), nn.ReLU(), nn.LazyLinear(2))
    yield
    yield
    net[2] = nn.LazyLinear(5)
    yield
    yield


@program(breaks="data_dependent_value live_iterator")
def training_and_eval(w: World) -> Any:
    net = yield nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.0))
    for _ in range(3):
        yield
    net.eval()
    yield
    net.train()
    yield
    net[1].eval()
    yield
    net[1].train()
    net[1].momentum = None
    yield
    net[1].track_running_stats = False
    yield
    net[1].track_running_stats = True
    net[1].reset_running_stats()
    yield
    net[1].running_mean = None
    net[1].running_var = None
    yield


@program()
def dropout_turned_on(w: World) -> Any:
    net = yield nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.0))
    yield
    net[1].p = 1.0
    yield
    net.eval()
    yield


@program()
def attributes_changed(w: World) -> Any:
    class Configured(nn.Module):
        size = 2

        def __init__(self) -> None:
            super().__init__()
            self.mode = "sum"
            self.factors = [1.0, 2.0]
            self.names = {"a": 3}
            self.limit = None

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for factor in self.factors:
                x = x * factor
            x = x.sum(self.size - 2) if self.mode == "sum" else x.mean(0)
            return x + self.names["a"] if self.limit is None else x.clamp(max=self.limit)

    net = yield nn.Sequential(nn.Linear(4, 4), Configured())
    yield
    net[1].mode = "mean"
    yield
    net[1].factors.append(0.5)
    yield
    net[1].factors[0] = -1.0
    yield
    net[1].names["a"] = 4
    yield
    net[1].mode = "sum"
    net[1].size = 3
    yield
    type(net[1]).size = 2
    del net[1].size
    yield
    net[1].limit = 0.25
    yield
    net[1].limit = torch.zeros(())
    yield
    net[1].limit = torch.ones(4)
    yield


@program()
def copies(w: World) -> Any:
    """Of a module and of what is compiled."""
    net = yield Net()
    yield
    twin = copy.deepcopy(net)
    assert type(twin) is type(net)
    with torch.no_grad():
        twin.first.weight.zero_()
        twin.block.register_forward_hook(w.noting("the copy's"))
        x = w.x().detach()
        w.log(twin(x), net(x))
    yield
    shallow = copy.copy(net)
    with torch.no_grad():
        shallow.block = nn.Tanh()
        w.log(shallow(x), net(x))
    yield
