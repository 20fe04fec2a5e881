"""Functions that are taken apart into kernels' arithmetic: values and gradients as eager has them, at ordinary numbers
and where they are told apart by special cases."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import flambeau

LIMITS = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, float("inf"), -float("inf"), float("nan"), 1e-30, 3e38, -3e38]


def ordinary(*sizes: int, seed: int = 0) -> Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed))


def shares(*sizes: int, seed: int = 0) -> Tensor:
    return torch.rand(*sizes, generator=torch.Generator().manual_seed(seed)) * 0.98 + 0.01


def pairs() -> tuple[Tensor, Tensor]:
    limits = torch.tensor(LIMITS)
    return limits.repeat(len(LIMITS)), limits.repeat_interleave(len(LIMITS))


X, Y, P, Q = ordinary(24, 33), ordinary(24, 33, seed=1), shares(24, 33, seed=2), shares(24, 33, seed=3)
IMAGE, SQUARE, V, W = ordinary(2, 3, 9, 10), ordinary(16, 16), ordinary(33), ordinary(40, 33, seed=4)
CLASSES, SIGNS = torch.arange(24) % 33, ordinary(24, 33, seed=5).sign()
A, B = pairs()
TIES = torch.tensor([[1.0, 3.0, 3.0], [2.0, float("nan"), float("nan")], [-0.0, 0.0, -1.0]]).repeat(5, 1)
CELLS = {
    "lstm": nn.LSTMCell(33, 8),
    "gru": nn.GRUCell(33, 8),
    "tanh": nn.RNNCell(33, 8),
    "relu": nn.RNNCell(33, 8, nonlinearity="relu", bias=False),
}

PLAIN = {
    "fmax": (lambda a, b: (torch.fmax(a, b), torch.fmin(a, b)), A, B),
    "xlogy": (torch.xlogy, A, B),
    "hypot": (torch.hypot, A, B),
    "logaddexp": (torch.logaddexp, A, B),
    "heaviside": (torch.heaviside, A, B),
    "infinities": (lambda a: (torch.isposinf(a), torch.isneginf(a)), A),
    "frac": (torch.frac, A),
    "sinc": (torch.sinc, torch.tensor([0.0, 0.1, -0.3, 1.5, 2.0])),
    "logit": (lambda p: (torch.logit(p), torch.logit(p, 0.1)), P),
    "nan_to_num": (lambda a: (torch.nan_to_num(a), torch.nan_to_num(a, 1.0, 2.0, -3.0)), A),
    "entr": (torch.special.entr, A),
    "shrunk": (lambda a: (F.hardshrink(a), F.softshrink(a)), A),
    "positions": (lambda x: (x.argmax(-1), x.argmin(0), x.argmax(), x.max(-1), x.min(0)), TIES),
    "positions_kept": (lambda x: (x.argmax(1, keepdim=True), x.max(0, keepdim=True)), X),
    "positions_of_ints": (lambda x: (x.argmax(1), x.max(0)), (X * 4).long()),
    "count_nonzero": (lambda x: (x.count_nonzero(), x.count_nonzero(1)), (X > 0).float()),
    "var_mean": (lambda x: (torch.var_mean(x, 1), torch.std_mean(x), torch.var_mean(x, 0, correction=0)), X),
    "rolled": (lambda x: torch.roll(x, (2, -3), (0, 1)) + torch.roll(x, 5) * x, X),
    "rolled_sum": (lambda x: sum(torch.roll(x, (i, j), (0, 1)) for i in (-1, 0, 1) for j in (-1, 0, 1)), X),
    "turned": (lambda x, y: (x.t() + y.permute(1, 0)).contiguous() + x.t().exp(), X, Y),
    "channels_last": (lambda x: (x.contiguous(memory_format=torch.channels_last) * 2).contiguous() + 1, IMAGE),
}

TRAINED = {
    "bce": (lambda x, p: F.binary_cross_entropy_with_logits(x, p), X, P),
    "bce_weights": (lambda x, p: F.binary_cross_entropy_with_logits(x, p, V.abs(), pos_weight=V.abs()), X, P),
    "bce_each": (lambda x, p: F.binary_cross_entropy_with_logits(x, p, reduction="none"), X, P),
    "divergence": (lambda x: F.kl_div(x, P, reduction="batchmean"), X),
    "divergence_log": (lambda x, y: F.kl_div(x, y, reduction="sum", log_target=True), X, Y),
    "soft_margin": (lambda x: F.soft_margin_loss(x, SIGNS), X),
    "hinge": (lambda x: F.hinge_embedding_loss(x, SIGNS, 0.3), X),
    "ranking": (lambda x, y: F.margin_ranking_loss(x, y, SIGNS, 0.2), X, Y),
    "poisson": (lambda x: F.poisson_nll_loss(x, P) + F.poisson_nll_loss(x.abs(), P, log_input=False), X),
    "classes": (lambda x: F.cross_entropy(x, CLASSES, label_smoothing=0.2, ignore_index=3), X),
    "classes_of_pixels": (lambda x: F.cross_entropy(x, torch.ones(2, 9, 10, dtype=torch.long)), IMAGE),
    "class_shares": (lambda x, p: F.cross_entropy(x, p, label_smoothing=0.1), X, P),
    "lengths": (lambda x: (x.norm(dim=1), x.norm(), F.normalize(x), torch.linalg.vector_norm(x, dim=0)), X),
    "length_of_zero": (lambda x: x.norm(dim=1), torch.zeros(3, 4)),
    "distances": (lambda x, y: torch.cdist(x[:, :7], y[:5, :7]), X, Y),
    "pairwise": (lambda x, y: F.pairwise_distance(x, y), X, Y),
    "vectors": (lambda w, v: (w @ v, v @ w.t(), v @ v, torch.outer(v, v), torch.dot(v, v), torch.mv(w, v)), W, V),
    "one_row": (lambda w, x: (F.linear(x[:1], w), x[:1] @ w.t(), x @ w[:1].t()), W, X),
    "einsum": (
        lambda x, w, s: (
            torch.einsum("bi,oi->bo", x, w),
            torch.einsum("bi,oi->ob", x, w),
            torch.einsum("bi,bi->b", x, x),
            torch.einsum("i,j->ij", x[0], w[0]),
            torch.einsum("bi->i", x),
            torch.einsum("ij,jk", s, s),
            torch.einsum("i,i", x[0], x[1]),
        ),
        X,
        W,
        SQUARE,
    ),
    "einsum_batches": (
        lambda q, k: (torch.einsum("bhid,bhjd->bhij", q, k), torch.einsum("bchw,bcxy->bhx", q, k)),
        ordinary(2, 3, 5, 4),
        ordinary(2, 3, 6, 4, seed=7),
    ),
    "padded": (
        lambda x: tuple(F.pad(x, (1, 2, 3, 0), mode=mode) for mode in ("reflect", "replicate", "circular")),
        IMAGE,
    ),
    "differences": (lambda x: (x.diff(), x.diff(dim=0)), X),
    "rolls": (lambda x: torch.roll(x, (2, -3), (0, 1)) * x + torch.roll(x, 5), X),
    "halves_turned": (lambda x: x * 2 + torch.cat((-x[:, 17:], x[:, :17]), 1) * 3, X[:, :33]),
    "turned_joins": (lambda x, y: torch.cat((x[7:], x[:7])).t().contiguous().t() + y, X, Y),
    "turned_padding": (lambda x, y: F.pad(x, (2, 3)).t().contiguous().t()[:, :33] * y, X, Y),
    # The first value is no output, and the copy after it ends a node of autograd.
    "copies_between": (lambda x, y: (lambda sum, copy: (copy, copy * 2 + sum.exp()))(x + y, y.clone()), X, Y),
    **{f"cell_{name}": (cell, X) for name, cell in CELLS.items()},
}


def leaves(made: object) -> list[Tensor]:
    return [value for value in torch.utils._pytree.tree_leaves(made) if isinstance(value, Tensor)]


def check_same(ours: object, eager: object, strides: bool = True) -> None:
    assert torch.utils._pytree.tree_structure(ours) == torch.utils._pytree.tree_structure(eager)
    for a, b in zip(leaves(ours), leaves(eager), strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        assert not strides or a.stride() == b.stride()
        torch.testing.assert_close(a, b, equal_nan=True, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("name", [*PLAIN, *TRAINED])
def test_values(name: str) -> None:
    function, *args = (PLAIN | TRAINED)[name]
    with torch.no_grad():
        check_same(flambeau.compile(function, fullgraph=True)(*args), function(*args))


@pytest.mark.parametrize("name", list(TRAINED))
def test_gradients(name: str) -> None:
    function, *args = TRAINED[name]

    def gradients(run: object) -> list[Tensor]:
        given = [arg.clone().requires_grad_() for arg in args]
        made = leaves(run(*given))
        return [*made, *torch.autograd.grad([m.sum() for m in made], given, allow_unused=True)]

    # Of what autograd hands on itself, torch may keep other strides.
    check_same(gradients(flambeau.compile(function, fullgraph=True)), gradients(function), strides=False)


@pytest.mark.parametrize("name", [*PLAIN, *TRAINED])
def test_under_autocast(name: str) -> None:
    """What functions are made of has casts of its own there."""
    function, *args = (PLAIN | TRAINED)[name]

    def run(*args: Tensor) -> object:
        with torch.autocast("cpu", torch.bfloat16):
            return function(*args)

    with torch.no_grad():
        ours, eager = flambeau.compile(run)(*args), run(*args)
    for a, b in zip(leaves(ours), leaves(eager), strict=True):
        assert (a.dtype, a.shape, a.stride()) == (b.dtype, b.shape, b.stride())
        near = 2e-5 if a.dtype == torch.float32 else 2e-2
        torch.testing.assert_close(a, b, equal_nan=True, rtol=near, atol=near)
