"""torchdiffeq's demo: a neural ODE fitted to a spiral, dopri5 with adaptive steps."""

import torch
from torch import nn
from torchdiffeq import odeint

from ..program import Program


class ODEFunc(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 50), nn.Tanh(), nn.Linear(50, 2))

    def forward(self, t, y):
        return self.net(y**3)


def program(compile):
    func = ODEFunc()
    times = torch.linspace(0.0, 1.0, 5)

    @compile
    def loss(y0, truth):
        predicted = odeint(func, y0, times, rtol=1e-4, atol=1e-5)
        return torch.mean(torch.abs(predicted - truth))

    def batch(n):
        return torch.randn(n, 2), torch.randn(5, n, 2)

    return Program(loss, [lambda: batch(6), lambda: batch(4)], state=[func], tolerance=1e-3)
