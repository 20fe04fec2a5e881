"""e3nn: irreps, spherical harmonics, a fully connected tensor product, a gate, and a radial network: its
convolution."""

import torch
from e3nn import nn as enn
from e3nn import o3
from e3nn.math import soft_one_hot_linspace

from ..program import Program


class Convolution(torch.nn.Module):
    def __init__(self):
        super().__init__()
        inner, harmonics, outer = o3.Irreps("4x0e + 2x1o"), o3.Irreps.spherical_harmonics(2), o3.Irreps("3x0e + 2x1o")
        self.harmonics = harmonics
        self.product = o3.FullyConnectedTensorProduct(inner, harmonics, outer, shared_weights=False)
        self.radial = enn.FullyConnectedNet([6, 12, self.product.weight_numel], torch.relu)
        self.linear = o3.Linear(outer, "5x0e + 1x1o")
        self.norm = enn.BatchNorm("5x0e + 1x1o")

    def forward(self, features, positions, source, target):
        edge = positions[target] - positions[source]
        sh = o3.spherical_harmonics(self.harmonics, edge, normalize=True, normalization="component")
        length = soft_one_hot_linspace(edge.norm(dim=1), 0.0, 3.0, number=6, basis="smooth_finite", cutoff=True)
        messages = self.product(features[source], sh, self.radial(length))
        summed = torch.zeros(len(features), messages.shape[1]).index_add_(0, target, messages)
        return self.norm(self.linear(summed))


def program(compile):
    model = Convolution()

    def batch(n):
        index = torch.randint(0, n, (2, 3 * n))
        index = index[:, index[0] != index[1]]
        return torch.randn(n, 10), torch.randn(n, 3, requires_grad=True), index[0], index[1]

    return Program(compile(model), [lambda: batch(6), lambda: batch(9)], state=[model], tolerance=2e-3)
