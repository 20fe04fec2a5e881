"""nflows: masked affine autoregressive transforms and permutations, its README's example; log_prob and samples."""

import torch
from nflows.distributions.normal import StandardNormal
from nflows.flows.base import Flow
from nflows.transforms.autoregressive import MaskedAffineAutoregressiveTransform
from nflows.transforms.base import CompositeTransform
from nflows.transforms.permutations import ReversePermutation

from ..program import Program


def program(compile):
    transforms = []
    for _ in range(3):
        transforms.append(ReversePermutation(features=2))
        transforms.append(MaskedAffineAutoregressiveTransform(features=2, hidden_features=8))
    flow = Flow(CompositeTransform(transforms), StandardNormal(shape=[2]))

    @compile
    def loss(x):
        return -flow.log_prob(inputs=x).mean()

    def both(x):
        value = loss(x)
        with torch.no_grad():
            return value, flow.sample(5)

    return Program(both, [lambda: (torch.randn(16, 2),), lambda: (torch.randn(9, 2),)], state=[flow], tolerance=1e-3)
