"""Programs that change parameters, buffers and state dicts."""

from __future__ import annotations

import copy
from typing import Any

import torch
from changing import Block, Net, World, program
from torch import nn


@program(breaks="exception")
def parameters_replaced(w: World) -> Any:
    net = yield Net()
    yield
    net.first.weight = nn.Parameter(torch.ones(4, 4))
    yield
    net.first.bias = None
    yield
    net.last.weight.data = torch.full((2, 4), 0.5)
    yield
    net.last.weight = nn.Parameter(torch.ones(5, 4))
    net.last.bias = nn.Parameter(torch.ones(5))
    yield
    net.first.bias = nn.Parameter(torch.ones(4))
    yield
    net.first.register_parameter("bias", None)
    yield
    del net.last.weight
    yield
    net.last.weight = torch.ones(5, 4)
    yield
    net.last.register_parameter("unused", nn.Parameter(torch.ones(1)))
    yield


@program(graphs=2)
def weights_tied(w: World) -> Any:
    net = yield nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    yield
    net[2].weight = net[0].weight
    yield
    with torch.no_grad():
        net[0].weight.mul_(2)
    yield
    net[2].weight = nn.Parameter(net[0].weight.detach().clone())
    yield
    net[2] = net[0]
    yield
    net[0].weight.data = net[0].weight.data.t()
    yield


