"""einops: rearrange, reduce, repeat, einsum, pack/unpack, and its layers, in a small mixer."""

import torch
from einops import einsum, pack, parse_shape, rearrange, reduce, repeat, unpack
from einops.layers.torch import EinMix, Rearrange, Reduce
from torch import nn

from ..program import Program


class Mixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches = nn.Sequential(Rearrange("b c (h p) (w q) -> b (h w) (p q c)", p=4, q=4), nn.Linear(48, 32))
        self.tokens = EinMix("b t c -> b t0 c", weight_shape="t t0", bias_shape="t0", t=16, t0=16)
        self.pool = Reduce("b t c -> b c", "mean")
        self.cls = nn.Parameter(torch.randn(32))

    def forward(self, image):
        x = self.patches(image)
        x = x + self.tokens(x)
        cls = repeat(self.cls, "c -> b c", b=image.shape[0])
        packed, shapes = pack([cls, x], "b * c")
        heads = rearrange(packed, "b t (h d) -> b h t d", h=4)
        scores = einsum(heads, heads, "b h i d, b h j d -> b h i j").softmax(-1)
        mixed = rearrange(einsum(scores, heads, "b h i j, b h j d -> b h i d"), "b h t d -> b t (h d)")
        first, rest = unpack(mixed, shapes, "b * c")
        return first, self.pool(rest), reduce(image, "b c (h 2) (w 2) -> b c h w", "max"), parse_shape(rest, "b t _")


def program(compile):
    model = Mixer()
    inputs = [
        lambda: (torch.randn(2, 3, 16, 16, requires_grad=True),),
        lambda: (torch.randn(3, 3, 16, 16, requires_grad=True),),
    ]
    return Program(compile(model), inputs, state=[model])
