"""The models of the demo, the benchmarks and the end-to-end tests: built from configs, random weights, no downloads."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn as nn

sys.path.insert(0, str(Path(__file__).parent))

IMAGE = 224
TOKENS = 128


@dataclass
class Case:
    """A callable and its example inputs; `build(batch)` makes both with a fixed seed."""

    name: str
    build: Callable[[int], tuple[Callable[..., Any], tuple[torch.Tensor, ...]]]
    batched: bool = True


def settle(module: nn.Module) -> nn.Module:
    """Gives batch norms statistics that are not the identity, so that errors in them show; sets eval mode."""
    for part in module.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.running_mean.uniform_(-0.1, 0.1)
            part.running_var.uniform_(0.8, 1.2)
            part.weight.data.uniform_(0.8, 1.2)
            part.bias.data.uniform_(-0.1, 0.1)
    return module.eval()


def images(batch: int) -> tuple[torch.Tensor, ...]:
    """Images (batch, 3, 224, 224)."""
    return (torch.randn(batch, 3, IMAGE, IMAGE),)


def resnet18(batch: int):
    import torchvision

    return settle(torchvision.models.resnet18()), images(batch)


def mobilenet_v2(batch: int):
    import torchvision

    return settle(torchvision.models.mobilenet_v2()), images(batch)


def vit_tiny(batch: int):
    import timm

    return settle(timm.create_model("vit_tiny_patch16_224", pretrained=False)), images(batch)


def encoder(batch: int):
    layer = nn.TransformerEncoderLayer(d_model=256, nhead=8, dim_feedforward=1024, batch_first=True)
    return nn.TransformerEncoder(layer, num_layers=2).eval(), (torch.randn(batch, TOKENS, 256),)


def decoder(batch: int):
    from decoder import Decoder

    return Decoder().eval(), (torch.randint(0, 512, (batch, TOKENS)),)


def seawater(_batch: int):
    from seawater import density

    n = 2_000_000
    return density, (torch.rand(n) * 40, torch.rand(n) * 30, torch.rand(n) * 1000)


CASES = {
    case.name: case
    for case in (
        Case("resnet18", resnet18),
        Case("mobilenet_v2", mobilenet_v2),
        Case("vit_tiny_patch16_224", vit_tiny),
        Case("transformer_encoder", encoder),
        Case("decoder", decoder),
        Case("seawater", seawater, batched=False),
    )
}


def build(name: str, batch: int = 1):
    """The model `name` and its inputs, with the seed fixed."""
    torch.manual_seed(0)
    return CASES[name].build(batch)
