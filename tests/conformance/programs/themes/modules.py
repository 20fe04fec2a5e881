"""nn.Module in compiled functions: attribute writes, hooks, containers, parameters, parametrizations, lazy modules."""

import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize

from ..program import Made, ones, opaque, program


@program("https://github.com/pytorch/pytorch/issues/98928")
def attribute_changed_between_calls():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.flag, self.scale = True, 2

        def forward(self, x):
            return x * self.scale if self.flag else x - 1

    model = Model()

    def before(n):
        model.flag, model.scale = n != 1, 2 + n

    return Made(model, [(ones(3),)] * 3, before=before)


@program("https://github.com/pytorch/pytorch/issues/124717")
def attribute_changed_by_a_manager():
    import contextlib

    class Model(nn.Module):
        disabled = False

        def forward(self, x):
            out = x * x
            return out if self.disabled else out + 1

    @contextlib.contextmanager
    def disable(model):
        model.disabled = True
        try:
            yield
        finally:
            model.disabled = False

    model = Model()

    def f(x):
        with disable(model):
            y = model(x)
        return y, model(x), "disabled" in model.__dict__

    return Made(f, [(ones(3),), (ones(2),)])


@program("https://github.com/pytorch/torchdynamo/issues/2040")
def attribute_patched_in_forward():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(2, 2)
            self.last = None

        def forward(self, x):
            saved = self.inner.bias
            self.inner.bias = None
            y = self.inner(x)
            self.inner.bias = saved
            self.last = y.detach()
            self.sizes = [*getattr(self, "sizes", ()), x.shape[0]]
            return y

    model = Model()
    return Made(model, [(ones(1, 2),), (ones(3, 2),)], state=model, look=lambda *_: (model.last, model.sizes))


@program("https://github.com/pytorch/pytorch/pull/177521")
def forward_patched_in_the_function():
    layer = nn.Linear(2, 2)

    def f(x, patched):
        if patched:
            layer.forward = lambda x: x * 3
        y = layer(x)
        if patched:
            del layer.forward
        return y, layer(x)

    return Made(f, [(ones(1, 2), False), (ones(1, 2), True), (ones(1, 2), False)])


@program("https://github.com/pytorch/pytorch/issues/106060")
def buffer_replaced_in_forward():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mean", torch.zeros(3))
            self.register_buffer("steps", torch.tensor(0))

        def forward(self, x):
            self.mean = self.mean * 0.9 + x * 0.1
            self.steps += 1
            return x - self.mean

    model = Model()
    return Made(model, [(ones(3),)] * 3, state=model)


@program("https://github.com/pytorch/pytorch/issues/101168")
def training_flags_written():
    model = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5))

    def f(x):
        model[1].training = False
        y = model(x)
        model.train()
        inside = model[1].training
        model.eval()
        return y, inside, model.training, model(x)

    return Made(f, [(ones(1, 2),), (ones(3, 2),)], state=model)


@program("https://github.com/pytorch/pytorch/issues/132986")
def train_and_eval_between_calls():
    model = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5), nn.BatchNorm1d(2))
    return Made(model, [(ones(3, 2),)] * 4, before=lambda n: model.train(n % 2 == 0), state=model)


@program("https://github.com/pytorch/pytorch/issues/107460")
def own_setattr_of_a_module():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(2, 2)

        def __setattr__(self, name, value):
            if name == "scale":
                value = value * 2
            super().__setattr__(name, value)

        def __getattr__(self, name):
            if name == "alias":
                return self.layer
            return super().__getattr__(name)

        def forward(self, x, scale):
            self.scale = scale
            return self.alias(x) * self.scale

    model = Model()
    return Made(model, [(ones(1, 2), 1.0), (ones(1, 2), 3.0)], look=lambda *_: model.scale)


