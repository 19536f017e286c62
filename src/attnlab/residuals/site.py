"""A place of a host network where a gate can act."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from attnlab.residuals.step import Step

Host = Literal["output", "addition"]
Position = Literal["end", "inside", "elsewhere"]
Place = Literal["auto", "branch", "norm"]
"""Where on a step's branch a gate acts: at its end, or behind the norm that it ends in. `auto`: a
constant gate (`asr:`) behind the norm where an activation follows that, any other at the end."""


@dataclass(frozen=True)
class Site:
    """A place where a gate can act."""

    name: str
    """The block's module name, or the module's where it was named by hand."""
    stage: int
    """The step's, or of a network without steps the number of a run of sites of one size. 0 where
    the network has steps and the site lies on none."""
    block: int
    part: int
    kind: str
    """`identity` or `projection` for a residual step, `output` for a module's output."""
    host: Host
    """`output`: behind the module `module`. `addition`: at an addition in its forward."""
    module: str
    home: str
    """The module on which the attachment is registered, and the attribute's name there."""
    attribute: str
    shape: tuple[int, ...]
    channel_axis: int
    series: int
    """A gate that hands a memory on is shared by the sites of one series."""
    step: Step | None = None
    """The step on whose branch the site lies, or None."""
    position: Position = "elsewhere"
    """`end`: a gate here is the step's size. `inside`: layers follow, so that a gate here is a part
    of f. `elsewhere`: on the branch of no step."""
    refusal: str = ""
    """Why no gate can act here, or an empty string."""

    @property
    def label(self) -> str:
        """The step's label, or the module's name where there is none."""
        if self.step is not None:
            return self.step.label
        return f"{self.stage}.{self.block}" if self.stage else self.name

    @property
    def channels(self) -> int:
        return self.shape[self.channel_axis]
