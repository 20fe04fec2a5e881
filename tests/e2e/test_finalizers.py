"""When objects go whose end runs user code: as in eager, though nothing reads the variables that hold them any more."""

import pytest
import torch

import flambeau

seen: list[str] = []


class Ends:
    """Says when it is freed."""

    def __init__(self, tag):
        self.tag = tag

    def __del__(self):
        seen.append(f"end of {self.tag}")


@flambeau.disable
def note(text):
    seen.append(text)


def dead(x):
    held = Ends("held")  # noqa: F841
    note("made")
    return x + 1


def replaced(x):
    for i in range(3):
        held = Ends(i)  # noqa: F841
        note("body")
        x = x + 1
    return x


def deleted(x):
    held = Ends("held")
    del held
    note("deleted")
    return x


def several(x):
    a, b = Ends("a"), (Ends("b"), 1)  # noqa: F841
    note("made")
    return x * 2


def inner(x):
    held = Ends("inner")  # noqa: F841
    note("in")
    return x + 1


def below(x):
    held = Ends("outer")  # noqa: F841
    y = inner(x)
    note("out")
    return y


def tail(x):
    held = Ends("caller")  # noqa: F841
    return inner(x)


@pytest.mark.parametrize("fn", [dead, replaced, deleted, several, below, tail])
def test_finalizers_run_when_they_would(fn, backend):
    compiled, x = flambeau.compile(fn, backend=backend), torch.ones(3)
    seen.clear()
    expected, wanted = fn(x), seen.copy()
    for _ in range(3):
        seen.clear()
        assert torch.equal(compiled(x), expected)
        assert seen == wanted
