"""The network of style transfer: written out by hand, and the laws of its norms."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import attnlab
from attnlab._errors import InputError, OptionError, UnknownNameError
from attnlab.networks.backbones import FastStyle


def parameters(network: nn.Module) -> int:
    return sum(p.numel() for p in network.parameters())


def counted(width: int, blocks: int) -> int:
    """Convolutions with bias, and two values per channel of every norm."""
    w = width
    layers = [(3, w, 9), (w, 2 * w, 3), (2 * w, 4 * w, 3), (4 * w, 2 * w, 3), (2 * w, w, 3)]
    layers += [(4 * w, 4 * w, 3)] * (2 * blocks)
    with_norms = sum(i * o * k * k + o + 2 * o for i, o, k in layers)
    return with_norms + w * 3 * 81 + 3


@pytest.mark.parametrize(
    ("width", "blocks", "known"),
    # The public example's network has 1,679,235.
    [(32, 5, 1_679_235), (16, 3, 276_675), (8, 0, None)],
)
@pytest.mark.parametrize("norm", ["batch", "instance"])
def test_parameters(width: int, blocks: int, known: int | None, norm: str) -> None:
    network = attnlab.create("fast_style", width=width, blocks=blocks, norm=norm)
    assert parameters(network) == counted(width, blocks)
    if known is not None:
        assert parameters(network) == known


def written_out(network: FastStyle, x: Tensor) -> Tensor:
    """In functions alone, from the weights by name; instance norm."""
    state = network.state_dict()

    def conv(name: str, x: Tensor, stride: int = 1) -> Tensor:
        weight, bias = state[f"{name}.weight"], state[f"{name}.bias"]
        border = weight.shape[-1] // 2
        return F.conv2d(F.pad(x, (border,) * 4, mode="reflect"), weight, bias, stride)

    def norm(name: str, x: Tensor) -> Tensor:
        mean = x.mean((2, 3), keepdim=True)
        variance = x.var((2, 3), keepdim=True, correction=0)
        scale, shift = (state[f"{name}.{part}"].view(1, -1, 1, 1) for part in ("weight", "bias"))
        return (x - mean) / (variance + 1e-5).sqrt() * scale + shift

    for place, stride in enumerate((1, 2, 2)):
        x = norm(f"down.{place}.norm", conv(f"down.{place}.conv", x, stride)).clamp_min(0)
    for place in range(len(network.blocks)):
        inside = norm(f"blocks.{place}.norm1", conv(f"blocks.{place}.conv1", x)).clamp_min(0)
        x = x + norm(f"blocks.{place}.norm2", conv(f"blocks.{place}.conv2", inside))
    for place in range(2):
        x = x.repeat_interleave(2, 2).repeat_interleave(2, 3)
        x = norm(f"up.{place}.norm", conv(f"up.{place}.conv", x)).clamp_min(0)
    return 1 / (1 + (-conv("last", x)).exp())


def test_written_out() -> None:
    torch.manual_seed(0)
    network = FastStyle(4, 2, "instance").double()
    for parameter in network.parameters():
        nn.init.normal_(parameter, 0.0, 0.3)
    images = torch.randn(2, 3, 20, 24, dtype=torch.float64)
    torch.testing.assert_close(network(images), written_out(network, images))


@pytest.mark.parametrize("size", [(16, 16), (17, 30), (35, 18)])
def test_pictures_are_as_large_as_images(size: tuple[int, int]) -> None:
    pictures = FastStyle(4, 1)(torch.randn(2, 3, *size))
    assert pictures.shape == (2, 3, *size)
    assert pictures.min() > 0
    assert pictures.max() < 1


def test_batch_norm_of_one_image_is_instance_norm_in_training() -> None:
    """Which is why batch noise needs batches."""
    torch.manual_seed(0)
    batch, instance = (FastStyle(4, 2, norm).double() for norm in ("batch", "instance"))
    instance.load_state_dict(batch.state_dict(), strict=False)
    images = torch.randn(3, 3, 24, 24, dtype=torch.float64)
    alone = batch(images[:1])
    torch.testing.assert_close(alone, instance(images[:1]))
    torch.testing.assert_close(instance(images)[:1], alone)
    assert (batch(images)[:1] - alone).abs().max() > 1e-3
    batch.eval()
    torch.testing.assert_close(batch(images)[:1], batch(images[:1]))


def test_gates_go_behind_every_norm() -> None:
    plain = attnlab.create("fast_style", width=16, blocks=3, norm="batch")
    norms = [name for name, m in plain.named_modules() if isinstance(m, nn.BatchNorm2d)]
    assert len(norms) == 3 + 2 * 3 + 2
    gated, receipt = attnlab.insert(plain, "asr:se", example=torch.randn(1, 3, 32, 32))
    assert list(receipt.sites) == norms
    assert parameters(gated) == 281_701
    # A gate that reads both ends of a step acts where there are steps.
    _, receipt = attnlab.insert(plain, "step", example=torch.randn(1, 3, 32, 32))
    assert list(receipt.sites) == ["blocks.0", "blocks.1", "blocks.2"]


def test_folds_to_the_batch_norm_network() -> None:
    torch.manual_seed(0)
    plain = attnlab.create("fast_style", width=8, blocks=1, norm="batch")
    gated, _ = attnlab.insert(plain, "asr:se", example=torch.randn(1, 3, 32, 32))
    with torch.no_grad():
        for parameter in gated.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    images = torch.randn(2, 3, 40, 33)
    for _ in range(3):
        gated(images)
    folded, _ = attnlab.fold(gated.eval(), example=images)
    assert folded.state_dict().keys() == plain.state_dict().keys()
    assert (folded(images) - gated(images)).abs().max() < 1e-6
    assert (plain.eval()(images) - gated(images)).abs().max() > 1e-3


def test_errors() -> None:
    with pytest.raises(InputError) as small:
        FastStyle(4, 1)(torch.randn(1, 3, 15, 40))
    assert str(small.value) == (
        "FastStyle: expected images of at least 16×16 but got 15×40. Enlarge them first."
    )
    with pytest.raises(UnknownNameError) as norm:
        attnlab.create("fast_style", norm="instances")
    assert str(norm.value) == (
        "Unknown norm of FastStyle 'instances'. Did you mean 'instance'? Expected one of: batch, "
        "instance."
    )
    with pytest.raises(OptionError) as classes:
        attnlab.create("fast_style", 10)
    assert str(classes.value) == (
        "Network 'fast_style' has no classes but got num_classes = 10. Leave it out, or choose a "
        "network that classifies."
    )
    with pytest.raises(OptionError) as width:
        attnlab.create("fast_style", width=0)
    assert str(width.value) == (
        "Expected width to be at least 1 and blocks at least 0 but got 0 and 5."
    )
