"""What a batch is: inputs, and classes only if they are a row of whole numbers."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from attnlab._errors import InputError
from attnlab.residuals.inputs import read_batch, samples_of

NETWORK = nn.Conv2d(3, 1, 1)
IMAGES = torch.zeros(2, 3, 4, 4)


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (torch.tensor([4, 1]), [4, 1]),
        (torch.tensor([4, 1], dtype=torch.uint8), [4, 1]),
        (torch.tensor([True, False]), None),
        (torch.tensor([4.0, 1.0]), None),
        (torch.tensor([[4], [1]]), None),
        ("names", None),
    ],
)
def test_labels(labels, expected) -> None:
    (sample,) = read_batch((IMAGES, labels), NETWORK)
    assert sample.number == 2
    assert (None if sample.labels is None else sample.labels.tolist()) == expected


def test_images_of_different_sizes_come_one_by_one_and_without_labels() -> None:
    images = [torch.zeros(3, 4, 4), torch.zeros(3, 8, 8)]
    samples = list(read_batch((images, torch.tensor([0, 1])), NETWORK))
    assert [(sample.number, sample.labels) for sample in samples] == [(1, None), (1, None)]


def test_labels_must_be_as_many_as_images() -> None:
    with pytest.raises(InputError, match="Expected one label per image but got 1 labels for 2"):
        samples_of([(IMAGES, torch.tensor([1]))], NETWORK)


def test_whole_numbers_at_each_place_are_what_follows() -> None:
    text, following = torch.zeros(2, 3, dtype=torch.long), torch.arange(6).view(2, 3)
    (sample,) = read_batch((text, following), NETWORK)
    assert sample.labels is None
    assert torch.equal(sample.following, following)
    (sample,) = read_batch((IMAGES, torch.tensor([4, 1])), NETWORK)
    assert sample.following is None
    (sample,) = read_batch((IMAGES, torch.zeros(2, 3, 4, dtype=torch.long)), NETWORK)
    assert (sample.labels, sample.following) == (None, None)


@pytest.mark.parametrize("batch", [IMAGES, [IMAGES], (IMAGES,), {"x": IMAGES, "y": IMAGES}])
def test_batches_without_labels(batch) -> None:
    (sample,) = read_batch(batch, NETWORK)
    assert (sample.number, sample.labels, sample.following) == (2, None, None)


def test_batches_are_told_from_one_tensor_from_none_and_from_a_mixture() -> None:
    labels = torch.tensor([0, 1])
    assert [s.number for s in samples_of([IMAGES, IMAGES[:1]], NETWORK)] == [2, 1]
    for images, message in (
        (
            IMAGES,
            "Expected probes to be batches, such as a DataLoader or a list of tensors, but got one "
            "tensor of shape (2, 3, 4, 4). Pass probes=[tensor].",
        ),
        ([], "Expected probes with at least one batch but got none."),
        (
            [(IMAGES, labels), IMAGES],
            "Expected probes that all have labels, or none, but only some have.",
        ),
        (
            [(IMAGES, labels), (IMAGES, labels[:, None])],
            "Expected probes that all have labels, or none, but only some have.",
        ),
    ):
        with pytest.raises(InputError) as raised:
            samples_of(images, NETWORK, "probes")
        assert str(raised.value) == message
