"""numpy in compiled functions: scalars, functions of Python numbers, arrays, random state."""

import numpy as np
import torch

from ..program import Made, ones, opaque, program


@program("https://github.com/pytorch/pytorch/issues/141258")
def scalar_rounding():
    def f(x, v):
        return x * round(np.floor(v)), np.floor(v), np.ceil(v), float(np.float32(v)), int(np.int64(7))

    return Made(f, [(ones(3), 3.1), (ones(3), 2.7)])


@program("https://github.com/pytorch/pytorch/issues/141258")
def scalar_arguments():
    def f(x, s):
        return x * s, s + 1, s.dtype, s.item(), type(s).__name__, isinstance(s, np.floating)

    return Made(f, [(ones(3), np.float32(1.5)), (ones(3), np.float64(2.5)), (ones(3), np.int64(3))])


@program("https://github.com/pytorch/pytorch/pull/130158")
def scalar_is_integer():
    def f(x, s):
        return (x if s.is_integer() else 2 * x), s.as_integer_ratio()

    return Made(f, [(ones(3), np.float32(1.0)), (ones(3), np.float64(1.5))])


@program("https://github.com/pytorch/pytorch/issues/141258")
def functions_of_python_numbers():
    def f(x, n):
        return x * np.sqrt(n), np.prod([n, 2]), np.log2(8), np.clip(n, 0, 3), np.maximum(n, 2), np.pi

    return Made(f, [(ones(3), 4), (ones(3), 9.0)])


