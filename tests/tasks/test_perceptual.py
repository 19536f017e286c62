"""Perceptual losses against numpy, scipy and torchvision's own VGG16."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.ndimage import correlate
from torch import nn

from attnlab._errors import WeightsError
from attnlab.data.photos import read_painting
from attnlab.data.pictures import as_tensor
from attnlab.tasks.perceptual import (
    MEAN,
    STD,
    VGG16,
    VGG_MAPS,
    RandomFilters,
    content_loss,
    gram,
    random_filters,
    style_loss,
    total_variation,
    vgg16_file,
)

DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data"


@pytest.fixture(scope="module")
def vgg_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """VGG16's convolutions up to relu4_3 with random weights, in float16, and a classifier that
    nobody asked for."""
    from torchvision.models.vgg import cfgs, make_layers

    torch.manual_seed(0)
    layers = nn.Sequential()
    layers.add_module("features", make_layers(cfgs["D"])[:23])
    state = {name: value.half() for name, value in layers.state_dict().items()}
    path = tmp_path_factory.mktemp("vgg") / "vgg.pth"
    torch.save({**state, "classifier.0.weight": torch.zeros(2, 2)}, path)
    return path


def test_vgg_maps_are_those_of_hooks_on_torchvision(vgg_file: Path) -> None:
    from torchvision.models.vgg import cfgs, make_layers

    state = torch.load(vgg_file, weights_only=True)
    reference = make_layers(cfgs["D"])
    own = {n.removeprefix("features."): v.float() for n, v in state.items() if "features" in n}
    reference.load_state_dict(own, strict=False)
    # After the second, fourth, seventh and tenth convolution, in the paper's count.
    convolutions = [n for n, layer in enumerate(reference) if isinstance(layer, nn.Conv2d)]
    places = [convolutions[n] + 1 for n in (1, 3, 6, 9)]
    assert places == list(VGG_MAPS.values())
    pictures = torch.rand(2, 3, 40, 32)
    normalised = (pictures - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(STD).view(3, 1, 1)
    found = VGG16(vgg_file)(pictures)
    with torch.no_grad():
        for place, maps in zip(places, found, strict=True):
            torch.testing.assert_close(maps, reference[: place + 1](normalised.clone()))
    assert [len(VGG16(vgg_file, n)(pictures)) for n in (2, 3)] == [2, 3]
    assert len(VGG16(vgg_file)(pictures, 2)) == 2


def test_losses_against_numpy() -> None:
    torch.manual_seed(0)
    maps = [torch.randn(3, 4, 5, 6, dtype=torch.float64), torch.randn(3, 2, 7, 3).double()]
    styles = [torch.randn(1, 4, 4, dtype=torch.float64), torch.randn(1, 2, 2).double()]
    expected = np.zeros(3)
    for found, style in zip(maps, styles, strict=True):
        flat = found.numpy().reshape(3, found.shape[1], -1)
        grams = flat @ flat.transpose(0, 2, 1) / flat[0].size
        np.testing.assert_allclose(gram(found).numpy(), grams, atol=1e-14)
        expected += ((grams - style.numpy()) ** 2).mean((1, 2))
    np.testing.assert_allclose(style_loss(maps, styles).numpy(), expected, rtol=1e-12)
    other = torch.randn_like(maps[0])
    squares = ((maps[0] - other).numpy() ** 2).mean((1, 2, 3))
    np.testing.assert_allclose(content_loss(maps[0], other).numpy(), squares, rtol=1e-12)


def test_gradients() -> None:
    torch.manual_seed(0)
    maps = torch.randn(2, 3, 4, 4, dtype=torch.float64, requires_grad=True)
    style = torch.randn(1, 3, 3, dtype=torch.float64)
    other = torch.randn(2, 3, 4, 4, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda found: style_loss([found], [style]), maps)
    assert torch.autograd.gradcheck(lambda found: content_loss(found, other), maps)


def test_total_variation_of_a_slope_and_of_a_board() -> None:
    slope = torch.arange(8.0).expand(1, 3, 5, 8) / 7
    assert total_variation(slope).item() == pytest.approx(1 / 7)
    rows, columns = torch.meshgrid(torch.arange(6), torch.arange(6), indexing="ij")
    board = ((rows + columns) % 2).float().expand(2, 3, 6, 6)
    assert total_variation(board).tolist() == [2.0, 2.0]


def test_random_filters() -> None:
    for size in (3, 7, 11):
        filters = random_filters(size).double()
        assert filters.shape == (48, 3, size, size)
        torch.testing.assert_close(filters.flatten(1).norm(dim=1), torch.ones(48).double())
        assert filters[:36].mean((1, 2, 3)).abs().max() < 1e-7
        assert filters[36:].mean((1, 2, 3)).abs().max() > 1e-3


def test_maps_of_random_filters_against_scipy() -> None:
    picture = torch.rand(1, 3, 24, 30, generator=torch.Generator().manual_seed(0))
    normalised = (picture - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(STD).view(3, 1, 1)
    found = RandomFilters()(picture)
    assert [tuple(maps.shape[1:]) for maps in found] == [(48, 24, 30)] * 3 + [(48, 12, 15)]
    half = normalised[0].reshape(3, 12, 2, 15, 2).mean((2, 4))
    for maps, size, source in zip(found, (3, 7, 11, 7), (*[normalised[0]] * 3, half), strict=True):
        for place in (0, 40):
            filters = random_filters(size)[place]
            # scipy's "mirror" is torch's "reflect".
            each = [
                correlate(channel.double().numpy(), part.double().numpy(), mode="mirror")
                for channel, part in zip(source, filters, strict=True)
            ]
            expected = np.maximum(sum(each), 0)
            np.testing.assert_allclose(maps[0, place].numpy(), expected, atol=1e-4)


def test_losses_of_the_photographs_themselves() -> None:
    """By the trained VGG16 up to relu3_3, as measured with other code: no content loss, style
    losses 22.5e-4 and 6.35e-4."""
    from PIL import Image

    weights = DATA / "weights" / "vgg16_features_to_relu4_3_half.pth"
    if not weights.is_file():
        pytest.skip("needs the trained VGG16")
    network = VGG16(weights, 3)

    def square(file: Path, size: int) -> torch.Tensor:
        with Image.open(file) as picture:
            whole = picture.convert("RGB")
        width, height = whole.size
        factor = size / min(width, height)
        sides = max(size, round(width * factor)), max(size, round(height * factor))
        left, top = ((side - size) // 2 for side in sides)
        small = whole.resize(sides, Image.Resampling.BICUBIC)
        return as_tensor(small.crop((left, top, left + size, top + size)))

    photos = torch.stack([square(f, 160) for f in sorted((DATA / "style" / "photos").iterdir())])
    maps = network(photos)
    for name, expected in (("asheville", 22.5e-4), ("scene_de_rue", 6.35e-4)):
        painting = square(DATA / "style" / "paintings" / f"{name}.jpg", 192)
        wanted = [gram(found) for found in network(painting[None])]
        assert style_loss(maps, wanted).mean().item() == pytest.approx(expected, rel=3e-3)
    assert content_loss(maps[1], network(photos, 2)[1]).max() == 0


def test_missing_and_wrong_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vgg_file: Path
) -> None:
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    advice = (
        "Expected the weights of torchvision's VGG16, whole or up to relu4_3: give their path as "
        "the task's option weights, or fetch them once with "
        "torchvision.models.vgg16(weights='DEFAULT'). The task 'style-filters' needs no file."
    )
    cache = tmp_path / "checkpoints" / "vgg16-397923af.pth"
    with pytest.raises(WeightsError) as missing:
        vgg16_file(None)
    assert str(missing.value) == (
        f"The trained VGG16 is not in torchvision's cache ({cache}). {advice}"
    )
    with pytest.raises(WeightsError) as given:
        vgg16_file("vgg.pth")
    assert str(given.value) == f"There is no file of weights at 'vgg.pth'. {advice}"
    cache.parent.mkdir()
    cache.write_bytes(vgg_file.read_bytes())
    assert vgg16_file(None) == cache
    torch.save({"features.0.weight": torch.zeros(64, 3, 3, 3)}, tmp_path / "other.pth")
    with pytest.raises(WeightsError, match="do not fit VGG16: 19 missing"):
        VGG16(tmp_path / "other.pth")


def test_paintings_are_textured_and_the_same_each_time() -> None:
    for name in ("strokes", "glass"):
        one, two = read_painting(name, 96), read_painting(name, 96)
        assert one.shape == (3, 96, 96)
        assert torch.equal(one, two)
        assert total_variation(one[None]).item() > 0.05
        assert one.std((1, 2)).min() > 0.1
