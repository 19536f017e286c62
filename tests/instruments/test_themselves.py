"""What instruments say of themselves: their time is the clock's, and networks have their names."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

import pytest
import torch
from torch import nn

import attnlab
from attnlab.instruments.classes import measure_classes
from attnlab.instruments.corruptions import measure_corruptions
from attnlab.instruments.noise import noise_response
from attnlab.instruments.removal import removal_curves
from attnlab.instruments.stripe.measure import stripe

IMAGES = torch.randn(8, 3, 16, 16, generator=torch.Generator().manual_seed(0))


def gated() -> nn.Module:
    torch.manual_seed(0)
    return attnlab.insert(attnlab.create("resnet20"), "se")[0].eval()


def classifier() -> Any:
    return attnlab.open(attnlab.create("resnet20"), "digits", limit=4)


@pytest.mark.parametrize(
    "measure",
    [
        pytest.param(lambda: attnlab.stiffness(gated(), [IMAGES]), id="stiffness"),
        pytest.param(lambda: attnlab.trajectory(gated(), [IMAGES]), id="trajectory"),
        pytest.param(lambda: attnlab.describe_steps(gated(), [IMAGES]), id="steps"),
        pytest.param(lambda: stripe(gated(), [IMAGES]), id="stripe"),
        pytest.param(
            lambda: removal_curves(gated(), [IMAGES], most=1, rankings=["output"]), id="removal"
        ),
        pytest.param(
            lambda: attnlab.place(attnlab.create("resnet20"), 2, loader=[IMAGES]), id="place"
        ),
        pytest.param(lambda: noise_response(classifier(), strengths=(0.1,), draws=1), id="noise"),
        pytest.param(lambda: measure_classes(classifier()), id="classes"),
        pytest.param(lambda: measure_corruptions(classifier()), id="corruptions"),
    ],
    ids=[
        "stiffness",
        "trajectory",
        "steps",
        "stripe",
        "removal",
        "place",
        "noise",
        "classes",
        "corruptions",
    ],
)
def test_seconds_are_those_of_the_clock(measure: Callable[[], Any]) -> None:
    began = perf_counter()
    found = measure()
    assert 0 < found.seconds < perf_counter() - began


@pytest.mark.parametrize(
    "measure", [attnlab.stiffness, attnlab.trajectory, attnlab.describe_steps, stripe]
)
def test_a_network_has_its_own_name_unless_it_is_given_another(measure: Callable[..., Any]) -> None:
    assert measure(gated(), [IMAGES]).network == "ResNet"
    assert measure(gated(), [IMAGES], name="mine").network == "mine"
