"""Accelerate: prepare, accumulate gradients, clip and step, as its quick tour; the model is compiled."""

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from ..program import Program


def program(compile):
    model = nn.Sequential(nn.Linear(6, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 2))
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=6)
    prepared, optimizer, scheduler = accelerator.prepare(compile(model), optimizer, scheduler)

    def train(x, y):
        losses = []
        for inputs, targets in accelerator.prepare(DataLoader(TensorDataset(x, y), batch_size=4)):
            with accelerator.accumulate(prepared):
                loss = nn.functional.cross_entropy(prepared(inputs), targets)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(prepared.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            losses.append(loss.item())
        return losses, scheduler.get_last_lr()

    return Program(
        train, [lambda: (torch.randn(16, 6), torch.randint(0, 2, (16,)))], state=[model], tolerance=1e-3, backward=False
    )
