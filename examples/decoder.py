"""A small GPT-style decoder: token and position embeddings, causal attention blocks, a tied output head."""

from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class DecoderConfig:
    """Sizes of the decoder. `width` is a multiple of `heads`."""

    vocabulary: int = 512
    context: int = 256
    layers: int = 6
    heads: int = 6
    width: int = 384
    dropout: float = 0.0


class CausalAttention(nn.Module):
    """Multi-head attention where a token sees itself and its past. Input and output: (batch, time, width)."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.project_in = nn.Linear(config.width, 3 * config.width)
        self.project_out = nn.Linear(config.width, config.width)
        self.heads = config.heads
        self.dropout = config.dropout

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, time, width = x.size()
        q, k, v = self.project_in(x).split(width, dim=2)
        q, k, v = (t.view(batch, time, self.heads, width // self.heads).transpose(1, 2) for t in (q, k, v))
        dropout = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)
        return self.project_out(y.transpose(1, 2).contiguous().view(batch, time, width))


class Block(nn.Module):
    """Attention, then a two-layer perceptron, each on normalised input with a residual."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.norm_1 = nn.LayerNorm(config.width)
        self.attention = CausalAttention(config)
        self.norm_2 = nn.LayerNorm(config.width)
        self.mlp = nn.Sequential(
            nn.Linear(config.width, 4 * config.width),
            nn.GELU(),
            nn.Linear(4 * config.width, config.width),
            nn.Dropout(config.dropout),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm_1(x))
        return x + self.mlp(self.norm_2(x))


class Decoder(nn.Module):
    """Tokens (batch, time) of int64 to logits (batch, time, vocabulary)."""

    def __init__(self, config: DecoderConfig | None = None) -> None:
        super().__init__()
        config = config or DecoderConfig()
        self.config = config
        self.tokens = nn.Embedding(config.vocabulary, config.width)
        self.positions = nn.Embedding(config.context, config.width)
        self.blocks = nn.ModuleList([Block(config) for _ in range(config.layers)])
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, config.vocabulary, bias=False)
        self.tokens.weight = self.head.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        _, time = tokens.size()
        if time > self.config.context:
            raise ValueError(f"{time} tokens do not fit the context of {self.config.context}")
        positions = torch.arange(0, time, dtype=torch.long, device=tokens.device)
        x = self.tokens(tokens) + self.positions(positions)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))
