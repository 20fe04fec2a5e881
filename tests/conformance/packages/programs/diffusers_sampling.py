"""Diffusers: sampling with DDPM, DDIM and multistep schedulers; the model is what is compiled, as its documentation
says."""

import torch
from diffusers import DDIMScheduler, DDPMScheduler, DPMSolverMultistepScheduler, UNet2DModel

from ..program import Program


def program(compile):
    model = UNet2DModel(
        sample_size=8,
        in_channels=1,
        out_channels=1,
        layers_per_block=1,
        block_out_channels=(32, 32),
        down_block_types=("DownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "UpBlock2D"),
    )
    model.eval()
    compiled = compile(model)
    schedulers = [DDPMScheduler(num_train_timesteps=50), DDIMScheduler(), DPMSolverMultistepScheduler()]

    @compile
    def step(scheduler, noise, t, sample):
        return scheduler.step(noise, t, sample).prev_sample

    @torch.no_grad()
    def sample(image):
        results = []
        for scheduler in schedulers:
            scheduler.set_timesteps(4)
            x = image
            for t in scheduler.timesteps:
                x = step(scheduler, compiled(x, t).sample, t, x)
            results.append(x)
        return results

    return Program(
        sample, [lambda: (torch.randn(1, 1, 8, 8),), lambda: (torch.randn(2, 1, 8, 8),)], times=2, tolerance=2e-3
    )
