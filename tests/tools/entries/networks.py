"""Networks, their files and their data."""

from __future__ import annotations

from pathlib import Path

import torch
from tests.tools.entries.shared import figures, images, network, output, weights

import attnlab

NAMES = ("resnet20", "resnet164", "timm:test_resnet", "torchvision:resnet18")


def created() -> object:
    found = {}
    for name in NAMES:
        torch.manual_seed(0)
        found[name] = weights(attnlab.create(name, num_classes=7))
    return found


def round_trip() -> object:
    from attnlab.networks.checkpoint import Description, describe

    found: dict[str, object] = {}
    for gate in ("se", "asr:se", "step"):
        gated = network(gate=gate, place="branch").float()
        file = attnlab.save(gated, Path("gated.safetensors"), Description("resnet20", gate=gate))
        back = attnlab.load(file).eval().double()
        described = describe(file)
        assert described is not None
        found[gate] = {
            "gate": described.gate,
            "model": described.model,
            "output": output(back, images(2)),
        }
    return found


def round_trip_of_a_fold() -> object:
    from attnlab.networks.checkpoint import Description

    gated = network(gate="asr:se", place="branch").float()
    plain, made = attnlab.fold(gated, fuse=True)
    described = Description("resnet20", gate="asr:se").after_fold(plain, made)
    back = attnlab.load(attnlab.save(plain, Path("plain.safetensors"), described))
    same = [torch.equal(a, b) for a, b in zip(back.parameters(), plain.parameters(), strict=True)]
    return {"gate": described.gate, "fused": described.fused, "same": all(same), "keys": len(same)}


def digits() -> object:
    from attnlab.data import DataConfig, load_data

    data = load_data(DataConfig(name="digits"))
    batch = next(data.testing([torch.arange(32)], torch.device("cpu")))
    return {
        "mean": list(data.facts.mean),
        "std": list(data.facts.std),
        "sizes": [data.facts.train, data.facts.test],
        "images": figures(batch.inputs),
        "classes": batch.targets,
    }
