"""What of a batch a network takes."""

from __future__ import annotations

from collections import UserDict

import pytest
import torch
from torch import nn

from attnlab._errors import InputError
from attnlab.residuals.inputs import check_finite, head, inputs_of, number_of_inputs

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


def test_the_first_of_a_list_of_images():
    images = list(torch.arange(6.0).view(3, 1, 2))
    (taken,) = head((images,), 2)
    assert [each is image for each, image in zip(taken, images, strict=False)] == [True, True]
    assert len(taken) == 2


@pytest.mark.parametrize("tail", [(), (torch.zeros(2),)])
def test_images_of_one_size_come_together_and_of_several_one_by_one(tail):
    model = nn.Linear(3, 3).double()
    same, different = list(torch.randn(2, 3, 4, 4)), [torch.randn(3, 4, 4), torch.randn(3, 5, 4)]
    ((found,),) = inputs_of((same, *tail), model)
    assert [each.dtype for each in found] == [torch.float64] * 2
    assert torch.equal(torch.stack(found), torch.stack(same).double())
    alone = list(inputs_of((different, *tail), model))
    assert [tuple(image.shape for image in images) for (images,) in alone] == [
        ((3, 4, 4),),
        ((3, 5, 4),),
    ]
    assert torch.equal(alone[1][0][0], different[1].double())


@pytest.mark.parametrize(
    ("arguments", "keywords", "number"),
    [
        ((IMAGES, torch.ones(7)), {"x": torch.ones(9)}, 4),
        ((None, 3), {"flag": True, "x": torch.ones(9, 2)}, 9),
        (([torch.ones(3), torch.ones(4)],), {}, 2),
        (([1, 2, 3], [torch.ones(3)]), {}, 1),
        (([], IMAGES), {}, 4),
        ((torch.tensor(3.0), IMAGES), {}, 0),
        ((None,), {}, 0),
    ],
)
def test_how_many_inputs_a_call_has(arguments, keywords, number):
    assert number_of_inputs(arguments, keywords) == number


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_values_that_are_not_finite(value):
    bad = torch.tensor([1.0, value])
    check_finite({"x": IMAGES, "ids": torch.arange(3), "flag": True}, 0)
    for inputs in (bad, {"x": IMAGES, "nested": [IMAGES, bad]}, ([IMAGES, bad],)):
        with pytest.raises(InputError) as raised:
            check_finite(inputs, 7)
        assert str(raised.value) == (
            "Batch 7 of the images has values that are not finite. Expected images as the network "
            "takes them."
        )


@pytest.mark.parametrize("batch", ["photo.png", [], ({1, 2},), ([IMAGES, 3],)])
def test_others_are_refused(batch):
    with pytest.raises(InputError) as caught:
        next(inputs_of(batch, nn.Identity()))
    assert str(caught.value) == (
        "Expected batches that are a tensor, start with one or with a list of images, or are a "
        "dictionary of inputs but got "
        f"{type(batch).__name__}."
    )
