"""Residual steps removed."""

from __future__ import annotations

from tests.tools.entries.shared import images, labelled, network, output, picked, receipt

import attnlab

RECEIPT = "images output_change accuracy_before accuracy_after gates own_gates replaced repaired"
POINT = "removed label name score next output_change accuracy"
RANKINGS = ("output", "influence", "nsi", "tns", "loss")


def shown_curves(found: object) -> dict[str, object]:
    """A result of removal curves, or its JSON."""
    parts = picked(found, "curves steps")
    return {
        **picked(found, "images test_images same_images accuracy"),
        "curves": {
            picked(curve, "ranking")["ranking"]: [
                picked(point, POINT) for point in picked(curve, "points")["points"]
            ]
            for curve in parts["curves"]
        },
        "steps": [
            picked(step, "label name scores output_change accuracy") for step in parts["steps"]
        ],
    }


def _shortened(gate: str | None, *given: object, **options: object) -> object:
    shorter, made = attnlab.shorten(network(gate=gate), *given, example=images(1), **options)
    return {
        "receipt": receipt(made, RECEIPT),
        "rows": [picked(row, "label name score next") for row in made.rows],
        "output": output(shorter, images(2)),
        "keys": len(shorter.state_dict()),
    }


def rankings() -> object:
    test = labelled(seed=2)
    return {by: _shortened(None, 2, by, labelled(), test=test) for by in RANKINGS}


def named() -> object:
    return {
        "plain": _shortened(None, ["layer1.1", "3.2"], images=labelled()),
        "with gates": _shortened("se", ["layer1.1"], images=labelled()),
    }


def repaired() -> object:
    return _shortened(None, 2, "nsi", labelled(), repair=True)


def curves() -> object:
    from attnlab.instruments.removal import removal_curves

    found = removal_curves(network(gate="se"), labelled(), test=labelled(seed=2), most=2)
    return shown_curves(found)
