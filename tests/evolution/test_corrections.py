"""Each correction of the paper's formulas that has a counterexample: as printed it fails, corrected
it holds. The numbers are those of docs/explanation/corrections.md."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from attnlab.evolution import LocalAttention2d, Window, attention_as_conv, evolve
from attnlab.evolution.attention import local_attention, local_attention_maps
from attnlab.evolution.attention_as_conv import quadratic_scores


def random(*shape):
    return torch.randn(*shape, dtype=torch.float64)


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def test_eq2_even_kernels_have_one_tap_too_many():
    """a, b in [-l, l] with l = ⌊K/2⌋ are K + 1 taps when K is even."""
    assert len(range(-(4 // 2), 4 // 2 + 1)) == 5
    assert len(range(-(5 // 2), 5 // 2 + 1)) == 5


def test_eq2_is_cross_correlation():
    """W[l-a, l-b] X[i-a, j-b] with u = l - a is W[u, v] X[i-l+u, j-l+v]: F.conv2d, not flipped."""
    x, weight = random(1, 1, 5, 5), random(1, 1, 3, 3)
    i = j = 2
    printed = sum(
        weight[0, 0, 1 - a, 1 - b] * x[0, 0, i - a, j - b] for a in (-1, 0, 1) for b in (-1, 0, 1)
    )
    torch.testing.assert_close(printed, F.conv2d(x, weight, padding=1)[0, 0, i, j])
    flipped = F.conv2d(x, weight.flip(2, 3), padding=1)[0, 0, i, j]
    assert (printed - flipped).abs() > 0.1


def test_without_positions_attention_is_equivariant_not_invariant():
    """§2.2.2: shuffled samples give shuffled outputs, not the same ones."""
    x, weight = random(6, 4), [random(4, 4) for _ in range(3)]

    def attend(x):
        query, key, value = (x @ w for w in weight)
        return (query @ key.t()).softmax(1) @ value

    order = torch.tensor([3, 0, 5, 1, 4, 2])
    torch.testing.assert_close(attend(x[order]), attend(x)[order])
    assert (attend(x[order]) - attend(x)).abs().max() > 0.1


def test_eq6_holds_only_if_values_see_x_alone():
    """With P added to the layer input, the Evolution acts on X + P."""
    layer = LocalAttention2d(4, 4, 3, 1).double()
    x, position = random(1, 4, 5, 5), random(1, 4, 5, 5)
    form = layer.kernel(x + position)
    usual = layer(x + position)
    dense = form.dense(x)
    torch.testing.assert_close(evolve(x + position, dense, padding=1), usual)
    assert (evolve(x, dense, padding=1) - usual).abs().max() > 0.1


def test_eq9_border_conventions_differ():
    query, key, value = random(1, 4, 6, 6), random(1, 4, 6, 6), random(1, 4, 6, 6)
    window = Window.centred(3)
    mask = local_attention(query, key, value, 1, window)
    zero = local_attention(query, key, value, 1, window, boundary="zero")
    difference = (mask - zero).abs()
    assert difference[..., 1:-1, 1:-1].max() < 1e-12
    assert difference.max() > 0.1


def test_eq10_the_column_index_is_b():
    """X[i-a, j-a] reads the diagonal only."""
    x, maps = random(1, 1, 5, 5), random(1, 1, 9, 5, 5)
    i = j = 2
    window = F.unfold(x, 3, padding=1).view(9, 5, 5)[:, i, j]
    right = (maps[0, 0, :, i, j] * window).sum()
    taps = [(a, b) for a in (-1, 0, 1) for b in (-1, 0, 1)]
    printed = sum(maps[0, 0, 3 * (1 - a) + 1 - b, i, j] * x[0, 0, i - a, j - a] for a, b in taps)
    fixed = sum(maps[0, 0, 3 * (1 - a) + 1 - b, i, j] * x[0, 0, i - a, j - b] for a, b in taps)
    torch.testing.assert_close(fixed, right)
    assert (printed - right).abs() > 0.1


def test_eq10_the_printed_group_index_has_one_group_too_many():
    groups, channels = 4, 16
    printed = {-(-k * groups // channels) for k in range(channels)}
    assert len(printed) == groups + 1
    assert {m * groups // channels for m in range(channels)} == set(range(groups))


def test_eq14_printed_channel_range_is_legal_only_for_one_output():
    """c in [N·m, N·(m+1) - 1] leaves the input for every m > 0 when G = 1."""
    inputs, outputs, groups = 4, 6, 1
    per_group = inputs // groups
    assert [m for m in range(outputs) if per_group * (m + 1) <= inputs] == [0]
    # t(m) = ⌊m·G / D_out⌋ is what a grouped convolution does.
    x, weight = random(1, 4, 5, 5), random(6, 2, 3, 3)
    everywhere = weight.permute(2, 3, 1, 0).expand(5, 5, -1, -1, -1, -1)
    torch.testing.assert_close(
        evolve(x, everywhere, groups=2, padding=1), F.conv2d(x, weight, padding=1, groups=2)
    )


def test_eq14_the_kernel_lives_on_output_positions():
    x, weight = random(1, 2, 7, 7), random(3, 2, 3, 3)
    everywhere = weight.permute(2, 3, 1, 0).expand(4, 4, -1, -1, -1, -1)
    out = evolve(x, everywhere, stride=2, padding=1)
    torch.testing.assert_close(out, F.conv2d(x, weight, stride=2, padding=1))


def test_eq21_is_an_outer_product_without_a_sum():
    """W[c, m] = S · W_V[c, m]; a convolution of W_V and S would sum over c."""
    layer = LocalAttention2d(4, 3, 3, 1).double()
    x = random(1, 4, 5, 5)
    form = layer.kernel(x)
    maps = form.maps().view(3, 3, 5, 5)
    weight = layer.query_key_value.weight[6:, :, 0, 0]
    outer = torch.einsum("uvij,mc->ijuvcm", maps, weight)
    torch.testing.assert_close(evolve(x, outer, padding=1), layer(x))
    summed = torch.einsum("uvij,mc->ijuvm", maps, weight)[..., None, :].expand(
        -1, -1, -1, -1, 4, -1
    )
    assert (evolve(x, summed, padding=1) - layer(x)).abs().max() > 0.1


def test_eq26_omits_the_output_projection():
    layer = LocalAttention2d(8, 8, 3, 2, projection=True).double()
    x = random(1, 8, 5, 5)
    form = layer.kernel(x)
    maps = form.maps().view(2, 3, 3, 5, 5)
    value = form.value_weight
    by_channel = maps.repeat_interleave(4, dim=0)
    printed = evolve(x, torch.einsum("muvij,mc->ijuvcm", by_channel, value), padding=1)
    heads = local_attention(form.query, form.key, form.value, 2, form.window)
    torch.testing.assert_close(printed, heads)
    assert (printed - layer(x)).abs().max() > 0.1
    torch.testing.assert_close(F.conv2d(printed, layer.output.weight), layer(x))


def test_value_biases_are_a_constant_only_if_the_softmax_stays_inside():
    query, key, value, bias = *(random(1, 4, 5, 5) for _ in range(3)), random(4, 1, 1)
    window = Window.centred(3)
    for boundary, constant in (("mask", True), ("zero", False)):
        with_bias = local_attention(query, key, value + bias, 1, window, boundary=boundary)
        without = local_attention(query, key, value, 1, window, boundary=boundary)
        assert torch.allclose(with_bias - without, bias.expand_as(without)) == constant


def test_eq27_base_is_k_not_l():
    """⌊m / l⌋ and m - ⌊m/l⌋·l run to (8, 0) - l for M = 9; with K they are the nine offsets."""
    size, middle = 3, 1
    printed = {(m // middle - middle, m % middle - middle) for m in range(9)}
    assert max(printed) == (7, -1)
    fixed = {(m // size - middle, m % size - middle) for m in range(9)}
    assert fixed == {(a, b) for a in (-1, 0, 1) for b in (-1, 0, 1)}


def test_eq27_scores_of_zero_and_one_are_not_hard():
    scores = torch.zeros(9, dtype=torch.float64)
    scores[4] = 1
    assert scores.softmax(0)[4].item() == pytest.approx(0.2536, abs=1e-4)


def test_eq27_needs_a_large_alpha():
    convolution = nn.Conv2d(3, 4, 3, padding=1).double()
    x = random(1, 3, 6, 6)
    errors = [
        (attention_as_conv(convolution, alpha)(x) - convolution(x)).abs().max().item()
        for alpha in (1.0, 5.0, 50.0)
    ]
    assert errors[0] > 0.1
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 1e-12


def test_eq27_attention_cannot_emit_zero_padding():
    """Heads aimed outside the image attend to the nearest pixels inside."""
    x = random(1, 2, 5, 5)
    weight = random(1, 2, 3, 3)
    value = F.conv2d(x, weight.permute(2, 3, 0, 1).flatten(0, 2)[:, :, None, None])
    nothing = x.new_zeros(1, 9, 5, 5)
    scores = quadratic_scores(3, 50.0)
    heads = local_attention(nothing, nothing, value, 9, Window.centred(3), bias=scores)
    error = (heads.sum(1, keepdim=True) - F.conv2d(x, weight, padding=1)).abs()
    assert error[..., 1:-1, 1:-1].max() < 1e-12
    assert error.max() > 0.1


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("stride", [1, 2])
def test_attention_simulates_a_convolution(groups, stride):
    convolution = nn.Conv2d(4, 6, 5, stride, 4, 2, groups=groups).double()
    x = random(2, 4, 11, 9)
    torch.testing.assert_close(
        attention_as_conv(convolution)(x), convolution(x), rtol=0, atol=1e-10
    )


def test_eq29_zero_scores_are_the_uniform_mean():
    """W_Q = W_K = 0 gives an average, not nothing; W_Q W_K^T = 0 is enough for it."""
    x = random(1, 4, 5, 5)
    window = Window.centred(3)
    maps = local_attention_maps(torch.zeros_like(x), torch.zeros_like(x), 1, window, scale=1.0)
    torch.testing.assert_close(maps[0, 0, :, 2, 2], torch.full((9,), 1 / 9, dtype=torch.float64))
    upper, lower = torch.zeros(4, 4).double(), torch.zeros(4, 4).double()
    upper[:2], lower[2:] = random(2, 4), random(2, 4)
    query = torch.einsum("mc,bcij->bmij", upper, x)
    key = torch.einsum("mc,bcij->bmij", lower, x)
    torch.testing.assert_close(local_attention_maps(query, key, 1, window, scale=1.0), maps)


def test_rank_and_parameters_of_the_simulated_kernel():
    """rank(W^m) ≤ min(D_in, D_h, D_out); fewer parameters only if (M - 1)·D_in > D_out."""
    inputs, depth, outputs = 6, 2, 5
    product = random(inputs, depth) @ random(depth, outputs)
    assert torch.linalg.matrix_rank(product) == depth

    def fewer(heads, inputs, outputs):
        attention = inputs * outputs + outputs * outputs
        return attention < heads * inputs * outputs

    for heads, inputs, outputs in ((9, 16, 16), (2, 4, 8), (2, 4, 3), (4, 2, 6)):
        assert fewer(heads, inputs, outputs) == ((heads - 1) * inputs > outputs)


def test_d_in_maps_and_d_out_maps_are_different_operators():
    """§3.4: maps before or after the value projection; the order cannot be swapped."""
    x, mix = random(1, 3, 5, 5), random(3, 3)
    maps = random(1, 3, 9, 5, 5)
    columns = F.unfold(x, 3, padding=1).view(1, 3, 9, 5, 5)
    before = torch.einsum("mc,bcij->bmij", mix, (maps * columns).sum(2))
    mixed = F.unfold(torch.einsum("mc,bcij->bmij", mix, x), 3, padding=1).view(1, 3, 9, 5, 5)
    after = (maps * mixed).sum(2)
    per_tap = maps.view(3, 3, 3, 5, 5)
    torch.testing.assert_close(
        evolve(x, torch.einsum("cuvij,mc->ijuvcm", per_tap, mix), padding=1), before
    )
    torch.testing.assert_close(
        evolve(x, torch.einsum("muvij,mc->ijuvcm", per_tap, mix), padding=1), after
    )
    assert (before - after).abs().max() > 0.1


def test_eq30_transformer_xl_scores_are_an_evolution_kernel():
    """Four-term relative scores (Dai et al. 2019): q·k + q·r + u·k + v·r."""
    x, depth, window = random(1, 4, 5, 5), 3, Window.centred(3)
    w_q, w_k, w_v, w_r = random(depth, 4), random(depth, 4), random(2, 4), random(depth, 6)
    u, v, r = random(depth), random(depth), random(6, 9)
    query, key, value = (torch.einsum("mc,bcij->bmij", w, x) for w in (w_q, w_k, w_v))
    content = F.unfold(key, 3, padding=1).view(1, depth, 9, 5, 5)
    place = (w_r @ r)[None, :, :, None, None]
    scores = (
        (query.unsqueeze(2) * (content + place)).sum(1)
        + (u[None, :, None, None, None] * content).sum(1)
        + (v[None, :, None, None, None] * place).sum(1)
    )
    outside = F.unfold(torch.ones(1, 1, 5, 5), 3, padding=1).view(1, 9, 5, 5) == 0
    maps = scores.masked_fill(outside, float("-inf")).softmax(1)
    values = F.unfold(value, 3, padding=1).view(1, 2, 9, 5, 5)
    expected = (maps.unsqueeze(1) * values).sum(2)
    dense = torch.einsum("uvij,mc->ijuvcm", maps.view(3, 3, 5, 5), w_v)
    torch.testing.assert_close(evolve(x, dense, padding=1), expected)
    # Our fused attention takes u through the query and v·r as a bias.
    got = local_attention(
        query + u[:, None, None],
        key,
        value,
        1,
        window,
        scale=1.0,
        bias=(v @ w_r @ r)[None],
    )
    positions = (query.unsqueeze(2) * place).sum(1)
    assert positions.abs().max() > 0.1
    without = (scores - positions).masked_fill(outside, float("-inf")).softmax(1)
    torch.testing.assert_close(got, (without.unsqueeze(1) * values).sum(2))
