"""GPyTorch: posterior of a trained exact GP with a Matern kernel, and the likelihood's predictions at test points."""

import gpytorch
import torch

from ..program import Program


class ExactGP(gpytorch.models.ExactGP):
    def __init__(self, x, y, likelihood):
        super().__init__(x, y, likelihood)
        self.mean_module = gpytorch.means.LinearMean(2)
        self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.MaternKernel(nu=2.5, ard_num_dims=2))

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def program(compile):
    x = torch.rand(30, 2)
    y = torch.sin(x[:, 0] * 6) + x[:, 1] + torch.randn(30) * 0.1
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    model = ExactGP(x, y, likelihood)
    model.eval()
    likelihood.eval()

    @compile
    def predict(points):
        with torch.no_grad(), gpytorch.settings.fast_pred_var():
            predicted = likelihood(model(points))
            lower, upper = predicted.confidence_region()
        return predicted.mean, predicted.variance, lower, upper

    inputs = [lambda: (torch.rand(16, 2),), lambda: (torch.rand(9, 2),)]
    return Program(predict, inputs, state=[model], tolerance=1e-3)
