"""Ultralytics: a YOLOv8n of random weights: predictions, then non-maximum suppression."""

import torch
from ultralytics.nn.tasks import DetectionModel
from ultralytics.utils.nms import non_max_suppression

from ..program import Program


def program(compile):
    model = DetectionModel("yolov8n.yaml", ch=3, nc=6, verbose=False)
    model.eval()

    @compile
    def detect(image):
        with torch.no_grad():
            predicted = model(image)
        return predicted, non_max_suppression(predicted, conf_thres=0.001, iou_thres=0.6, max_det=30)

    inputs = [lambda: (torch.rand(1, 3, 64, 64),), lambda: (torch.rand(2, 3, 96, 64),)]
    return Program(detect, inputs, state=[model], times=2, tolerance=1e-3)
