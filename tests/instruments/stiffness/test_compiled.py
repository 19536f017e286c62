"""Compiled networks are measured as they are written."""

from __future__ import annotations

import copy

import pytest
import torch
from tests.surgery.insertion.networks import InPlaceBlock, Plain
from torch import nn

import attnlab
from attnlab.instruments.maps.measure import maps
from attnlab.instruments.stiffness import step_indices

IMAGES = torch.randn(10, 3, 32, 32, generator=torch.Generator().manual_seed(1))


def wrapped(network: nn.Module) -> nn.Module:
    return torch.compile(network, backend="aot_eager")


def in_place(network: nn.Module) -> nn.Module:
    network.compile(backend="aot_eager")
    return network


WAYS = pytest.mark.parametrize("way", [wrapped, in_place])


def compiled(network: nn.Module, way) -> nn.Module:
    torch._dynamo.reset()
    made = way(copy.deepcopy(network))
    with torch.no_grad():
        made(IMAGES[:2])  # compiled before it is measured
    return made


@pytest.fixture(scope="module", params=[wrapped, in_place])
def networks(request):
    """A network with gates, and the same compiled: once, which takes most of the time."""
    torch.manual_seed(0)
    network, _ = attnlab.insert(Plain(InPlaceBlock, depth=4).eval(), "se")
    return network, compiled(network, request.param)


def test_stiffness(networks):
    network, made = networks
    want = attnlab.stiffness(network, [IMAGES[:6], IMAGES[6:]], progress=False)
    got = attnlab.stiffness(made, [IMAGES[:6], IMAGES[6:]], progress=False)
    assert (got.tns, got.nsi) == (want.tns, want.nsi)
    assert got.network == want.network


def test_capture(networks):
    network, made = networks
    norms = []
    for each in (network, made):
        with attnlab.capture(each) as steps, torch.no_grad():
            each(IMAGES)
        norms.append(steps.norms)
    torch.testing.assert_close(*norms, rtol=0, atol=0)
    with torch.no_grad():  # and it runs as before
        torch.testing.assert_close(made(IMAGES), network(IMAGES), rtol=1e-4, atol=1e-4)


def test_steps_and_indices(networks):
    network, made = networks
    names = [step.owner for step in attnlab.steps(network)]
    assert [step.owner for step in attnlab.steps(made)] == names
    want = step_indices(network, IMAGES[:1], vectors=2)
    got = step_indices(made, IMAGES[:1], vectors=2)
    assert [str(each) for each in got] == [str(each) for each in want]


def test_stripe(networks):
    want, got = (attnlab.stripe(each, [IMAGES]) for each in networks)
    assert got.sites == want.sites


@WAYS
def test_attention_maps(way):
    torch.manual_seed(0)
    network = attnlab.create(
        "timm:vit_tiny_patch16_224", 5, img_size=32, depth=2, embed_dim=24, num_heads=2
    ).eval()
    want, got = (maps(each, [IMAGES]) for each in (network, compiled(network, way)))
    assert got.layers == want.layers
