"""The example of "Deploy" that needs torchao, where that is installed."""

from __future__ import annotations

import pytest
import torch
from tests.docs.blocks import ROOT, blocks_of

import attnlab


def test_the_example_of_torchao_gives_an_int8_network() -> None:
    pytest.importorskip("torchao")
    page = (ROOT / "docs" / "how-to" / "deploy.md").read_text(encoding="utf-8")
    (block,) = [block for block in blocks_of(page) if "torchao" in block.text]
    torch.manual_seed(0)
    gated = attnlab.insert(attnlab.create("resnet20"), "asr:se")[0]
    plain = attnlab.fold(gated.eval())[0].eval()
    images = torch.randn(16, 3, 8, 8)
    names = {"torch": torch, "plain": plain, "images": images, "calibration": [images]}
    exec(compile(block.text, "deploy.md", "exec"), names)
    with torch.no_grad():
        expected = plain(images)
    assert (names["quantised"] - expected).norm() / expected.norm() < 0.1
    operators = [str(node.target) for node in names["int8"].graph.nodes]
    # 21 convolutions and the linear layer, 2 of the convolutions in shortcuts.
    assert sum(name.startswith("onednn.q") for name in operators) == 22
    assert not any(name.startswith(("aten.conv", "aten.linear", "aten.mul")) for name in operators)
