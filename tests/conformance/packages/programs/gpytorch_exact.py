"""GPyTorch's first tutorial: exact GP regression, trained on the marginal log likelihood, then predictions."""

import math

import gpytorch
import torch

from ..program import Program


class ExactGP(gpytorch.models.ExactGP):
    def __init__(self, x, y, likelihood):
        super().__init__(x, y, likelihood)
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def program(compile):
    x = torch.linspace(0, 1, 40)
    y = torch.sin(x * (2 * math.pi)) + torch.randn(x.size()) * 0.2
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    model = ExactGP(x, y, likelihood)
    model.train()
    likelihood.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    mll = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)

    @compile
    def step():
        optimizer.zero_grad()
        loss = -mll(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return Program(step, [lambda: ()], state=[model, likelihood], times=4, tolerance=1e-3)
