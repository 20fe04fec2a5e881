"""TorchMetrics: regression, image, retrieval and text metrics, modular and functional."""

import torch
import torchmetrics.functional as TF
from torchmetrics import MeanMetric, MeanSquaredError, PearsonCorrCoef, R2Score
from torchmetrics.image import PeakSignalNoiseRatio, StructuralSimilarityIndexMeasure
from torchmetrics.retrieval import RetrievalMRR
from torchmetrics.text import WordErrorRate

from ..program import Program


def program(compile):
    mse, r2, pearson, mean = MeanSquaredError(), R2Score(), PearsonCorrCoef(), MeanMetric()
    psnr, ssim = PeakSignalNoiseRatio(data_range=1.0), StructuralSimilarityIndexMeasure(data_range=1.0)
    mrr, wer = RetrievalMRR(), WordErrorRate()

    @compile
    def step(a, b, images, others, words):
        for metric in (mse, r2, pearson):
            metric.update(a, b)
        mean.update(a)
        found = [psnr(images, others), ssim(images, others), mrr(a, b > 0, indexes=torch.arange(len(a)) // 4)]
        found.append(wer(words, ["the cat sat", "on the mat"]))
        found.append(TF.pairwise_cosine_similarity(a.view(4, -1), b.view(4, -1)))
        return found, [metric.compute() for metric in (mse, r2, pearson, mean)]

    def made(n):
        images = torch.rand(2, 3, 16, 16)
        return torch.randn(n), torch.randn(n), images, (images + 0.05).clamp(max=1), ["the cat sit", "on mat"]

    return Program(
        step, [lambda: made(16), lambda: made(8)], state=[mse, r2, pearson, mean, psnr, ssim], tolerance=1e-3
    )
