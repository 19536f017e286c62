"""The gates by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import nn

from attnlab._errors import check_options, unknown_name
from attnlab.attention.se import SqueezeExcitation

Form = Literal["branch", "step", "stage", "norm"]


@dataclass(frozen=True)
class GateInfo:
    """One row of `attnlab modules`."""

    name: str
    build: type[nn.Module]
    form: Form
    title: str
    paper: str


GATES: dict[str, GateInfo] = {
    info.name: info
    for info in (
        GateInfo(
            "se",
            SqueezeExcitation,
            "branch",
            "Squeeze-and-Excitation",
            "Hu et al., CVPR 2018",
        ),
    )
}


def gate_info(name: str) -> GateInfo:
    """The registry entry of `name`; an unknown name is answered with the nearest ones."""
    if name not in GATES:
        raise unknown_name("gate", name, GATES)
    return GATES[name]


def build_gate(name: str, channels: int, **options: object) -> nn.Module:
    """Build the gate `name` for `channels` channels; unknown options are errors."""
    info = gate_info(name)
    check_options(f"Gate {name!r}", info.build.__init__, options, skip=("channels",))
    return info.build(channels, **options)