@program()
def lists_of_parameters(w: World) -> Any:
    class Bank(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.list = nn.ParameterList([torch.ones(4), torch.full((4,), 2.0)])
            self.dict = nn.ParameterDict({"a": torch.ones(4)})

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for p in self.list:
                x = x * p
            for name, p in self.dict.items():
                x = x + p * len(name)
            return x

    net = yield Bank()
    yield
    net.list.append(nn.Parameter(torch.full((4,), 3.0)))
    yield
    net.list[0] = nn.Parameter(torch.full((4,), 7.0))
    yield
    net.dict["longer"] = nn.Parameter(torch.ones(4))
    yield
    net.dict.pop("a")
    yield


class Buffered(nn.Module):
    """Keeps sums and a count in its forward."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(4))
        self.register_buffer("last", torch.zeros(4), persistent=False)
        self.register_buffer("count", torch.tensor(0))
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            self.total += x.sum(0)
            self.last = x.mean(0)
            self.count.add_(1)
        y = self.linear(x) + self.last
        return y * self.extra if "extra" in self._buffers else y


@program(graphs=4)
def buffers(w: World) -> Any:
    net = yield Buffered()
    for _ in range(3):
        yield
        w.log(net.last, net.total)
    net.register_buffer("extra", torch.full((4,), 2.0))
    yield
    net.extra = torch.full((4,), 3.0)
    yield
    net.total = torch.ones(4)
    yield
    net.register_buffer("extra", torch.full((1,), 2.0), persistent=False)
    yield
    del net.extra
    yield
    assert net.count == 8
    net.register_buffer("total", torch.ones(4, dtype=torch.float64))
    yield


@program(graphs=1)
def state_loaded(w: World) -> Any:
    net = yield Net()
    yield
    state = {k: torch.ones_like(v) for k, v in net.state_dict().items()}
    w.log(list(state), net.load_state_dict(state))
    yield
    state = {k: nn.Parameter(v * 0.5) for k, v in state.items()}
    net.load_state_dict(state, assign=True)
    assert net.first.weight is state["first.weight"]
    yield
    state.pop("last.bias")
    w.log(net.load_state_dict({**state, "new": torch.ones(1)}, strict=False))
    yield


@program(graphs=1)
def hooks_of_state_dicts(w: World) -> Any:
    net = yield Net()
    handles = [
        net.register_state_dict_post_hook(lambda m, state, prefix, meta: w.log("post", type(m).__name__, list(state))),
        net.register_state_dict_pre_hook(lambda m, prefix, keep: w.log("pre", prefix)),
        net.block.register_load_state_dict_pre_hook(lambda m, state, prefix, *rest: w.log("load", prefix)),
        net.block.register_load_state_dict_post_hook(lambda m, keys: w.log("loaded", tuple(keys))),
    ]
    yield
    w.log(list(net.state_dict()))
    net.load_state_dict({k: v * 2 for k, v in net.state_dict().items()})
    net.get_extra_state = lambda: {"a": 1}
    yield
    for handle in handles:
        handle.remove()
    w.log(list(net.state_dict(prefix="p.")))
    yield


@program(slack=10, breaks="shape_error")
def converted(w: World) -> Any:
    net = yield Net()
    yield
    net.double()
    yield (w.x().double(),)
    net.to(torch.bfloat16)
    yield (w.x().bfloat16(),)
    net.half()
    yield (w.x().half(),)
    net.float()
    yield
    net.block.double()
    yield
    net.to(memory_format=torch.channels_last)
    yield (w.x().double(),)
    net.float().share_memory()
    yield
    net.apply(lambda m: nn.init.ones_(m.weight) if isinstance(m, nn.Linear) else None)
    yield


@program()
def gradients_required(w: World) -> Any:
    net = yield Net()
    yield
    net.requires_grad_(False)
    yield
    yield (w.x().detach(),)
    net.last.requires_grad_(True)
    yield
    net.first.weight.requires_grad = True
    yield
    net.requires_grad_(True)
    yield


@program(graphs=1)
def weights_swapped(w: World) -> Any:
    """As an exponential moving average does for evaluation."""
    net = yield Net()
    average = torch.optim.swa_utils.AveragedModel(
        copy.deepcopy(net), multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)
    )
    for step in range(4):
        yield
        with torch.no_grad():
            for p in net.parameters():
                p.add_(torch.full_like(p, 0.01 * step))
        average.update_parameters(net)
    own = [p.data for p in net.parameters()]
    for p, mean in zip(net.parameters(), average.module.parameters(), strict=True):
        p.data = mean.data
    yield
    for p, data in zip(net.parameters(), own, strict=True):
        p.data = data
    yield
    kept = {k: v.clone() for k, v in net.state_dict().items()}
    for p, mean in zip(net.parameters(), average.module.parameters(), strict=True):
        with torch.no_grad():
            p.copy_(mean)
    yield
    net.load_state_dict(kept)
    yield


@program()
def parameters_given_to_a_call(w: World) -> Any:
    """`torch.func.functional_call` swaps parameters in place for one call."""
    net = yield Net()
    yield
    given = {k: v.detach() * 2 for k, v in net.named_parameters()}
    for _ in range(2):
        w.log(torch.func.functional_call(net, given, (w.x(),)))
        yield
    w.log(torch.func.functional_call(net, {"first.weight": torch.ones(4, 4)}, (w.x(),), tie_weights=False))
    yield


class Low(nn.Module):
    """A linear layer with a low-rank term beside it, which can be merged."""

    def __init__(self, base: nn.Linear, rank: int = 2) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.a = nn.Parameter(torch.full((rank, base.in_features), 0.25))
        self.b = nn.Parameter(torch.full((base.out_features, rank), 0.5))
        self.active = True

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.base(x)
        return out + x @ self.a.t() @ self.b.t() if self.active else out


@program(slack=10)
def linear_layers_wrapped(w: World) -> Any:
    """As LoRA does, after compilation."""
    net = yield Net()
    yield
    for name, child in list(net.named_modules()):
        if isinstance(child, nn.Linear):
            net.set_submodule(name, Low(child))
    yield
    for m in net.modules():
        if isinstance(m, Low):
            m.active = False
    yield
    for m in net.modules():
        if isinstance(m, Low):
            m.active = True
    yield
    for name, child in list(net.named_modules()):
        if isinstance(child, Low):
            with torch.no_grad():
                child.base.weight += child.b @ child.a
            net.set_submodule(name, child.base)
    yield


@program()
def replicas(w: World) -> Any:
    """As `DataParallel` makes them."""
    net = yield nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    yield
    replica = net._replicate_for_data_parallel()
    replica._modules = {k: m._replicate_for_data_parallel() for k, m in net._modules.items()}
    for child, original in zip(replica.children(), net.children(), strict=True):
        child._former_parameters = {}
        for name, p in original._parameters.items():
            setattr(child, name, p * 2)
        child._buffers = {k: b.clone() for k, b in original._buffers.items()}
    for _ in range(2):
        w.log(replica(w.x()))
    yield


@program()
def blocks_shared(w: World) -> Any:
    """One block in three places."""
    block = Block()
    net = yield nn.Sequential(block, nn.Tanh(), block, block)
    yield
    block.scale = 3.0
    yield
    net[2] = Block()
    yield
    block.register_forward_hook(w.noting("shared"))
    yield
