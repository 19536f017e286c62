"""Which share of images and steps is stiff, of several networks, as one small multiple."""

from __future__ import annotations

from collections.abc import Mapping

from attnlab.instruments.stiffness.figures import surface_multiple
from attnlab.instruments.stiffness.result import StiffnessResult
from attnlab.page.parts import Figure, Folded, Heading, Part, Text
from attnlab.results.record import StudyRecord

_SHOWN = 6
"""Networks side by side."""


def surface_parts(record: StudyRecord) -> list[Part | Folded]:
    """δ(M) of the rows of the first group, first seed; a click opens p̂(M)."""
    networks: dict[str, StiffnessResult] = {}
    group = record.table.groups[0]
    for row in group.rows[:_SHOWN]:
        for run in record.of(group, row.label):
            found = run.stored.measured_result(StiffnessResult)
            if found is not None:
                networks[row.label] = found
                break
    if not networks:
        text = (
            "The surfaces δ(M) and p̂(M) are not on disk: no run has stored them. For one network, "
            "attnlab stiffness draws them."
        )
        return [Text(text, quiet=True)]
    first = _degrees(next(iter(networks.values())))
    alike = {label: found for label, found in networks.items() if _degrees(found) == first}
    left_out = [label for label in networks if label not in alike]
    text = f"On {record.name_of(group)}, first seed."
    if left_out:
        text += f" Measured on other M and left out: {', '.join(left_out)}."
    if len(group.rows) > _SHOWN:
        text += f" The first {_SHOWN} of {len(group.rows)} modules."
    return [Heading("How many inputs meet a stiff step?"), *surface_figures(alike, text)]


def surface_figures(networks: Mapping[str, StiffnessResult], text: str) -> list[Part | Folded]:
    """Draw δ(M) and p̂(M) of networks that were measured on the same M."""
    images, steps = surface_multiple(networks)
    return [
        Figure(
            images,
            f"δ(M): share of inputs with a step above M₁ and M₂; the smaller the bright corner, "
            f"the more even the steps. {text}",
            wide=True,
        ),
        Folded(
            "The same for the share of steps, p̂(M)", [Figure(steps, "Share of steps.", wide=True)]
        ),
    ]


def _degrees(found: StiffnessResult) -> tuple[tuple[float, ...], tuple[float, ...]]:
    return found.relative_degrees, found.absolute_degrees
