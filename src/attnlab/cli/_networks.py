"""The networks that commands are given by name, and the Python that makes them."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class Asked:
    """What to build, the same for every name; without weights, the same values each time."""

    attention: str | None = None
    shortcut: str | None = None
    size: int | None = None
    """Side of the example that shows where the steps are; the network's own if None."""

    def build(self, name: str, weights: str | None) -> nn.Module:
        import torch

        import attnlab
        from attnlab._checked import check_whole

        if self.size is not None:
            check_whole("--size", self.size, 1)
        torch.manual_seed(0)
        options: dict[str, Any] = {} if self.shortcut is None else {"shortcut": self.shortcut}
        network = attnlab.create(name, weights=weights, **options)
        if self.attention is not None:
            example = None if self.size is None else torch.randn(1, 3, self.size, self.size)
            network, _ = attnlab.insert(network, self.attention, example=example)
        return network.eval()

    def python(self, name: str, weights: str | None) -> list[str]:
        """The lines that make `network`; `name` and `weights` as they stand in the code."""
        given = [name] if weights is None else [name, f"weights={weights}"]
        if self.shortcut is not None:
            given.append(f"shortcut={self.shortcut!r}")
        lines = ["torch.manual_seed(0)", f"network = attnlab.create({', '.join(given)})"]
        if self.attention is not None:
            sides = f", example=torch.randn(1, 3, {self.size}, {self.size})" if self.size else ""
            lines.append(f"network, _ = attnlab.insert(network, {self.attention!r}{sides})")
        return lines


def images_line(data: str, **options: object) -> str:
    """The line that makes `loader` for `network`, without options that have their default."""
    from attnlab.data import images_for

    default = inspect.signature(images_for).parameters
    given = [f"{key}={value!r}" for key, value in options.items() if value != default[key].default]
    return f"loader = images_for({', '.join(['network', repr(data), *given])})"
