"""Lightning: a LightningModule trained for a few steps by the Trainer, its module compiled."""

import logging

import lightning as L
import torch
from torch import nn

from ..program import Program


class LitAutoEncoder(L.LightningModule):
    def __init__(self, compile):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 3))
        self.decoder = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 16))
        self.losses = []
        self.reconstruct = compile(self.reconstruct)

    def reconstruct(self, x):
        return self.decoder(self.encoder(x.view(x.size(0), -1)))

    def training_step(self, batch, batch_idx):
        x = batch[0]
        loss = nn.functional.mse_loss(self.reconstruct(x), x)
        self.log("train_loss", loss)
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def program(compile):
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    model = LitAutoEncoder(compile)

    def fit(x):
        loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x), batch_size=8)
        trainer = L.Trainer(
            max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
            enable_model_summary=False,
        )  # fmt: skip
        trainer.fit(model, loader)
        return list(model.losses), {k: float(v) for k, v in trainer.callback_metrics.items()}

    return Program(fit, [lambda: (torch.randn(20, 16),)], state=[model], times=2, tolerance=1e-3, backward=False)
