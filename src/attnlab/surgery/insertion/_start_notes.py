"""For the receipt: how constant gates start where the paper's settings for ViT are in force."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from attnlab.gates import LearnedVectorGate
from attnlab.residuals.site import Site
from attnlab.surgery.insertion.host import attachments

_SMALL = 0.1
"""Below this a note says how small a gate is."""


def start_notes(network: nn.Module, sites: Sequence[Site]) -> list[str]:
    """What to know of the constant gates at `sites`, which were just attached, as they start."""
    chosen = {(site.home, site.label) for site in sites}
    gates = [
        attachment.gate_module
        for _, attachment in attachments(network)
        if (attachment.site.home, attachment.site.label) in chosen
        and isinstance(attachment.gate_module, LearnedVectorGate)
    ]
    notes = []
    with torch.no_grad():
        first = [gate.constant().abs().mean() for gate in gates]
    values = [value.item() for value in first if not value.is_meta]
    if values and max(values) < _SMALL:
        notes.append(
            f"the gates start at {min(values):.3g} to {max(values):.3g}, so the network starts "
            f"nearly without its branches, as with a layer scale: train it with Adam or AdamW; a "
            f"trained network loses what it knows"
        )
    if any(_equal_units(gate) for gate in gates):
        notes.append(
            "all hidden units of a gate start equal and stay equal for ever (layer_initial): "
            "layer_spread=0.5 lets them part and starts with the same gate, layer_initial=None "
            "starts with random layers"
        )
    return notes


def _equal_units(gate: nn.Module) -> bool:
    """Whether a layer has several units, all with the same weights."""
    return any(
        layer.weight.ndim > 1
        and not layer.weight.is_meta
        and len(layer.weight) > 1
        and bool((layer.weight == layer.weight[:1]).all())
        for layer in gate.modules()
        if isinstance(layer, nn.Linear | nn.modules.conv._ConvNd)
    )
