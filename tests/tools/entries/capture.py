"""Steps of a forward pass: norms and gates."""

from __future__ import annotations

from tests.tools.entries.shared import images, network

import attnlab

GATES = ("se", "cbam", "asr:se+se", "step", "dia", "asr:se*2")


def _captured(gate: str | None, **options: object) -> object:
    found = network(gate=gate)
    with attnlab.capture(found, images(1), **options) as steps:
        found(images())
        return [
            {
                "label": each.step.label,
                "norms": [each.shortcut, each.branch, each.update, each.change],
                "normed": each.normed_change,
                "gate": each.gate,
                "mutated": each.mutated,
            }
            for each in steps
        ]


def plain() -> object:
    return _captured(None)


def gate_product() -> object:
    return {gate: _captured(gate) for gate in GATES}


def transformer() -> object:
    found = network("timm:test_vit", "se", size=160)
    with attnlab.capture(found, images(1, 160), granularity="block", tokens="patch") as steps:
        found(images(4, 160))
        return [[each.shortcut, each.branch, each.change, each.gate] for each in steps]
