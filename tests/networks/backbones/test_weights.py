"""Reading weights: only tensors, only exact fits, and messages that say what is wrong."""

from __future__ import annotations

import argparse
import os
import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import attnlab
from attnlab._errors import WeightsError
from attnlab.networks.backbones import WeightsNote
from attnlab.networks.backbones.weights import load_weights, read_state, rename
from attnlab.networks.checkpoint import Description


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


@pytest.mark.parametrize(("kind", "name"), [("safetensors", "a.bin"), ("torch", "a.safetensors")])
def test_a_file_under_the_name_of_another_format(tmp_path: Path, kind: str, name: str) -> None:
    source, target, path = network(), network(), tmp_path / name
    if kind == "torch":
        torch.save(source.state_dict(), path)
    else:
        save_file(source.state_dict(), path)
    load_weights(target, path)
    for key, tensor in source.state_dict().items():
        assert torch.equal(target.state_dict()[key], tensor)


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


@pytest.mark.parametrize(("classes", "one_number"), [((7, 7), True), ((7, 9), False)])
def test_heads_side_by_side_are_of_one_number_of_classes(
    tmp_path: Path, classes: tuple[int, int], one_number: bool
) -> None:
    """Or a new head is not what is missing."""
    path, target = tmp_path / "heads.pt", nn.Sequential(nn.Linear(3, 10), nn.Linear(3, 10))
    torch.save(nn.Sequential(*(nn.Linear(3, each) for each in classes)).state_dict(), path)
    assert ("pass new_head=True" in message(path, target)) is one_number


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


