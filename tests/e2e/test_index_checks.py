"""Calls that raise where an index lies outside of its dimension, behind writes to inputs and inside of handlers."""

import pytest
import torch
from mode import COUNTED

import flambeau

LOG = []


class Cache:
    """As caches of a fixed length do it: a tensor counts how much is filled."""

    def __init__(self):
        self.keys, self.values = torch.zeros(1, 2, 8, 3), torch.zeros(1, 2, 8, 3)
        self.filled = torch.tensor(0)

    def update(self, keys, values):
        position = torch.arange(keys.shape[-2]) + self.filled
        self.filled.add_(keys.shape[-2])
        try:
            self.keys.index_copy_(2, position, keys)
            self.values.index_copy_(2, position, values)
        except NotImplementedError:
            self.keys[:, :, position] = keys
        return self.keys, self.values

    def state(self):
        return str((self.keys, self.values, self.filled))


def cached(cache, x):
    try:
        keys, values = cache.update(x * 2, x + 1)
        return keys.sum() + values.sum()
    finally:
        LOG.append("done")


def several(cache, x):
    try:
        found = [cache.update(x * (i + 1), x)[0].sum() for i in range(2)]
    except (IndexError, RuntimeError) as error:
        return type(error).__name__, x + 1
    return found


def embedded(cache, x):
    cache.keys.add_(1)
    rows = cache.filled.reshape(-1)
    try:
        return torch.nn.functional.embedding(rows, x[0, 0]) + torch.index_select(x, 2, rows)
    except IndexError:
        return "outside"


def effects(cache, x):
    LOG.append("begun")
    cache.values.mul_(2)
    return x.gather(2, cache.filled.view(1, 1, 1, 1).expand(1, 2, 1, 3) - 1)


def written_before(cache, x):
    cache.keys.add_(1)
    cache.filled.add_(3)
    try:
        return cache.keys.index_add_(2, cache.filled.view(1), x[:, :, :1]).sum()
    except (IndexError, RuntimeError):
        return "outside"


def changed_copy(cache, x):
    cache.keys.add_(1)
    rows = cache.filled.clone().view(1)
    rows[0] = 100
    try:
        return torch.index_select(cache.keys, 2, rows)
    except IndexError:
        return "outside"


def scattered(cache, x):
    cache.keys.add_(1)
    try:
        return torch.zeros(2, 4).scatter_(1, cache.filled.expand(2, 1), 1.0), x
    except (IndexError, RuntimeError):
        return "outside"


def found(cache, x):
    cache.keys.add_(1)
    try:
        best = x.sum((0, 1)).topk(1, dim=0).indices
        groups = torch.zeros(x.shape[2], 3).scatter_(0, best, 1.0)
        return groups.index_select(1, x[0, 0].argmax(1)[:1])
    except (IndexError, RuntimeError):
        return "outside"


def computed(cache, x):
    cache.keys.add_(1)
    try:
        rows = x.argmax().view(1) + x.max(2)[1].sum(1)[:1]
        return x[0].index_select(1, rows), x.index_select(2, x[0, 0].sort(1)[1][0, :1] - 1)
    except (IndexError, RuntimeError):
        return "outside"


PROGRAMS = [found, computed, cached, several, embedded, effects, written_before, changed_copy, scattered]


def called(fn, cache, x):
    try:
        return str(fn(cache, x))
    except (IndexError, RuntimeError) as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
@pytest.mark.parametrize("length", [1, 3])
def test_results(program, length):
    """Calls within the dimensions and, from some on, outside."""
    compiled = flambeau.compile(program)
    ours, eager = Cache(), Cache()
    for number in range(10):
        x = torch.full((1, 2, length, 3), float(number))
        seen = []
        for fn, cache in [(program, eager), (compiled, ours)]:
            LOG.clear()
            seen.append((called(fn, cache, x), cache.state(), list(LOG)))
        assert seen[0] == seen[1], number


@pytest.mark.parametrize("program", [cached, found, scattered], ids=lambda p: p.__name__)
def test_captured_whole(program):
    compiled = flambeau.compile(program)
    cache = Cache()
    for _ in range(3):
        compiled(cache, torch.ones(1, 2, 1, 3))
    assert not COUNTED or flambeau.counters()["graph_breaks"] == {}


@pytest.mark.parametrize("index", [-1, 0, 7, 8, 2**62])
def test_bounds(index):
    def program(cache, at):
        cache.keys.add_(1)
        try:
            return torch.index_select(cache.keys, 2, at * 2 - at)
        except (IndexError, RuntimeError):
            return "outside"

    compiled = flambeau.compile(program)
    seen = []
    for fn in (program, compiled, compiled):
        cache = Cache()
        seen.append((str(fn(cache, torch.tensor([3, index, 0])[1:])), cache.state()))
    assert seen[0] == seen[1] == seen[2]


def test_many_indices_run_in_plain_python():
    """They are not looked at: results are eager's."""

    def program(cache, at):
        cache.keys.add_(1)
        try:
            return torch.index_select(cache.keys, 2, at)
        except IndexError:
            return "outside"

    compiled = flambeau.compile(program)
    for last in (7, 8):
        at = torch.zeros(5000, dtype=torch.int64)
        at[-1] = last
        ours, eager = Cache(), Cache()
        assert str(compiled(ours, at)) == str(program(eager, at))
        assert ours.state() == eager.state()
