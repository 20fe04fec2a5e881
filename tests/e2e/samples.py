"""Classes and functions that several tests trace."""

import enum

import torch


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 5


class Flags(enum.Flag):
    A = 1
    B = 2


def asserts(x):
    """Pytest writes the `assert` statements of test modules anew."""
    assert torch.isfinite(x).all(), "not finite"
    return x.sin() * 2
