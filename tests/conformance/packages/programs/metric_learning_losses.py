"""pytorch-metric-learning: triplet, NT-Xent and ArcFace losses, a miner, and cross-batch memory."""

import torch
from pytorch_metric_learning import distances, losses, miners, reducers
from torch import nn

from ..program import Program


def program(compile):
    model = nn.Linear(10, 6)
    distance = distances.CosineSimilarity()
    triplet = losses.TripletMarginLoss(margin=0.2, distance=distance, reducer=reducers.ThresholdReducer(low=0))
    miner = miners.TripletMarginMiner(margin=0.2, distance=distance, type_of_triplets="semihard")
    arc = losses.ArcFaceLoss(4, 6)
    contrast = losses.NTXentLoss(temperature=0.1)
    memory = losses.CrossBatchMemory(losses.ContrastiveLoss(), 6, memory_size=24)

    @compile
    def step(x, labels):
        embeddings = model(x)
        pairs = miner(embeddings, labels)
        found = triplet(embeddings, labels, pairs) + arc(embeddings, labels) + contrast(embeddings, labels)
        return found, memory(embeddings, labels)

    def batch(n):
        return torch.randn(n, 10), torch.arange(n) % 4

    return Program(step, [lambda: batch(12), lambda: batch(8)], state=[model, arc, memory], tolerance=1e-3)
