"""Several networks under the same noise, in one table and one figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from attnlab._errors import InputError
from attnlab.instruments.noise.result import NoiseCurve, NoiseResult
from attnlab.subject import Subject


def compare_noise(subjects: Sequence[Subject], results: Sequence[NoiseResult]) -> NoiseResult:
    """One result of all networks, which were measured under the same noise.

    Args:
        subjects: the networks.
        results: what `noise_response` found of each, in the same order.
    """
    first = results[0]
    _check_alike(results)
    curves = [
        replace(curve, origin=subject.provenance)
        for subject, result in zip(subjects, results, strict=True)
        for curve in result.networks
    ]
    notes = dict.fromkeys(note for result in results for note in result.notes)
    if len({result.images for result in results}) > 1:
        notes["The networks were measured on different numbers of images."] = None
    return replace(
        first,
        networks=tuple(_told_apart(curves)),
        provenance=None,
        notes=tuple(notes),
        seconds=sum(result.seconds for result in results),
    )


def _check_alike(results: Sequence[NoiseResult]) -> None:
    """Refuse networks whose results are not the same metric, and noises that are not the same."""
    labels = {result.networks[0].network: result.metric.label for result in results}
    if len(set(labels.values())) > 1:
        listed = ", ".join(f"{name!r} has {label}" for name, label in labels.items())
        raise InputError(f"Expected networks with one kind of result but {listed}.")
    noises = {tuple(p.label for p in curve.points) for r in results for curve in r.networks}
    if len(noises) > 1:
        raise InputError(
            "Expected networks under the same noises but the strengths differ. Measure all of them "
            "with the same kind, strengths and per."
        )


def _told_apart(curves: Sequence[NoiseCurve]) -> list[NoiseCurve]:
    """Return the curves, with a number after names that several networks have."""
    names = [curve.network for curve in curves]
    return [
        curve
        if names.count(curve.network) == 1
        else replace(curve, network=f"{curve.network} ({number})")
        for number, curve in enumerate(curves, 1)
    ]
