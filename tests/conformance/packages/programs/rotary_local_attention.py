"""rotary-embedding-torch and local-attention: rotary queries and keys with a cache, windowed attention with its own
rotary."""

import torch
from local_attention import LocalAttention
from rotary_embedding_torch import RotaryEmbedding, apply_rotary_emb
from torch import nn

from ..program import Program


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(16, 48)
        self.rotary = RotaryEmbedding(dim=8)
        self.pixel = RotaryEmbedding(dim=4, freqs_for="pixel", max_freq=16)
        self.local = LocalAttention(dim=8, window_size=4, causal=True, look_backward=1, look_forward=0, autopad=True)

    def forward(self, x, mask):
        b, n, _ = x.shape
        q, k, v = (t.view(b, n, 2, 8).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        q, k = self.rotary.rotate_queries_or_keys(q), self.rotary.rotate_queries_or_keys(k)
        near = self.local(q, k, v, mask=mask)
        axial = self.pixel.get_axial_freqs(2, n)
        turned = apply_rotary_emb(axial, torch.ones(b, 2, n, 8))
        late_q, late_k = self.rotary.rotate_queries_with_cached_keys(q[:, :, -1:], k)
        return near, turned, late_q @ late_k.transpose(-1, -2)


def program(compile):
    model = Attention()

    def batch(n):
        return torch.randn(2, n, 16), torch.ones(2, n, dtype=torch.bool)

    return Program(compile(model), [lambda: batch(8), lambda: batch(11)], state=[model], tolerance=1e-3)
