"""Tensors that a resume function is handed: those only passed on are no facts, what is done to them is eager's."""

import pytest
import torch
from support import assert_same

import flambeau


@flambeau.disable
def pause(*_):
    """Plain Python."""


def sizes():
    """The same call with tensors of many sizes."""
    return [(torch.randn(n, 3),) for n in (2, 3, 4, 5, 6, 7, 2, 4)]


def carried(x):
    y = torch.ones(3) * 2
    pause()
    y = y + 1
    pause()
    y = y * 3
    pause()
    return y, x


def carried_deep(x):
    def inner(y):
        pause()
        y = y + 1
        pause()
        return y * 2

    z = inner(torch.ones(3)) + inner(torch.zeros(3))
    return z, [x], {"x": (x, x)}


def compared_with_none(x):
    y = torch.ones(3) * 2
    pause()
    if x is not None:
        y = y + 1
    pause()
    return y, x


@pytest.mark.plain_only("counts frames")
@pytest.mark.parametrize("fn", [carried, carried_deep, compared_with_none], ids=lambda f: f.__name__)
def test_sizes_of_what_is_passed_on_compile_nothing(fn):
    """The first frame reads its argument or not; of the resume functions none does."""
    compiled = flambeau.compile(fn, dynamic=False)
    compiled(*sizes()[0])
    before = flambeau.counters()["frames_traced"]
    for (x,) in sizes():
        eager, ours = fn(x), compiled(x)
        assert_same(ours, eager)
        assert ours[-1] is x or fn in (carried_deep,)
    assert flambeau.counters()["frames_traced"] - before == 0


def written_through_a_view(base, view):
    pause()
    base.add_(1)
    a = view * 2
    pause()
    base.mul_(2)
    return a, view, view + base


def same_object(a, b):
    pause()
    a.add_(1)
    c = b * 2
    pause()
    b.mul_(3)
    return c, a, b, a is b


def metadata(a, b):
    pause()
    a.unsqueeze_(0)
    pause()
    return b.shape, a.shape, b


def grad_switched(a, b):
    pause()
    a.requires_grad_()
    c = b * 2
    pause()
    return c.requires_grad, b.requires_grad, c


def data_replaced(a, b):
    pause()
    a.data = torch.full((2, 3), 7.0)
    pause()
    return b + 1, a


def swapped(a, b):
    pause()
    a, b = b, a
    pause()
    a.add_(1)
    return a, b


def in_a_loop(a, b):
    total = torch.zeros(2, 3)
    for step in range(4):
        pause()
        if step % 2:
            total = total + a
        a, b = b, a
    return total, a, b


def into_a_list(a, b):
    kept = []
    for _ in range(3):
        pause()
        kept.append(a)
    b.add_(1)
    return kept, a


def raises(a, b):
    pause()
    try:
        a.view(100)
    except RuntimeError as error:
        pause()
        return str(error), b
    return a


@pytest.mark.parametrize(
    "fn",
    [
        written_through_a_view,
        same_object,
        metadata,
        grad_switched,
        data_replaced,
        swapped,
        in_a_loop,
        into_a_list,
        raises,
    ],
    ids=lambda f: f.__name__,
)
@pytest.mark.parametrize("how", ["apart", "same", "view"])
def test_what_is_done_to_carried_tensors_is_eager(fn, how):
    def arguments():
        a = torch.arange(6.0).reshape(2, 3)
        b = {"apart": lambda: a.clone(), "same": lambda: a, "view": lambda: a[:]}[how]()
        return a, b

    compiled = flambeau.compile(fn)
    for _ in range(3):
        (a, b), (c, d) = arguments(), arguments()
        outcomes = []
        for call, args in ((fn, (a, b)), (compiled, (c, d))):
            try:
                outcomes.append(("value", call(*args)))
            except Exception as error:
                outcomes.append(("raised", type(error), str(error)))
        eager, ours = outcomes
        assert ours[0] == eager[0], (ours, eager)
        assert_same(ours[1:], eager[1:])
        assert_same((c, d), (a, b), "arguments")
