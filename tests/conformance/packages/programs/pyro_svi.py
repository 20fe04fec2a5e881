"""Pyro's introduction to stochastic variational inference: a Beta-Bernoulli coin, model and guide, ELBO."""

import pyro
import pyro.distributions as dist
import torch
from pyro.infer import Trace_ELBO
from torch.distributions import constraints

from ..program import Program


def model(data):
    fairness = pyro.sample("latent_fairness", dist.Beta(torch.tensor(10.0), torch.tensor(10.0)))
    with pyro.plate("data", len(data)):
        pyro.sample("obs", dist.Bernoulli(fairness), obs=data)


def guide(data):
    a = pyro.param("alpha_q", torch.tensor(15.0), constraint=constraints.positive)
    b = pyro.param("beta_q", torch.tensor(15.0), constraint=constraints.positive)
    pyro.sample("latent_fairness", dist.Beta(a, b))


def program(compile):
    pyro.clear_param_store()
    elbo = Trace_ELBO()

    @compile
    def loss(data):
        return elbo.differentiable_loss(model, guide, data)

    guide(torch.ones(2))
    store = pyro.get_param_store()
    parameters = [store.get_param(name).unconstrained() for name in ("alpha_q", "beta_q")]
    inputs = [lambda: (torch.bernoulli(torch.full((10,), 0.6)),), lambda: (torch.ones(4),)]
    return Program(loss, inputs, state=parameters)
