"""ema-pytorch: a student trained beside its averaged copy; Lion and other optimizers from their packages; entmax's
losses."""

import torch
from ema_pytorch import EMA
from entmax import entmax15, entmax15_loss, sparsemax
from lion_pytorch import Lion
from pytorch_optimizer import Adan
from torch import nn

from ..program import Program


def program(compile):
    model = nn.Sequential(nn.Linear(6, 12), nn.GELU(), nn.Linear(12, 4))
    ema = EMA(model, beta=0.9, update_after_step=1, update_every=1)
    lion, adan = Lion(model[0].parameters(), lr=1e-3), Adan(model[2].parameters(), lr=1e-3)

    @compile
    def step(x, target):
        scores = model(x)
        teacher = ema(x).detach()
        loss = entmax15_loss(scores, target).mean() + (sparsemax(scores, -1) - entmax15(teacher, -1)).square().sum()
        loss.backward()
        return loss.detach()

    def train(x, target):
        loss = step(x, target)
        for optimizer in (lion, adan):
            optimizer.step()
            optimizer.zero_grad()
        ema.update()
        return loss

    def batch(n):
        return torch.randn(n, 6), torch.randint(0, 4, (n,))

    return Program(train, [lambda: batch(8), lambda: batch(5)], state=[model, ema], tolerance=2e-3)
