"""normflows: Real NVP, its README's example; forward KL divergence and samples."""

import normflows as nf
import torch

from ..program import Program


def program(compile):
    flows = []
    for _ in range(3):
        flows.append(nf.flows.AffineCouplingBlock(nf.nets.MLP([1, 16, 16, 2], init_zeros=True)))
        flows.append(nf.flows.Permute(2, mode="swap"))
    model = nf.NormalizingFlow(nf.distributions.base.DiagGaussian(2), flows)

    @compile
    def loss(x):
        return model.forward_kld(x)

    @compile
    def sample(n):
        with torch.no_grad():
            return model.sample(n)

    def both(x):
        return loss(x), sample(len(x))

    return Program(both, [lambda: (torch.randn(12, 2),), lambda: (torch.randn(7, 2),)], state=[model], tolerance=1e-3)
