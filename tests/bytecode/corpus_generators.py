"""Generators that are rebuilt at each of their yields."""

import sys

from cases import log
from corpus import Manager


def counting(n):
    total = 0
    for i in range(n):
        got = yield (i, total)
        log("got", got)
        total += got or 1
    return total


def guarded(n):
    with Manager("generator", swallow=True):
        try:
            yield n
            try:
                yield n + 1
            except ValueError as error:
                yield str(error)
                raise KeyError("again") from error
        finally:
            log("finally", n)
            yield "last"
    yield "behind"


def delegating(n):
    def inner():
        try:
            result = yield from counting(n)
        except ValueError:
            result = -1
        n_now = n
        return result, n_now

    first = yield from inner()
    log("first", first)
    second = yield from [1, 2]
    third = yield from guarded(n)
    return first, second, third


def captured(n):
    step = n

    def add():
        nonlocal step
        step += 1
        return step

    while step < 6:
        yield add()
        log(step)
    return (lambda: step)()


def handling(n):
    """Suspended while it handles one exception within another."""
    try:
        raise ValueError(n)
    except ValueError:
        yield repr(sys.exception())
        log(repr(sys.exception()))
        try:
            yield n
            raise KeyError(n)
        except (KeyError, TypeError):
            yield repr(sys.exception().__context__)
            log(repr(sys.exception()), repr(sys.exception().__context__))
        yield repr(sys.exception())
        raise


def expression(n):
    return (x * n + y for x in range(n) for y in range(x) if log(x, y) != 7)
