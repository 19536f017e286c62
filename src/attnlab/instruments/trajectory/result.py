"""The trajectory of a network on some images, and how far two of them are apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from attnlab._errors import InputError
from attnlab.page.plot import Spec
from attnlab.page.tables import Cell, Table, number_cell
from attnlab.results.base import Result


@dataclass(frozen=True)
class TrajectoryStep:
    """One step: how long it is, and where its state lies relative to those of other images."""

    label: str
    nsi: float
    """Mean over the images, by the convention `state`."""
    products: tuple[float, ...]
    """Of the states of all pairs of images, U-centred and of length 1: the sum of the products of
    two such rows is the debiased linear CKA of the two states."""


@dataclass(frozen=True)
class TrajectoryResult(Result):
    """The states after every step of a network, in a form that does not depend on its channels."""

    FORMAT: ClassVar[str] = "attnlab trajectory 1"

    network: str
    images: int
    images_checksum: str
    """The checksum of the images as the network saw them: only trajectories of the same images are
    compared."""
    steps: tuple[TrajectoryStep, ...]

    @property
    def verdict(self) -> str:
        """Say where the state changes most."""
        kept = self._kept()
        if not kept:
            return f"{self.network} takes one step."
        label, most = min(kept, key=lambda each: each[1])
        return (
            f"The state of {self.network} changes most in step {label}: CKA with the state before "
            f"is {most:.2f}."
        )

    def table(self) -> Table:
        """Return a table with a row per step."""
        before = [None, *(value for _, value in self._kept())]
        rows = [
            [
                Cell(step.label),
                number_cell(step.nsi, "{:.4f}"),
                number_cell(value, "{:.3f}"),
            ]
            for step, value in zip(self.steps, before, strict=True)
        ]
        columns = ["step", "NSI", "CKA with the state before"]
        return Table(columns, rows, f"{self.network} on {self.images} images")

    def figures(self) -> dict[str, Spec]:
        """`alike`: CKA of every state with every other."""
        return {"alike": alike_figure(self)}

    def lead(self) -> str:
        """Return what CKA is."""
        return (
            "CKA of the states after every two steps, debiased: 1 where one is a rotated and "
            "scaled copy of the other, about 0 where they have nothing in common."
        )

    def _kept(self) -> list[tuple[str, float]]:
        """Every step but the first, with the CKA of its state with the one before."""
        rows = np.array([step.products for step in self.steps])
        values = (rows[1:] * rows[:-1]).sum(1).tolist()
        return [(step.label, v) for step, v in zip(self.steps[1:], values, strict=True)]


def cka_distances(one: TrajectoryResult, other: TrajectoryResult) -> list[float]:
    """1 − CKA of the states after each step of two networks on the same images: 0 where one is a
    rotated and scaled copy of the other, about 1 where they have nothing in common."""
    _check_alike(one, other)
    rows = (np.array([step.products for step in each.steps]) for each in (one, other))
    first, second = rows
    return (1 - (first * second).sum(1)).tolist()


def nsi_distances(one: TrajectoryResult, other: TrajectoryResult) -> list[float]:
    """Return how far the NSI of each step of two networks is apart."""
    _check_alike(one, other)
    return [abs(a.nsi - b.nsi) for a, b in zip(one.steps, other.steps, strict=True)]


def _check_alike(one: TrajectoryResult, other: TrajectoryResult) -> None:
    if one.images_checksum != other.images_checksum:
        raise InputError(
            f"The trajectories of {one.network!r} and {other.network!r} are of different images, "
            f"so their states cannot be compared. Measure both on the same images, of the same "
            f"size and with the same mean and deviation."
        )
    labels = [[step.label for step in each.steps] for each in (one, other)]
    if labels[0] != labels[1]:
        raise InputError(
            f"Expected networks with the same steps but {one.network!r} has {len(labels[0])} and "
            f"{other.network!r} has {len(labels[1])}, or they are in other stages."
        )


def alike_figure(result: TrajectoryResult) -> Spec:
    """CKA of the states after every two steps of one network."""
    rows = np.array([step.products for step in result.steps])
    values = rows @ rows.T
    labels = [step.label for step in result.steps]
    return _heat_map(labels, values.tolist())


def _heat_map(labels: Sequence[str], values: Sequence[Sequence[float]]) -> Spec:
    cells = [
        {"one": a, "other": b, "CKA": round(values[i][j], 4)}
        for i, a in enumerate(labels)
        for j, b in enumerate(labels)
    ]
    axis: Spec = {"type": "nominal", "sort": None, "axis": {"labelAngle": 0}}
    return {
        "width": {"step": 26},
        "height": {"step": 26},
        "data": {"values": cells},
        "mark": "rect",
        "encoding": {
            "x": {**axis, "field": "one", "title": "state after step"},
            "y": {**axis, "field": "other", "title": "state after step"},
            "color": {
                "field": "CKA",
                "type": "quantitative",
                "scale": {"domain": [0, 1], "scheme": "viridis"},
            },
        },
    }
