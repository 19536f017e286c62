"""What decides the network of a run before it is trained: task, data, backbone, gate and seed."""

from __future__ import annotations

from typing import Literal

from pydantic import NonNegativeInt, PositiveFloat, field_validator

from attnlab._errors import OptionError, SelectionError
from attnlab._strict import Strict
from attnlab.data import DataConfig, Value
from attnlab.residuals.site import Place
from attnlab.residuals.where import measured_word, parse_where
from attnlab.surgery.noise import NoiseConfig
from attnlab.tasks import TaskConfig


class NetworkConfig(Strict):
    """The network of a run. How it is trained is not said here, so that a run's network can be
    opened without knowing that."""

    task: TaskConfig = TaskConfig()
    data: DataConfig = DataConfig()
    backbone: str
    """A name for `attnlab.create`."""
    backbone_options: dict[str, Value] = {}
    attention: str = "none"
    """A gate for `attnlab.insert`, or `none`: the plain backbone."""
    gate_options: dict[str, Value] = {}
    where: str | tuple[str, ...] | None = None
    start: Literal["paper", "identity"] = "paper"
    place: Place = "branch"
    """Not `insert`'s default: a study says where its gates act."""
    shared: bool = False
    """Whether the chosen blocks of a stage have one gate in common, as in EAN."""
    branch_scale: PositiveFloat | None = None
    """The first γ of the norm in which every residual branch ends: 0.5 makes the steps of a plain
    network as short as most gates do at first, the control for them. As built when None."""
    noise: NoiseConfig | None = None
    """In every norm of the network, between normalisation and affine; see
    `attnlab.surgery.noise`."""
    seed: NonNegativeInt = 0

    @field_validator("where")
    @classmethod
    def _selects(cls, where: str | tuple[str, ...] | None) -> str | tuple[str, ...] | None:
        try:
            measured_word(parse_where(where))
        except SelectionError as error:
            raise OptionError(str(error)) from None
        return where

    @property
    def asks_for_measurement(self) -> str | None:
        """`where`, if it needs a measurement and there is a gate to place."""
        if self.attention == "none" or not isinstance(self.where, str):
            return None
        return self.where if measured_word(self.where) is not None else None
