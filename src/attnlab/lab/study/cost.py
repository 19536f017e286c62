"""What a study costs on any number of devices, from measured steps and their spread."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from pydantic import PositiveFloat, PositiveInt, field_validator

from attnlab._errors import InputError, OptionError
from attnlab._files import write_whole
from attnlab._strict import Strict
from attnlab.lab.study.files import study_table_of


class TimeSpan(NamedTuple):
    """A time, and the least and the most that it was seen to be or may be."""

    low: float
    middle: float
    high: float

    @classmethod
    def of(cls, seen: Sequence[float]) -> TimeSpan:
        return cls(min(seen), median(seen), max(seen))

    def by(self, factor: float) -> TimeSpan:
        """Return `factor` times this span."""
        return TimeSpan(*(value * factor for value in self))

    def plus(self, other: TimeSpan) -> TimeSpan:
        """Return the span of both, one after the other; both may be long at once, so nothing
        averages out."""
        return TimeSpan(*(a + b for a, b in zip(self, other, strict=True)))


class StepTable(Strict):
    """Steps that were measured on a device, as a file that people write or `--write-steps` does."""

    device: str
    seconds_per_image: dict[str, tuple[PositiveFloat, PositiveFloat]]
    """Seconds of training, the least and the most, by `"BACKBONE ROW"` as a plan shows them."""
    images: dict[str, tuple[PositiveInt, PositiveInt]] = {}
    """Training and test images of data that are not here, by their label."""

    @field_validator("seconds_per_image")
    @classmethod
    def _ordered(cls, given: dict[str, tuple[float, float]]) -> dict[str, tuple[float, float]]:
        for name, (least, most) in given.items():
            if least > most:
                raise ValueError(f"{name!r}: the least, {least:g}, is more than the most, {most:g}")
        return given

    def step(self, backbone: str, row: str) -> TimeSpan:
        """Return the seconds of one image in a training step of a row."""
        name = f"{backbone} {row}"
        if name not in self.seconds_per_image:
            has = ", ".join(map(repr, self.seconds_per_image)) or "none"
            raise InputError(
                f"The table of steps of {self.device!r} has no {name!r}; it has {has}. Measure it "
                f"with --write-steps on such a device, or write it into the table."
            )
        least, most = self.seconds_per_image[name]
        return TimeSpan(least, (least + most) / 2, most)


def read_steps(file: str | Path) -> StepTable:
    """Read the table in a TOML file."""
    path = Path(file)
    if not path.is_file():
        raise InputError(
            f"There is no {str(path)!r}. Expected a table of measured steps, which `attnlab study "
            f"plan STUDY --write-steps {path}` writes on the device."
        )
    try:
        return StepTable(**study_table_of(path))
    except (OptionError, TypeError) as error:
        raise InputError(
            f"{str(path)!r} is not a table of steps. {error} Expected device and "
            f'[seconds_per_image] with lines such as "resnet50 plain" = [0.0012, 0.0014].'
        ) from None


def write_steps(file: str | Path, device: str, steps: Mapping[str, TimeSpan]) -> Path:
    """Write a table of what was measured here."""
    lines = [f"device = {_quoted(device)}", "", "[seconds_per_image]"]
    lines += [f"{_quoted(name)} = [{s.low:.6g}, {s.high:.6g}]" for name, s in steps.items()]
    return write_whole(Path(file), "\n".join(lines) + "\n")


class StudyCost(NamedTuple):
    """What the runs that are left cost, each on one device, as many at a time as there are
    devices."""

    devices: int
    device_seconds: TimeSpan
    """The seconds of all devices together, while they work."""
    seconds: TimeSpan
    """Until all is done: a run is not divided among devices."""
    price: float | None
    """The price of a device for an hour."""

    @property
    def money(self) -> TimeSpan | None:
        """The money for the hours in which devices work; None if no price was given."""
        return None if self.price is None else self.device_seconds.by(self.price / 3600)


def cost_of(runs: Sequence[TimeSpan], devices: int, price: float | None = None) -> StudyCost:
    """Return what runs cost that take this long each, begun in this order as devices become
    free."""
    total = TimeSpan(0.0, 0.0, 0.0)
    for each in runs:
        total = total.plus(each)
    seconds = TimeSpan(
        *(_until_done([span[which] for span in runs], devices) for which in range(3))
    )
    return StudyCost(devices, total, seconds, price)


def _until_done(runs: Sequence[float], devices: int) -> float:
    free = [0.0] * devices
    for seconds in runs:
        heapq.heappush(free, heapq.heappop(free) + seconds)
    return max(free)


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
