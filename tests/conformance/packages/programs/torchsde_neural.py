"""torchsde: its README's neural SDE, integrated with a Brownian interval; diagonal noise."""

import torch
import torchsde

from ..program import Program


class SDE(torch.nn.Module):
    noise_type = "diagonal"
    sde_type = "ito"

    def __init__(self):
        super().__init__()
        self.mu = torch.nn.Linear(3, 3)
        self.sigma = torch.nn.Linear(3, 3)

    def f(self, t, y):
        return torch.sin(t) + self.mu(y)

    def g(self, t, y):
        return 0.3 * torch.sigmoid(torch.cos(t) + self.sigma(y))


def program(compile):
    sde = SDE()
    times = torch.linspace(0, 1, 4)

    @compile
    def solve(y0):
        noise = torchsde.BrownianInterval(0.0, 1.0, size=y0.shape, entropy=5)
        return torchsde.sdeint(sde, y0, times, bm=noise, dt=0.1, method="euler")

    return Program(
        solve, [lambda: (torch.randn(4, 3),), lambda: (torch.randn(2, 3),)], state=[sde], times=2, tolerance=1e-3
    )