@program("https://github.com/pytorch/pytorch/issues/141258")
def scalar_as_an_index_and_a_size():
    def f(x, sizes):
        n = np.prod(sizes)
        return x[: sizes[0]], x.reshape(int(n) // 2, -1), torch.zeros(sizes[1]), range(sizes[0])[0]

    return Made(f, [(ones(6), np.array([2, 3])), (ones(4), np.array([1, 4]))])


@program("https://github.com/pytorch/pytorch/issues/141258")
def scalar_comparison_and_bool():
    def f(x, s):
        if s > np.float32(1):
            x = x + 1
        return x, s == 2, bool(s), s is not None, np.isnan(s), np.isfinite(s) and 5

    return Made(f, [(ones(3), np.float32(2)), (ones(3), np.float32(0)), (ones(3), np.float32("nan"))])


@program("https://github.com/pytorch/pytorch/issues/111370")
def array_to_list():
    def f(a):
        zero = np.array([0])
        return zero.tolist(), a.tolist(), (a + 1).sum().item(), len(a), a.shape

    return Made(f, [(np.array([1, 2, 3]),), (np.array([[1.5]]),)])


@program("https://github.com/pytorch/pytorch/issues/111370")
def array_arithmetic():
    def f(a, b):
        c = a @ b + np.arange(a.shape[0])[:, None]
        return np.where(c > 2, c, -c), c.mean(axis=0), c.T, c.astype(np.float32), c.dtype == np.float64

    return Made(f, [(np.ones((2, 3)), np.ones((3, 2))), (np.eye(2), np.full((2, 2), 3.0))])


@program("https://github.com/pytorch/pytorch/issues/140884")
def array_comparison_argument():
    def f(a):
        return a >= 3, a[a >= 3], np.any(a > 8), (a == a).all(), np.nonzero(a > 7)

    return Made(f, [(np.arange(10),), (np.arange(5),)])


@program("https://github.com/pytorch/pytorch/issues/113539")
def array_resized_and_sorted_in_place():
    def f():
        x = np.arange(6)[::-1].copy()
        x.resize(3, 2)
        x.sort(axis=0)
        x.fill(3) if x.size > 6 else None
        x[0, 0] = 100
        x.shape = (2, 3)
        return x

    return Made(f, [(), ()])


@program("https://github.com/pytorch/pytorch/issues/112335")
def asarray_of_a_list_of_arrays():
    def f(a):
        both = [a, a + 1]
        return np.asarray(both), np.stack(both), np.concatenate(both), np.array([[1, 2], [3, 4]]), np.vstack(both)

    return Made(f, [(np.array([1, 2]),), (np.array([1.5]),)])


@program("https://github.com/pytorch/pytorch/pull/118248")
def functions_with_out():
    def f(a):
        out = np.empty_like(a)
        same = np.sin(a, out=out)
        np.add(a, 1, out=a)
        return same is out, out, a.cumsum(out=out)

    return Made(f, [(np.arange(3.0),), (np.ones(2),)])


@program("https://github.com/pytorch/pytorch/issues/113539")
def argument_changed_in_place():
    def f(a):
        a[0] = 5
        a += 1
        b = a[1:]
        b *= 2
        return b, a.sum()

    return Made(f, [(np.arange(3),), (np.arange(4.0),)])


@program("https://github.com/pytorch/pytorch/issues/113539")
def memory_shared_with_a_tensor():
    def f(x):
        a = x.numpy()
        a[0] = 7
        y = torch.from_numpy(a)
        y.add_(1)
        return x, a, np.shares_memory(a, y.numpy())

    return Made(f, [(ones(3),), (ones(2),)])


@program("https://github.com/pytorch/pytorch/issues/111370")
def tensor_and_array_mixed():
    def f(x, a):
        b = x.detach().numpy() * 2
        return torch.as_tensor(b) + x, torch.tensor(a), np.dot(b, b), x + torch.from_numpy(a), np.asarray(x)

    return Made(f, [(ones(3), np.ones(3)), (ones(2), np.zeros(2))])


@program("https://github.com/pytorch/pytorch/issues/112335")
def tensor_of_scalars_and_arrays():
    def f(a):
        mean = a.mean()
        return torch.tensor([mean, a[0], 1.0]), torch.tensor(mean), torch.full((2,), a.max()), torch.tensor(a.shape)

    return Made(f, [(np.arange(3.0),), (np.arange(4, dtype=np.float32),)])


@program("https://github.com/pytorch/pytorch/issues/136559")
def random_of_numpy():
    def f(x):
        a = np.random.uniform(-1, 1, size=(2,))
        return x + torch.tensor(a), np.random.randint(0, 10), np.random.rand(), np.random.permutation(3)

    return Made(f, [(ones(2),), (ones(2),), (ones(2),)])


@program("https://github.com/pytorch/pytorch/issues/136559")
def random_state_and_generator():
    state, rng = np.random.RandomState(3), np.random.default_rng(4)

    def f(x):
        np.random.seed(1)
        return x * state.rand() + rng.integers(10), np.random.randn(), rng.random(2)

    return Made(f, [(ones(2),), (ones(2),), (ones(3),)], look=lambda *_: (state.rand(), rng.random()))


@program("https://github.com/pytorch/pytorch/issues/111370")
def dtype_objects():
    def f(x, name):
        d = np.dtype(name)
        a = np.zeros(2, dtype=d)
        return x + torch.from_numpy(a), d.itemsize, d.kind, d == np.float32, np.result_type(d, np.int8), a.dtype.name

    return Made(f, [(ones(2), "float32"), (ones(2), "int64")])


@program("https://github.com/pytorch/pytorch/pull/123803")
def finfo_of_numpy():
    def f(x):
        return x.clamp(max=np.finfo(np.float32).eps), np.iinfo(np.int16).max, np.finfo(np.float64).tiny, np.inf

    return Made(f, [(ones(3),), (ones(2),)])


@program("https://github.com/pytorch/pytorch/pull/120868")
def iterating_arrays():
    def f(x, a):
        for row in a:
            x = x + row.sum()
        total = [float(v) for v in a.flat]
        for index, v in np.ndenumerate(a):
            x = x * v + index[0]
        return x, total

    return Made(f, [(ones(2), np.ones((2, 2))), (ones(2), np.arange(2.0).reshape(1, 2))])


@program("https://github.com/pytorch/pytorch/issues/111370")
def array_across_a_break():
    def f(x):
        a = x.numpy() + 1
        b = a[::2]
        opaque()
        b += 1
        return a, torch.from_numpy(b) * 2

    return Made(f, [(ones(4),), (ones(3),)])


@program("https://github.com/pytorch/pytorch/issues/111370")
def strings_and_structured_arrays():
    def f(x, names):
        table = np.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f4")])
        return x + table["a"][0], np.char.upper(names), (names == "a").sum(), table.dtype.names

    return Made(f, [(ones(3), np.array(["a", "b"])), (ones(3), np.array(["a", "a", "c"]))])


@program("https://github.com/pytorch/pytorch/issues/141258")
def numpy_linspace_and_interp():
    grid = np.linspace(0, 1, 5)

    def f(x, v):
        at = int(np.searchsorted(grid, v))
        return (
            x * at,
            np.interp(v, grid, grid**2),
            np.argmin(abs(grid - v)),
            np.allclose(grid, grid),
            np.unique([1, 1, 2]),
        )

    return Made(f, [(ones(3), 0.3), (ones(3), 0.8)])


@program("https://github.com/pytorch/pytorch/issues/111370")
def global_array_that_changes():
    weights = np.ones(3)

    def f(x):
        return x * torch.from_numpy(weights).float(), weights.sum()

    return Made(f, [(ones(3),)] * 3, before=lambda n: weights.__setitem__(0, n))