@program("https://github.com/pytorch/pytorch/issues/170429")
def pre_hooks_of_two_kinds():
    class Helper:
        calls = 0

        def hook(self, module, args):
            self.calls += 1
            return (args[0] + 2.0,)

    layer, helper = nn.Linear(2, 2), Helper()
    layer.register_forward_pre_hook(lambda module, args: (args[0] + 1.0,))
    layer.register_forward_pre_hook(helper.hook)
    return Made(lambda x: layer(x), [(ones(1, 2),), (ones(3, 2),)], look=lambda *_: helper.calls)


@program("https://github.com/pytorch/pytorch/issues/117758")
def hooks_added_and_removed_between_calls():
    layer, handles = nn.Linear(2, 2), []

    def before(n):
        if n == 1:
            handles.append(layer.register_forward_hook(lambda m, args, out: out * 10))
        if n == 2:
            handles.pop().remove()

    return Made(layer, [(ones(1, 2),)] * 3, before=before)


@program("https://github.com/pytorch/pytorch/issues/178248")
def hook_registered_in_forward():
    kept = []

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(2, 2)

        def forward(self, x):
            handle = self.layer.register_forward_hook(lambda m, args, out: kept.append(out.detach()))
            y = self.layer(x)
            handle.remove()
            return y + self.layer(x)

    return Made(Model(), [(ones(1, 2),), (ones(3, 2),)], state=kept)


@program("https://github.com/pytorch/pytorch/issues/117265")
def backward_hooks_of_modules():
    layer = nn.Linear(2, 2, bias=False)
    seen = []
    layer.register_full_backward_pre_hook(lambda m, grads: tuple(g * 2 for g in grads))
    layer.register_full_backward_hook(lambda m, gin, gout: seen.append(gout[0].sum()))
    x = ones(1, 2).requires_grad_()
    return Made(lambda x: layer(x) * 3, [(x,), (x,)], state=layer, backward=True, look=lambda *_: list(seen))


@program("https://github.com/pytorch/pytorch/issues/117265")
def tensor_hooks_in_the_function():
    seen = []

    def f(x):
        y = x * 2
        y.register_hook(lambda g: g * 5)
        y.register_hook(seen.append)
        return y.sum()

    return Made(
        f, [(ones(3).requires_grad_(),), (ones(2).requires_grad_(),)], backward=True, look=lambda *_: list(seen)
    )


@program("https://github.com/pytorch/pytorch/issues/117758")
def hooks_with_keywords_and_always_call():
    class Fails(nn.Module):
        def forward(self, x, *, scale=1):
            if scale > 2:
                raise ValueError("scale")
            return x * scale

    log, module = [], Fails()
    module.register_forward_pre_hook(lambda m, a, k: (a, {"scale": k["scale"] + 1}), with_kwargs=True)
    module.register_forward_hook(lambda m, a, k, out: log.append(k["scale"]), with_kwargs=True)
    module.register_forward_hook(lambda m, a, out: log.append(out is None), always_call=True)
    calls = [(ones(3), 1), (ones(3), 2), (ones(3), 1)]
    return Made(lambda x, scale: module(x, scale=scale), calls, raises=[1], state=log)


@program("https://github.com/pytorch/pytorch/issues/87121")
def sequential_slices():
    layers = nn.Sequential(*(nn.Linear(2, 2) for _ in range(4)))

    def f(x):
        head, last = layers[:-1], layers[-1]
        return last(head(x)), len(head), head[0] is layers[0], [type(m).__name__ for m in layers[1:3]]

    return Made(f, [(ones(1, 2),), (ones(3, 2),)])


@program("https://github.com/pytorch/pytorch/issues/95735")
def module_dict_methods():
    blocks = nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.ReLU()})

    def f(x, name):
        y = blocks[name](x)
        for key, block in blocks.items():
            y = block(y)
        return y, list(blocks.keys()), name in blocks, len(blocks), [type(b).__name__ for b in blocks.values()]

    return Made(f, [(ones(1, 2), "a"), (ones(1, 2), "b")])


