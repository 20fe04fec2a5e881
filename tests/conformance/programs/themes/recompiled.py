"""Calls that are compiled again: ints that count, changing shapes, lists that grow, closures made anew."""

import dataclasses
import functools

import torch
from torch import nn

from ..program import Made, ones, opaque, program


@program("https://github.com/pytorch/pytorch/issues/128319")
def counter_of_a_module():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.counter, self.layer = 0, nn.Linear(1, 1)

        def forward(self, x):
            self.counter += 1
            return self.layer(x) * self.counter

    model = Model()
    return Made(model, [(ones(1, 1),)] * 8, look=lambda *_: model.counter)


@program("https://github.com/pytorch/pytorch/issues/128319")
def counter_of_an_object():
    class Schedule:
        def __init__(self):
            self.step, self.rate = 0, 1.0

        def next(self):
            self.step += 1
            self.rate *= 0.5
            return self.rate if self.step > 2 else self.step

    schedule = Schedule()
    return Made(lambda x: x * schedule.next(), [(ones(2),)] * 6, state=schedule)


@program("https://github.com/pytorch/pytorch/issues/128319")
def int_argument_that_counts():
    def f(x, n):
        if n % 4 == 3:
            x = x - 1
        return x * n + torch.arange(n).sum(), n + 1

    return Made(f, [(ones(3), n) for n in range(7)])


@program("https://github.com/pytorch/pytorch/issues/113129")
def float_argument_that_changes():
    def f(x, rate):
        return x * rate + int(rate * 10), rate**2, rate > 0.2

    return Made(f, [(ones(3), r) for r in (0.1, 0.2, 0.3, 1.0, 0.0)])


@program("https://github.com/pytorch/pytorch/issues/113129")
def argument_changes_its_type():
    def f(x, v):
        return x * v if v is not None else x - 1

    return Made(f, [(ones(3), v) for v in (1, 1.0, True, None, torch.tensor(2.0), 2j)])


