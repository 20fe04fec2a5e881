"""Stores by index tensors, masks and lists, and writes through views that skip elements: they stay in a plan."""

import pytest
import torch
from mode import COUNTED
from support import check

import flambeau

ROWS, COLUMNS = torch.tensor([2, 0]), torch.tensor([[1], [3]])
MASK = torch.tensor([True, False, True, False])
WHOLE = torch.arange(24).reshape(4, 6) % 5 > 2


def base():
    torch.manual_seed(0)
    return torch.randn(4, 6)


def put(y, x, i):
    y[ROWS] = x[:2]
    y[ROWS, i] = 3.5
    y[COLUMNS, ROWS] = x[0, 0]
    y[1:, ROWS] = x[:3, :2]
    y[..., COLUMNS] = x[:, :1, None]


def put_lists(y, x, i):
    y[[0, 2]] = 1.0
    y[:, [[0, 1], [2, 3]]] = x[:, :2, None]
    y[[i, 0], [1, i]] = x[0, :2]
    y[(0, 1), :] = x[None, :2]


def put_masks(y, x, i):
    y[MASK] = x[:2]
    y[WHOLE] = x.reshape(-1)[: WHOLE.sum().item()]
    y[MASK, i] = 2
    y[:, MASK.repeat(2)[:6]] = x[:, :4] if MASK.repeat(2)[:6].sum() == 4 else 0.0
    y[i, WHOLE[0]] = x.sum()


def put_into_views(y, x, i):
    y[::2][ROWS % 2] = x[:2]
    y.t()[ROWS] = x.t()[:2]
    y[:, 1::3][MASK] = 4.0
    y.view(-1)[i : i + 3][ROWS] = x[0, :2]


def strided(y, x, i):
    y[:, ::2] = x[:, :3]
    y[1::2, i::3] += 1
    y[i::2].mul_(x[:2])
    y.view(2, 2, 6)[:, 1, ::5].copy_(x[:2, :2])


def diagonals(y, x, i):
    y.diagonal().fill_(2.0)
    y.diagonal(1).add_(x[0, :4])
    y[:, :4].diagonal(-1).copy_(x[1, :3])
    torch.diagonal(y.view(2, 2, 6), i, 1, 2).mul_(3)


def windows(y, x, i):
    y.unfold(1, 2, 2).add_(x.view(4, 3, 2))
    y.unfold(0, 2, 3)[0].zero_()
    y.view(-1).as_strided((3, 2), (7, 2), 1).fill_(5.0)


PUTS = [put, put_lists, put_masks, put_into_views, strided, diagonals, windows]


@pytest.mark.parametrize("made", [True, False], ids=["made", "given"])
@pytest.mark.parametrize("write", PUTS, ids=lambda f: f.__name__)
def test_stores(write, made, backend):
    def f(x, given, i):
        y = x * 2 if made else given
        part = y[1]
        write(y, x, i)
        return y + 1, part, y

    for i in (1, 0, 2):
        check(f, (base(), base() + 3, i), backend=backend, graphs=None)


@pytest.mark.parametrize("write", [put, put_lists, strided, diagonals, windows], ids=lambda f: f.__name__)
def test_they_are_plans(write):
    def f(x):
        y = x * 2
        write(y, x, 1)
        return y + 1

    check(f, (base(),))
    counts = flambeau.counters()
    assert not COUNTED or not counts["eager_graph"], counts["eager_graph_reasons"]


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.int64, torch.bool, torch.complex64], ids=str)
def test_types(dtype):
    def f(x):
        y = x.clone()
        y[ROWS] = x[1:3]
        y[:, ::2] = x[:, 1:4]
        y[MASK] = x[:2]
        return y

    check(f, ((base() * 3).to(dtype),))


@pytest.mark.parametrize("layout", ["transposed", "strided", "channels_last", "expanded"])
def test_layouts(layout):
    given = {
        "transposed": lambda: torch.randn(6, 4).t(),
        "strided": lambda: torch.randn(8, 12)[::2, ::2],
        "channels_last": lambda: torch.randn(4, 6, 2, 3).to(memory_format=torch.channels_last),
        "expanded": lambda: torch.randn(4, 1).expand(4, 6),
    }[layout]

    def f(x, y):
        z = y.clone()
        z[ROWS] = 1.0
        z[:, 1::2] = 2.0
        if layout != "expanded":
            y[:, ::2] = 3.0
            y[ROWS] = z[:2]
        return z, y * 2

    torch.manual_seed(1)
    check(f, (base(), given()))


def test_sizes_that_vary():
    def f(x, at):
        y = x * 2
        y[at] = x[: at.shape[0]]
        y[:, ::2] = 1.0
        y[1:, at] += 1
        return y + 1

    compiled = flambeau.compile(f, dynamic=True)
    for n in (4, 5, 7, 4):
        x, at = torch.randn(n, n), torch.arange(0, n - 1, 2)
        assert torch.equal(compiled(x, at), f(x, at))


def broken(x, at):
    y = x * 2
    try:
        y[at] = x[:2]
    except (IndexError, RuntimeError) as error:
        return str(error).splitlines()[0], y
    return None, y


@pytest.mark.parametrize(
    "at",
    [torch.tensor([0, 9]), torch.tensor([1, 2, 3]), torch.tensor([True, True, True, False]), torch.tensor([-5, 0])],
    ids=["beyond", "more", "mask", "below"],
)
def test_what_torch_refuses(at):
    check(broken, (base(), at), graphs=None)
    with pytest.raises((IndexError, RuntimeError)) as expected:
        base()[at] = base()[:2]

    def f(x, at):
        y = x * 2
        y[at] = x[:2]
        return y

    with pytest.raises(expected.type) as found:
        flambeau.compile(f)(base(), at)
    assert str(found.value).splitlines()[0] == str(expected.value).splitlines()[0]


@pytest.mark.parametrize(
    "sizes", [(2, 6), (1, 2, 6), (1, 6), (6,), (1, 1, 1, 6), (3, 2, 6), (3, 6), (2, 1, 6), (2,), (0, 6)], ids=str
)
@pytest.mark.parametrize("at", [MASK, ROWS, (MASK, slice(None)), ([0, 2], ...)], ids=["mask", "rows", "slice", "list"])
def test_sizes_of_values(at, sizes):
    def f(x, v):
        y = x * 2
        try:
            y[at] = v
        except (IndexError, RuntimeError) as error:
            return type(error), y
        return None, y

    check(f, (base(), torch.randn(sizes)), graphs=None)


@pytest.mark.parametrize("size", [8, 4096])
def test_parts_of_inputs(size):
    """Also where a part is read before it is written, and torch is called after."""

    def f(cache, x, at):
        cache[:, 3:5] = x[:2].t()
        cache[:, at] = x[0, 0]
        cache.index_copy_(1, at, x[:2].t() * 2)
        cache[1, 1::2] += 1
        return cache[:, :4].sum(), x + 1

    check(f, (torch.randn(6, size, 3)[..., 0] if size == 8 else torch.randn(6, size * 3), base(), ROWS), graphs=None)


def test_another_type_is_refused():
    def f(x):
        y = x * 2
        try:
            y[ROWS] = x[:2].double()
        except RuntimeError as error:
            return str(error), y
        return None, y

    check(f, (base(),), graphs=None)
