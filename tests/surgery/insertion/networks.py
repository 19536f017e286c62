"""Small networks with one trap each."""

import torch
from torch import nn

from attnlab.surgery.insertion import attachments


def awake(network: nn.Module) -> nn.Module:
    """Give the gates values as if they were trained."""
    torch.manual_seed(1)
    for _, attachment in attachments(network):
        for parameter in attachment.parameters():
            nn.init.normal_(parameter, std=0.5)
    return network


class Branch(nn.Sequential):
    def __init__(self, channels: int = 8) -> None:
        super().__init__(
            nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU()
        )


class Plain(nn.Module):
    """Three residual updates, each in a block of the given class."""

    input_size = (3, 8, 8)

    def __init__(self, block: type[nn.Module], depth: int = 3, channels: int = 8) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 1)
        self.blocks = nn.Sequential(*(block(channels) for _ in range(depth)))
        self.head = nn.Linear(channels, 5)

    def forward(self, x):
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


class SlotBlock(nn.Module):
    """The branch is a module's output."""

    def __init__(self, channels: int = 8) -> None:
        super().__init__()
        self.branch = Branch(channels)

    def forward(self, x):
        return x + self.branch(x)


class FunctionalBlock(nn.Module):
    """The branch ends in a function: only the addition shows it."""

    def __init__(self, channels: int = 8) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x):
        return x + torch.tanh(self.conv(x))


class InPlaceBlock(nn.Module):
    """`+=` into the branch, as torchvision writes it."""

    def __init__(self, channels: int = 8) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x):
        out = torch.tanh(self.conv(x))
        out += x
        return out


class OverwritingBlock(nn.Module):
    """The result of `add_` is not used, the operand it wrote to is."""

    def __init__(self, channels: int = 8) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x):
        state = x.clone()
        state.add_(torch.tanh(self.conv(x)))
        return state


class BranchOverwritingBlock(nn.Module):
    """`add_` writes into the branch itself."""

    def __init__(self, channels: int = 8) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x):
        branch = torch.tanh(self.conv(x))
        branch.add_(x)
        return branch


class TwoPathBlock(nn.Module):
    """Adds once in eval mode and twice in training."""

    def __init__(self, channels: int = 8) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x):
        branch = torch.tanh(self.conv(x))
        if self.training:
            branch = branch + torch.zeros_like(branch)
        return x + branch


class BiasedAttentionBlock(nn.Module):
    """`scores + bias` adds tensors of one shape at a batch size of one only."""

    def __init__(self, channels: int = 8) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 1)
        self.bias = nn.Parameter(torch.randn(1, 64, 64))

    def branch(self, x):
        tokens = self.conv(x).flatten(2)
        scores = tokens.transpose(1, 2) @ tokens
        weights = torch.softmax(scores + self.bias, -1)
        return torch.tanh((tokens @ weights).unflatten(2, x.shape[2:]))

    def forward(self, x):
        return x + self.branch(x)


class Shared(nn.Module):
    """One block run three times."""

    input_size = (3, 8, 8)

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 1)
        self.block = FunctionalBlock()

    def forward(self, x):
        x = self.stem(x)
        for _ in range(3):
            x = self.block(x)
        return x
