"""The figures of masks against scikit-learn, torchmetrics, scipy and smp."""

from __future__ import annotations

import math

import numpy as np
import pytest
import segmentation_models_pytorch as smp
import torch
from scipy.ndimage import distance_transform_edt
from sklearn.metrics import accuracy_score, jaccard_score
from torchmetrics.classification import MulticlassJaccardIndex

from attnlab._errors import InputError, OptionError
from attnlab.data import Batch, Facts
from attnlab.data.masks import IGNORED
from attnlab.tasks import TaskConfig, build_task
from attnlab.tasks._mask_metrics import border_score, soft_dice
from attnlab.tasks.segmentation import _answers, _coloured

CLASSES = 5
CPU = torch.device("cpu")


def task(classes: int = CLASSES, **options):
    facts = Facts(
        "made",
        "masks",
        classes,
        (3, 8, 8),
        1,
        1,
        (0.0,) * 3,
        (1.0,) * 3,
        "",
        tuple("abcdefgh")[:classes],
    )
    return build_task(TaskConfig(name="segmentation", options=options), facts)


def made(seed: int, sizes=((13, 17), (8, 9), (20, 20)), classes=CLASSES):
    """Logits that are often right, masks in blots, a tenth of the pixels ignored; class 4 never."""
    numbers = torch.Generator().manual_seed(seed)
    logits, masks = [], []
    for height, width in sizes:
        coarse = torch.randint(classes - 1, (1, 1, 4, 4), generator=numbers).float()
        mask = torch.nn.functional.interpolate(coarse, (height, width))[0, 0].long()
        noise = torch.randn(classes, height, width, generator=numbers)
        noise[classes - 1] = -9.0
        logits.append(noise + 1.5 * torch.nn.functional.one_hot(mask, classes).movedim(-1, 0))
        mask[torch.rand(height, width, generator=numbers) < 0.1] = IGNORED
        masks.append(mask)
    return logits, masks


def measured(logits, masks, **options):
    meters = task(**options).meters(CPU)
    for answer, mask in zip(logits, masks, strict=True):
        meters.update([answer], [mask])
    return meters.compute()


@pytest.mark.parametrize("seed", range(3))
def test_overlap_and_accuracy_are_those_of_others(seed):
    logits, masks = made(seed)
    found = measured(logits, masks)
    known = torch.cat([m[m != IGNORED] for m in masks]).numpy()
    guessed = torch.cat([a.argmax(0)[m != IGNORED] for a, m in zip(logits, masks, strict=True)])
    there = np.union1d(known, guessed.numpy())  # class 4 is neither there nor found
    assert list(there) == [0, 1, 2, 3]
    expected = jaccard_score(known, guessed.numpy(), labels=there, average="macro")
    assert found["miou"] == pytest.approx(expected, abs=1e-12)
    metric = MulticlassJaccardIndex(CLASSES, ignore_index=IGNORED)
    for answer, mask in zip(logits, masks, strict=True):
        metric.update(answer[None], mask[None])
    assert found["miou"] == pytest.approx(float(metric.compute()), abs=1e-6)
    assert found["pixel_accuracy"] == pytest.approx(
        accuracy_score(known, guessed.numpy()), abs=1e-12
    )


def test_the_loss_is_the_mean_over_images_of_pixels_that_count():
    logits, masks = made(0)
    each = [
        torch.nn.functional.cross_entropy(a[None].double(), m[None], ignore_index=IGNORED)
        for a, m in zip(logits, masks, strict=True)
    ]
    assert measured(logits, masks)["loss"] == pytest.approx(float(sum(each)) / 3, rel=1e-6)


def border_by_distance(labels: np.ndarray, number: int) -> np.ndarray:
    """Pixel by pixel, as the definition is written."""
    found = np.zeros(labels.shape, bool)
    for row, column in np.argwhere(labels == number):
        for y, x in ((row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1)):
            if 0 <= y < labels.shape[0] and 0 <= x < labels.shape[1]:
                found[row, column] |= labels[y, x] not in (number, IGNORED)
    return found


