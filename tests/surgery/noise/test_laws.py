"""What each noise is, written out by hand in float64: x̂ from mean and variance, then the noise,
then the affine."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from attnlab.gates import InstanceEnhancementBatchNorm
from attnlab.surgery import noise

CHANNELS = 6
SHAPES = {1: (5, CHANNELS, 7), 2: (5, CHANNELS, 4, 3), 3: (5, CHANNELS, 2, 3, 2)}
BATCH_NORMS = {1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}


def worn(norm: nn.Module) -> Any:
    """In float64, with an affine that is not the first one."""
    norm.double()
    with torch.no_grad():
        for parameter in norm.parameters():
            parameter.uniform_(0.5, 2)
    return norm


def images(rank: int = 2) -> Tensor:
    return 3 + 2 * torch.randn(SHAPES[rank], dtype=torch.float64)


def along(vector: Tensor, rank: int) -> Tensor:
    return vector.view(-1, *(1,) * rank)


def normalised(x: Tensor, axes: tuple[int, ...], eps: float = 1e-5) -> Tensor:
    variance = x.var(axes, keepdim=True, correction=0)
    return (x - x.mean(axes, keepdim=True)) / (variance + eps).sqrt()


def of_batch(x: Tensor) -> Tensor:
    return normalised(x, (0, *range(2, x.dim())))


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_constant_noise_in_batch_norms_of_every_rank(rank: int) -> None:
    norm, x = worn(BATCH_NORMS[rank](CHANNELS)), images(rank)
    gamma, beta = along(norm.weight, rank), along(norm.bias, rank)
    noise.attach(norm, noise.constant(0.8, 0.5))
    expected = gamma * (0.8 * of_batch(x) + 0.5) + beta
    torch.testing.assert_close(norm(x), expected, rtol=0, atol=1e-13)
    norm.eval()
    mean, variance = along(norm.running_mean, rank), along(norm.running_var, rank)
    x_hat = (x - mean) / (variance + norm.eps).sqrt()
    torch.testing.assert_close(norm(x), gamma * (0.8 * x_hat + 0.5) + beta, rtol=0, atol=1e-13)


def test_the_affine_absorbs_constant_noise_in_training_mode_with_its_gradients() -> None:
    """A network under noise and one whose γ is γ a and β is β + γ b are the same function."""
    torch.manual_seed(0)

    def build() -> nn.Sequential:
        return nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 3), nn.BatchNorm2d(4)
        ).double()

    plain, under = build(), build()
    under.load_state_dict(plain.state_dict())
    with torch.no_grad():
        for layer in (under[1], under[4]):
            layer.weight.uniform_(0.5, 2)  # type: ignore[operator, union-attr]
            layer.bias.uniform_(-1, 1)  # type: ignore[operator, union-attr]
        for index in (1, 4):
            gamma, beta = under[index].weight, under[index].bias
            plain[index].weight.copy_(0.8 * gamma)  # type: ignore[operator, union-attr]
            plain[index].bias.copy_(beta + 0.5 * gamma)  # type: ignore[operator, union-attr]
    noise.attach(under, noise.constant(0.8, 0.5))
    x = torch.randn(4, 3, 9, 9, dtype=torch.float64)
    torch.testing.assert_close(under(x), plain(x), rtol=0, atol=1e-14)
    for network in (plain, under):
        network(x).square().sum().backward()
    # dL/dγ = a dL/d(γ a) + b dL/d(β + γ b), and the layers before see the same gradient.
    own, absorbed = under[4], plain[4]
    chained = 0.8 * absorbed.weight.grad + 0.5 * absorbed.bias.grad  # type: ignore[operator]
    torch.testing.assert_close(own.weight.grad, chained)
    torch.testing.assert_close(under[0].weight.grad, plain[0].weight.grad)


@pytest.mark.parametrize("per", ["layer", "channel", "image"])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_random_noise_lies_between_normalisation_and_affine(per: Any, rank: int) -> None:
    norm, x = worn(BATCH_NORMS[rank](CHANNELS)), images(rank)
    gamma, beta = along(norm.weight, rank), along(norm.bias, rank)
    noise.attach(norm, noise.random(0.3, per))
    torch.manual_seed(3)
    found = norm(x)
    torch.manual_seed(3)
    shape = {"layer": (1,), "channel": (CHANNELS,), "image": (5, CHANNELS)}[per]
    scale, shift = (torch.randn(shape, dtype=torch.float64) for _ in range(2))
    scale, shift = (each[(...,) + (None,) * rank] for each in (1 + 0.3 * scale, 0.3 * shift))
    expected = gamma * (scale * of_batch(x) + shift) + beta
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("per", "draws"), [("layer", 1), ("channel", 64), ("image", 256)])
def test_random_noise_has_the_stated_moments(per: Any, draws: int) -> None:
    """The pixels 0 and 1 show one draw of scale and shift each time; all draws are independent."""
    torch.manual_seed(0)
    norm = nn.BatchNorm2d(64, affine=False).double().eval()
    norm.eps = 0.0
    noise.attach(norm, noise.random(0.3, per), "test")
    times = 20_000 // draws
    maps = torch.zeros(4, 64, 1, 2, dtype=torch.float64)
    maps[..., 1] = 1
    shifts, scales = [], []
    for _ in range(times):
        y = norm(maps)
        shifts.append(y[..., 0].flatten())
        scales.append((y[..., 1] - y[..., 0]).flatten())
    shift, scale = torch.stack(shifts), torch.stack(scales)
    assert shift[0].unique().numel() == scale[0].unique().numel() == draws
    first = {"layer": 1, "channel": 64, "image": 256}[per]
    shift, scale = shift[:, :first].flatten(), scale[:, :first].flatten()
    error = 4 * 0.3 / len(shift) ** 0.5
    assert float(shift.mean()) == pytest.approx(0, abs=error)
    assert float(scale.mean()) == pytest.approx(1, abs=error)
    for each in (shift, scale):
        assert float(each.std()) == pytest.approx(0.3, rel=4 / (2 * len(each)) ** 0.5)
    assert abs(float(torch.corrcoef(torch.stack([shift, scale]))[0, 1])) < 4 / len(shift) ** 0.5


def test_layer_norm_and_group_norm() -> None:
    x = torch.randn(3, 5, 8, dtype=torch.float64)
    norm = worn(nn.LayerNorm(8))
    noise.attach(norm, noise.constant(0.5, 0.2))
    expected = norm.weight * (0.5 * normalised(x, (2,)) + 0.2) + norm.bias
    torch.testing.assert_close(norm(x), expected, rtol=0, atol=1e-13)

    maps = images()
    norm = worn(nn.GroupNorm(2, CHANNELS))
    noise.attach(norm, noise.constant(0.5, 0.2))
    grouped = normalised(maps.view(5, 2, 3, 4, 3), (2, 3, 4)).view_as(maps)
    expected = along(norm.weight, 2) * (0.5 * grouped + 0.2) + along(norm.bias, 2)
    torch.testing.assert_close(norm(maps), expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize("per", ["layer", "channel", "image"])
def test_random_noise_in_layer_norms_of_tokens_and_of_whole_maps(per: Any) -> None:
    for shape, x in (((8,), torch.randn(3, 5, 8)), ((6, 4, 3), images())):
        x = x.double()
        norm = worn(nn.LayerNorm(shape))
        noise.attach(norm, noise.random(0.3, per))
        torch.manual_seed(3)
        found = norm(x)
        torch.manual_seed(3)
        drawn = {"layer": (1,), "channel": shape[:1], "image": (len(x), shape[0])}[per]
        scale, shift = (torch.randn(drawn, dtype=torch.float64) for _ in range(2))
        if len(shape) == 3:
            scale, shift = (each[..., None, None] for each in (scale, shift))
        elif per == "image":
            scale, shift = scale[:, None], shift[:, None]
        x_hat = normalised(x, tuple(range(x.dim() - len(shape), x.dim())))
        expected = norm.weight * ((1 + 0.3 * scale) * x_hat + 0.3 * shift) + norm.bias
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("given", [noise.constant(0.8, 0.5), noise.random(0.3, "image")])
def test_in_iebn_the_noise_lies_below_the_gate_and_does_not_reach_it(given: noise.Noise) -> None:
    norm, x = worn(InstanceEnhancementBatchNorm(CHANNELS)), images()
    noise.attach(norm, given)
    torch.manual_seed(3)
    found = norm(x)
    torch.manual_seed(3)
    scale, shift = 0.8, 0.5
    if isinstance(given, type(noise.random(0.3))):
        drawn = [torch.randn(5, CHANNELS, 1, 1, dtype=torch.float64) for _ in range(2)]
        scale, shift = 1 + 0.3 * drawn[0], 0.3 * drawn[1]  # type: ignore[assignment]
    mean = x.mean((2, 3))
    gate = torch.sigmoid(norm.gate.weight * mean + norm.gate.bias)[..., None, None]
    x_hat = scale * of_batch(x) + shift
    expected = x_hat * (along(norm.weight, 2) * gate) + along(norm.bias, 2)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_batch_noise_takes_the_statistics_of_n_images_and_a_rest_joins_the_last() -> None:
    norm = worn(nn.BatchNorm2d(CHANNELS)).eval()
    before = {name: value.clone() for name, value in norm.state_dict().items()}
    noise.attach(norm, noise.batch(2), "test")
    x = torch.cat([images(), images()[:2]])  # 7 images: 2, 2 and 3
    parts = [of_batch(part) for part in x.split([2, 2, 3])]
    expected = along(norm.weight, 2) * torch.cat(parts) + along(norm.bias, 2)
    torch.testing.assert_close(norm(x), expected, rtol=0, atol=1e-12)
    for name, value in norm.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_batch_noise_of_the_whole_set_has_the_exact_statistics() -> None:
    """In test, of all images at once; in training it is the norm itself, running statistics too."""
    x = images()
    norm = worn(nn.BatchNorm2d(CHANNELS)).eval()
    with noise.noisy(norm, noise.batch(5), "test"):
        expected = along(norm.weight, 2) * of_batch(x) + along(norm.bias, 2)
        torch.testing.assert_close(norm(x), expected, rtol=0, atol=1e-12)
    plain, under = (worn(nn.BatchNorm2d(CHANNELS)) for _ in range(2))
    under.load_state_dict(plain.state_dict())
    noise.attach(under, noise.batch(5))
    assert torch.equal(under(x), plain(x))
    for name, value in plain.state_dict().items():
        assert torch.equal(under.state_dict()[name], value), name


def test_batch_noise_moves_the_running_statistics_by_the_mean_over_its_parts() -> None:
    norm, x = nn.BatchNorm2d(CHANNELS, momentum=0.3).double(), images()[:4]
    noise.attach(norm, noise.batch(2))
    norm(x)
    parts = [part.transpose(0, 1).flatten(1) for part in x.split(2)]
    mean = sum(part.mean(1) for part in parts) / 2
    variance = sum(part.var(1) for part in parts) / 2
    torch.testing.assert_close(norm.running_mean, 0.3 * mean)
    torch.testing.assert_close(norm.running_var, 0.7 + 0.3 * variance)
    assert int(norm.num_batches_tracked) == 1


@pytest.mark.parametrize("given", [noise.constant(1, 0), noise.random(0), noise.random(0, "layer")])
@pytest.mark.parametrize("affine", [True, False])
def test_zero_strength_changes_no_bit(given: noise.Noise, affine: bool) -> None:
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6, affine=affine), nn.ReLU())
    x = torch.randn(4, 3, 8, 8)
    for training in (True, False):
        plain.train(training)
        with noise.noisy(plain, given, "both"):
            found = plain(x)
        if affine:
            assert torch.equal(found, plain(x))
        torch.testing.assert_close(found, plain(x), rtol=0, atol=1e-6)


def test_two_noises_act_in_the_order_in_which_they_were_attached() -> None:
    norm, x = worn(nn.BatchNorm2d(CHANNELS)), images()
    noise.attach(norm, noise.constant(0.8, 0.5))
    noise.attach(norm, noise.constant(2, 1), "training")
    expected = along(norm.weight, 2) * (2 * (0.8 * of_batch(x) + 0.5) + 1) + along(norm.bias, 2)
    torch.testing.assert_close(norm(x), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "given",
    [noise.constant(0.8, 0.5), noise.random(0.3), noise.random(0.3, "image"), noise.batch(2)],
    ids=lambda given: given.label,
)
def test_gradients(given: noise.Noise) -> None:
    norm = worn(nn.BatchNorm2d(3, track_running_stats=False))
    noise.attach(norm, given)

    def seeded(x: Tensor, *_: Tensor) -> Tensor:
        torch.manual_seed(0)
        return norm(x)

    x = torch.randn(4, 3, 2, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(seeded, (x, norm.weight, norm.bias))
