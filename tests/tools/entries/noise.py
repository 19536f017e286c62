"""Noise in norms."""

from __future__ import annotations

import torch
from tests.tools.entries.shared import figures, images, network, picked
from torch import nn


def shown(found: object) -> dict[str, object]:
    """A result of noise, or its JSON."""
    curves = picked(found, "networks")["networks"]
    return {
        **picked(found, "kind images draws seed"),
        "networks": [
            {
                **picked(curve, "clean norms"),
                "points": [
                    picked(point, "label strength values mean low high")
                    for point in picked(curve, "points")["points"]
                ],
            }
            for curve in curves
        ],
    }


def _answers(found: nn.Module) -> object:
    torch.manual_seed(5)
    with torch.no_grad():
        return {
            "test": figures(found.eval()(images())),
            "training": figures(found.train()(images())),
        }


def attached() -> object:
    from attnlab.surgery import noise

    kinds = {
        "constant": noise.constant(0.8, 0.5),
        "by channel": noise.random(0.2),
        "by layer": noise.random(0.2, "layer"),
        "by image": noise.random(0.2, "image"),
        "batch": noise.batch(4),
    }
    found: dict[str, object] = {}
    for name, kind in kinds.items():
        noisy = network(gate="se")
        made = noise.attach(noisy, kind, "both")
        found[name] = {"norms": list(made.norms), "answers": _answers(noisy)}
        noise.detach(noisy)
        found[f"{name}, taken off"] = _answers(noisy)
    return found


def response() -> object:
    import attnlab

    subject = attnlab.open("resnet20", "digits", limit=32)
    return shown(attnlab.noise_response(subject, strengths=(0.1, 0.3), draws=3))
