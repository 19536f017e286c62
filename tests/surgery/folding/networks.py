"""Small networks to fold, and a way to make every parameter count."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from attnlab.surgery.insertion import attachments

CONVOLUTIONS = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
TRANSPOSED = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}
BATCH_NORMS = {1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}
INSTANCE_NORMS = {1: nn.InstanceNorm1d, 2: nn.InstanceNorm2d, 3: nn.InstanceNorm3d}


def stir(network: nn.Module, seed: int = 0) -> nn.Module:
    """Move every vector and every statistic off its start: a zero gamma would hide any mistake."""
    generator = torch.Generator().manual_seed(seed)

    def noise(tensor: Tensor) -> Tensor:
        return torch.randn(tensor.shape, generator=generator).to(tensor)

    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.dim() <= 1 or parameter.numel() <= 4096:
                parameter.add_(0.2 * noise(parameter))
        for name, buffer in network.named_buffers():
            if name.endswith("running_mean"):
                buffer.copy_(0.2 * noise(buffer))
            elif name.endswith("running_var"):
                buffer.copy_(0.5 + noise(buffer).abs())
    return network


def stir_gates(network: nn.Module, seed: int = 1) -> nn.Module:
    """Move the parameters of all gates off their start, and away from one another."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for _, attachment in attachments(network):
            for parameter in attachment.parameters():
                noise = torch.randn(parameter.shape, generator=generator)
                parameter.add_(0.3 * noise.to(parameter))
    return network


def relative(expected: Tensor, found: Tensor) -> float:
    """The largest error relative to the largest value."""
    assert bool(expected.abs().max() > 0)
    expected, found = expected.detach(), found.detach()
    return float((expected - found).abs().max() / expected.abs().max())


def in_both_modes(network: nn.Module, images: Tensor) -> list[Tensor]:
    """The output in eval mode, the output in train mode, and the norms' statistics after that."""
    network = copy.deepcopy(network)
    with torch.no_grad():
        outputs = [network.eval()(images), network.train()(images)]
    return outputs + [
        buffer
        for name, buffer in network.named_buffers()
        if name.endswith(("running_mean", "running_var")) and "attnlab" not in name
    ]


class Residual(nn.Module):
    """`activation(shortcut(x) + branch(x))`, then a head."""

    def __init__(self, branch: nn.Module, shortcut: nn.Module, channels: int, axis: int) -> None:
        super().__init__()
        self.branch, self.shortcut = branch, shortcut
        self.head = nn.Linear(channels, 3)
        self.axis = axis

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.shortcut(x) + self.branch(x))
        return self.head(x.movedim(self.axis, -1).flatten(1, -2).mean(1))


class Chain(nn.Module):
    """`layer`, where a gate acts, then `follow`."""

    def __init__(self, layer: nn.Module, follow: nn.Module) -> None:
        super().__init__()
        self.layer, self.follow = layer, follow

    def forward(self, x: Tensor) -> Tensor:
        return self.follow(self.layer(x))
