"""segmentation_models_pytorch: a Unet and an FPN with a ResNet encoder, Dice and focal losses, metrics."""

import segmentation_models_pytorch as smp
import torch

from ..program import Program


def program(compile):
    unet = smp.Unet("resnet18", encoder_weights=None, in_channels=3, classes=3)
    fpn = smp.FPN("resnet18", encoder_weights=None, in_channels=3, classes=3)
    fpn.eval()
    dice = smp.losses.DiceLoss("multiclass")
    focal = smp.losses.FocalLoss("multiclass")

    @compile
    def step(image, mask):
        scores = unet(image)
        loss = dice(scores, mask) + focal(scores, mask)
        with torch.no_grad():
            found = fpn(image).argmax(1)
            tp, fp, fn, tn = smp.metrics.get_stats(found, mask, mode="multiclass", num_classes=3)
            iou = smp.metrics.iou_score(tp, fp, fn, tn, reduction="micro")
        return loss, iou

    def batch(n):
        return torch.rand(n, 3, 32, 32), torch.randint(0, 3, (n, 32, 32))

    return Program(step, [lambda: batch(2), lambda: batch(3)], state=[unet], times=2, tolerance=5e-3)
