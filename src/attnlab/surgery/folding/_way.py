"""What a rule answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch import Tensor

from attnlab.residuals.graph import Node
from attnlab.surgery.folding._flow import Flow


@dataclass(frozen=True)
class Way:
    """One way to have the output of an operation multiplied by gates."""

    asked: Mapping[int, Tensor]
    """The ids that its inputs (by node) must have for that."""
    not_negative: bool = False
    """Whether it takes gates that are not negative."""
    offset: float = 0.0
    """A number that is added to the input before anything scales: `1 + weight` of Gemma's norms."""
    chosen_by_values: bool = False
    """Whether other layers may compute the input in another run: a router's experts."""


Asked = Mapping[int, Tensor]
"""The ids asked of the outputs of a call, by place."""
Rule = Callable[[Flow, Node, Asked], list[Way]]