@program("https://github.com/pytorch/pytorch/issues/105279")
def first_size_changes():
    def f(x):
        n, m = x.shape
        return x.reshape(m, n).sum(0) * n, torch.full((n, n), float(n)), x[: n // 2]

    return Made(f, [(ones(n, 2),) for n in (3, 4, 7, 1, 0)])


@program("https://github.com/pytorch/pytorch/issues/106067")
def unused_tensor_changes_its_size():
    def f(x, y):
        z = y
        return x + 2, z is y

    return Made(f, [(ones(2), ones(n)) for n in (0, 1, 2, 5)])


@program("https://github.com/pytorch/pytorch/issues/131893")
def sizes_change_together():
    def f(x, y):
        if x.shape[0] == y.shape[0]:
            return x + y
        return torch.cat([x, y])

    return Made(f, [(ones(a), ones(b)) for a, b in ((2, 2), (3, 3), (3, 4), (4, 4), (1, 1))])


@program("https://github.com/pytorch/pytorch/issues/105279")
def rank_dtype_and_stride_change():
    def f(x):
        return x * 2 + x.ndim, x.stride(), x.is_contiguous(), x.dtype

    calls = [ones(4), ones(2, 2), ones(2, 2).T, ones(2, 2).double(), ones(2, 2).int(), ones(4).expand(2, 4)]
    return Made(f, [(x,) for x in calls])


@program("https://github.com/pytorch/pytorch/issues/123810")
def int_used_as_a_size():
    def f(x, n):
        pad = torch.zeros(n, dtype=x.dtype)
        return torch.cat([x, pad]).view(-1, 1), range(n)[-1] if n else None, [i * 2 for i in range(n)]

    return Made(f, [(ones(3), n) for n in (2, 3, 5, 0, 1)])


@program("https://github.com/pytorch/pytorch/issues/93724")
def list_argument_that_grows():
    def f(x, past):
        past.append(x.mean())
        return torch.stack(past).sum() * len(past)

    past = []
    return Made(f, [(ones(3), past)] * 6)


@program("https://github.com/pytorch/tensordict/issues/1606")
def dict_argument_that_grows():
    class Store:
        def __init__(self):
            self.data = {}

        def __setitem__(self, key, value):
            self.data[key] = value

    store = Store()

    def f(x, key):
        store[key] = x * 2
        return sum(store.data.values())

    return Made(f, [(ones(2), key) for key in "abcab"], look=lambda *_: list(store.data))


@program("https://github.com/pytorch/pytorch/issues/93724")
def cache_of_keys_and_values():
    class Cache:
        def __init__(self):
            self.keys, self.seen = None, 0

        def update(self, k):
            self.keys = k if self.keys is None else torch.cat([self.keys, k], dim=1)
            self.seen += k.shape[1]
            return self.keys

    cache = Cache()

    def f(q):
        k = cache.update(q)
        return (q @ k.transpose(1, 2)).softmax(-1), cache.seen

    return Made(f, [(ones(1, n, 2),) for n in (3, 1, 1, 1, 1)], state=cache)


@program("https://github.com/pytorch/pytorch/issues/128964")
def closure_made_for_each_call():
    def f(x, fn):
        return fn(x) + 1

    def scaled(n):
        return lambda x: x * n

    return Made(f, [(ones(3), scaled(n)) for n in (2, 2, 3, 4, 5)])


@program("https://github.com/pytorch/pytorch/issues/128964")
def partial_and_method_made_for_each_call():
    class Scale:
        def __init__(self, n):
            self.n = n

        def run(self, x, shift=0):
            return x * self.n + shift

    def f(x, fn):
        return fn(x)

    made = [Scale(2).run, Scale(3).run, functools.partial(Scale(3).run, shift=1), functools.partial(torch.add, other=2)]
    return Made(f, [(ones(3), fn) for fn in made])


@program("https://github.com/pytorch/pytorch/issues/125652")
def one_function_many_modules():
    layers = nn.ModuleList(nn.Linear(2, 2) for _ in range(6))

    def f(layer, x):
        return layer(x).relu()

    return Made(f, [(layer, ones(1, 2)) for layer in layers])


@program("https://github.com/pytorch/pytorch/issues/163329")
def attribute_object_replaced():
    class Processor:
        def __init__(self, n):
            self.n = n

        def __call__(self, x):
            return x * self.n

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.processor = Processor(1)

        def forward(self, x):
            return self.processor(x)

    block = Block()
    return Made(block, [(ones(3),)] * 4, before=lambda n: setattr(block, "processor", Processor(n // 2)))


@program("https://github.com/pytorch/pytorch/issues/128964")
def new_objects_of_one_class():
    @dataclasses.dataclass
    class Batch:
        x: torch.Tensor
        size: int
        names: tuple = ()

    def f(batch):
        return batch.x * batch.size, [n.upper() for n in batch.names], dataclasses.replace(batch, size=0)

    return Made(f, [(Batch(ones(n), n, ("a",) * n),) for n in (2, 3, 4)])


@program("https://github.com/pytorch/pytorch/issues/128964")
def string_argument_that_changes():
    def f(x, name):
        ops = {"relu": torch.relu, "sin": torch.sin}
        return ops.get(name, torch.neg)(x), getattr(torch, name)(x) if hasattr(torch, name) else None

    return Made(f, [(ones(3), name) for name in ("relu", "sin", "none", "cos", "relu")])


@program("https://github.com/pytorch/pytorch/issues/125652")
def recompiles_with_a_break():
    def f(x, n):
        y = x + n
        opaque()
        for i in range(n):
            y = y * 2 + i
        return y, y.shape[0] * n

    return Made(f, [(ones(s), n) for s, n in ((2, 1), (3, 2), (4, 3), (2, 1), (5, 0))])


@program("https://github.com/pytorch/pytorch/issues/163329")
def parameters_replaced_and_moved():
    layer = nn.Linear(2, 2)

    def before(n):
        if n == 1:
            layer.weight = nn.Parameter(torch.eye(2))
        if n == 2:
            layer.weight.data.mul_(3)
        if n == 3:
            layer.load_state_dict({"weight": torch.zeros(2, 2), "bias": ones(2)})

    return Made(layer, [(ones(1, 2),)] * 4, before=before, state=layer)


@program("https://github.com/pytorch/pytorch/issues/124717")
def globals_and_defaults_change():
    settings = {"scale": 1}

    def helper(x, shift=1):
        return x * settings["scale"] + shift

    def before(n):
        settings["scale"] = n + 1
        helper.__defaults__ = (n,)

    return Made(lambda x: helper(x), [(ones(3),)] * 4, before=before)


@program("https://github.com/pytorch/pytorch/issues/163329")
def helper_replaced_between_calls():
    class Space:
        @staticmethod
        def step(x):
            return x + 1

    def before(n):
        if n == 1:
            Space.step = staticmethod(lambda x: x * 5)
        if n == 2:
            Space.step = torch.neg

    return Made(lambda x: Space.step(x), [(ones(3),)] * 3, before=before)


@program("https://github.com/pytorch/pytorch/issues/105279")
def number_of_arguments_changes():
    def f(*xs, **named):
        total = sum(xs)
        for name, value in named.items():
            total = total * value + len(name)
        return total, len(xs)

    return Made(lambda n, x: f(*[x] * n, **{"k" * i: x for i in range(1, n)}), [(n, ones(2)) for n in (1, 2, 3, 4)])


@program("https://github.com/pytorch/pytorch/issues/124717")
def absent_attributes_appear():
    class Plain:
        pass

    class Model(nn.Module):
        def forward(self, x):
            return x

    def helper(x):
        return x

    things = [Plain(), Plain, Model(), helper, functools.partial(helper), functools]

    def before(n):
        for thing in things:
            if n == 1:
                thing.late_flag = n
            if n == 3:
                del thing.late_flag

    def f(x):
        return x + sum(hasattr(t, "late_flag") for t in things), [getattr(t, "late_flag", 0) for t in things]

    return Made(f, [(ones(3),)] * 4, before=before)


@program("https://github.com/pytorch/pytorch/issues/98928")
def absent_keys_and_members_appear():
    table, names, items, loaded = {}, set(), [], nn.ModuleDict()

    def before(n):
        if n == 1:
            table["k"] = 2
            names.add("k")
            items.append("k")
            loaded["k"] = nn.Identity()

    def f(x):
        flags = "k" in table, "k" in names, "k" in items, "k" in loaded, table.get("k") is None
        return x + table.get("k", 10) + sum(flags), flags

    return Made(f, [(ones(3),)] * 3, before=before)


@program("https://github.com/pytorch/pytorch/issues/98928")
def absent_methods_appear():
    class Base:
        def name(self):
            return "base"

    class Child(Base):
        pass

    child = Child()

    def before(n):
        if n == 1:
            Child.name = lambda self: "child"
        if n == 2:
            child.name = lambda: "own"
        if n == 3:
            Child.__len__ = lambda self: 0

    def f(x):
        return (x + 1 if child else x - 1), child.name(), super(Child, child).name()

    return Made(f, [(ones(3),)] * 4, before=before)


@program("https://github.com/pytorch/pytorch/issues/132165")
def absent_global_hides_a_builtin():
    def before(n):
        if n == 1:
            globals()["abs"] = lambda x: x * 100
        if n == 2:
            del globals()["abs"]

    return Made(lambda x: abs(x) + 1, [(-ones(3),)] * 3, before=before)


@program("https://github.com/pytorch/pytorch/issues/113129")
def equal_values_that_differ():
    def f(x, v, key):
        table = {1: "one", "a": 2}
        return x / v, v * 0, str(v), table.get(key), type(key).__name__, [v, key]

    calls = [(0.0, 1), (-0.0, True), (0, 1.0), (False, 1), (float("nan"), "a"), (float("nan"), "a")]
    return Made(f, [(ones(2), v, key) for v, key in calls])


@program("https://github.com/pytorch/pytorch/issues/93782")
def code_of_a_function_is_replaced():
    def helper(x):
        return x + 1

    def other(x):
        return x * 7

    def before(n):
        if n == 1:
            helper.__code__ = other.__code__

    return Made(lambda x: helper(x) - 1, [(ones(3),)] * 3, before=before)


@program("https://github.com/pytorch/pytorch/issues/93782")
def cell_of_a_closure_changes():
    def make():
        scale, names = 2, ["a"]

        def helper(x):
            return x * scale + len(names)

        return helper

    helper = make()

    def before(n):
        helper.__closure__[1].cell_contents = n + 1
        helper.__closure__[0].cell_contents = ["a"] * n

    return Made(lambda x: helper(x), [(ones(3),)] * 3, before=before)


@program("https://github.com/pytorch/pytorch/issues/149991")
def class_of_an_object_changes():
    class Cold:
        def run(self, x):
            return x - 1

    class Hot(Cold):
        def run(self, x):
            return super().run(x) * 5

    thing = Cold()

    def before(n):
        thing.__class__ = Hot if n % 2 else Cold

    return Made(lambda x: (thing.run(x), isinstance(thing, Hot)), [(ones(3),)] * 4, before=before)


@program("https://github.com/pytorch/pytorch/issues/149991")
def abstract_class_registers_later():
    import abc

    class Shape(abc.ABC):
        pass

    class Square:
        pass

    def before(n):
        if n == 1:
            Shape.register(Square)

    def f(x, thing):
        return x + 1 if isinstance(thing, Shape) else x - 1

    return Made(f, [(ones(3), Square())] * 3, before=before)


@program("https://github.com/pytorch/pytorch/issues/198189")
def order_of_a_dict_changes():
    table = {"a": 2.0, "b": 3.0}

    def before(n):
        if n == 1:
            table["a"] = table.pop("a")

    def f(x):
        for name, value in table.items():
            x = x * value + len(name)
        return x, list(table), next(iter(table))

    return Made(f, [(ones(3),)] * 3, before=before)


@program("https://github.com/pytorch/pytorch/pull/184830")
def aliased_arguments_come_and_go():
    def f(x, y, items, more):
        x.add_(1)
        items.append(2)
        return y * 2, len(more), x is y

    def call(aliased):
        x, items = ones(4), [1]
        return (x, x, items, items) if aliased == 1 else (x, x[1:] if aliased == 2 else ones(4), items, [5])

    return Made(f, [call(aliased) for aliased in (0, 1, 2, 0, 1)])


@program("https://github.com/pytorch/pytorch/issues/100977")
def facts_of_a_tensor_change():
    def f(x):
        y = x.view(-1) if x.is_contiguous() else x.reshape(-1)
        return y * 2, x.requires_grad, x.is_leaf, x.storage_offset(), x.is_inference(), x.grad is None, y._base is None

    with torch.inference_mode():
        inferred = ones(2, 2)
    grad = ones(2, 2).requires_grad_()
    return Made(f, [(x,) for x in (ones(2, 2), grad, grad * 1, ones(3, 2)[1:], ones(2, 2).T, inferred)])


@program("https://github.com/pytorch/pytorch/issues/163329")
def property_and_descriptor_replaced():
    class Config:
        @property
        def scale(self):
            return 2

        @staticmethod
        def shift():
            return 1

    config = Config()

    def before(n):
        if n == 1:
            Config.scale = property(lambda self: 10)
        if n == 2:
            Config.scale, Config.shift = 4, classmethod(lambda cls: len(cls.__name__))

    return Made(lambda x: x * config.scale + config.shift(), [(ones(3),)] * 4, before=before)


@program("https://github.com/pytorch/pytorch/issues/163329")
def base_class_changes():
    class A:
        def run(self, x):
            return x + 1

    class B:
        def run(self, x):
            return x * 3

    class C(A):
        pass

    thing = C()

    def before(n):
        C.__bases__ = (B,) if n == 1 else (A,)

    return Made(lambda x: (thing.run(x), isinstance(thing, A), C.__mro__[1].__name__), [(ones(3),)] * 3, before=before)