@program("https://github.com/pytorch/pytorch/issues/95735")
def containers_changed_in_the_function():
    layers = nn.ModuleList([nn.Linear(2, 2)])

    def f(x, grow):
        if grow:
            layers.append(nn.Identity())
            layers.insert(0, nn.ReLU())
        for layer in layers:
            x = layer(x)
        return x, len(layers), [type(m).__name__ for m in layers]

    return Made(f, [(ones(1, 2), False), (ones(1, 2), True), (ones(1, 2), False)])


@program("https://github.com/pytorch/pytorch/issues/95735")
def parameter_containers():
    scales = nn.ParameterList([nn.Parameter(ones(2)), nn.Parameter(ones(2) * 2)])
    table = nn.ParameterDict({"w": nn.Parameter(torch.eye(2))})

    def f(x):
        for scale in scales:
            x = x * scale
        return x @ table["w"], len(scales), list(table), scales[-1].shape

    return Made(f, [(ones(1, 2),), (ones(3, 2),)], backward=True, state=[scales, table])


@program("https://github.com/pytorch/pytorch/issues/97720")
def module_with_own_getitem():
    class Table(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleDict({"__0": nn.Linear(2, 2)})

        def __getitem__(self, key):
            return self.layers[f"__{key}"]

        def __len__(self):
            return len(self.layers)

        def __iter__(self):
            return iter(self.layers.values())

        def forward(self, x):
            for layer in self:
                x = layer(x)
            return self["0"](x) * len(self)

    return Made(Table(), [(ones(1, 2),), (ones(3, 2),)])


@program("https://github.com/pytorch/pytorch/issues/102877")
def walks_over_a_model():
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))

    def f(x):
        norm = sum(p.pow(2).sum() for p in model.parameters())
        names = [n for n, _ in model.named_parameters()], [n for n, _ in model.named_buffers()]
        kinds = [type(m).__name__ for m in model.modules()], [n for n, _ in model.named_children()]
        return x * norm, names, kinds, sorted(model.state_dict()), model.get_submodule("0") is model[0]

    return Made(f, [(ones(3, 2),), (ones(2, 2),)])


@program("https://github.com/pytorch/torchdynamo/issues/1738")
def module_introspection():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(2, 2)
            self.register_buffer("table", ones(2), persistent=False)
            self.register_parameter("none", None)

        def forward(self, x):
            flags = (
                hasattr(self, "table"),
                self.none is None,
                isinstance(self.layer, nn.Linear),
                "layer" in self._modules,
            )
            y = self.layer(x) + self.table if self.layer.bias is not None else x
            return y, flags, self._get_name(), list(self._buffers), self.extra_repr(), self.layer.extra_repr()

    return Made(Model(), [(ones(1, 2),), (ones(3, 2),)])


@program("https://github.com/pytorch/pytorch/issues/157452")
def parameter_made_in_the_frame():
    def f(x):
        p = nn.Parameter(x.detach() * 2)
        q = nn.Parameter(torch.ones(2), requires_grad=False)
        return p * q, isinstance(p, nn.Parameter), p.is_leaf, p.requires_grad, type(p.data) is torch.Tensor

    return Made(f, [(ones(2),), (ones(2) * 3,)])


@program("https://github.com/pytorch/pytorch/issues/127697")
def module_made_in_the_frame():
    def f(x):
        layer = nn.Linear(3, 3, bias=False)
        nn.init.constant_(layer.weight, 0.5)
        return layer(x), layer.weight.shape, layer.training

    return Made(f, [(ones(1, 3),), (ones(2, 3),)])


@program("https://github.com/pytorch/pytorch/issues/128556")
def user_module_made_in_the_frame():
    class Shift(nn.Module):
        def __init__(self, value):
            super().__init__()
            self.value = value
            self.register_buffer("one", torch.ones(1))

        def forward(self, x):
            return x + self.value + self.one

    def f(x):
        return Shift(torch.tensor(2.0))(x), Shift(3)(x)

    return Made(f, [(ones(2),), (ones(3),)])


