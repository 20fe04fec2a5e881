"""Zuko: a conditional neural spline flow's log likelihood, samples, and an autoregressive flow."""

import torch
import zuko

from ..program import Program


def program(compile):
    flow = zuko.flows.NSF(3, 2, transforms=2, hidden_features=[16, 16])
    maf = zuko.flows.MAF(3, 2, transforms=2, hidden_features=[16])

    @compile
    def loss(x, c):
        return -flow(c).log_prob(x).mean() - maf(c).log_prob(x).mean()

    @compile
    def sample(c):
        with torch.no_grad():
            return flow(c).sample((4,))

    def both(x, c):
        return loss(x, c), sample(c)

    def made(n):
        return torch.randn(n, 3), torch.randn(n, 2)

    return Program(both, [lambda: made(10), lambda: made(6)], state=[flow, maf], tolerance=1e-3)
