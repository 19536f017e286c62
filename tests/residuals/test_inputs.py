"""What of a batch a network takes."""

from __future__ import annotations

from collections import UserDict

import pytest
import torch
from torch import nn

from attnlab._errors import InputError
from attnlab.residuals.inputs import head, inputs_of

IMAGES = torch.randn(4, 3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_tensors_and_dictionaries(dtype):
    model = nn.Linear(3, 3).to(dtype)
    labels = torch.arange(4)
    for batch in (IMAGES, (IMAGES, labels), [IMAGES, labels]):
        assert torch.equal(next(inputs_of(batch, model)), IMAGES.to(dtype))
    for kind in (dict, UserDict):  # Hugging Face's batches are of the second kind
        batch = kind(pixel_values=IMAGES, ids=labels, nested=[IMAGES], flag=True)
        found = next(inputs_of(batch, model))
        assert found.keys() == batch.keys()
        assert torch.equal(found["pixel_values"], IMAGES.to(dtype))
        assert torch.equal(found["ids"], labels)
        assert torch.equal(found["nested"][0], IMAGES.to(dtype))
        assert found["flag"] is True


def test_a_network_without_parameters_takes_them_as_they_are():
    assert next(inputs_of(IMAGES, nn.Identity())) is IMAGES


def test_the_first_of_a_batch():
    assert torch.equal(head(IMAGES, 2), IMAGES[:2])
    found = head({"x": IMAGES, "flag": True}, 1)
    assert torch.equal(found["x"], IMAGES[:1])
    assert found["flag"] is True


@pytest.mark.parametrize("batch", ["photo.png", [], ({1, 2},)])
def test_others_are_refused(batch):
    with pytest.raises(InputError) as caught:
        next(inputs_of(batch, nn.Identity()))
    assert str(caught.value) == (
        "Expected batches that are a tensor, start with one or with a list of images, or are a "
        "dictionary of inputs but got "
        f"{type(batch).__name__}."
    )
