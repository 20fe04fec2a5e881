"""x-transformers: a decoder with rotary embeddings, flash-like attention options and ALiBi; loss, then generation."""

import torch
from x_transformers import AutoregressiveWrapper, Decoder, TransformerWrapper

from ..program import Program


def program(compile):
    net = TransformerWrapper(
        num_tokens=50,
        max_seq_len=32,
        attn_layers=Decoder(
            dim=32, depth=2, heads=4, rotary_pos_emb=True, attn_dim_head=8, use_rmsnorm=True, ff_glu=True
        ),
    )
    model = AutoregressiveWrapper(net)

    @compile
    def loss(tokens):
        return model(tokens)

    @compile
    def logits(tokens):
        return net(tokens, return_embeddings=False)

    def both(tokens):
        with torch.no_grad():
            generated = model.generate(tokens[:, :4], 5, temperature=0.8)
        return loss(tokens), logits(tokens), generated

    inputs = [lambda: (torch.randint(0, 50, (2, 12)),), lambda: (torch.randint(0, 50, (1, 20)),)]
    return Program(both, inputs, state=[model], times=2, tolerance=1e-3)
