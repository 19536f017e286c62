"""One epoch of a run; a line of metrics.jsonl."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict


@dataclass(frozen=True)
class Budget:
    """How long a run trains, and what of it an `EpochRecord` stands for."""

    epochs: int | None = None
    """How many records there will be; None where that is not known."""
    steps: int | None = None
    """In all; None for a budget in epochs."""
    interval: int | None = None
    """Steps of a record; the last one may have fewer."""

    @property
    def unit(self) -> str:
        """What is counted, for people: `epoch` or `step`."""
        return "epoch" if self.steps is None or self.interval is None else "step"

    def after(self, records: int) -> int:
        """Return how many epochs, or steps, are done after this many records."""
        if self.steps is None or self.interval is None:
            return records
        return min(records * self.interval, self.steps)

    @property
    def whole(self) -> int | None:
        """The number of all epochs, or steps; None where that is not known."""
        return None if self.epochs is None else self.after(self.epochs)


class EpochRecord(BaseModel):
    """What is recorded of an epoch. More than this may be there: what the caller of `train` adds
    with `each_epoch`."""

    model_config = ConfigDict(frozen=True, extra="allow")

    epoch: int
    """From 1."""
    lr: float
    """The learning rate, before the factor of the warm-up."""
    train_loss: float | None = None
    """The mean over the training images."""
    train: dict[str, float | None] = {}
    """The task's figures of the training images, by name."""
    loss_parts: dict[str, float] = {}
    """What the loss is the sum of, by name; empty if it is one thing."""
    train_seconds: float = 0.0
    data_seconds: float = 0.0
    """How long the training waited for data."""
    images_per_second: float = 0.0
    test: dict[str, float | None]
    """The task's metrics on the test images, by name; None if one has no meaning for them."""
    seconds: float = 0.0
    """All of the epoch, with its evaluation."""
    tns: float | None = None
    """The stiffness of the network after it, if that is measured every epoch."""
    gates: dict[str, list[float]] | None = None
    """The mean gates of some channels by the name of the gate, if they are measured."""
    image_gates: dict[str, list[float]] | None = None
    """The gates of the first test image alone."""
    state_norm: dict[str, float] | None = None
    """‖x_t‖ by step, if it is measured; all that follow are means over test images."""
    nsi: dict[str, float] | None = None
    """By step."""
    gate_mean: dict[str, float] | None = None
    """Of the gates that act at the end of a branch, by step: over channels and tokens as well."""
    gate_spread: dict[str, float] | None = None
    """Their standard deviation over images, channels and tokens."""
    carry: dict[str, float] | None = None
    """What the state is multiplied by, by step, where a gate scales it."""
    sink: dict[str, float] | None = None
    """The share of attention that the first token gets, by the module that computes it."""

    def with_more(self, found: Mapping[str, object]) -> EpochRecord:
        """Copy the record, with what else was measured of the epoch."""
        return EpochRecord.model_validate({**self.given(), **found})

    def given(self) -> dict[str, object]:
        """Return what was recorded, and nothing that was not, as plain data."""
        return self.model_dump(exclude_unset=True)

    def to_line(self) -> str:
        """The line of metrics.jsonl."""
        return json.dumps(self.given()) + "\n"

    def numbers(self) -> dict[str, float]:
        """Return all numbers by name, those in tables as `test/top1`; the epoch itself is not
        one."""
        found = _numbers(self.given(), "")
        found.pop("epoch", None)
        return found


def _numbers(record: Mapping[str, object], before: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, value in record.items():
        if isinstance(value, Mapping):
            found |= _numbers(value, f"{before}{name}/")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            found[f"{before}{name}"] = float(value)
    return found
