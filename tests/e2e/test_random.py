"""Random programs, compiled and eager: values, strides, aliasing, mutated inputs."""

import pytest
import torch
from random_programs import Program
from support import check

SEEDS = 120
BATCH = 12


@pytest.mark.parametrize("first", range(0, SEEDS, BATCH))
def test_random_programs(first):
    for seed in range(first, first + BATCH):
        program = Program(seed)
        try:
            check(program.function(), program.inputs, backend="cpu", graphs=None, slack=10)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}\n{program.source}") from error


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: torch.nn.functional.pad(x, (1, 1)).flip(-1).square(),
        lambda x: torch.nn.functional.pad(x[..., :1], (2, 1)).flip(-1) + 1,
        lambda x: x.reshape(-1).flip(0) * 2,
        lambda x: x.reshape(6, 4).flip(0) + 1,
        lambda x: x.transpose(0, 2).reshape(-1).flip(0) + x.reshape(-1),
        lambda x: x.reshape(-1)[2:20].flip(0).reshape(3, 6).sum(1),
    ],
)
def test_indices_that_count_down(fn):
    check(fn, (torch.randn(2, 3, 4),), backend="cpu", slack=10)
