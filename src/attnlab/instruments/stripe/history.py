"""Gates over epochs: when do they stop moving?"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from pydantic import TypeAdapter

from attnlab._errors import InputError, unknown_name
from attnlab._files import write_whole
from attnlab.instruments.stripe.figures import difference_figure
from attnlab.instruments.stripe.result import StripeResult
from attnlab.page.plot import Spec
from attnlab.results.damage import read_object, reading
from attnlab.results.epoch import EpochRecord

FORMAT = "attnlab gate history 1"


def first_difference(values: Sequence[Sequence[float]]) -> np.ndarray:
    """|v_{e+1} − v_e| of values (epochs, channels): one row fewer."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 2 or len(array) < 2:
        raise InputError(
            f"Expected values of at least two epochs, (epochs, channels), but got shape "
            f"{array.shape}."
        )
    return np.abs(np.diff(array, axis=0))


@dataclass
class GateHistory:
    """Every gate per channel, epoch by epoch: its mean over images, which is ours, or that of a
    single image, as the supplement draws it."""

    epochs: list[int] = field(default_factory=list)
    means: dict[str, list[list[float]]] = field(default_factory=dict)
    """The gates by name, each epoch × channel."""

    def record(self, epoch: int, found: StripeResult | Mapping[str, Sequence[float]]) -> None:
        """Add an epoch: a result of `stripe`, or the channel means by gate."""
        gates: Mapping[str, Sequence[float]]
        if isinstance(found, StripeResult):
            gates = {site.name: site.channel_means for site in found.sites}
        else:
            gates = found
        if self.epochs and gates.keys() != self.means.keys():
            raise InputError(
                f"Expected the gates of epoch {self.epochs[-1]} ({', '.join(self.means)}) but got "
                f"{', '.join(gates)}."
            )
        if self.epochs and epoch <= self.epochs[-1]:
            raise InputError(f"Expected an epoch after {self.epochs[-1]} but got {epoch}.")
        self.epochs.append(epoch)
        for name, values in gates.items():
            self.means.setdefault(name, []).append([float(value) for value in values])

    @classmethod
    def of_records(cls, records: Sequence[EpochRecord], *, image: bool = False) -> GateHistory:
        """Read the records of a run's metrics.jsonl; epochs in which gates were not measured are
        left out. With `image` they are the gates of the first test image, and else their mean over
        images."""
        history = cls()
        for record in records:
            gates = record.image_gates if image else record.gates
            if gates is not None:
                history.record(record.epoch, gates)
        return history

    def difference(self, name: str) -> np.ndarray:
        """|first difference| of one gate, (epochs − 1, channels)."""
        if name not in self.means:
            raise unknown_name("gate", name, self.means)
        return first_difference(self.means[name])

    def figure(self, name: str) -> Spec:
        """|first difference| over epochs, as the supplement's Figs. 6–13."""
        return difference_figure(name, self.epochs, self.difference(name))

    def save(self, path: str | Path) -> Path:
        content = {"format": FORMAT, "epochs": self.epochs, "means": self.means}
        return write_whole(Path(path), json.dumps(content) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> GateHistory:
        """Read what `save` wrote."""
        file, remedy = Path(path), "Expected a file that GateHistory.save wrote."
        found = read_object(file, remedy)
        if found.pop("format", None) != FORMAT:
            raise InputError(f"{path} is not a gate history ({FORMAT!r}).")
        with reading(file, remedy):
            return TypeAdapter(cls).validate_python(found)
