"""torchvision: RetinaNet's predictions after non-maximum suppression."""

import torch
from torchvision.models.detection import retinanet_resnet50_fpn

from ..program import Program


def program(compile):
    model = retinanet_resnet50_fpn(
        weights=None,
        weights_backbone=None,
        num_classes=4,
        min_size=64,
        max_size=96,
        score_thresh=0.005,
        detections_per_img=20,
    )
    model.eval()
    compiled = compile(model)

    @torch.no_grad()
    def detect(images):
        return compiled(images)

    inputs = [lambda: ([torch.rand(3, 64, 80)],), lambda: ([torch.rand(3, 64, 64), torch.rand(3, 70, 64)],)]
    return Program(detect, inputs, state=[], times=2, tolerance=1e-3)
