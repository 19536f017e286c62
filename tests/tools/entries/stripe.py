"""Gates and attention maps over images."""

from __future__ import annotations

import torch
from tests.tools.entries.shared import images, network, picked

import attnlab

SITE = (
    "label name kind channels mean smallest largest image_spread channel_spread constant "
    "sampled_channels"
)


def shown(found: object) -> dict[str, object]:
    """A result of stripe, or its JSON."""
    sites = picked(found, "sites")["sites"]
    rows = []
    for site in sites:
        values = {n: torch.tensor(v) for n, v in picked(site, "channel_means sample maps").items()}
        rows.append({**picked(site, SITE), **{n: v for n, v in values.items() if v.numel()}})
    return {**picked(found, "images"), "sites": rows}


def shown_maps(found: object) -> dict[str, object]:
    """A result of attention maps, or its JSON."""
    layers = picked(found, "layers")["layers"]
    return {
        **picked(found, "inputs change agreement"),
        "layers": [
            {
                **picked(layer, "name queries keys"),
                "heads": [
                    {
                        **picked(head, "spread structure change"),
                        "picture": torch.tensor(picked(head, "picture")["picture"]),
                    }
                    for head in picked(layer, "heads")["heads"]
                ],
            }
            for layer in layers
        ],
    }


def gates() -> object:
    chosen = ("se", "cbam", "asr:se", "asr:se+se", "step")
    return {
        gate: shown(attnlab.stripe(network(gate=gate), list(images().split(4)))) for gate in chosen
    }


def own_gates() -> object:
    found = network("torchvision:mobilenet_v3_small")
    return shown(attnlab.stripe(found, list(images(8, 32).split(4))))


def maps() -> object:
    return shown_maps(attnlab.maps(network("timm:test_vit"), list(images(6, 160).split(3))))


def mean_maps() -> object:
    from attnlab.instruments.maps import mean_maps

    return mean_maps(network("timm:test_vit"), [images(4, 160)])


def statistics() -> object:
    from attnlab.instruments.stripe import gate_values

    found = network(gate="se")
    sites = attnlab.stripe(found, [images()]).sites
    return {
        "values": gate_values(found, [images()]),
        "statistics": [[s.label, s.mean, s.image_spread, s.channel_spread] for s in sites],
    }


def first_difference() -> object:
    from attnlab.instruments.stripe import first_difference

    return first_difference([[0.5, 0.4, 0.3], [0.6, 0.4, 0.1], [0.65, 0.5, 0.2]])
