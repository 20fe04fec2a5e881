"""Ways to damage a message or a file."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

Mutator = Callable[[Random, bytes], bytes]


def bit(random: Random, data: bytes) -> bytes:
    """One bit."""
    at = random.randrange(len(data))
    return data[:at] + bytes([data[at] ^ (1 << random.randrange(8))]) + data[at + 1 :]


def byte(random: Random, data: bytes) -> bytes:
    """One byte; small numbers are tags, lengths and indices."""
    at = random.randrange(len(data))
    return data[:at] + bytes([random.choice([0, 1, 2, 3, 0x7F, 0x80, 0xFF, random.randrange(256)])]) + data[at + 1 :]


def several(random: Random, data: bytes) -> bytes:
    """A few bytes."""
    for _ in range(random.randrange(2, 9)):
        data = byte(random, data)
    return data


def large_number(random: Random, data: bytes) -> bytes:
    """A number of many bytes where there was one of one."""
    at = random.randrange(len(data))
    return data[:at] + random.choice([b"\xff" * 4 + b"\x0f", b"\xff" * 9 + b"\x01", b"\x80" * 12]) + data[at + 1 :]


def cut(random: Random, data: bytes) -> bytes:
    """The end is missing."""
    return data[: random.randrange(len(data))]


def longer(random: Random, data: bytes) -> bytes:
    """Something follows."""
    return data + random.randbytes(random.randrange(1, 64))


def left_out(random: Random, data: bytes) -> bytes:
    """A part is missing."""
    start = random.randrange(len(data))
    return data[:start] + data[start + random.randrange(1, 64) :]


def twice(random: Random, data: bytes) -> bytes:
    """A part is there twice."""
    start = random.randrange(len(data))
    end = start + random.randrange(1, 64)
    return data[:end] + data[start:]


def swapped(random: Random, data: bytes) -> bytes:
    """Two parts in the place of each other."""
    a, b = sorted(random.randrange(len(data)) for _ in range(2))
    size = random.randrange(1, 32)
    if b - a < size:
        return bit(random, data)
    return data[:a] + data[b : b + size] + data[a + size : b] + data[a : a + size] + data[b + size :]


def deep(random: Random, data: bytes) -> bytes:
    """Tuples of one tuple each, many times: constants nested without end."""
    at = random.randrange(len(data))
    return data[:at] + b"\x0a\x01" * random.choice([50, 5_000, 300_000]) + data[at:]


ALL: list[Mutator] = [bit, byte, several, large_number, cut, longer, left_out, twice, swapped, deep]


def any_of(random: Random, data: bytes) -> bytes:
    """The data damaged in one of these ways."""
    if not data:
        return random.randbytes(random.randrange(1, 16))
    # Of large data most hits should still be small.
    return random.choice(ALL if random.random() < 0.05 else ALL[:-1])(random, data)
