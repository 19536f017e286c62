"""A shortened network as a file: it says what was removed, and loads strictly elsewhere."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from tests.surgery.folding.networks import stir, stir_gates
from tests.tools.forked import forking

import attnlab
from attnlab._errors import WeightsError
from attnlab.networks.checkpoint import Description, describe

IMAGES = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(2))


def made(description: Description) -> torch.nn.Module:
    torch.manual_seed(0)
    return stir_gates(stir(description.build())).eval()


@pytest.mark.parametrize("gate", [None, "asr:se", "iebn"])
def test_saved_and_loaded(gate: str | None, tmp_path: Path) -> None:
    description = Description("resnet20", gate=gate)
    shorter, receipt = attnlab.shorten(made(description), 2, images=[IMAGES])
    described = description.after_shorten(shorter, receipt)
    path = attnlab.save(shorter, tmp_path / "s.safetensors", described)
    again = attnlab.load(path)
    assert list(again.state_dict()) == list(shorter.state_dict())
    assert torch.equal(again(IMAGES), shorter(IMAGES))
    assert describe(path) == described
    with safe_open(path, "pt") as file:
        content = json.loads(file.metadata()["attnlab"])
    assert content["shortened"] == {row.name: "identity" for row in receipt.rows}


def test_loads_in_a_fresh_process(tmp_path: Path) -> None:
    description = Description(
        "timm:vit_tiny_patch16_224", 5, {"img_size": 32, "depth": 2, "embed_dim": 24}
    )
    shorter, receipt = attnlab.shorten(made(description), ["blocks.0", "1.1"], example=IMAGES)
    described = description.after_shorten(shorter, receipt)
    attnlab.save(shorter, tmp_path / "s.safetensors", described)
    torch.save({"images": IMAGES, "answer": shorter(IMAGES).detach()}, tmp_path / "answer.pt")
    script = (
        "import torch, attnlab; network = attnlab.load('s.safetensors'); "
        "kept = torch.load('answer.pt', weights_only=True); "
        "assert torch.equal(network(kept['images']), kept['answer']); "
        "print(len(attnlab.steps(network)))"
    )
    ended = forking("torch", "torchvision", "timm").run(script, folder=tmp_path)
    assert ended.printed == "1\n"


def test_folds_and_is_measured_like_any_other(tmp_path: Path) -> None:
    description = Description("resnet20", gate="asr:se")
    shorter, receipt = attnlab.shorten(made(description), ["layer1.0", "layer3.1"], example=IMAGES)
    plain, folded = attnlab.fold(shorter)
    described = description.after_shorten(shorter, receipt).after_fold(plain, folded)
    path = attnlab.save(plain, tmp_path / "plain.safetensors", described)
    torch.testing.assert_close(attnlab.load(path)(IMAGES), shorter(IMAGES), rtol=1e-4, atol=1e-5)
    result = attnlab.stiffness(plain, [IMAGES])
    assert result.plan == "3 stages of 2+3+2 steps"
    assert [step.name for step in result.nsi][:2] == ["layer1.1", "layer1.2"]


def test_another_description_is_refused(tmp_path: Path) -> None:
    description = Description("resnet20")
    shorter, _ = attnlab.shorten(made(description), ["layer1.0"], example=IMAGES)
    with pytest.raises(WeightsError) as error:
        attnlab.save(shorter, tmp_path / "s.safetensors", description)
    assert "was not written, because Description('resnet20') is another network" in str(error.value)


def test_later_removals_take_the_place_of_earlier_ones(tmp_path: Path) -> None:
    path = tmp_path / "s.safetensors"
    description = Description(
        "timm:vit_tiny_patch16_224", 5, {"img_size": 32, "depth": 2, "embed_dim": 24}
    )
    first, one = attnlab.shorten(made(description), ["1.0"], example=IMAGES)
    second, two = attnlab.shorten(first, ["blocks.0"], example=IMAGES)
    described = description.after_shorten(first, one).after_shorten(second, two)
    assert described.shortened == {"blocks.0": "identity"}
    assert torch.equal(second(IMAGES), attnlab.load(attnlab.save(second, path, described))(IMAGES))
