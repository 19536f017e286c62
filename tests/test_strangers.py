"""What a stranger's file, folder or text may try, and does not get."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
from pathlib import Path

import pytest
from safetensors.torch import save_file
from tests.lab.pages.simulated import simulate
from tests.lab.study._small import small_study

import attnlab
from attnlab import _native_build as build
from attnlab._errors import WeightsError
from attnlab._native_build import BuildError, built
from attnlab._native_variants import this_machine
from attnlab.cli import main
from attnlab.lab.study import LocalExecutor, run_study
from attnlab.results.record import read_record

GATE = """
from attnlab.gates import BranchGate

class Half(BranchGate):
    def forward(self, branch):
        return branch.new_full((1,), 0.5)
    def start_constant(self):
        return 0.5
"""
STUDY = """
data = { name = "digits", train_subset = 100, test_subset = 50 }
backbone = "resnet20"
attention = ["none", "own_gates_of_a_study.Half"]
seeds = 1
recipe = { name = "digits", epochs = 2, batch_size = 50 }
measure = { images = 0, inference_images = 0 }
"""


def test_files_of_the_current_folder_are_not_taken_for_pythons_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A `statistics.py` that lies there is not run by the processes of a study."""
    for name in ("statistics.py", "random.py", "attnlab.py"):
        (tmp_path / name).write_text("open('ran', 'w').close(); raise SystemExit(9)\n")
    monkeypatch.chdir(tmp_path)
    study = small_study(attention="none")
    outcomes = run_study(study, tmp_path / "runs", LocalExecutor(1, 1))
    assert [(outcome.status, outcome.message) for outcome in outcomes] == [("done", "")]
    assert not (tmp_path / "ran").exists()


def test_a_class_is_imported_from_where_the_user_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same in `plan`, `run` and the processes; never from the current folder alone."""
    import sys

    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    folder, study = tmp_path / "mine", tmp_path / "mine.toml"
    folder.mkdir()
    study.write_text(STUDY)
    (folder / "own_gates_of_a_study.py").write_text(GATE)
    monkeypatch.chdir(folder)
    for command in ("plan", "run"):
        with pytest.raises(SystemExit) as ended:
            main(["study", command, str(study), "--out", str(tmp_path / "runs")])
        assert ended.value.code == 2
        assert (
            "There is no module 'own_gates_of_a_study' for the class "
            "'own_gates_of_a_study.Half'. Install it, or put the folder that holds it on "
            "PYTHONPATH; for a study, also --import-from FOLDER."
        ) in capsys.readouterr().err
    monkeypatch.chdir(tmp_path)
    given = ["--out", str(tmp_path / "runs"), "--import-from", "mine"]
    for command in ("plan", "run", "status"):
        main(["study", command, str(study), *given])
        printed = capsys.readouterr().out
        assert "import sys\n  import attnlab\n  sys.path.append('mine')\n" in printed
    assert "\n2 done\n" in printed


def test_kernels_that_others_may_write_are_not_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(build, "compile_to", lambda target, *_: target.write_bytes(b"made"))
    source = Path(attnlab.evolution.__file__).parent / "native" / "src"
    target = built(this_machine(), source)
    assert target.read_bytes() == b"made"
    assert built(this_machine(), source) == target
    for path, mode in ((target, 0o666), (target.parent, 0o777)):
        before = path.stat().st_mode
        path.chmod(mode)
        with pytest.raises(BuildError) as refused:
            built(this_machine(), source)
        path.chmod(before)
        assert str(refused.value) == (
            f"{path} may be written by others, so it is not used: chmod go-w it"
        )
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    real = os.stat(target)
    if real.st_uid == 0:  # root's files are anybody's to use, so give it to someone
        shutil.chown(target, 54321)
        with pytest.raises(BuildError) as refused:
            built(this_machine(), source)
        assert str(refused.value) == (
            f"{target} belongs to another user, so it is not used: remove it"
        )


def test_the_lock_of_a_build_follows_no_link_and_empties_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(build, "compile_to", lambda target, *_: target.write_bytes(b"made"))
    source = Path(attnlab.evolution.__file__).parent / "native" / "src"
    lock = build.cache_directory() / build.object_name(this_machine(), source)
    lock = lock.with_suffix(".lock")
    lock.parent.mkdir(parents=True, mode=0o700)
    precious = tmp_path / "precious"
    precious.write_text("kept")
    lock.symlink_to(precious)
    with pytest.raises(BuildError):
        built(this_machine(), source)
    lock.unlink()
    lock.hardlink_to(precious)
    lock.parent.chmod(0o777)
    with pytest.raises(BuildError, match="may be written by others"):
        built(this_machine(), source)
    lock.parent.chmod(0o700)
    built(this_machine(), source)
    assert precious.read_text() == "kept"


@pytest.mark.parametrize("start", list("=+-@"))
def test_a_text_that_a_spreadsheet_would_run_is_marked(tmp_path: Path, start: str) -> None:
    study = simulate(tmp_path, data=("cifar10",), gains={f"{start}cmd|' /C calc'!A0": 0.4}, seeds=2)
    text = read_record(tmp_path, study.name).columns.values().to_csv()
    rows = list(csv.reader(io.StringIO(text)))
    cells = [cell for row in rows for cell in row]
    assert any(cell.startswith(f"'{start}cmd|") for cell in cells)
    for cell in cells:
        if cell.startswith(("=", "+", "-", "@")):
            float(cell)  # a number, which is none


@pytest.mark.parametrize(
    "description",
    [
        {"model": "timm:resnet18", "model_options": {"pretrained": True}},
        {"model": "timm:resnet18", "model_options": {"pretrained_cfg": {"url": "http://x/y"}}},
        {"model": "timm:resnet18", "model_options": {"checkpoint_path": "http://x/y"}},
        {"model": "timm:hf-hub:someone/network"},
        {"model": "timm:hf_hub:someone/network"},
        {"model": "timm:local-dir:/etc"},
        {"model": "torchvision:resnet18", "model_options": {"weights": "DEFAULT"}},
        {
            "model": "torchvision:fasterrcnn_resnet50_fpn",
            "model_options": {"weights_backbone": "DEFAULT"},
        },
        {"model": "hub:someone/network"},
        {"model": "https://example.org/network.py"},
    ],
    ids=lambda each: json.dumps(each)[:60],
)
def test_a_file_of_weights_never_has_anything_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, description: dict
) -> None:
    import socket

    import torch

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("it was fetched")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(torch.hub, "load_state_dict_from_url", refuse)
    file = tmp_path / "network.safetensors"
    save_file({"x": torch.zeros(1)}, file, {"attnlab": json.dumps(description)})
    with pytest.raises(attnlab.AttnlabError) as raised:
        attnlab.load(file)
    if "model_options" in description:
        assert isinstance(raised.value, WeightsError)
        assert "weights come from the file" in str(raised.value)
