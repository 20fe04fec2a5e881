"""linear_operator: structured matrices (Kronecker, Toeplitz, low rank, diagonal) in solves, determinants and
products."""

import torch
from linear_operator import to_linear_operator
from linear_operator.operators import (
    DiagLinearOperator,
    KroneckerProductLinearOperator,
    RootLinearOperator,
    ToeplitzLinearOperator,
)

from ..program import Program


def program(compile):
    @compile
    def run(root, diagonal, column, right):
        low = RootLinearOperator(root) + DiagLinearOperator(diagonal)
        solved = low.solve(right)
        quad, logdet = low.inv_quad_logdet(right, logdet=True)
        kron = KroneckerProductLinearOperator(to_linear_operator(root[:2, :2]), to_linear_operator(root[2:4, :2]))
        toeplitz = ToeplitzLinearOperator(column) @ right
        return (
            solved,
            quad,
            logdet,
            kron.to_dense(),
            toeplitz,
            low.diagonal(),
            (low * 2.0)[1:3, :2].to_dense(),
            low.shape,
        )

    def batch(n):
        return torch.randn(n, 3, requires_grad=True), torch.rand(n) + 1, torch.rand(n), torch.randn(n, 2)

    return Program(run, [lambda: batch(6), lambda: batch(8)], tolerance=2e-3)
