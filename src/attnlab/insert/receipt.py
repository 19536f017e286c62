"""What surgery did to a network."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten


@dataclass(frozen=True)
class Receipt:
    """What surgery did: where, what it costs, and how much the output moved on the example."""

    action: str
    sites: tuple[str, ...]
    parameters_before: int
    parameters_after: int
    macs_before: int
    macs_after: int
    max_change: float | None
    """Largest absolute change of the output on the example; None on the meta device."""
    relative_change: float | None
    """The same, relative to the largest absolute output."""
    seconds: float
    notes: tuple[str, ...] = field(default=())

    @property
    def parameters_added(self) -> int:
        return self.parameters_after - self.parameters_before

    @property
    def macs_added(self) -> int:
        return self.macs_after - self.macs_before

    def __str__(self) -> str:
        lines = [
            self.action,
            f"  sites       {len(self.sites)}: {shortened(self.sites)}",
            f"  parameters  {self.parameters_before:,} → {self.parameters_after:,} "
            f"({self.parameters_added:+,})",
            f"  MACs        {self.macs_before:,} → {self.macs_after:,} ({self.macs_added:+,})",
            f"  output      {_change(self.max_change, self.relative_change)}",
            f"  took        {self.seconds:.2f} s",
        ]
        return "\n".join(lines + [f"  note        {note}" for note in self.notes])


def count_parameters(model: nn.Module) -> int:
    """Parameters, shared ones once."""
    return sum(parameter.numel() for parameter in model.parameters())


def output_change(before: Any, after: Any) -> tuple[float | None, float | None]:
    """Largest absolute change between two outputs (any nesting of tensors), and relative to the
    largest absolute value before."""
    pairs = [
        (a.double(), b.double())
        for a, b in zip(tree_flatten(before)[0], tree_flatten(after)[0], strict=True)
        if isinstance(a, Tensor) and a.is_floating_point() and a.numel()
    ]
    if not pairs or any(a.device.type == "meta" for a, _ in pairs):
        return None, None
    change = max(float((a - b).abs().max()) for a, b in pairs)
    size = max(float(a.abs().max()) for a, _ in pairs)
    return change, change / max(size, torch.finfo(torch.float64).tiny)


def _change(absolute: float | None, relative: float | None) -> str:
    if absolute is None or relative is None:
        return "not computed: the network is on the meta device"
    return f"max |Δ| {absolute:.3g} (relative {relative:.3g})"


def shortened(names: tuple[str, ...], most: int = 6) -> str:
    """The first of `names` and the last."""
    if len(names) <= most:
        return ", ".join(names)
    return ", ".join((*names[: most - 1], f"… {names[-1]}"))