def score_by_distance(found: np.ndarray, true: np.ndarray, classes: int) -> float:
    found = np.where(true == IGNORED, IGNORED, found)
    limit = max(1.0, 0.0075 * math.hypot(*true.shape))
    scores = []
    for number in range(classes):
        ours, theirs = (border_by_distance(each, number) for each in (found, true))
        if not ours.any() and not theirs.any():
            continue
        if not ours.any() or not theirs.any():
            scores.append(0.0)
            continue
        right = (distance_transform_edt(~theirs)[ours] <= limit).mean()
        seen = (distance_transform_edt(~ours)[theirs] <= limit).mean()
        scores.append(2 * right * seen / (right + seen) if right + seen else 0.0)
    return float(np.mean(scores))


@pytest.mark.parametrize("seed", range(4))
def test_borders_are_those_of_exact_distances(seed):
    # 400 pixels wide, so that the tolerance is 3.4 pixels and a disc is not a square.
    (logits,), (mask,) = made(seed, sizes=((210, 400),) if seed < 2 else ((31, 18),))
    found = logits.argmax(0)
    expected = score_by_distance(found.numpy(), mask.numpy(), CLASSES)
    assert 0 < expected < 1
    assert border_score(found, mask, CLASSES) == pytest.approx(expected, abs=1e-6)


def test_borders_at_the_limits():
    mask = torch.zeros(20, 20).long()
    assert border_score(mask, mask, 2) is None  # one class has no border
    half = mask.clone()
    half[:, 10:] = 1
    assert border_score(half, half, 2) == 1
    assert border_score(mask, half, 2) == 0
    assert measured([torch.zeros(2, 20, 20)], [mask], classes=2)["border_f"] is None


@pytest.mark.parametrize("seed", range(3))
def test_dice_is_that_of_smp(seed):
    logits, masks = (torch.stack(each) for each in made(seed, sizes=((12, 12),) * 2))
    reference = smp.losses.DiceLoss("multiclass", ignore_index=IGNORED)
    # smp divides by all classes; ours is the mean over those that the batch has.
    there = len([c for c in range(CLASSES) if (masks == c).any()])
    expected = float(reference(logits, masks)) * CLASSES / there
    assert float(soft_dice(logits, masks)) == pytest.approx(expected, rel=1e-5)


def test_pixels_that_do_not_count_change_nothing():
    logits, masks = (torch.stack(each) for each in made(1, sizes=((12, 12),) * 2))
    other = logits + 5 * torch.randn(logits.shape) * (masks == IGNORED)[:, None]
    network = torch.nn.Identity()
    first, second = (task().loss(network, Batch(each, masks)).mean for each in (logits, other))
    torch.testing.assert_close(first, second)
    assert measured(logits, masks) == pytest.approx(measured(other, masks))


