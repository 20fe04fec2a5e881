"""Pyro: Bayesian regression with PyroModule, PyroSample priors and an AutoDiagonalNormal guide; SVI steps."""

import pyro
import pyro.distributions as dist
import torch
from pyro.infer import SVI, Trace_ELBO
from pyro.infer.autoguide import AutoDiagonalNormal
from pyro.nn import PyroModule, PyroSample
from torch import nn

from ..program import Program


class BayesianRegression(PyroModule):
    def __init__(self, n, out):
        super().__init__()
        self.linear = PyroModule[nn.Linear](n, out)
        self.linear.weight = PyroSample(dist.Normal(0.0, 1.0).expand([out, n]).to_event(2))
        self.linear.bias = PyroSample(dist.Normal(0.0, 10.0).expand([out]).to_event(1))

    def forward(self, x, y=None):
        sigma = pyro.sample("sigma", dist.Uniform(0.0, 10.0))
        mean = self.linear(x).squeeze(-1)
        with pyro.plate("data", x.shape[0]):
            pyro.sample("obs", dist.Normal(mean, sigma), obs=y)
        return mean


def program(compile):
    pyro.clear_param_store()
    model = BayesianRegression(3, 1)
    guide = AutoDiagonalNormal(model)
    x = torch.randn(20, 3)
    y = x @ torch.tensor([1.0, -2.0, 0.5]) + 0.3
    guide(x, y)
    svi = SVI(model, guide, pyro.optim.Adam({"lr": 0.03}), loss=Trace_ELBO())

    @compile
    def step(x, y):
        return svi.step(x, y)

    return Program(step, [lambda: (x, y)], state=[guide], times=4, tolerance=1e-3)
