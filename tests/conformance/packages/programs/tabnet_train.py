"""pytorch-tabnet: its network in training and evaluation: ghost batch normalisation, attentive masks, sparsemax."""

import torch
from pytorch_tabnet.tab_network import TabNet

from ..program import Program


def program(compile):
    group = torch.eye(8)
    model = TabNet(
        8,
        3,
        n_d=4,
        n_a=4,
        n_steps=2,
        cat_idxs=[1],
        cat_dims=[5],
        cat_emb_dim=[1],
        virtual_batch_size=4,
        group_attention_matrix=group,
    )

    @compile
    def step(x, target):
        output, mask_loss = model(x)
        return torch.nn.functional.cross_entropy(output, target) - 1e-3 * mask_loss

    @compile
    def explain(x):
        return model.forward_masks(x)

    def both(x, target):
        model.train()
        loss = step(x, target)
        model.eval()
        with torch.no_grad():
            return loss, model(x)[0], explain(x)

    def batch(n):
        x = torch.randn(n, 8)
        x[:, 1] = torch.randint(0, 5, (n,)).float()
        return x, torch.randint(0, 3, (n,))

    return Program(both, [lambda: batch(8), lambda: batch(11)], state=[model], times=2, tolerance=2e-3)
