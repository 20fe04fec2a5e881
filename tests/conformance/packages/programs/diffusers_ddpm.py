"""Diffusers: a small UNet2DModel trained on noise, and a DDPM loop of a few steps."""

import torch
import torch.nn.functional as F
from diffusers import DDPMScheduler, UNet2DModel

from ..program import Program


def program(compile):
    model = UNet2DModel(
        sample_size=16,
        in_channels=3,
        out_channels=3,
        layers_per_block=1,
        block_out_channels=(32, 64),
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    )
    scheduler = DDPMScheduler(num_train_timesteps=100)

    @compile
    def loss(images):
        noise = torch.randn(images.shape)
        steps = torch.randint(0, scheduler.config.num_train_timesteps, (images.shape[0],), dtype=torch.int64)
        noisy = scheduler.add_noise(images, noise, steps)
        return F.mse_loss(model(noisy, steps, return_dict=False)[0], noise)

    inputs = [lambda: (torch.randn(2, 3, 16, 16),), lambda: (torch.randn(3, 3, 16, 16),)]
    return Program(loss, inputs, state=[model], times=2, tolerance=2e-3)
