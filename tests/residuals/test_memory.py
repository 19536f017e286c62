"""A recorded run keeps no activations, and works on weights that are elsewhere or of half type."""

from __future__ import annotations

import gc
from pathlib import Path
from weakref import ref

import pytest
import torch
from tests.residuals import streams
from torch import Tensor, nn

import attnlab
from attnlab.residuals.example import run_once


class Deep(nn.Module):
    """Six steps, with references to all states that were ever made."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(6))
        self.made: list[ref[Tensor]] = []
        self.most = 0

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + torch.tanh(layer(x).view(-1, 8).float()).view(x.shape)
            self.made.append(ref(x))
            self.most = max(self.most, sum(each() is not None for each in self.made))
        return x


def test_states_are_not_kept() -> None:
    """While a run is recorded, no more states live than in a plain one."""
    plain, recorded, x = Deep(), Deep(), torch.randn(2, 3, 8)
    with torch.no_grad():
        plain(x)
    gc.disable()  # what goes must go at once
    try:
        run = run_once(recorded, x)
    finally:
        gc.enable()
    assert recorded.most == plain.most == 1
    assert len(attnlab.steps(recorded, x)) == 6
    assert isinstance(run.output, Tensor)


def test_an_offloaded_network(tmp_path: Path) -> None:
    """One layer on the disk, on the meta device between forwards (device_map)."""
    accelerate = pytest.importorskip("accelerate")
    model, example = streams.tiny("llama"), streams.tokens(8, 8)
    expected = attnlab.stiffness(model, [example]).tns
    at = dict.fromkeys(("embed_tokens", "layers.0", "norm", "rotary_emb"), "cpu")
    places = {f"model.{name}": where for name, where in at.items()}
    places |= {"model.layers.1": "disk", "lm_head": "cpu"}
    accelerate.dispatch_model(model, places, offload_dir=tmp_path, main_device="cpu")
    meta = [name for name, p in model.named_parameters() if p.is_meta]
    assert meta
    assert len(attnlab.steps(model, example)) == 4
    assert attnlab.stiffness(model, [example]).tns == pytest.approx(expected, rel=1e-6)
    assert [name for name, p in model.named_parameters() if p.is_meta] == meta
