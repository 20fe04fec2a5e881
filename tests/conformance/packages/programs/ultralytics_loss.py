"""Ultralytics: the detection loss of a YOLOv8n in training, its assigner included."""

import torch
from ultralytics.cfg import get_cfg
from ultralytics.nn.tasks import DetectionModel

from ..program import Program


def program(compile):
    model = DetectionModel("yolov8n.yaml", ch=3, nc=6, verbose=False)
    model.args = get_cfg()
    model.train()

    @compile
    def loss(batch):
        return model(batch)

    def batch(n, size):
        boxes = torch.cat([torch.rand(n * 2, 2) * 0.4 + 0.3, torch.rand(n * 2, 2) * 0.3 + 0.1], 1)
        return (
            {
                "img": torch.rand(n, 3, size, size),
                "batch_idx": torch.arange(n).repeat_interleave(2).float(),
                "cls": torch.randint(0, 6, (n * 2, 1)).float(),
                "bboxes": boxes,
            },
        )

    return Program(loss, [lambda: batch(2, 64), lambda: batch(1, 96)], state=[model], times=2, tolerance=5e-3)
