"""open_clip: a small CLIP of random weights: tokens, image and text features, the contrastive loss, logits."""

import open_clip
import torch
from open_clip.loss import ClipLoss

from ..program import Program


def program(compile):
    model = open_clip.CLIP(
        embed_dim=32,
        vision_cfg={"image_size": 32, "layers": 2, "width": 64, "patch_size": 8, "head_width": 32},
        text_cfg={"context_length": 12, "vocab_size": 200, "width": 64, "heads": 2, "layers": 2},
    )
    loss = ClipLoss()

    @compile
    def step(image, text):
        image_features, text_features, scale = model(image, text)
        return loss(image_features, text_features, scale), image_features @ text_features.T

    def batch(n):
        return torch.rand(n, 3, 32, 32), torch.randint(1, 200, (n, 12))

    return Program(step, [lambda: batch(3), lambda: batch(2)], state=[model], times=2, tolerance=2e-3)
