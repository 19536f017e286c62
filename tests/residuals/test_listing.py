"""Modules, parameters and buffers are listed as torch lists them."""

from __future__ import annotations

import pytest
import timm
import torch
from torch import nn

import attnlab
from attnlab.residuals.listing import list_buffers, list_modules, list_parameters


def shared() -> nn.Module:
    """A layer under two names, a weight and a buffer in two modules, and a child that is None."""
    network = nn.Sequential(nn.Linear(3, 3), nn.Sequential(nn.BatchNorm1d(3)), nn.Linear(3, 3))
    network.append(network[0])
    network[2].weight = network[0].weight
    network[1].add_module("nothing", None)
    network[1].add_module("again", nn.BatchNorm1d(3))
    network[1].again.running_mean = network[1][0].running_mean
    network.register_parameter("own", nn.Parameter(torch.ones(2)))
    network.register_buffer("none", None)
    return network


NETWORKS = {
    "shared": shared,
    "one layer": lambda: nn.Linear(2, 2),
    "gated": lambda: attnlab.insert(attnlab.create("resnet20"), "se+step")[0],
    "timm": lambda: timm.create_model("convnext_atto"),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_the_lists_are_torchs(name):
    network = NETWORKS[name]()
    for ours, theirs in (
        (list_modules(network), network.named_modules()),
        (list_parameters(network), network.named_parameters()),
        (list_buffers(network), network.named_buffers()),
    ):
        assert [(n, id(each)) for n, each in ours] == [(n, id(each)) for n, each in theirs]
