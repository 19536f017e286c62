"""What is measured of a finished run, against the same computed by hand here."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.lab.training.small import run, small

import attnlab
from attnlab._errors import InputError, UnknownNameError
from attnlab.data import load_data
from attnlab.instruments.classes import ClassesResult, measure_classes
from attnlab.instruments.measurement import MeasureConfig
from attnlab.instruments.stiffness import StiffnessResult
from attnlab.instruments.stripe import StripeResult
from attnlab.lab.measures import MEASUREMENTS, measure_run, missing
from attnlab.lab.training import load_network
from attnlab.results import StoredRun
from attnlab.surgery.folding import FoldReceipt
from attnlab.surgery.insertion import attachments

FEW = MeasureConfig(images=20, inference_images=8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with constant gates, measured."""
    made = tmp_path_factory.mktemp("run")
    run(small(1, attention="asr:se"), made)
    all_of_them = [
        name
        for name, each in MEASUREMENTS.items()
        if each.settings(FEW) is not None and each.applies(made)
    ]
    assert {"stiffness", "stripe", "fold", "classes"} <= set(all_of_them)
    assert missing(made, FEW) == all_of_them
    assert list(measure_run(made, FEW)) == all_of_them
    return made


def images_of(number: int) -> torch.Tensor:
    """Test images, evenly spread over the 30."""
    chosen = torch.linspace(0, 29, number).round().long()
    data = load_data(small(1).data)
    return next(data.testing([chosen], torch.device("cpu"))).inputs


def test_stiffness_is_that_of_the_saved_network_on_its_test_images(folder: Path) -> None:
    found = StoredRun(folder).measured("stiffness")
    assert found is not None
    assert found.settings == {"images": 20}
    expected = attnlab.stiffness(load_network(folder), [images_of(20)], progress=False)
    result = StoredRun(folder).measured_result(StiffnessResult)
    assert result is not None
    assert result.tns == pytest.approx(expected.tns, rel=1e-6)
    assert [step.label for step in result.nsi] == [step.label for step in expected.nsi]


def test_gates_that_are_constant(folder: Path) -> None:
    found = StoredRun(folder).measured_result(StripeResult)
    assert found is not None
    assert [site.label for site in found.sites][:4] == ["1.0", "1.1", "1.2", "2.0"]
    assert all(site.constant and site.image_spread == 0 for site in found.sites)
    # The value of the first one, by its own formula.
    name, attachment = next(attachments(load_network(folder)))
    with torch.no_grad():
        value = attachment.gate(torch.zeros(1, attachment.site.channels, 2, 2))
    assert found.sites[0].mean == pytest.approx(value.mean().item(), rel=1e-5)
    assert found.sites[0].name == name == "layer1.0.attnlab"


def test_the_fold_is_exact_and_tests_the_same(folder: Path) -> None:
    found = StoredRun(folder).measured_result(FoldReceipt)
    assert found is not None
    assert found.float64_change is not None
    assert found.float64_change < 1e-10
    assert found.parameters_after == 272_474
    assert found.values["top1"] == StoredRun(folder).result.value


def test_what_is_there_is_not_measured_again_unless_asked(folder: Path) -> None:
    assert missing(folder, FEW) == []
    assert measure_run(folder, FEW) == {}
    assert missing(folder, MeasureConfig(images=10, inference_images=0)) == []
    more = MeasureConfig(images=30, inference_images=8)
    # The gates' fold and the classes do not depend on the number of images.
    depends = [
        name for name, each in MEASUREMENTS.items() if each.settings(more) != each.settings(FEW)
    ]
    assert missing(folder, more) == depends
    assert {"stiffness", "stripe"} <= set(depends)
    assert not {"fold", "classes"} & set(depends)
    assert list(measure_run(folder, FEW, ["stiffness"])) == ["stiffness"]


def test_what_was_measured_before_there_was_a_setting_is_missing(
    folder: Path, tmp_path: Path
) -> None:
    """A setting that is not written down counts as none, and one image more is asked for."""
    run(small(1), tmp_path)
    config = MeasureConfig(images=1, inference_images=0)
    assert "stiffness" in missing(tmp_path, config)
    found = StoredRun(folder).measured("stiffness")
    assert found is not None
    StoredRun(tmp_path).write_measured(found.model_copy(update={"settings": {}}))
    assert "stiffness" in missing(tmp_path, config)
    StoredRun(tmp_path).write_measured(found.model_copy(update={"settings": {"images": 1}}))
    assert "stiffness" not in missing(tmp_path, config)


def test_whether_to_fold_is_asked_of_the_network(tmp_path: Path) -> None:
    """Not of its name: SE's gates depend on the image, whatever the gate is called."""
    run(small(1, attention="se"), tmp_path)
    found = measure_run(tmp_path, FEW)
    assert (found["fold"].found, found["fold"].notes) == (None, ())
    gates = StoredRun(tmp_path).measured_result(StripeResult)
    assert gates is not None
    # Of 16 channels SE keeps one hidden unit; where its ReLU is never active the gate is constant.
    assert all(site.image_spread > 0 for site in gates.sites[-3:])
    assert found["stiffness"].found is not None


def test_a_network_without_steps_has_no_tns(tmp_path: Path) -> None:
    data = {"name": "fake", "train_subset": 8, "test_subset": 4}
    run(small(1, {"batch_size": 4}, data=data, backbone="mobilenet_v1"), tmp_path)
    found = measure_run(tmp_path, FEW, ["stiffness"])["stiffness"]
    assert found.found is None
    assert found.notes == ("The network has no residual step, so no TNS.",)


def test_messages(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError) as caught:
        measure_run(folder, FEW, ["stifness"])
    assert str(caught.value) == (
        "Unknown measurement 'stifness'. Did you mean 'stiffness' or 'stripe'? Expected one of: "
        f"{', '.join(MEASUREMENTS)}."
    )
    facts = json.loads((folder / "data.json").read_text())
    for name in ("config.json", "identity.json", "model.safetensors", "result.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    (tmp_path / "data.json").write_text(json.dumps({**facts, "checksum": "0" * 64}))
    with pytest.raises(InputError) as changed:
        measure_run(tmp_path, FEW)
    assert str(changed.value) == (
        f"The data changed since the run in {tmp_path} began: checksum 000000000000… then, "
        f"{facts['checksum'][:12]}… now. Give it the data that it was trained with, or train anew."
    )


def test_confusion_is_that_of_the_predictions(folder: Path) -> None:
    """Against scikit-learn, on the network's own answers."""
    from sklearn.metrics import confusion_matrix

    found = StoredRun(folder).measured_result(ClassesResult)
    assert found is not None
    data = load_data(small(1).data)
    batch = next(data.testing([torch.arange(30)], torch.device("cpu")))
    with torch.no_grad():
        predicted = load_network(folder)(batch.inputs).argmax(1)
    expected = confusion_matrix(batch.targets, predicted, labels=range(10))
    assert np.array_equal(found.confusion, expected)
    assert found.classes == tuple(str(number) for number in range(10))
    # The run, opened, says the same.
    assert measure_classes(folder).confusion == found.confusion
