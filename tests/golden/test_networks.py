"""Networks that 0.1 stored still load, and answer as they did."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import attnlab
from attnlab._errors import WeightsError
from attnlab.networks.checkpoint import Description, describe

STORED = Path(__file__).parent / "v0_1" / "networks"
IMAGES = torch.linspace(-2, 2, 2 * 3 * 8 * 8).reshape(2, 3, 8, 8).double()
OUTPUTS = json.loads((STORED / "outputs.json").read_text())


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """The folder with its files unpacked."""
    folder = shutil.copytree(STORED, tmp_path / "networks")
    for packed in folder.rglob("*.gz"):
        packed.with_suffix("").write_bytes(gzip.decompress(packed.read_bytes()))
    return folder


@pytest.mark.parametrize(
    ("path", "outputs"),
    [("run", "run"), ("run/model.safetensors", "run"), ("plain.safetensors", "plain")],
)
def test_answers_as_then(path: str, outputs: str, stored: Path) -> None:
    network = attnlab.load(stored / path)
    assert not network.training
    with torch.no_grad():
        found = network.double()(IMAGES)
    expected = torch.tensor(OUTPUTS[outputs], dtype=torch.float64)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)


def test_what_they_say(stored: Path) -> None:
    described = Description("resnet20", 10, gate="asr:se", input_size=[3, 8, 8])
    assert describe(stored / "run") == describe(stored / "run" / "model.safetensors") == described
    plain = Description("resnet20", 10, gate="asr:se", input_size=[3, 8, 8], kept=[])
    assert describe(stored / "plain.safetensors") == plain


def test_written_again_they_are_the_same(stored: Path, tmp_path: Path) -> None:
    for path in ("run/model.safetensors", "plain.safetensors"):
        description = describe(stored / path)
        assert description is not None
        again = attnlab.save(attnlab.load(stored / path), tmp_path / "w.safetensors", description)
        assert describe(again) == description
        old, new = load_file(stored / path), load_file(again)
        assert old.keys() == new.keys()
        assert all(torch.equal(old[name], new[name]) for name in old)


def settings(folder: Path, name: str, **changes: object) -> None:
    """Change settings of the stored run."""
    path = folder / "run" / name
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def refused(path: Path) -> str:
    with pytest.raises(WeightsError) as error:
        attnlab.load(path)
    return str(error.value).replace(str(path.parent), "RUN")


def test_what_the_run_started_from_is_not_needed(stored: Path) -> None:
    settings(stored, "config.json", backbone_options={"weights": "gone.pt", "new_head": True})
    assert describe(stored / "run") == describe(stored / "run" / "model.safetensors")
    attnlab.load(stored / "run")


def test_settings_of_another_run_are_refused(stored: Path) -> None:
    file = stored / "run" / "model.safetensors"
    settings(stored, "config.json", attention="se")
    assert refused(file) == (
        "'RUN/model.safetensors' is of a run with the attention 'asr:se', but config.json beside "
        "it is of one with 'se'. Put the file back beside its own."
    )


def test_a_file_without_its_folder_is_refused(stored: Path) -> None:
    (stored / "run" / "data.json").unlink()
    assert refused(stored / "run" / "model.safetensors") == (
        "'RUN/model.safetensors' was written by a run of attnlab 0.1, whose data.json says the "
        "rest about the network, but it is not beside it. Put it there, or pass a description."
    )


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", "cannot be read: Expecting property name"),
        ("[]", "cannot be read: it is not a table."),
        ("{}", "data.json beside it has no 'classes'."),
        ('{"classes": "ten", "shape": [3, 8, 8]}', "num_classes: Input should be a valid integer"),
    ],
)
def test_settings_that_cannot_be_read(content: str, reason: str, stored: Path) -> None:
    (stored / "run" / "data.json").write_text(content)
    assert reason in refused(stored / "run" / "model.safetensors")


def test_other_files_beside_a_run_are_not_taken_for_it(stored: Path) -> None:
    tensors = load_file(stored / "run" / "model.safetensors")
    save_file(tensors, stored / "run" / "other.safetensors")
    assert describe(stored / "run" / "other.safetensors") is None
