"""Tensors as Python values: attributes, elements, truth, iteration, membership, and data that decides sizes."""

import torch

from ..program import Made, ones, opaque, program


@program("https://github.com/pytorch/pytorch/pull/94332")
def attributes_of_tensors():
    def f(x):
        y = x + 1
        y.note = "made"
        x.seen = getattr(x, "seen", 0) + 1
        return y * x.seen, y.note, hasattr(x, "none"), y

    x = ones(3)
    return Made(f, [(x,), (x,), (ones(2),)], look=lambda args, result: (args[0].seen, result[3].note))


@program("https://github.com/pytorch/pytorch/issues/134844")
def attributes_of_tensors_across_a_break():
    class Meta:
        scale = 3

    def f(x):
        x.meta = Meta()
        opaque()
        y = x * x.meta.scale
        del x.meta
        return y, hasattr(x, "meta"), x.__dict__

    return Made(f, [(ones(3),), (ones(2),)])


@program("https://github.com/pytorch/pytorch/issues/180837")
def parts_of_complex_tensors():
    def f(re, im):
        z = torch.complex(re, im)
        z.imag = im * 2
        z.real[0] = 7
        return z, z.real, z.conj().imag, z.abs()

    return Made(f, [(ones(2), ones(2)), (ones(3), ones(3))])


@program("https://github.com/pytorch/pytorch/issues/106125")
def dict_of_the_object():
    class Model:
        def __init__(self):
            self.a, self.b = ones(2), 3

    model = Model()

    def f(x):
        found = {k: v for k, v in model.__dict__.items() if not isinstance(v, int)}
        model.__dict__.update(c=x.sum())
        vars(model)["b"] += 1
        return x * model.b + found["a"], list(vars(model)), model.c

    return Made(f, [(ones(2),), (ones(2),)], state=model)


@program("https://github.com/pytorch/pytorch/issues/106207")
def tensor_of_tensor_elements():
    def f():
        x = torch.tensor([1, 2, 3, 4, 5, 6])
        picked = [x[0], x[2], x[4]]
        return torch.LongTensor(picked), torch.as_tensor(picked), torch.tensor(picked), torch.stack(picked)

    return Made(f, [(), ()])


@program("https://github.com/pytorch/pytorch/issues/133063")
def list_extended_by_a_generator_that_reads_it():
    def f(x):
        y = [x, x]
        y.extend(y[-1] + n for n in range(3))
        return y

    return Made(f, [(ones(2),), (torch.zeros(2),)])


@program("https://github.com/pytorch/pytorch/issues/126685")
def sizes_that_depend_on_data():
    def f(x):
        u = torch.unique(x)
        at = x.nonzero().squeeze(1)
        return u * 2, at.shape[0], x[x > 1].sum(), torch.masked_select(x, x > 0).numel(), u.tolist()

    data = [[1, 1, 2], [0, 3, 3], [0, 0, 0]]
    return Made(f, [(torch.tensor(d),) for d in data])


@program("https://github.com/pytorch/pytorch/issues/122379")
def membership_in_a_range():
    def f(x, indices):
        kept = [i for i in indices if i in range(0, 2)]
        return [x[i] for i in kept], 5 in range(0, 10, 5), range(3) == range(0, 3), 1.0 in range(3)

    return Made(f, [(ones(3, 3), [0, 1, 2]), (ones(3, 3), [2, 0])])


@program("https://github.com/pytorch/pytorch/issues/104092")
def own_getitem_with_tensors():
    class Table:
        def __init__(self, data):
            self.data = data

        def __getitem__(self, at):
            if isinstance(at, tuple):
                return self.data[at[0]] + len(at)
            return self.data[at] if isinstance(at, torch.Tensor) else Table(self.data[at])

    def f(table, at):
        return table[at], table[0:1].data, table[at, None], table[torch.tensor([0])]

    return Made(f, [(Table(ones(3)), torch.tensor([1, 2])), (Table(ones(4)), torch.tensor([3]))])


