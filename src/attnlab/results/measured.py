"""One measurement of a finished network; measured/NAME.json of its run's directory."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, model_validator

from attnlab._strict import Strict
from attnlab.results.base import FORMATS
from attnlab.results.details import Details
from attnlab.results.of_classes import Classes, Corruptions


class Measured(Strict):
    """What was found, with the settings that it was measured with."""

    measurement: str
    settings: dict[str, Any] = {}
    found: dict[str, Any] | None
    """None where it does not apply to the network; a note says why."""
    notes: tuple[str, ...] = ()
    seconds: float = 0.0


class _Step(BaseModel):
    label: str
    mean: float | None


class _Stiffest(BaseModel):
    label: str
    share: float


class _Stiffness(BaseModel):
    nsi: list[_Step]
    tns: float | None
    stiffest: _Stiffest | None


class _Fold(BaseModel):
    float64_change: float | None
    parameters_after: int
    values: dict[str, float | None]


class _Picture(BaseModel):
    input: str
    output: str
    folded: str | None = None


class _Pictures(BaseModel):
    pictures: list[_Picture]
    folded_change: float | None

    @model_validator(mode="after")
    def _folded_or_not(self) -> _Pictures:
        if any((each.folded is None) != (self.folded_change is None) for each in self.pictures):
            raise ValueError("expected folded pictures of all images, or of none")
        return self


_FOUND: dict[str, type[BaseModel]] = {
    "stiffness": _Stiffness,
    "fold": _Fold,
    "classes": Classes,
    "corruptions": Corruptions,
    "details": Details,
    "pictures": _Pictures,
}
"""What tables and pages rely on, by the measurement's name; there may be more."""


def check_found(measured: Measured) -> Measured:
    """The same, when what was found has what tables and pages rely on."""
    if measured.found is None:
        return measured
    content = dict(measured.found)
    result = FORMATS.get(content.pop("format", ""))
    kind = _FOUND.get(measured.measurement)
    if result is not None:
        result.validated(content)
    elif kind is not None:
        kind.model_validate(content)
    return measured
