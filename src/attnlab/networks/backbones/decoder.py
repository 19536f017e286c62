"""A small language model: the decoder of Llama (Touvron et al., 2023) in its plainest form.

`x ← x + attention(norm(x))`, then `x ← x + mlp(norm(x))`, with RMSNorm before each branch, rotary
positions, SwiGLU, no bias anywhere, and one matrix for tokens in and out. It has no cache of keys
and values: it is made to be read, trained and measured. To generate long texts take a network of
transformers.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab._checked import check_whole
from attnlab._errors import InputError, OptionError

_MULTIPLE = 32
"""The hidden width of the MLP is a multiple of this, as matrix products like it."""


def rotary_angles(context: int, channels: int, base: float = 10000.0) -> Tensor:
    """The angle of each position and pair of channels, (context, channels)."""
    frequencies = base ** -(torch.arange(0, channels, 2, dtype=torch.float32) / channels)
    angles = torch.outer(torch.arange(context, dtype=torch.float32), frequencies)
    return torch.cat((angles, angles), dim=-1)


def rotated(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Queries or keys (..., positions, channels), each pair of channels (j, j + half) turned."""
    first, second = heads.chunk(2, dim=-1)
    return heads * cos + torch.cat((-second, first), dim=-1) * sin


class CausalAttention(nn.Module):
    """Every position looks at itself and at earlier ones."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, width, bias=False)
        self.value = nn.Linear(width, width, bias=False)
        self.output = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        query, key, value = (
            layer(x).unflatten(2, (self.heads, -1)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        query, key = rotated(query, cos, sin), rotated(key, cos, sin)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        found: Tensor = self.output(mixed.transpose(1, 2).flatten(2))
        return found


class SwiGLU(nn.Module):
    """`W₃ (silu(W₁ x) ⊙ W₂ x)`."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.down(F.silu(self.gate(x)) * self.up(x))
        return found


class DecoderBlock(nn.Module):
    """Two residual steps."""

    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.norm1 = nn.RMSNorm(width, eps=1e-6)
        self.attention = CausalAttention(width, heads)
        self.norm2 = nn.RMSNorm(width, eps=1e-6)
        self.mlp = SwiGLU(width, hidden)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x), cos, sin)
        return x + self.mlp(self.norm2(x))


class Decoder(nn.Module):
    """Tokens (batch, positions) to logits (batch, positions, tokens of the vocabulary).

    Args:
        num_classes: tokens of the vocabulary; 256 for bytes.
        width: channels of the state.
        depth: blocks, of two steps each.
        heads: of attention.
        context: the most positions that it takes.
        hidden: channels inside the MLP; 8/3 of the width, rounded up to a multiple of 32, if None.
    """

    cos: Tensor
    sin: Tensor

    def __init__(
        self,
        num_classes: int = 256,
        width: int = 96,
        depth: int = 6,
        heads: int = 4,
        context: int = 128,
        hidden: int | None = None,
    ) -> None:
        super().__init__()
        for name, value in (("width", width), ("depth", depth), ("heads", heads)):
            check_whole(name, value, 1)
        check_whole("context", context, 1)
        if width % (2 * heads):
            raise OptionError(
                f"Expected a width that is a multiple of 2 × heads, because rotary positions turn "
                f"pairs of channels, but got width = {width} and heads = {heads}."
            )
        if hidden is None:
            hidden = -(-8 * width // 3 // _MULTIPLE) * _MULTIPLE
        check_whole("hidden", hidden, 1)
        self.vocabulary, self.context = num_classes, context
        self.tokens = nn.Embedding(num_classes, width)
        self.blocks = nn.ModuleList(DecoderBlock(width, heads, hidden) for _ in range(depth))
        self.norm = nn.RMSNorm(width, eps=1e-6)
        # In float32 whatever the network's dtype is, and then rounded, as transformers does.
        angles = rotary_angles(context, width // heads)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        if tokens.ndim != 2 or tokens.is_floating_point():
            raise InputError(
                f"Decoder takes tokens (batch, positions), whole numbers, but got {tokens.dtype} "
                f"of shape {tuple(tokens.shape)}."
            )
        length = tokens.shape[1]
        if length > self.context:
            raise InputError(
                f"Decoder was built for at most {self.context} positions but got {length}. Build "
                f"it with context = {length}."
            )
        x = self.tokens(tokens)
        cos, sin = self.cos[:length], self.sin[:length]
        for block in self.blocks:
            x = block(x, cos, sin)
        return F.linear(self.norm(x), self.tokens.weight)