def test_a_batch_of_which_nothing_counts_has_no_loss():
    logits = torch.randn(2, CLASSES, 6, 6, requires_grad=True)
    masks = torch.full((2, 6, 6), IGNORED)
    loss = task().loss(torch.nn.Identity(), Batch(logits, masks))
    loss.mean.backward()
    assert loss.parts["cross-entropy"] == 0
    assert logits.grad.abs().max() == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dice": -1.0}, "Expected dice to be at least 0 but got -1.0"),
        ({"multiple": 0}, "Expected multiple to be at least 1 but got 0"),
        ({"windows": 8}, "has no option 'windows'"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(OptionError, match=message):
        task(**options)


class Answer:
    """As those of transformers: an object with logits."""

    def __init__(self, logits):
        self.logits = logits


@pytest.mark.parametrize(
    "given", [lambda x: x, Answer, lambda x: {"out": x}, lambda x: {"out": x, "aux": None}]
)
def test_an_answer_is_enlarged_to_the_image_as_torch_does(given):
    logits = torch.randn(2, CLASSES, 3, 4)
    wanted = torch.nn.functional.interpolate(logits, (6, 9), mode="bilinear", align_corners=False)
    found, second = _answers(given(logits), (6, 9), CLASSES)
    assert torch.equal(found, wanted)
    assert second is None
    whole, _ = _answers(given(wanted), (6, 9), CLASSES)
    assert whole is wanted


@pytest.mark.parametrize(
    ("answer", "got"),
    [
        (torch.zeros(2, 4, 3, 3), "(2, 4, 3, 3)"),
        (torch.zeros(2, CLASSES, 3), "(2, 5, 3)"),
        (Answer(None), "NoneType"),
        ({"logits": 1}, "dict"),
    ],
)
def test_answers_that_are_none(answer, got):
    with pytest.raises(InputError) as caught:
        _answers(answer, (6, 9), CLASSES)
    assert str(caught.value) == (
        f"Expected the network to answer with logits N×5×H×W, a map for each class, but got {got}. "
        f"Choose a network for masks: unet, smp:unet, torchvision:fcn_resnet50."
    )


def test_the_parts_of_the_loss_have_their_weights():
    """Cross-entropy, Dice and that of a second answer, each against its own reference."""
    logits, masks = (torch.stack(each) for each in made(0, sizes=((12, 12),) * 2))
    second = torch.randn(logits.shape)

    def network(_):
        return {"out": logits, "aux": second}

    entropy, other = (
        float(torch.nn.functional.cross_entropy(each, masks, ignore_index=IGNORED))
        for each in (logits, second)
    )
    dice = float(soft_dice(logits, masks))
    for options, wanted in (
        ({}, {"cross-entropy": entropy, "dice": dice, "auxiliary": other / 2}),
        (
            {"dice": 2.0, "auxiliary": 0.25},
            {"cross-entropy": entropy, "dice": 2 * dice, "auxiliary": other / 4},
        ),
        ({"dice": 0.0, "auxiliary": 0.0}, {"cross-entropy": entropy}),
    ):
        found = task(**options).loss(network, Batch(logits, masks))
        assert {name: float(part) for name, part in found.parts.items()} == pytest.approx(wanted)
        assert float(found.mean) == pytest.approx(sum(wanted.values()))
        known = masks != IGNORED
        right = (logits.argmax(1) == masks)[known].double().mean()
        assert float(found.figures["pixel_accuracy"]) == pytest.approx(float(right))


def test_sides_are_made_multiples_by_black_below_and_to_the_right():
    """A network that sums an image up everywhere sees what was added."""
    seen = []

    class Sees(torch.nn.Module):
        def forward(self, x):
            seen.append(x.clone())
            return x[:, :1].expand(-1, CLASSES, -1, -1)

    images = torch.rand(1, 3, 9, 16) + 1
    (found,) = task(multiple=8).predict(Sees(), Batch(images, None))
    assert seen[0].shape == (1, 3, 16, 16)
    assert torch.equal(seen[0][..., :9, :], images)
    assert seen[0][..., 9:, :].abs().max() == 0
    assert torch.equal(found, images[0, :1].expand(CLASSES, -1, -1))


def test_images_of_different_sizes_are_measured_by_their_middle():
    images = [torch.randn(3, 6, 9), torch.randn(3, 8, 5)]
    found = task().inputs(Batch(images, None))
    assert torch.equal(found[0], images[0][:, :, 2:7])
    assert torch.equal(found[1], images[1][:, 1:7])
    whole = torch.stack([images[0]] * 2)
    assert task().inputs(Batch(whole, None)) is whole


def test_colours_are_those_of_voc():
    """The first ten, as the development kit prints them, and white."""
    first = [
        *((0, 0, 0), (128, 0, 0), (0, 128, 0), (128, 128, 0), (0, 0, 128), (128, 0, 128)),
        *((0, 128, 128), (128, 128, 128), (64, 0, 0), (192, 0, 0)),
    ]
    found = _coloured(torch.tensor([[*range(10), IGNORED]])) * 255
    assert found.round().long()[:, 0].T.tolist() == [*map(list, first), [255] * 3]


def test_how_much_of_a_picture_is_wrong():
    """Of the pixels that count: two of nine; of none, nothing."""
    mask = torch.zeros(3, 4).long()
    mask[:, 3] = IGNORED
    found = mask.clone()
    found[0, 0] = found[1, 2] = 2
    found[0, 3] = 1
    picture = task()._picture(torch.rand(3, 3, 4), found, mask)
    assert (picture.wrong, picture.width, picture.height) == (2 / 9, 4, 3)
    nothing = torch.full((3, 4), IGNORED)
    assert task()._picture(torch.rand(3, 3, 4), found, nothing).wrong == 0
