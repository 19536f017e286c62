"""One measurement of a finished network; measured/NAME.json of its run's directory."""

from __future__ import annotations

from typing import Any

from attnlab._strict import Strict
from attnlab.results.base import FORMATS, Result


class Measured(Strict):
    """What was found, with the settings that it was measured with."""

    measurement: str
    settings: dict[str, Any] = {}
    found: dict[str, Any] | None
    """The instrument's result; None where it does not apply to the network; a note says why."""
    notes: tuple[str, ...] = ()
    seconds: float = 0.0


def found_result(measured: Measured) -> Result | None:
    """What was found, as the result of its instrument; an error where it is not whole. None if
    nothing was found, or if the instrument was not imported, so that its results are not known."""
    if measured.found is None:
        return None
    content = dict(measured.found)
    kinds = {kind.instrument(): kind for kind in FORMATS.values()}
    kind = kinds.get(measured.measurement)
    if kind is None:
        return None
    form = content.pop("format", None)
    if form != kind.FORMAT:
        raise ValueError(f"it has format {form!r}, expected {kind.FORMAT!r}")
    return kind.validated(content)
