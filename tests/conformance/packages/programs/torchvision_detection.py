"""torchvision: Faster R-CNN with a MobileNet backbone, losses in training, on images of two sizes."""

import torch
from torchvision.models.detection import fasterrcnn_mobilenet_v3_large_320_fpn

from ..program import Program


def program(compile):
    model = fasterrcnn_mobilenet_v3_large_320_fpn(
        weights=None, weights_backbone=None, num_classes=5, min_size=96, max_size=128
    )
    model.train()
    compiled = compile(model)

    def losses(images, targets):
        return compiled(images, targets)

    def batch(*sizes):
        images = [torch.rand(3, h, w) for h, w in sizes]
        targets = []
        for h, w in sizes:
            corner = torch.rand(2, 2) * 0.4
            boxes = torch.cat([corner, corner + 0.4], 1) * torch.tensor([w, h, w, h])
            targets.append({"boxes": boxes, "labels": torch.randint(1, 5, (2,))})
        return images, targets

    inputs = [lambda: batch((96, 120), (80, 100)), lambda: batch((90, 90))]
    return Program(losses, inputs, state=[model], times=2, tolerance=2e-3)
