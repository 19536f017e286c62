"""Transformer-XL's scores: the formula written out, the library's code for them, and their form."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from attnlab._errors import OptionError
from attnlab.evolution import LocalAttention1d, LocalAttention2d, as_evolution


def layer(
    kind: type[LocalAttention1d | LocalAttention2d], size: int, **options: object
) -> LocalAttention1d | LocalAttention2d:
    torch.manual_seed(0)
    made = kind(8, 8, size, 2, "transformer-xl", **options).double()
    with torch.no_grad():
        for parameter in (made.positions.content, made.positions.position):
            parameter.normal_()
        for weight in made.positions.projections:
            weight.normal_()
    return made


def written_out(made: LocalAttention2d, x: Tensor) -> Tensor:
    """Equation 30, pixel by pixel and head by head."""
    query, key, value = made.query_key_value(x).chunk(3, dim=1)
    (height, width), (size, _), dilation = x.shape[2:], made.window.kernel_size, 2
    of, out = made.positions, torch.zeros_like(value)
    for b in range(len(x)):
        for head in range(2):
            mine = slice(4 * head, 4 * head + 4)
            for i in range(height):
                for j in range(width):
                    scores, values = [], []
                    for u in range(size):
                        for v in range(size):
                            row = i + dilation * (u - size // 2)
                            column = j + dilation * (v - size // 2)
                            if not (0 <= row < height and 0 <= column < width):
                                continue
                            place = []
                            for axis, distance in enumerate((i - row, j - column)):
                                rates = [10000 ** (-2 * n / 4) for n in range(2)]
                                wave = [math.sin(distance * rate) for rate in rates]
                                wave += [math.cos(distance * rate) for rate in rates]
                                wave = torch.tensor(wave, dtype=torch.float64)
                                place.append(of.projections[axis][head] @ wave)
                            q = query[b, mine, i, j]
                            content = (q + of.content[head]) @ key[b, mine, row, column]
                            position = (q + of.position[head]) @ torch.cat(place)
                            scores.append((content + position) / 2)
                            values.append(value[b, mine, row, column])
                    weights = torch.stack(scores).softmax(0)
                    out[b, mine, i, j] = (weights[:, None] * torch.stack(values)).sum(0)
    return out


def test_it_is_equation_30_written_out() -> None:
    made, x = layer(LocalAttention2d, 3, dilation=2), torch.randn(2, 8, 5, 6, dtype=torch.float64)
    torch.testing.assert_close(made(x), written_out(made, x), rtol=0, atol=1e-13)
    torch.testing.assert_close(as_evolution(made)(x), made(x), rtol=0, atol=1e-13)


def test_gradients_are_right() -> None:
    made, x = layer(LocalAttention2d, 3), torch.randn(1, 8, 3, 4, dtype=torch.float64)
    parameters = [made.positions.content, made.positions.position, *made.positions.projections]
    names = ["content", "position", "projections.0", "projections.1"]

    def run(x: Tensor, *values: Tensor) -> Tensor:
        given = {f"positions.{name}": each for name, each in zip(names, values, strict=True)}
        return torch.func.functional_call(made, given, (x,))

    leaves = [each.detach().clone().requires_grad_() for each in (x, *parameters)]
    assert torch.autograd.gradcheck(run, leaves)


def test_over_a_whole_sequence_it_is_what_xlnet_of_transformers_computes() -> None:
    transformers = pytest.importorskip("transformers", reason="the peer is not installed")
    length = 6
    made = layer(LocalAttention1d, 2 * length - 1)
    x = torch.randn(2, 8, length, dtype=torch.float64)
    config = transformers.XLNetConfig(d_model=8, n_head=2, d_inner=8, dropout=0.0)
    peer = transformers.models.xlnet.modeling_xlnet.XLNetRelativeAttention(config).double().eval()
    with torch.no_grad():
        peer.r_w_bias.copy_(made.positions.content)
        peer.r_r_bias.copy_(made.positions.position)
    heads = [
        each.unflatten(1, (2, 4)).permute(3, 0, 1, 2)
        for each in made.query_key_value(x).chunk(3, 1)
    ]
    rates = 1 / 10000 ** (torch.arange(0, 4, 2, dtype=torch.float64) / 4)
    distance = torch.arange(length, -length, -1, dtype=torch.float64)
    wave = transformers.XLNetModel.positional_embedding(distance, rates, 2)
    places = torch.einsum("pde,kbe->kbpd", made.positions.projections[0], wave)
    found = peer.rel_attn_core(*heads, places)
    found = found[0] if isinstance(found, tuple) else found
    expected = found.permute(1, 2, 3, 0).flatten(1, 2)
    torch.testing.assert_close(made(x), expected, rtol=0, atol=1e-13)


def test_channels_that_cannot_be_split_are_refused() -> None:
    with pytest.raises(OptionError, match=r"an even number of channels per head .* but got 3"):
        LocalAttention2d(6, 6, 3, heads=2, positional="transformer-xl")
