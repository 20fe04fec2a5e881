"""Random programs, compiled and eager: values, strides, aliasing, mutated inputs."""

import pytest
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
