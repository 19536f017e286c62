"""Optimizers that follow their network through surgery, against optimizers that are built anew."""

from __future__ import annotations

import copy

import pytest
import torch
from tests.surgery.insertion.networks import Plain, SlotBlock
from torch import nn

import attnlab
from attnlab._errors import OptionError
from attnlab.surgery.insertion import attachments

IMAGES = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))


def network() -> nn.Module:
    torch.manual_seed(0)
    return Plain(SlotBlock)


def ids(parameters) -> set[int]:
    return {id(p) for p in parameters}


def held(optimizer) -> list[int]:
    return [id(p) for group in optimizer.param_groups for p in group["params"]]


def step(model, optimizer) -> None:
    optimizer.zero_grad()
    model(IMAGES).square().mean().backward()
    optimizer.step()


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW])
@pytest.mark.parametrize("gate", ["se", "step", "iebn"])
def test_training_goes_on_as_with_an_optimizer_built_afterwards(kind, gate):
    model = network()
    following = kind(model.parameters(), lr=0.1, weight_decay=0.01)
    torch.manual_seed(1)
    attnlab.insert(model, gate, inplace=True, optimizer=following)
    other = copy.deepcopy(model)
    anew = kind(other.parameters(), lr=0.1, weight_decay=0.01)
    assert set(held(following)) == ids(model.parameters())
    assert len(held(following)) == len(set(held(following)))
    assert len(following.param_groups) == 2
    for _ in range(3):
        step(model, following)
        step(other, anew)
    for (name, mine), reference in zip(model.named_parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(mine, reference, msg=name)


@pytest.mark.parametrize("take_off", ["remove", "fold"])
def test_what_is_taken_off_leaves_with_its_momentum(take_off):
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    attnlab.insert(model, "asr:se", inplace=True, optimizer=optimizer)
    step(model, optimizer)
    gates = ids(p for _, each in attachments(model) for p in each.parameters())
    assert gates & {id(p) for p in optimizer.state}
    if take_off == "remove":
        attnlab.remove(model, optimizer=optimizer)
    else:
        attnlab.fold(model.eval(), inplace=True, optimizer=optimizer, example=IMAGES)
        model.train()
    assert set(held(optimizer)) == ids(model.parameters())
    assert not gates & {id(p) for p in optimizer.state}
    assert len(optimizer.param_groups) == 1
    step(model, optimizer)


def test_names_and_the_settings_of_the_first_group():
    model = network()
    optimizer = torch.optim.SGD(model.named_parameters(), lr=0.1)
    optimizer.param_groups[0]["lr"] = 0.03
    attnlab.insert(model, "se", inplace=True, optimizer=optimizer)
    new = optimizer.param_groups[1]
    assert new["lr"] == 0.03
    named = dict(model.named_parameters())
    assert [id(named[name]) for name in new["param_names"]] == [id(p) for p in new["params"]]


def test_frozen_gates_stay_out():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    attnlab.insert(model, "se", inplace=True, optimizer=optimizer, trainable=False)
    assert len(optimizer.param_groups) == 1


def test_an_error_leaves_the_optimizer_alone():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = held(optimizer)
    with pytest.raises(attnlab.AttnlabError):
        attnlab.insert(model, "se", where="blocks:9", inplace=True, optimizer=optimizer)
    assert held(optimizer) == before


@pytest.mark.parametrize(
    ("optimizer", "inplace", "said"),
    [
        (lambda model: torch.optim.SGD(model.parameters(), lr=0.1), False, "is for inplace=True"),
        (lambda _: torch.optim.SGD(network().parameters(), lr=0.1), True, "has no parameter of Pl"),
        (lambda _: "sgd", True, "Expected optimizer to be a torch.optim.Optimizer but got a str"),
        (lambda model: torch.optim.LBFGS(model.parameters()), True, "LBFGS takes one group"),
    ],
)
def test_optimizers_that_are_refused(optimizer, inplace, said):
    model = network()
    with pytest.raises(OptionError, match=said):
        attnlab.insert(model, "se", inplace=inplace, optimizer=optimizer(model))
    assert not list(attachments(model))
