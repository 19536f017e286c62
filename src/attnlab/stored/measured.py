"""One measurement of a finished network; measured/NAME.json of its run's directory."""

from __future__ import annotations

from typing import Any

from attnlab._strict import Strict


class Measured(Strict):
    """What was found, with the settings that it was measured with."""

    measurement: str
    settings: dict[str, Any] = {}
    found: dict[str, Any] | None
    """None where it does not apply to the network; a note says why."""
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