@program("https://github.com/pytorch/pytorch/issues/150848")
def parameter_subclass():
    class Loaded(nn.Parameter):
        def __new__(cls, data, **kwargs):
            return super().__new__(cls, data=data, requires_grad=False)

        def __init__(self, data, loader):
            self._loader = loader

        @property
        def loader(self):
            return self._loader

    layer = nn.Linear(2, 2)
    layer.weight = Loaded(layer.weight.data, loader=lambda x: x * 2)

    def f(x):
        return layer(x), layer.weight.loader(3), type(layer.weight).__name__

    return Made(f, [(ones(1, 2),), (ones(3, 2),)])


@program("https://github.com/pytorch/pytorch/issues/121902")
def weight_norm_parametrization():
    conv = parametrizations.weight_norm(nn.Conv1d(2, 3, 1), dim=0)
    return Made(conv, [(torch.randn(1, 2, 4),), (torch.randn(1, 2, 4),)], state=conv, backward=True)


@program("https://github.com/pytorch/pytorch/issues/118742")
def own_parametrization():
    class Symmetric(nn.Module):
        def forward(self, w):
            return w.triu() + w.triu(1).T

        def right_inverse(self, w):
            return w.triu()

    layer = nn.Linear(2, 2)
    parametrize.register_parametrization(layer, "weight", Symmetric())

    def f(x):
        with parametrize.cached():
            y = layer(x) + layer(x)
        return y, layer.weight, parametrize.is_parametrized(layer, "weight")

    return Made(f, [(ones(1, 2),), (ones(3, 2),)])


@program("https://github.com/pytorch/pytorch/issues/121304")
def spectral_norm_and_orthogonal():
    layer = parametrizations.orthogonal(nn.Linear(2, 2))
    other = parametrizations.spectral_norm(nn.Linear(2, 2)).eval()

    def f(x):
        return other(layer(x))

    return Made(f, [(ones(1, 2),), (ones(3, 2),)])


@program("https://github.com/pytorch/pytorch/issues/100001")
def lazy_modules():
    layer = nn.LazyLinear(2)

    def f(x):
        y = layer(x)
        return y * 2, layer.in_features, type(layer).__name__, torch.is_grad_enabled()

    return Made(lambda x: f(x)[1:], [(ones(1, 3),), (ones(2, 3),)], look=lambda *_: layer.weight.shape)


@program("https://github.com/pytorch/pytorch/issues/111837")
def modules_in_sets_and_dicts():
    a, b = nn.Linear(2, 2), nn.Linear(2, 2)

    def f(x):
        seen, order = {a}, {a: 1, b: 2}
        y = x
        for module in (a, b, a):
            y = module(y) * order[module]
            seen.add(module)
        return y, len(seen), a in seen, a is not b, a == b

    return Made(f, [(ones(1, 2),), (ones(3, 2),)])


@program("https://github.com/pytorch/pytorch/issues/122414")
def optimizer_step_in_the_function():
    layer = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9)

    def f(x):
        optimizer.zero_grad()
        loss = layer(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss.detach(), optimizer.param_groups[0]["lr"]

    return Made(f, [(ones(2, 2),), (ones(2, 2),), (ones(2, 2),)], state=[layer, optimizer])


@program("https://github.com/pytorch/pytorch/issues/117758")
def break_inside_a_module_with_hooks():
    class Inner(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(2, 2)

        def forward(self, x):
            y = self.layer(x)
            opaque()
            return y + 1

    log, model = [], nn.Sequential(Inner(), nn.ReLU())
    model[0].register_forward_hook(lambda m, a, out: log.append(out.sum()) or out * 2)
    model[0].layer.register_forward_pre_hook(lambda m, a: (a[0] - 1,))
    return Made(model, [(ones(1, 2),), (ones(3, 2),)], state=log)


@program("https://github.com/pytorch/pytorch/issues/97720")
def module_apply_and_casts():
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    seen = []

    def f(x):
        model.apply(lambda m: seen.append(type(m).__name__))
        model.requires_grad_(False)
        y = model.double()(x.double())
        model.float().zero_grad()
        return y, len(seen), model[0].weight.requires_grad

    return Made(f, [(ones(1, 2),), (ones(3, 2),)], state=[model, seen])
