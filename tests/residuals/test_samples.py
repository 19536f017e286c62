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
