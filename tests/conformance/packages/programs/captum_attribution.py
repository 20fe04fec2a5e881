"""Captum: integrated gradients, saliency, Grad-CAM and feature ablation of a small convolutional net."""

import torch
from captum.attr import FeatureAblation, IntegratedGradients, LayerGradCam, Saliency
from torch import nn

from ..program import Program


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.relu = nn.ReLU()
        self.fc = nn.Linear(4 * 36, 3)

    def forward(self, x):
        return self.fc(self.relu(self.conv(x)).flatten(1))


def program(compile):
    model = Net().eval()
    gradients, saliency = IntegratedGradients(model), Saliency(model)
    cam, ablation = LayerGradCam(model, model.conv), FeatureAblation(model)

    @compile
    def attribute(x):
        whole, delta = gradients.attribute(x, target=1, n_steps=5, return_convergence_delta=True)
        return (
            whole,
            delta,
            saliency.attribute(x, target=0),
            cam.attribute(x, target=2),
            ablation.attribute(x, target=1),
        )

    return Program(
        attribute, [lambda: (torch.rand(2, 1, 6, 6),), lambda: (torch.rand(3, 1, 6, 6),)], times=2, tolerance=1e-3
    )
