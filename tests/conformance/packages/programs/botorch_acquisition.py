"""BoTorch: a SingleTaskGP's expected improvement and upper confidence bound at candidate points, with gradients."""

import torch
from botorch.acquisition import LogExpectedImprovement, UpperConfidenceBound
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize, Standardize

from ..program import Program


def program(compile):
    x = torch.rand(14, 2, dtype=torch.double) * 2
    y = 1 - (x - 0.7).norm(dim=-1, keepdim=True) + 0.05 * torch.randn(14, 1, dtype=torch.double)
    gp = SingleTaskGP(x, y, input_transform=Normalize(d=2), outcome_transform=Standardize(m=1))
    gp.eval()
    ei = LogExpectedImprovement(gp, best_f=y.max())
    ucb = UpperConfidenceBound(gp, beta=0.1)

    @compile
    def values(candidates):
        return ei(candidates), ucb(candidates)

    def candidates(n):
        return (torch.rand(n, 1, 2, dtype=torch.double, requires_grad=True),)

    return Program(values, [lambda: candidates(8), lambda: candidates(5)], state=[gp], tolerance=1e-5)
