"""The law of tools: insert → tool → forward equals insert → forward, or raises attnlab's error."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from attnlab._errors import AttnlabError
from attnlab.surgery.insertion.insert import insert
from attnlab.testing._probe import Build, is_norm
from attnlab.testing._tools import Network, Tool, exchanging_tools, use_quietly


class _Block(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU()
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)
        self.bn2 = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        return self.relu(x + self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x))))))


class SmallNetwork(nn.Module):
    """Three residual steps whose branches end in a norm; as if trained, in eval mode."""

    def __init__(self, channels: int = 16) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 3, padding=1)
        self.blocks = nn.Sequential(*(_Block(channels) for _ in range(3)))
        self.head = nn.Linear(channels, 10)
        random = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for tensor in (*self.parameters(), *self.buffers()):
                if tensor.is_floating_point():
                    values = torch.rand(tensor.shape, generator=random) + 0.5
                    if tensor.ndim > 1:
                        values = 2 * (values - 1) * tensor[0].numel() ** -0.5
                    tensor.copy_(values)
        self.eval()

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.blocks(self.stem(images))
        logits: Tensor = self.head(features.mean((2, 3)))
        return logits


def check_tool(
    tool: Tool,
    gate: str | Build,
    network: nn.Module | None = None,
    images: Tensor | None = None,
    **options: object,
) -> Literal["equal", "refused"]:
    """Raise AssertionError unless a network with `gate`, after `tool`, answers as before it or
    refuses with attnlab's own error; say which.

    `network` is a small one with residual steps when None; `options` go to `attnlab.insert`.
    """
    plain = (SmallNetwork() if network is None else copy.deepcopy(network)).eval()
    random = torch.Generator().manual_seed(1)
    images = torch.randn(2, 3, 12, 12, generator=random) if images is None else images
    gated = _gated(plain, gate, images, options)
    want, bare = _run(gated, images), _run(plain, images)
    size = want.abs().max()
    if (want - bare).abs().max() < 3 * tool.tolerance * size:
        raise AssertionError(
            f"the gates change the output by {(want - bare).abs().max() / size:.1e} of it, too "
            f"little to see whether {tool} keeps them"
        )
    try:
        got = _run(use_quietly(tool, copy.deepcopy(gated), images), images)
    except AttnlabError:
        return "refused"
    except Exception as error:
        also = "as on" if _fails(tool, plain, images) else "and not on"
        raise AssertionError(
            f"{tool} fails on the network with gates, {also} the plain one: {error}"
        ) from error
    off, off_bare = ((got - other).abs().max() / size for other in (want, bare))
    if not off <= tool.tolerance:  # NaN as well
        raise AssertionError(
            f"after {tool} the output is off by {off:.1e} (from that of the plain network by "
            f"{off_bare:.1e}), allowed is {tool.tolerance:.0e}"
        )
    return "equal"


def survives(tools: Sequence[Tool] | None = None) -> Callable[[Build], None]:
    """The law as a check of a gate, for these tools; None for those that exchange modules."""

    def survives_tools(build: Build) -> None:
        if is_norm(build(16)):  # put in by its name only: check_tool(tool, "iebn")
            return
        for tool in exchanging_tools() if tools is None else tools:
            check_tool(tool, build)

    return survives_tools


def _gated(
    plain: nn.Module, gate: str | Build, images: Tensor, options: dict[str, object]
) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        gated, _ = insert(plain, gate, example=images, **options)  # type: ignore[arg-type]
    random = torch.Generator().manual_seed(2)
    there = {name for name, _ in plain.named_parameters()}
    with torch.no_grad():
        for name, parameter in gated.named_parameters():
            if name not in there:  # away from its start
                parameter.add_(0.3 * torch.randn(parameter.shape, generator=random))
    return gated


def _run(network: Network, images: Tensor) -> Tensor:
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        output: Tensor = network(images)
    return output


def _fails(tool: Tool, plain: nn.Module, images: Tensor) -> bool:
    try:
        _run(use_quietly(tool, copy.deepcopy(plain), images), images)
    except Exception:
        return True
    return False
