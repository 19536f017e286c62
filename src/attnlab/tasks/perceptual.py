"""Losses of pictures by the maps of a fixed network: what is shown, and in which style.

Two yardsticks, whose figures cannot be compared and never stand in one table: the
trained VGG16, as everybody has it, and one layer of random filters at several sizes, which needs no
file. The latter makes pictures that look like the style; VGG16's own style loss does not see it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnlab._errors import WeightsError
from attnlab._seeds import stream
from attnlab.networks.backbones.weights import fill, read_state

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
CONTENT = 1
"""Which map says what is shown."""
VGG_MAPS = {"relu1_2": 3, "relu2_2": 8, "relu3_3": 15, "relu4_3": 22}
"""Places in torchvision's `features`."""
_SIZES = (3, 7, 11)
_FILTERS = 48


class LossNetwork(nn.Module, ABC):
    """Pictures (N, 3, H, W), pixels 0 to 1, to their maps, in float32."""

    mean: Tensor
    std: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(MEAN).view(3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(STD).view(3, 1, 1), persistent=False)

    def forward(self, pictures: Tensor, number: int | None = None) -> list[Tensor]:
        """The first `number` maps; all when None."""
        with torch.autocast(pictures.device.type, enabled=False):
            return self.maps((pictures.float() - self.mean) / self.std, number)

    @abstractmethod
    def maps(self, normalised: Tensor, number: int | None) -> list[Tensor]:
        """Return the maps of normalised pictures."""


class VGG16(LossNetwork):
    """The maps of VGG16 after relu1_2, relu2_2, relu3_3 and relu4_3, or the first of these."""

    def __init__(self, weights: Path, maps: int = len(VGG_MAPS)) -> None:
        from torchvision.models.vgg import cfgs, make_layers

        super().__init__()
        self.places = tuple(VGG_MAPS.values())[:maps]
        self.features = make_layers(cfgs["D"])[: self.places[-1] + 1]
        wanted = self.state_dict()
        # What follows the last map, and the classifier, are not needed, and need not be there.
        state = {name: value.float() for name, value in read_state(weights).items()}
        fill(self, {name: state[name] for name in wanted if name in state}, str(weights))
        for layer in self.features:
            if isinstance(layer, nn.ReLU):
                layer.inplace = False  # the maps are kept
        self.requires_grad_(False).eval()

    def maps(self, normalised: Tensor, number: int | None) -> list[Tensor]:
        found: list[Tensor] = []
        x = normalised
        for place, layer in enumerate(self.features):
            x = layer(x)
            if place in self.places:
                found.append(x)
                if len(found) == number:
                    break
        return found


class RandomFilters(LossNetwork):
    """48 random filters each of 3×3, 7×7 and 11×11 pixels, and the 7×7 ones on the picture at half
    its size; unit norm, three quarters without a mean, ReLU; the same on every machine."""

    def __init__(self) -> None:
        super().__init__()
        for size in _SIZES:
            self.register_buffer(f"filters{size}", random_filters(size), persistent=False)

    def maps(self, normalised: Tensor, number: int | None) -> list[Tensor]:
        half = F.avg_pool2d(normalised, 2)
        sources = [(normalised, size) for size in _SIZES] + [(half, _SIZES[1])]
        return [self._map(source, size) for source, size in sources[:number]]

    def _map(self, source: Tensor, size: int) -> Tensor:
        bordered = F.pad(source, (size // 2,) * 4, mode="reflect")
        return F.relu(F.conv2d(bordered, self.get_buffer(f"filters{size}")))


def random_filters(size: int) -> Tensor:
    """Random filters, (48, 3, size, size): three quarters of them answer 0 to an even colour."""
    shape = (_FILTERS, 3, size, size)
    filters = torch.randn(shape, generator=stream(0, "random filters", size), dtype=torch.float64)
    centred = 3 * _FILTERS // 4
    filters[:centred] -= filters[:centred].mean((1, 2, 3), keepdim=True)
    return (filters / filters.flatten(1).norm(dim=1)[:, None, None, None]).float()


def gram(maps: Tensor) -> Tensor:
    """(N, C, H, W) → (N, C, C): products of channels, averaged over all values of the maps."""
    return torch.einsum("nchw,ndhw->ncd", maps, maps) / maps[0].numel()


def content_loss(found: Tensor, wanted: Tensor) -> Tensor:
    """Mean squared difference of two maps, of each picture."""
    return (found - wanted).square().flatten(1).mean(1)


def style_loss(maps: Sequence[Tensor], wanted: Sequence[Tensor]) -> Tensor:
    """Mean squared difference of Gram matrices, summed over maps, of each picture."""
    each = [
        (gram(found) - style).square().flatten(1).mean(1)
        for found, style in zip(maps, wanted, strict=True)
    ]
    return torch.stack(each).sum(0)


def total_variation(pictures: Tensor) -> Tensor:
    """Mean |difference| of neighbouring pixels, across plus down, of each picture."""
    across = pictures.diff(dim=-1).abs().flatten(1).mean(1)
    return across + pictures.diff(dim=-2).abs().flatten(1).mean(1)


def vgg16_file(given: str | None) -> Path:
    """The file of the trained weights: as given, or where torchvision keeps what it fetched."""
    if given is not None:
        path = Path(given)
        if not path.is_file():
            raise WeightsError(f"There is no file of weights at {given!r}. {_WHERE}")
        return path
    from torchvision.models import VGG16_Weights

    name = Path(VGG16_Weights.IMAGENET1K_V1.url).name
    path = Path(torch.hub.get_dir()) / "checkpoints" / name
    if not path.is_file():
        raise WeightsError(f"The trained VGG16 is not in torchvision's cache ({path}). {_WHERE}")
    return path


_WHERE = (
    "Expected the weights of torchvision's VGG16, whole or up to relu4_3: give their path as the "
    "task's option weights, or fetch them once with torchvision.models.vgg16(weights='DEFAULT'). "
    "The task 'style-filters' needs no file."
)
