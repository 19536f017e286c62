"""Gates put into networks and taken out again."""

from __future__ import annotations

import torch
from tests.tools.entries.shared import filled, images, network, output, receipt

import attnlab

GATES = (
    "se cbam eca sem srm fca ie iebn sge dia spa step bam scse ese ge gep gc coord ela simam "
    "triplet ema gam gct asr:se asr:eca asr:se*2 asr:se+se se+step"
)


def _inserted(name: str, gate: object, size: int = 16, **options: object) -> dict[str, object]:
    """The receipt, the first values of the gates, and what filled ones do to the output."""
    plain = network(name)
    torch.manual_seed(0)
    gated, found = attnlab.insert(plain, gate, example=images(1, size), **options)
    before = output(gated, images(2, size))
    after = output(filled(gated), images(2, size))
    return {"receipt": receipt(found), "first": before, "filled": after}


def gates() -> object:
    return {gate: _inserted("resnet20", gate) for gate in GATES.split()}


def starts() -> object:
    chosen = ("se", "step", "cbam", "dia", "asr:se", "iebn")
    return {gate: _inserted("resnet20", gate, start="identity") for gate in chosen}


def where() -> object:
    chosen = (
        "stages:2,3",
        "blocks:0,5",
        "every:2",
        "code:100110011",
        "random:1@0",
        "norms",
        ["layer1.0.conv1", "layer2.1"],
    )
    return {str(each): _inserted("resnet20", "se", where=each) for each in chosen}


def where_of_a_site() -> object:
    return _inserted("resnet20", "eca", where=lambda site: site.stage == 2 and site.block > 0)


def place() -> object:
    return {each: _inserted("resnet20", "asr:se", place=each) for each in ("auto", "branch")}


def place_after_the_norm() -> object:
    return _inserted("torchvision:resnet18", "asr:se", 32, place="norm")


def shared() -> object:
    return {gate: _inserted("resnet20", gate, shared=True) for gate in ("se", "asr:se")}


def options() -> object:
    return {
        "reduction": _inserted("resnet20", "se", reduction=8),
        "kernel_size": _inserted("resnet20", "eca", kernel_size=5),
        "untrained": _inserted("resnet20", "se", trainable=False),
    }


def of_timm() -> object:
    names = (("test_resnet", "se"), ("test_vit", "se"), ("test_convnext", "step"))
    return {name: _inserted(f"timm:{name}", gate, 160) for name, gate in names}


def of_torchvision() -> object:
    return {
        "resnet18": _inserted("torchvision:resnet18", "cbam", 32),
        "mobilenet_v3_small": _inserted("torchvision:mobilenet_v3_small", "se", 32),
    }


def without_steps() -> object:
    return _inserted("timm:test_efficientnet", "se", 160, where="norms")


def steps() -> object:
    found = {
        "resnet20": attnlab.steps(network(), images(1)),
        "timm:test_vit": attnlab.steps(network("timm:test_vit"), images(1, 160)),
        "torchvision:mobilenet_v3_small": attnlab.steps(
            network("torchvision:mobilenet_v3_small"), images(1, 32)
        ),
    }
    return {
        name: [[step.label, step.stage, step.block, step.name, step.kind] for step in listed]
        for name, listed in found.items()
    }


def remove() -> object:
    plain = network()
    gated, _ = attnlab.insert(plain, "asr:se+se", example=images(1))
    attnlab.remove(gated)
    return {
        "same keys": list(gated.state_dict()) == list(plain.state_dict()),
        "output": output(gated, images(2)),
    }
