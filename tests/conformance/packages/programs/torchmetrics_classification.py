"""TorchMetrics: a collection of classification metrics that accumulates over batches; confusion matrix, AUROC,
compute, reset."""

import torch
from torchmetrics import MetricCollection
from torchmetrics.classification import (
    MulticlassAccuracy,
    MulticlassAUROC,
    MulticlassCalibrationError,
    MulticlassConfusionMatrix,
    MulticlassF1Score,
)

from ..program import Program


def program(compile):
    metrics = MetricCollection(
        [
            MulticlassAccuracy(4),
            MulticlassF1Score(4, average="macro"),
            MulticlassConfusionMatrix(4),
            MulticlassAUROC(4, thresholds=10),
            MulticlassCalibrationError(4, n_bins=5),
        ]
    )

    @compile
    def step(scores, target):
        batch = metrics(scores, target)
        total = metrics.compute()
        return batch, total

    def made(n):
        return torch.randn(n, 4).softmax(-1), torch.randint(0, 4, (n,))

    return Program(step, [lambda: made(20), lambda: made(13)], state=[metrics])