def test_neither_a_state_dict_nor_one_in_a_known_entry(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.pt"
    torch.save({"epoch": 3, "weights": network().state_dict()}, path)
    expected = (
        "Expected 'FILE' to hold a state dict (tensors by name), alone or as its 'state_dict', "
        "'model', 'state_dict_ema', 'model_ema', 'ema_state_dict' or 'ema', but it holds "
    )
    alone = "Save the network's state dict alone."
    assert message(path) == f"{expected}a dict with keys epoch, weights. {alone}"
    torch.save([torch.ones(1)], path)
    assert message(path) == f"{expected}a list. {alone}"
    torch.save({"state_dict": {"0.weight": "not a tensor"}}, path)
    assert message(path) == f"{expected}a dict with keys state_dict. {alone}"


def same(source: nn.Module, target: nn.Module) -> bool:
    found = target.state_dict()
    return all(torch.equal(found[name], value) for name, value in source.state_dict().items())


def loaded(content: object, path: Path, target: nn.Module | None = None) -> tuple[bool, list[str]]:
    """Whether the network of the file came back, and what was said."""
    torch.save(content, path)
    target = target or network()
    with pytest.warns(WeightsNote) as notes:
        load_weights(target, path)
    said = [str(note.message).replace(str(path), "FILE") for note in notes]
    return same(SOURCE, target), said


SOURCE = network()
STATE = SOURCE.state_dict()


def prefixed(prefix: str) -> dict[str, torch.Tensor]:
    return {f"{prefix}{name}": value for name, value in STATE.items()}


@pytest.mark.parametrize("entry", ["state_dict", "model", "model_ema"])
def test_an_entry_of_a_checkpoint(tmp_path: Path, entry: str) -> None:
    optimizer = torch.optim.SGD(SOURCE.parameters(), lr=0.1, momentum=0.9)
    content = {"epoch": 3, entry: STATE, "optimizer": optimizer.state_dict()}
    found = loaded(content, tmp_path / "c.pt")
    assert found == (True, [f"Took {entry!r} of 'FILE'."])


def test_settings_of_a_training_script_are_passed_over(tmp_path: Path) -> None:
    content = {"state_dict": STATE, "args": argparse.Namespace(lr=0.1, model="resnet18")}
    assert loaded(content, tmp_path / "c.pt") == (True, ["Took 'state_dict' of 'FILE'."])
    path = tmp_path / "evil.pt"
    torch.save({"state_dict": STATE, "args": argparse.Namespace(run=RunsCode())}, path)
    assert "Refused to read 'FILE': it names" in message(path)


def test_the_first_of_several_entries_is_taken_and_said(tmp_path: Path) -> None:
    content = {"model_ema": network().state_dict(), "model": STATE}
    assert loaded(content, tmp_path / "c.pt") == (
        True,
        [
            "Took 'model' of 'FILE'. It has weights in 'model_ema', too: "
            "attnlab.open(..., ema=True), or --ema, takes the average."
        ],
    )


@pytest.mark.parametrize(
    "prefix", ["module.", "_orig_mod.", "model.", "module._orig_mod.", "model._orig_mod.module."]
)
@pytest.mark.parametrize("suffix", ["pt", "safetensors"])
def test_prefixes_of_wrappers(tmp_path: Path, prefix: str, suffix: str) -> None:
    path = tmp_path / f"c.{suffix}"
    note = f"Took the names in 'FILE' without {prefix!r}, which all of them begin with."
    if suffix == "pt":
        assert loaded(prefixed(prefix), path) == (True, [note])
        return
    save_file(prefixed(prefix), path)
    target = network()
    with pytest.warns(WeightsNote, match="which all of them begin with"):
        load_weights(target, path)
    assert same(SOURCE, target)


def test_what_wrappers_of_torch_really_write(tmp_path: Path) -> None:
    parallel = nn.DataParallel(SOURCE).state_dict()
    assert next(iter(parallel)).startswith("module.")
    assert loaded({"state_dict": parallel}, tmp_path / "a.pt")[0]
    compiled = torch.compile(SOURCE).state_dict()
    assert next(iter(compiled)).startswith("_orig_mod.")
    assert loaded(compiled, tmp_path / "b.pt")[0]
    averaged = torch.optim.swa_utils.AveragedModel(SOURCE).state_dict()
    assert "n_averaged" in averaged
    assert loaded({"model_ema": averaged}, tmp_path / "c.pt") == (
        True,
        [
            "Took 'model_ema' of 'FILE'.",
            "Took the names in 'FILE' without 'module.', which all of them begin with.",
        ],
    )


def test_a_prefix_that_the_network_has_is_its_own(tmp_path: Path) -> None:
    class Wrapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = network()

    path, target = tmp_path / "c.pt", Wrapped()
    torch.save(prefixed("model."), path)
    load_weights(target, path)  # not a word
    assert same(SOURCE, target.model)
    torch.save(prefixed("model.model."), path)
    target = Wrapped()
    with pytest.warns(WeightsNote, match=r"without 'model\.', which all of them begin with"):
        load_weights(target, path)
    assert same(SOURCE, target.model)


def test_a_prefix_of_some_names_is_not_taken_off(tmp_path: Path) -> None:
    path = tmp_path / "c.pt"
    torch.save({**prefixed("model."), "loss.weight": torch.ones(2)}, path)
    assert "8 unexpected (model.0.weight, model.0.bias, model.1.weight, and 5 more)" in message(
        path
    )
    torch.save({f"module.other.{name}": value for name, value in STATE.items()}, path)
    assert "7 unexpected (module.other.0.weight, " in message(path)


def test_names_of_public_checkpoints_under_a_prefix(tmp_path: Path) -> None:
    """Ours has `fc.`, public CIFAR ResNets have `linear.`; theirs were trained in parallel."""
    source = attnlab.create("resnet20")
    public = {
        f"module.{name.replace('fc.', 'linear.')}": v for name, v in source.state_dict().items()
    }
    torch.save({"state_dict": public, "best_prec1": 91.7}, tmp_path / "c.th")
    with pytest.warns(WeightsNote):
        found = attnlab.create("resnet20", weights=tmp_path / "c.th")
    assert same(source, found)
    with pytest.warns(WeightsNote):
        other = attnlab.create("resnet20", 7, weights=tmp_path / "c.th", new_head=True)
    assert torch.equal(other.conv1.weight, source.conv1.weight)
    assert other.fc.weight.shape[0] == 7


def test_a_described_network(tmp_path: Path) -> None:
    source = attnlab.create("resnet20").double().eval()
    torch.save(
        {"model": {f"_orig_mod.{n}": v for n, v in source.state_dict().items()}}, tmp_path / "c.pt"
    )
    with pytest.warns(WeightsNote):
        found = attnlab.load(tmp_path / "c.pt", Description("resnet20"))
    assert same(source, found)
    assert found.conv1.weight.dtype == torch.float64


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
