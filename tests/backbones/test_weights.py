"""Reading weights: only tensors, only exact fits, and messages that say what is wrong."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from attnlab._errors import WeightsError
from attnlab.backbones.weights import load_weights, read_state, rename


def network(out_features: int = 2) -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, out_features), nn.BatchNorm1d(out_features))


def message(path: Path, target: nn.Module | None = None) -> str:
    with pytest.raises(WeightsError) as error:
        load_weights(target or network(), path)
    return str(error.value).replace(str(path), "FILE")


class RunsCode:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, ("should-not-exist",)


@pytest.mark.parametrize("suffix", ["safetensors", "pt"])
def test_round_trip(tmp_path: Path, suffix: str) -> None:
    source, target, path = network(), network(), tmp_path / f"weights.{suffix}"
    source[1].num_batches_tracked.fill_(5)
    if suffix == "pt":
        torch.save(source.state_dict(), path)
    else:
        save_file(source.state_dict(), path)
    load_weights(target, path)
    for name, tensor in source.state_dict().items():
        assert torch.equal(target.state_dict()[name], tensor)


def test_counters_of_norms_may_be_missing(tmp_path: Path) -> None:
    source, target = network(), network()
    state = {k: v for k, v in source.state_dict().items() if "num_batches" not in k}
    torch.save(state, tmp_path / "old.pth")
    load_weights(target, tmp_path / "old.pth")
    assert torch.equal(target[0].weight, source[0].weight)


def test_rename() -> None:
    one = torch.ones(1)
    state = {"linear.weight": one, "layer.linear.weight": one, "linearity": one}
    assert list(rename(state, {"linear.": "fc."})) == [
        "fc.weight",
        "layer.linear.weight",
        "linearity",
    ]


def test_nothing_there(tmp_path: Path) -> None:
    assert message(tmp_path / "none.pt") == "There is no file of weights at 'FILE'."


def test_does_not_fit(tmp_path: Path) -> None:
    path = tmp_path / "weights.pt"
    state = network(4).state_dict()
    del state["1.weight"], state["1.bias"]
    torch.save(state | {f"extra{i}": torch.ones(1) for i in range(5)}, path)
    assert message(path) == (
        "The weights in 'FILE' do not fit Sequential: 2 missing (1.weight, 1.bias); "
        "5 unexpected (extra0, extra1, extra2, and 2 more); "
        "4 of another shape (0.weight is (4, 3) in the file and (2, 3) in the network, "
        "0.bias is (4,) in the file and (2,) in the network, "
        "1.running_mean is (4,) in the file and (2,) in the network, and 1 more). "
        "Build the network with the options it was trained with (num_classes, in_channels, ...), "
        "or check that it is the same network."
    )


def test_code_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "evil.pt"
    advice = (
        "and reading such a file can run code. Expected a state dict. If you trust the file, load "
        "it yourself and save `model.state_dict()` with `torch.save` or safetensors."
    )
    torch.save({"0.weight": RunsCode()}, path)
    assert (
        message(path) == f"Refused to read 'FILE': it names {os.mkdir.__module__}.mkdir, {advice}"
    )
    with path.open("wb") as file:
        pickle.dump(RunsCode(), file, protocol=2)
    assert "Refused to read 'FILE': it names" in message(path)
    path.write_bytes(bytes(range(7, 250)))
    assert message(path) == f"Refused to read 'FILE': it is not a plain pickle of tensors, {advice}"
    torch.save(network(), path)
    assert message(path) == (
        f"Refused to read 'FILE': it names torch.nn.modules.container.Sequential, {advice}"
    )
    assert not (tmp_path / "should-not-exist").exists()


def test_a_whole_checkpoint_is_not_a_state_dict(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.pt"
    torch.save({"epoch": 3, "state_dict": network().state_dict()}, path)
    assert message(path) == (
        "Expected 'FILE' to hold a state dict (tensors by name) but it holds a dict with keys "
        "epoch, state_dict. Save the network's state dict alone."
    )
    torch.save([torch.ones(1)], path)
    assert message(path) == (
        "Expected 'FILE' to hold a state dict (tensors by name) but it holds a list. "
        "Save the network's state dict alone."
    )


@pytest.mark.parametrize("kind", ["safetensors", "torch"])
@pytest.mark.parametrize("part", [0.0, 0.1, 0.5, 0.99])
def test_truncated(tmp_path: Path, kind: str, part: float) -> None:
    path = tmp_path / ("whole.safetensors" if kind == "safetensors" else "whole.pt")
    if kind == "torch":
        torch.save(network().state_dict(), path)
    else:
        save_file(network().state_dict(), path)
    size = int(part * path.stat().st_size)
    path.write_bytes(path.read_bytes()[:size])
    assert message(path).startswith(
        f"Could not read 'FILE' as a {kind} file ({size} bytes): it is truncated, damaged or of "
        "another format. The reader said: "
    )


@pytest.mark.parametrize("content", [b"hello world", b"<html></html>", b"\x80"])
def test_not_weights_at_all(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "page.pt"
    path.write_bytes(content)
    with pytest.raises(WeightsError):
        read_state(path)
