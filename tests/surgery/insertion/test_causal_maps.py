"""Gates that pool over maps do not go into networks whose convolutions must not look ahead."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import attnlab
from attnlab import AttnlabError
from attnlab.surgery.insertion import _causal_maps

CHANNELS = 8
MAPS = ["time", "tokens", "masked", "zeros", "video"]
CHANNELS_LAST = ["frames", "attention"]


class OneSided(nn.Module):
    """As in WaveNet: padded in front alone."""

    def __init__(self, dilation: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(CHANNELS, CHANNELS, 3, dilation=dilation)
        self.padding = 2 * dilation

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv(functional.pad(x, (self.padding, 0)))


class BothSides(OneSided):
    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv(functional.pad(x, (self.padding // 2, self.padding // 2)))


class Masked(nn.Module):
    """As in PixelCNN: a kernel without what comes later, computed or kept as zeros."""

    def __init__(self, computed: bool) -> None:
        super().__init__()
        self.conv = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1)
        self.register_buffer("mask", torch.ones(3, 3))
        self.mask[1, 2:] = self.mask[2] = 0
        self.computed = computed
        if not computed:
            self.conv.weight.data *= self.mask

    def forward(self, x: Tensor) -> Tensor:
        if not self.computed:
            return x + self.conv(x)
        kernel = self.conv.weight * self.mask
        return x + functional.conv2d(x, kernel, self.conv.bias, padding=1)


class Video(nn.Module):
    """Causal in time, and not in space."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv3d(CHANNELS, CHANNELS, 3, padding=(0, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv(functional.pad(x, (0, 0, 0, 0, 2, 0)))


class Frames(nn.Module):
    """Channels last, (input, frame, place, channel): causal in frames, and not in places."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(CHANNELS)
        self.conv = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=(0, 1))

    def forward(self, x: Tensor) -> Tensor:
        maps = self.norm(x).movedim(-1, 1)
        return x + self.conv(functional.pad(maps, (0, 0, 2, 0))).movedim(1, -1)


class Attends(nn.Module):
    """Channels last: each frame attends to those before it, place by place."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.out = nn.Linear(CHANNELS, CHANNELS), nn.Linear(CHANNELS, CHANNELS)

    def forward(self, x: Tensor) -> Tensor:
        values = self.into(x).transpose(1, 2)
        seen = functional.scaled_dot_product_attention(values, values, values, is_causal=True)
        return x + self.out(seen.transpose(1, 2))


class Flipped(nn.Module):
    """The same from the last frame to the first."""

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.blocks = copy.deepcopy(block)

    def forward(self, x: Tensor) -> Tensor:
        return self.blocks(x.flip(1)).flip(1)


