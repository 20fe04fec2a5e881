"""timm: a small vision transformer and an EfficientNet, mixup, label smoothing, EMA, its optimizer factory; training
steps."""

import timm
import torch
from timm.data import Mixup
from timm.loss import SoftTargetCrossEntropy
from timm.optim import create_optimizer_v2
from timm.utils import ModelEmaV3

from ..program import Program


def program(compile):
    model = timm.create_model(
        "vit_tiny_patch16_224", img_size=32, patch_size=8, depth=2, num_classes=5, drop_path_rate=0.1
    )
    features = timm.create_model("efficientnet_b0", features_only=True, out_indices=(1, 2)).eval()
    optimizer = create_optimizer_v2(model, opt="adamw", lr=1e-3, weight_decay=0.05)
    mixup = Mixup(mixup_alpha=0.8, cutmix_alpha=1.0, label_smoothing=0.1, num_classes=5)
    ema = ModelEmaV3(model, decay=0.9)
    criterion = SoftTargetCrossEntropy()

    @compile
    def step(image, target):
        image, target = mixup(image, target)
        loss = criterion(model(image), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    @compile
    def pyramid(image):
        with torch.no_grad():
            return features(image)

    def both(image, target):
        loss = step(image, target)
        ema.update(model)
        return loss, pyramid(image)

    def batch(n):
        return torch.rand(n, 3, 32, 32), torch.randint(0, 5, (n,))

    return Program(both, [lambda: batch(2), lambda: batch(4)], state=[ema], times=2, tolerance=5e-3, backward=False)
