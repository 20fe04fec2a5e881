"""neuraloperator: a Fourier neural operator for Darcy-like data, relative H1 and L2 losses."""

import torch
from neuralop import H1Loss, LpLoss
from neuralop.models import FNO, TFNO

from ..program import Program


def program(compile):
    fno = FNO(n_modes=(4, 4), in_channels=1, out_channels=1, hidden_channels=8, n_layers=2)
    tfno = TFNO(
        n_modes=(4, 4), in_channels=1, out_channels=1, hidden_channels=8, n_layers=1, factorization="tucker", rank=0.5
    )
    h1, l2 = H1Loss(d=2), LpLoss(d=2, p=2)

    @compile
    def loss(x, y):
        return h1(fno(x), y) + l2(tfno(x), y)

    def batch(n, size):
        return torch.randn(n, 1, size, size), torch.randn(n, 1, size, size)

    return Program(loss, [lambda: batch(2, 12), lambda: batch(1, 16)], state=[fno, tfno], tolerance=2e-3)
