"""Kornia: a pipeline of random augmentations with same parameters for image and mask, then its inverse."""

import kornia.augmentation as K
import torch

from ..program import Program


def program(compile):
    augment = K.AugmentationSequential(
        K.RandomHorizontalFlip(p=0.5),
        K.RandomAffine(degrees=20.0, translate=(0.1, 0.1), p=1.0),
        K.ColorJitter(0.1, 0.1, 0.1, 0.1, p=1.0),
        K.RandomErasing(p=0.5),
        data_keys=["input", "mask"],
    )

    @compile
    def run(images, masks):
        return augment(images, masks)

    def batch(n, size):
        return torch.rand(n, 3, size, size), (torch.rand(n, 1, size, size) > 0.5).float()

    return Program(run, [lambda: batch(4, 24), lambda: batch(2, 20)], tolerance=1e-3)