@program("https://github.com/pytorch/pytorch/issues/114483")
def items_and_lists():
    def f(x, i):
        n = i.item()
        return x[:n], x.tolist(), [v * 2 for v in i.view(-1).tolist()], int(i), float(x[0]), i.item() + 1, range(n)

    return Made(f, [(ones(4), torch.tensor(2)), (ones(4), torch.tensor(3))])


@program("https://github.com/pytorch/pytorch/issues/114483")
def iteration_and_unpacking_of_tensors():
    def f(x):
        a, b = x
        rows = [row.sum() for row in x]
        first, *rest = x.unbind(0)
        return a + b, rows, len(x), torch.stack(rest), list(reversed(x))[0], dict(enumerate(x))[1]

    return Made(f, [(ones(2, 3),), (ones(2, 2),)])


@program("https://github.com/pytorch/pytorch/issues/110599")
def tensors_in_lists():
    def f(x, y):
        pool = [x, y]
        said = []
        for attempt in (
            lambda: x in pool,
            lambda: pool.index(y),
            lambda: x == [1],
            lambda: x.__ne__(None),
            lambda: bool(x),
        ):
            try:
                said.append(attempt())
            except (RuntimeError, TypeError, ValueError) as error:
                said.append(str(error))
        return x + y, said

    return Made(f, [(ones(2), ones(2) * 2), (ones(1), ones(1) * 2)])


@program("https://github.com/pytorch/pytorch/issues/101979")
def tables_of_dtypes():
    table = {torch.float16: {torch.float32: torch.float32}, torch.float32: {torch.float32: torch.float64}}

    def f(x, other):
        kind = table.get(x.dtype, {}).get(other, torch.int64)
        return (
            x.to(kind) + 1,
            torch.promote_types(x.dtype, other),
            torch.result_type(x, 1.0),
            torch.can_cast(kind, other),
        )

    return Made(f, [(ones(2).half(), torch.float32), (ones(2), torch.float32), (ones(2).int(), torch.float32)])


@program("https://github.com/pytorch/pytorch/issues/104092")
def indexing_in_all_forms():
    def f(x):
        y = x.clone()
        y[0, ..., -1] = 100
        y[:, None, 1:][..., 0] += 1
        y[torch.tensor([0, 1]), [1, 0]] = -1
        y[y > 50] = 50
        return y, x[True].shape, x[[0]], x[..., ::2], x.T[-1], x[:, torch.tensor([True, False, True])]

    return Made(f, [(ones(2, 3),), (ones(4, 3),)])


@program("https://github.com/pytorch/pytorch/issues/169722")
def gradients_and_versions_changed():
    def f(x):
        x.grad = torch.ones_like(x)
        before = x._version
        with torch.no_grad():
            x.mul_(2)
        try:
            x.add_(1)
        except RuntimeError as error:
            return x * 2, x._version - before, str(error)[:20]

    return Made(f, [(ones(3).requires_grad_(),), (ones(2).requires_grad_(),)], look=lambda args, _: args[0].grad)


@program("https://github.com/pytorch/pytorch/pull/94332")
def absent_attribute_of_a_tensor_appears():
    x = ones(3)

    def before(n):
        if n == 1:
            x.tag = 5
        if n == 3:
            del x.tag

    def f(x):
        return (x + 1 if hasattr(x, "tag") else x - 1), getattr(x, "tag", None)

    return Made(f, [(x,)] * 4, before=before)


@program("https://github.com/pytorch/pytorch/pull/94332")
def absent_attribute_of_a_parameter_appears():
    layer = torch.nn.Linear(2, 2)

    def before(n):
        if n == 1:
            layer.weight.scale = 3.0

    def f(x):
        scale = getattr(layer.weight, "scale", None)
        return layer(x) * scale if scale is not None else layer(x)

    return Made(f, [(ones(1, 2),)] * 3, before=before)
