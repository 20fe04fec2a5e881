"""torchdiffeq: a fixed-step solver with the adjoint method; the right-hand side is what is compiled, as its users
do."""

import torch
from torch import nn
from torchdiffeq import odeint_adjoint

from ..program import Program


class Dynamics(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 16), nn.SiLU(), nn.Linear(16, 3))
        self.evaluations = 0

    def forward(self, t, y):
        self.evaluations += 1
        return self.net(y) * torch.cos(t)


def program(compile):
    func = Dynamics()
    compiled = compile(func)
    times = torch.linspace(0.0, 1.0, 4)

    def solve(y0):
        result = odeint_adjoint(compiled, y0, times, method="rk4", adjoint_params=tuple(func.parameters()))
        return result[-1], func.evaluations

    def start(n):
        return (torch.randn(n, 3, requires_grad=True),)

    return Program(solve, [lambda: start(5), lambda: start(2)], state=[func], tolerance=1e-3)
