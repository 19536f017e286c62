"""Small networks that draw random numbers while they run."""

import torch
from tests.surgery.insertion.networks import Branch, SlotBlock
from torch import nn


class Autoencoder(nn.Module):
    """The textbook's variational autoencoder, with residual blocks on both sides."""

    input_size = (3, 8, 8)

    def __init__(self, draw, *, heavy_mean: bool = False) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(3, 8, 1), SlotBlock())
        self.mean = Branch() if heavy_mean else nn.Conv2d(8, 8, 1)
        self.log_variance = nn.Conv2d(8, 8, 1)
        self.decoder = nn.Sequential(SlotBlock(), SlotBlock(), nn.Conv2d(8, 3, 1))
        self.draw = draw

    def forward(self, x):
        state = self.encoder(x)
        mean, deviation = self.mean(state), torch.exp(0.5 * self.log_variance(state))
        return self.decoder(mean + self.drawn(mean, deviation))

    def drawn(self, mean, deviation):
        return self.draw(mean) * deviation


class NoisyBlock(nn.Module):
    """`x + eps * w(x)`."""

    def __init__(self, draw, channels: int = 8) -> None:
        super().__init__()
        self.branch = Branch(channels)
        self.draw = draw

    def forward(self, x):
        return x + self.draw(x) * self.branch(x)


class AddedNoise(nn.Module):
    """A step, and noise added to the state after it."""

    def __init__(self, draw, channels: int = 8) -> None:
        super().__init__()
        self.branch = Branch(channels)
        self.scale = nn.Conv2d(channels, channels, 1)
        self.draw = draw

    def forward(self, x):
        x = x + self.branch(x)
        return x + self.scale(self.draw(x))


class Shuffled(nn.Module):
    """A branch in a random order that is undone: noise chooses, and is in no value."""

    def __init__(self, channels: int = 8) -> None:
        super().__init__()
        self.branch = Branch(channels)

    def forward(self, x):
        order = torch.rand(len(x)).argsort()
        return x + self.branch(x[order])[order.argsort()]


class AlwaysDropped(nn.Module):
    """Dropout that stays on in eval mode (Monte-Carlo dropout)."""

    def __init__(self, channels: int = 8) -> None:
        super().__init__()
        self.branch = Branch(channels)

    def forward(self, x):
        return x + nn.functional.dropout(self.branch(x), 0.1, training=True)
