"""GPyTorch: stochastic variational GP regression (SVGP) on minibatches."""

import gpytorch
import torch

from ..program import Program


class SVGP(gpytorch.models.ApproximateGP):
    def __init__(self, inducing):
        distribution = gpytorch.variational.CholeskyVariationalDistribution(inducing.size(0))
        strategy = gpytorch.variational.VariationalStrategy(self, inducing, distribution, learn_inducing_locations=True)
        super().__init__(strategy)
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def program(compile):
    model = SVGP(torch.rand(12, 3))
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    mll = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=200)
    model.train()
    likelihood.train()

    @compile
    def loss(x, y):
        return -mll(model(x), y)

    def batch(n):
        x = torch.rand(n, 3)
        return x, torch.sin(x.sum(-1) * 3)

    return Program(loss, [lambda: batch(32), lambda: batch(20)], state=[model, likelihood], tolerance=1e-3)