class Embedded(nn.Module):
    """Numbers of tokens, as maps of channels and time."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(20, CHANNELS)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.table(tokens).transpose(1, 2)


def network(stem: nn.Module, *blocks: nn.Module) -> nn.Module:
    return nn.Sequential(stem, nn.Sequential(*blocks)).eval()


def causal(name: str) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    image, frames = torch.randn(2, 3, 6, 6), torch.randn(2, 5, 4, 3)
    return {
        "time": lambda: (
            network(nn.Conv1d(2, CHANNELS, 1), OneSided(1), OneSided(2)),
            torch.randn(2, 2, 12),
        ),
        "tokens": lambda: (
            network(Embedded(), OneSided(1), OneSided(2)),
            torch.randint(2, 20, (2, 12)),
        ),
        "masked": lambda: (network(nn.Conv2d(3, CHANNELS, 1), Masked(True), Masked(True)), image),
        "zeros": lambda: (network(nn.Conv2d(3, CHANNELS, 1), Masked(False), Masked(False)), image),
        "video": lambda: (
            network(nn.Conv3d(1, CHANNELS, 1), Video()),
            torch.randn(2, 1, 5, 6, 6),
        ),
        "frames": lambda: (network(nn.Linear(3, CHANNELS), Frames(), Frames()), frames),
        "attention": lambda: (network(nn.Linear(3, CHANNELS), Attends(), Attends()), frames),
    }[name]()


@pytest.mark.parametrize("gate", ["se", "step", "eca"])
@pytest.mark.parametrize(
    ("name", "axis"), [*((name, 2) for name in MAPS), *((name, 1) for name in CHANNELS_LAST)]
)
def test_a_gate_that_pools_over_the_future_is_refused(name, axis, gate):
    plain, example = causal(name)
    with pytest.raises(AttnlabError, match=f"is causal on axis {axis} of it: when what comes last"):
        attnlab.insert(plain, gate, example=example)


@pytest.mark.parametrize("gate", ["se", "step", "eca"])
def test_places_of_a_network_with_channels_last_that_looks_both_ways(gate):
    torch.manual_seed(0)
    blocks = (Frames(), Attends())
    both_ways = network(nn.Linear(3, CHANNELS), *(Flipped(each) for each in blocks), *blocks)
    _network, receipt = attnlab.insert(both_ways, gate, example=torch.randn(2, 5, 4, 3))
    assert len(receipt.sites) == 4


def test_a_norm_with_a_gate_inside_pools_as_well():
    plain = network(nn.Conv2d(3, CHANNELS, 1), nn.BatchNorm2d(CHANNELS), Masked(True))
    with pytest.raises(AttnlabError, match="'iebn' looks over all places of a map"):
        attnlab.insert(plain, "iebn", example=torch.randn(2, 3, 6, 6))


def test_what_the_error_says():
    plain, example = causal("time")
    with pytest.raises(AttnlabError) as error:
        attnlab.insert(plain, "se", example=example)
    assert str(error.value) == (
        "'se' looks over all places of a map, and Sequential is causal on axis 2 of it: when what "
        "comes last changes, nothing before it in the state at 1.0 (1.0) does. With this gate the "
        "future would leak into every earlier place. Use a gate that is the same for every input: "
        "'asr:se'."
    )


@pytest.mark.parametrize("name", [*MAPS, *CHANNELS_LAST])
@pytest.mark.parametrize("gate", ["asr:se", "token", "scale"])
def test_a_gate_that_does_not_look_around_stays_causal(name, gate):
    plain, example = causal(name)
    gated, _ = attnlab.insert(plain, gate, example=example)
    for parameter_name, parameter in gated.named_parameters():
        if "attnlab" in parameter_name:
            parameter.data += torch.rand_like(parameter)
    other = example.clone()
    axis = 1 if name in CHANNELS_LAST else 2
    last = other.select(axis if example.is_floating_point() else 1, -1)
    last += 5 if example.is_floating_point() else -1
    with torch.no_grad():
        before, after = gated(example), gated(other)
    along = before.shape[axis] - 1
    assert torch.equal(before.narrow(axis, 0, along), after.narrow(axis, 0, along))
    assert not torch.equal(before, after)


@pytest.mark.parametrize(
    ("stem", "blocks"),
    [
        (nn.Conv1d(2, CHANNELS, 1), [BothSides(1), BothSides(2)]),  # run to be known for it
        (nn.Conv1d(2, CHANNELS, 3, padding=1), [OneSided(1)]),
        (nn.Conv1d(2, CHANNELS, 1), [nn.Identity(), BothSides(1), OneSided(1)]),
    ],
)
def test_a_network_that_looks_both_ways_takes_every_gate(stem, blocks):
    attnlab.insert(network(stem, *blocks), "se", example=torch.randn(2, 2, 12))


def test_an_ordinary_network_is_not_run_for_it(monkeypatch):
    monkeypatch.setattr(_causal_maps, "causal_steps", None)  # who calls it fails
    attnlab.insert(attnlab.create("resnet20"), "se")


class Blurs(nn.Module):
    """A kernel that is a buffer, as in networks that blur before they subsample."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("kernel", torch.ones(CHANNELS, 1, 3) / 3)

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.conv1d(x, self.kernel, padding=1, groups=CHANNELS)


def test_the_kernel_of_a_blur_is_a_buffer(monkeypatch):
    monkeypatch.setattr(_causal_maps, "causal_steps", None)  # it is known to look both ways
    stem = nn.Sequential(nn.Conv1d(2, CHANNELS, 1), Blurs())
    attnlab.insert(network(stem, OneSided(1)), "se", example=torch.randn(2, 2, 12))


@pytest.mark.parametrize(
    ("settings", "later"),
    [
        ({"kernel_size": 3, "padding": 1}, True),
        ({"kernel_size": 3, "padding": "same"}, True),
        ({"kernel_size": 3}, False),
        ({"kernel_size": 3, "padding": 2}, False),  # what is padded in front is all that it reads
        ({"kernel_size": 3, "padding": 1, "stride": 2}, False),
        ({"kernel_size": 5, "padding": 2, "stride": 2}, True),
        ({"kernel_size": 3, "padding": 2, "dilation": 2}, True),
        ({"kernel_size": 1}, False),
    ],
)
def test_what_a_convolution_reads(settings, later):
    """By the formula: output p reads the inputs p·stride − padding + t·dilation."""
    conv = nn.Conv1d(CHANNELS, CHANNELS, **settings)

    class Step(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.end = conv, nn.Conv1d(CHANNELS, CHANNELS, 1)

        def forward(self, x: Tensor) -> Tensor:
            x = self.conv(x)
            return x + self.end(x)

    found = attnlab.residuals.watchable(Step().eval(), torch.randn(1, CHANNELS, 32))
    (node,) = [
        each
        for each in found.run.graph.nodes
        if each.operation == "conv1d" and each.owner == "conv"
    ]
    step = Step()
    assert _causal_maps._reads_later(step, found.run.graph, node, 0) is later
