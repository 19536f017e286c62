"""A run's id: what decides its weights, and nothing else."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from attnlab.lab.training import Identity, RunConfig, identify

GATE = """
from attnlab.gates import BranchGate

def squashed(x):
    return x.mean((2, 3), keepdim=True).sigmoid()

class MyGate(BranchGate):
    def __init__(self, channels):
        super().__init__()

    def forward(self, x):
        return squashed(x)
"""


def config(**settings: object) -> RunConfig:
    return RunConfig(**{"backbone": "resnet20", "recipe": "digits", **settings})  # type: ignore[arg-type]


def run_id(**settings: object) -> str:
    return identify(config(**settings), threads=1).run_id


def archive(path: Path, first: int = 0) -> Path:
    images = np.full((8, 6, 6, 3), first, np.uint8)
    labels = np.arange(8) % 2
    np.savez(path, train_x=images, train_y=labels, test_x=images, test_y=labels)
    return path


def test_the_id_is_the_same_on_every_machine() -> None:
    # Not to be changed lightly: with it, finished runs of earlier versions would run again.
    recipe = {"epochs": 3, "batch_size": 8, "lr": 0.1}
    assert run_id(attention="se", recipe=recipe) == "90522158f04d"


def test_several_devices_make_another_run_and_one_the_same_as_ever() -> None:
    one, two = (identify(config(), threads=1, devices=number) for number in (1, 2))
    assert "devices" not in one.model_dump(mode="json")
    assert Identity(**one.model_dump(mode="json")) == one
    assert Identity(**two.model_dump(mode="json")) == two
    assert one.run_id != two.run_id
    assert one.differences(two) == ["devices were 1, are 2"]


def test_the_id_ignores_labels_and_places() -> None:
    plain = config(data={"name": "cifar10"}, recipe="digits")
    elsewhere = config(data={"name": "cifar10", "root": "/data", "download": True})
    by_value = RunConfig.from_json(plain.to_json())
    unnamed = by_value.model_copy(
        update={"recipe": by_value.recipe.model_copy(update={"name": None})}
    )
    assert len({identify(each).run_id for each in (plain, elsewhere, by_value, unnamed)}) == 1


def test_a_setting_written_out_as_its_default_is_the_same_run() -> None:
    """So a setting that a later version adds, with a default, orphans nothing."""
    assert run_id() == run_id(start="paper", where=None, gate_options={}, seed=0)
    assert "start" not in identify(config(start="paper")).settings


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 1},
        {"attention": "se"},
        {"where": "stages:1"},
        {"start": "identity"},
        {"data": {"name": "digits", "train_subset": 100}},
        {"data": {"name": "digits", "augmentation": {"flip": True}}},
        {"task": {"options": {"label_smoothing": 0.1}}},
        {"recipe": {"name": "digits", "lr": 0.2}},
        {"backbone": "resnet32"},
        {"backbone_options": {"a": 1}},
    ],
)
def test_the_id_sees_what_decides_a_run(change: dict[str, object]) -> None:
    assert run_id(**change) != run_id()
    assert run_id(**change) == run_id(**change)


def test_the_content_of_the_data_counts_and_their_place_does_not(tmp_path: Path) -> None:
    def of(path: Path) -> str:
        return run_id(data={"name": "npz", "root": str(path)})

    first = of(archive(tmp_path / "a.npz"))
    shutil.copy(tmp_path / "a.npz", tmp_path / "b.npz")
    assert of(tmp_path / "b.npz") == first
    assert of(archive(tmp_path / "b.npz", first=1)) != first


def test_the_content_of_weights_counts_and_their_place_does_not(tmp_path: Path) -> None:
    def of(name: str, content: bytes) -> str:
        (tmp_path / name).write_bytes(content)
        return run_id(backbone_options={"weights": str(tmp_path / name)})

    assert of("a.pt", b"one") == of("b.pt", b"one")
    assert of("a.pt", b"two") != of("b.pt", b"one")


def test_the_source_of_own_classes_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    file = tmp_path / "my_gates_of_identity.py"
    name = "my_gates_of_identity.MyGate"

    def now(source: str) -> Identity:
        file.write_text(source)
        sys.modules.pop("my_gates_of_identity", None)
        return identify(config(attention=name))

    before = now(GATE)
    after = now(GATE.replace("sigmoid()", "tanh()"))
    assert before.run_id != after.run_id
    assert before.differences(after) == [f"the gate's source changed ({name})"]
    assert now(GATE).run_id == before.run_id


def test_differences_in_words() -> None:
    before = Identity(settings={"seed": 1, "recipe": {"lr": 0.1}}, data="a", threads=1, weights="w")
    after = Identity(settings={"recipe": {"lr": 0.2, "ema": 0.9}}, data="b", threads=2)
    assert before.differences(after) == [
        "the data changed",
        "the file of weights changed",
        "threads per process were 1, are 2",
        "recipe.ema was left out, is 0.9",
        "recipe.lr was 0.1, is 0.2",
        "seed was 1, is left out",
    ]
