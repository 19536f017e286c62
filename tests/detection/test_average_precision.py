"""AP against an own implementation of COCO's protocol and against COCO's own tool."""

import base64
import io
import json

import numpy as np
import pytest
import torch
from PIL import Image
from tests.detection import oracle, written
from tests.detection.guesses import as_numpy, guesses, pycocotools_figures, random_targets

from attnlab.results.details import Mark
from attnlab.tasks._average_precision import RECALLS, average_precision
from attnlab.tasks.detection import Detection, marked_picture

NAMES = tuple(metric.name for metric in Detection.metrics)


def figures(predictions, targets):
    meters = Detection.meters(None, torch.device("cpu"))
    half = len(targets) // 2
    meters.update(predictions[:half], targets[:half])
    meters.update(predictions[half:], targets[half:])
    return meters.compute()


@pytest.mark.parametrize("seed", range(4))
def test_equals_the_protocol_written_out(seed, tmp_path, capsys):
    targets = random_targets(seed=seed)
    predictions = guesses(targets, [(480, 480)] * len(targets), [1, 2, 3], seed)
    found = figures(predictions, targets)
    pairs = [
        (as_numpy(one), as_numpy(other)) for one, other in zip(predictions, targets, strict=True)
    ]
    own = oracle.figures(pairs, [1, 2, 3])
    theirs = pycocotools_figures(predictions, targets, [1, 2, 3], tmp_path)
    capsys.readouterr()
    for name in NAMES:
        assert own[name] == pytest.approx(theirs[name], abs=1e-9), name
        assert found[name] == pytest.approx(theirs[name], abs=1e-6), name
    assert 0.05 < found["ap"] < 0.9


def test_thresholds_are_exact():
    # Ten objects, of which one is found: the recall is 1/10, which reaches the threshold 0.1.
    box = torch.tensor([[0.0, 0, 10, 10]])
    one = torch.ones(1, dtype=torch.long)
    target = {"boxes": box, "labels": one, "area": torch.tensor([100.0]), "iscrowd": 0 * one}
    nothing = {"boxes": box[:0], "labels": one[:0], "scores": torch.zeros(0)}
    found = {"boxes": box, "labels": one, "scores": torch.tensor([0.9])}
    ap = figures([found] + [nothing] * 9, [target] * 10)["ap"]
    assert ap == pytest.approx(11 / 101, abs=1e-12)


def test_classes_curves_and_sizes():
    targets = random_targets(seed=5, crowds=False)
    predictions = guesses(targets, [(480, 480)] * len(targets), [1, 2, 3], 5)
    pairs = [
        (as_numpy(one), as_numpy(other)) for one, other in zip(predictions, targets, strict=True)
    ]
    found = average_precision(predictions, targets)
    assert found.labels == (1, 2, 3)
    assert len(RECALLS) == 101
    for label in found.labels:
        precision, _ = oracle.precision_recall(pairs, label, "all", 100)
        assert found.average(label=label) == pytest.approx(precision.mean(), abs=1e-6)
        np.testing.assert_allclose(found.curve(label), precision[0], atol=1e-6)
        precision, _ = oracle.precision_recall(pairs, label, "small", 100)
        assert found.average("small", label=label) == pytest.approx(precision.mean(), abs=1e-6)
    assert found.average(label=4) is None


def test_sizes_without_objects_have_no_value():
    targets = [
        {
            "boxes": torch.tensor([[0.0, 0, 10, 10]]),
            "labels": torch.tensor([1]),
            "area": torch.tensor([100.0]),
            "iscrowd": torch.tensor([0]),
        }
    ]
    found = figures([{**targets[0], "scores": torch.tensor([0.5])}], targets)
    assert found["ap"] == found["ap_small"] == found["ar"] == 1
    assert found["ap_medium"] is None
    assert found["ap_large"] is None


def test_nothing_found_is_zero():
    targets = random_targets(8, seed=1)
    nothing = {
        "boxes": torch.zeros(0, 4),
        "labels": torch.zeros(0, dtype=torch.long),
        "scores": torch.zeros(0),
    }
    assert figures([nothing] * 8, targets)["ap"] == 0


@written.needs_voc100
def test_photographs_as_coco_evaluates_them(tmp_path, capsys):
    content = json.loads((written.VOC100 / "instances.json").read_text())
    targets = []
    for image in content["images"]:
        own = [each for each in content["annotations"] if each["image_id"] == image["id"]]
        boxes = torch.tensor([each["bbox"] for each in own], dtype=torch.float32).reshape(-1, 4)
        targets.append(
            {
                "boxes": torch.cat([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]], 1),
                "labels": torch.tensor([each["category_id"] for each in own]),
                "area": torch.tensor([float(each["area"]) for each in own]),
                "iscrowd": torch.tensor([each["iscrowd"] for each in own]),
            }
        )
    labels = [each["id"] for each in content["categories"]]
    sizes = [(image["width"], image["height"]) for image in content["images"]]
    predictions = guesses(targets, sizes, labels)
    theirs = pycocotools_figures(predictions, targets, labels, tmp_path)
    capsys.readouterr()
    found = figures(predictions, targets)
    for name in NAMES:
        assert found[name] == pytest.approx(theirs[name], abs=1e-6), name


def test_a_picture_has_the_boxes_of_the_truth_and_those_that_are_found_for_sure():
    """Of 320 × 80 pixels, shown at half the size; a score of one half is sure enough."""
    predicted = {
        "boxes": torch.tensor([[0.0, 10, 21, 31], [5, 5, 9, 9], [40, 40, 80, 80]]),
        "scores": torch.tensor([0.5, 0.49, 0.876]),
        "labels": torch.tensor([2, 1, 1]),
    }
    target = {"boxes": torch.tensor([[2.0, 4, 100, 60]]), "labels": torch.tensor([1])}
    found = marked_picture(torch.rand(3, 80, 320), predicted, target, ("car", "dog"))
    assert (found.width, found.height) == (160, 40)
    assert found.true == (Mark(left=1, top=2, right=50, bottom=30, text="car"),)
    assert found.found == (
        Mark(left=0, top=5, right=10.5, bottom=15.5, text="dog 50 %"),
        Mark(left=20, top=20, right=40, bottom=40, text="car 88 %"),
    )
    with Image.open(io.BytesIO(base64.b64decode(found.png))) as drawn:
        assert drawn.size == (160, 40)
    small = marked_picture(torch.rand(3, 80, 160), predicted, target, ("car", "dog"))
    assert (small.width, small.height) == (160, 80)  # never enlarged
    assert small.true[0].right == 100
