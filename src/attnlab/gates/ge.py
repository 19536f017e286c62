"""Gather-Excite (Hu et al., NeurIPS 2018).

Gather what a channel says in a neighbourhood of extent e, spread it back over the map with the
nearest value, squash: `gate = σ(spread(gather(x)))`. Without parameters gathering is averaging,
GE-θ⁻; with parameters it is a depthwise convolution for each halving of the map, GE-θ.
"""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab._errors import InputError, OptionError
from attnlab._types import ChannelGate, Features, Maps, Vector
from attnlab.gates._gate import ANY_RANK, Activation, BranchGate, VectorGate
from attnlab.gates._pooling import spatial_mean
from attnlab.gates._shared import Strength, as_channel_gate, check_batch_statistics, ordered_like


def check_extent(extent: int) -> None:
    """Raise `OptionError` unless `extent` is 0, for the whole map, or a power of two."""
    if extent < 0 or extent == 1 or extent & (extent - 1):
        raise OptionError(
            "Expected extent to be 0, for the whole map, or a power of two such as 2, 4 or 8, but "
            f"got {extent}."
        )


def spread(gathered: Tensor, like: Features) -> Features:
    """The nearest gathered value for every pixel of `like`."""
    return ordered_like(F.interpolate(gathered, size=like.shape[2:], mode="nearest"), like)


class GatherExcite(VectorGate):
    """GE-θ⁻ gate: no parameters. `extent=0`, the default, averages the whole map.

    Windows of 2 e − 1 pixels, e apart, as in the paper; ours is that the mean at a border counts
    only pixels of the map. For `start="identity"` it gets one parameter, `strength`.
    """

    def __init__(self, channels: int, extent: int = 0) -> None:
        super().__init__(channels)
        check_extent(extent)
        self.extent = extent
        self.ranks = (2,) if extent else ANY_RANK
        self.strength = Strength()

    def forward(self, branch: Maps) -> Maps | ChannelGate:
        self.check_input(branch)
        if self.extent == 0:
            return as_channel_gate(self.of_vector(spatial_mean(branch), self.squash), branch)
        window = 2 * self.extent - 1
        gathered = F.avg_pool2d(
            branch, window, self.extent, padding=window // 2, count_include_pad=False
        )
        return spread(self.strength(self.squash(gathered)), branch)

    def of_vector(self, vector: Vector, activation: Activation) -> Vector:
        return self.strength(activation(vector))

    def start_constant(self) -> float:
        self.strength.start_zero()
        return 1.0

    def extra_repr(self) -> str:
        return f"{self.channels}, extent={self.extent}"


def gathering(channels: int, extent: int, map_size: int | None) -> nn.Sequential:
    """Depthwise convolutions, each with a BatchNorm, and ReLU between them."""
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    if extent == 0:
        assert map_size is not None
        layers["conv1"] = nn.Conv2d(channels, channels, map_size, groups=channels, bias=False)
        layers["norm1"] = nn.BatchNorm2d(channels)
        return nn.Sequential(layers)
    halvings = extent.bit_length() - 1
    for number in range(1, halvings + 1):
        layers[f"conv{number}"] = nn.Conv2d(
            channels, channels, 3, stride=2, padding=1, groups=channels, bias=False
        )
        layers[f"norm{number}"] = nn.BatchNorm2d(channels)
        if number < halvings:
            layers[f"relu{number}"] = nn.ReLU()
    return nn.Sequential(layers)


class ParametricGatherExcite(BranchGate):
    """GE-θ gate: a 3 x 3 depthwise convolution of stride 2 for each halving, three at extent 8.

    `extent=0` is one convolution as large as the map, which serves one map size only; the paper's
    networks have it, with `map_size` 56, 28, 14 and 7. So the default is 8 here.
    """

    def __init__(self, channels: int, extent: int = 8, map_size: int | None = None) -> None:
        super().__init__(channels)
        check_extent(extent)
        if (extent == 0) != (map_size is not None):
            raise OptionError(
                "Expected map_size, the height and width of the map, together with extent=0 and "
                f"only with it, but got extent={extent} and map_size={map_size}."
            )
        self.extent, self.map_size = extent, map_size
        self.gather = gathering(channels, extent, map_size)

    def forward(self, branch: Features) -> Features:
        self.check_input(branch)
        size = self.map_size
        if size is not None and tuple(branch.shape[2:]) != (size, size):
            raise InputError(
                f"{type(self).__name__} was built for maps of {size} x {size} pixels but got "
                f"{branch.shape[2]} x {branch.shape[3]}. Build it with another map_size, or with "
                "an extent above 0, which takes maps of any size."
            )
        gathered = self._gathered(branch)
        gate = torch.sigmoid(gathered).to(branch.dtype)
        return gate if size is not None else spread(gate, branch)

    def _gathered(self, branch: Tensor) -> Tensor:
        value = branch
        for layer in self.gather:
            if isinstance(layer, nn.BatchNorm2d):
                values = value.shape[0] * value.shape[2] * value.shape[3]
                remedy = "Use a larger batch or a larger map"
                check_batch_statistics(layer, values, type(self).__name__, remedy)
            value = layer(value)
        return value

    def start_constant(self) -> float:
        last = self.gather[-1]
        assert isinstance(last, nn.BatchNorm2d)
        last.reset_parameters()
        nn.init.zeros_(last.weight)
        return 0.5

    def extra_repr(self) -> str:
        return f"{self.channels}, extent={self.extent}"
