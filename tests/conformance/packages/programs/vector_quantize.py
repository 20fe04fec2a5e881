"""vector-quantize-pytorch: VQ with EMA codebooks, residual VQ, FSQ and lookup-free quantisation."""

import torch
from vector_quantize_pytorch import FSQ, LFQ, ResidualVQ, VectorQuantize

from ..program import Program


def program(compile):
    vq = VectorQuantize(dim=8, codebook_size=16, decay=0.8, commitment_weight=1.0)
    residual = ResidualVQ(dim=8, num_quantizers=2, codebook_size=16, kmeans_init=False)
    fsq = FSQ([8, 5, 5])
    lfq = LFQ(codebook_size=16, dim=8, entropy_loss_weight=0.1)

    @compile
    def step(x):
        quantized, indices, commit = vq(x)
        many, many_indices, losses = residual(x)
        steps, codes = fsq(x[..., :3])
        free, free_indices, entropy = lfq(x)
        return quantized, indices, commit, many, many_indices, losses, steps, codes, free, free_indices, entropy

    def batch(n):
        return (torch.randn(2, n, 8, requires_grad=True),)

    return Program(step, [lambda: batch(10), lambda: batch(6)], state=[vq, residual, fsq, lfq], tolerance=1e-3)
