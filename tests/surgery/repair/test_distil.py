"""A network that learns to answer as another did."""

from __future__ import annotations

import copy
import math

import pytest
import timm
import torch
from tests.surgery.folding.networks import stir
from torch import nn

import attnlab
from attnlab._errors import InputError, OptionError, UnknownNameError
from attnlab.surgery.repair import Distil, Lesson, distil


def pair() -> tuple[nn.Module, list[Lesson], list[torch.Tensor]]:
    """A network whose norm was disturbed, and what it answered before."""
    torch.manual_seed(0)
    teacher = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.SiLU(), nn.Flatten(), nn.Linear(8 * 16, 4)
    ).eval()
    batches = torch.randn(64, 3, 6, 6).split(16)
    with torch.no_grad():
        lessons = [Lesson(batch, (teacher(batch),)) for batch in batches[:3]]
        held_out = [batches[3], teacher(batches[3])]
        network = copy.deepcopy(teacher)
        network[1].weight *= 1 + 0.5 * torch.randn(8)
        network[1].bias += 0.5 * torch.randn(8)
    return network, lessons, held_out


def error(network: nn.Module, held_out: list[torch.Tensor]) -> float:
    with torch.no_grad():
        return float((network(held_out[0]) - held_out[1]).norm() / held_out[1].norm())


def test_it_finds_back_on_images_it_did_not_see():
    network, lessons, held_out = pair()
    before = error(network, held_out)
    told = []
    settings = Distil(epochs=60, lr=0.05, report=lambda *each: told.append(each))
    done = distil(network, lessons, (), settings)
    assert error(network, held_out) < 0.02 < 0.2 < before
    assert done.parameters == 16
    assert told == list(enumerate(done.losses, 1))
    # The loss is the square of the relative change, of the last epoch's networks.
    assert done.losses[-1] == pytest.approx(
        sum(error(network, [lesson.inputs, lesson.answers[0]]) ** 2 for lesson in lessons) / 3,
        rel=0.2,
    )


def test_who_is_told_and_where_it_is_kept_are_no_settings():
    for other in (Distil(report=print), Distil(checkpoints="folder")):
        assert other == Distil()
        assert (
            repr(other) == repr(Distil()) == "Distil(epochs=10, lr=0.001, moving='taken', seed=0)"
        )
    assert Distil(seed=1) != Distil()


class Two(nn.Module):
    """Two small answers of different sizes."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(5)

    def forward(self, x):
        found = self.norm(x)
        return 0.01 * found, 0.02 * found[:, :3]


def test_it_is_adam_on_half_a_cosine_by_hand():
    """With torch's own schedule, on the squared distance relative to the squared length of both
    answers together, in the order that the seed draws."""
    torch.manual_seed(0)
    lessons = [
        Lesson(x, (torch.randn(4, 5) / 9, torch.randn(4, 3) / 9)) for x in torch.randn(3, 4, 5)
    ]
    network, other = Two(), Two()
    done = distil(network, lessons, (), Distil(epochs=2, lr=0.3, seed=5))
    optimizer = torch.optim.Adam(other.parameters(), 0.3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 6)
    order, losses = torch.Generator().manual_seed(5), []
    for _ in range(2):
        losses.append([])
        for number in torch.randperm(3, generator=order):
            wanted = torch.cat(lessons[number].answers, 1)
            loss = (torch.cat(other(lessons[number].inputs), 1) - wanted).square().sum()
            loss = loss / wanted.square().sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            losses[-1].append(loss.item())
    assert done.losses == pytest.approx([sum(each) / 3 for each in losses], rel=1e-5)
    for found, wanted in zip(network.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-6)
    assert (done.epochs, done.moving, done.parameters) == (2, "taken", 10)


def test_answers_of_nothing_are_learned_without_a_division_by_zero():
    network = Two()
    done = distil(
        network,
        [Lesson(torch.zeros(2, 5), (torch.zeros(2, 5), torch.zeros(2, 3)))],
        (),
        Distil(epochs=1),
    )
    assert done.losses == (0,)


@pytest.mark.parametrize(
    "norm", [nn.LayerNorm(6), nn.GroupNorm(2, 6), nn.RMSNorm(6), nn.BatchNorm1d(6)]
)
def test_every_kind_of_norm_moves_also_alone(norm):
    x = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
    done = distil(norm, [Lesson(x, (2 * x,))], (), Distil(epochs=1))
    assert done.parameters == sum(p.numel() for p in norm.parameters())
    assert norm.weight.sum() > 6


def test_only_what_may_move_moves():
    network, lessons, _ = pair()
    network.train()
    network[0].weight.requires_grad_(False)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    distil(network, lessons, ("4.weight",), Distil(epochs=1))
    moved = {n for n, v in network.state_dict().items() if not torch.equal(v, before[n])}
    assert moved == {"1.weight", "1.bias", "4.weight"}
    assert network.training
    assert network[1].training
    assert [p.requires_grad for p in network.parameters()] == [False, *[True] * 5]
    assert all(parameter.grad is None for parameter in network.parameters())
    done = distil(network, lessons, (), Distil(epochs=1, moving="all"))
    assert done.parameters == sum(parameter.numel() for parameter in network.parameters())


def test_it_is_the_same_each_time_and_leaves_the_random_state():
    results = []
    for _ in range(2):
        network, lessons, _ = pair()
        torch.manual_seed(len(results))
        state = torch.get_rng_state()
        distil(network, lessons, (), Distil(epochs=2))
        assert torch.equal(torch.get_rng_state(), state)
        results.append(network.state_dict())
    assert all(torch.equal(value, results[1][name]) for name, value in results[0].items())
    network, lessons, _ = pair()
    distil(network, lessons, (), Distil(epochs=2, seed=1))
    assert not torch.equal(network.state_dict()["1.weight"], results[0]["1.weight"])


def test_a_fold_that_is_repaired():
    torch.manual_seed(0)
    network = stir(timm.create_model("mobilenetv3_small_050", num_classes=4)).eval()
    data = [torch.randn(64, 3, 32, 32)]
    plain, receipt = attnlab.fold_budget(network, data, "all", repair=Distil(epochs=3))
    again, _ = attnlab.fold_budget(network, data, "all", repair=Distil(epochs=3))
    for name, value in plain.state_dict().items():
        assert torch.equal(value, again.state_dict()[name])
    with torch.no_grad():
        before, after = (each(data[0][1::2]) for each in (network, plain))
    assert receipt.measured == pytest.approx(float((after - before).norm() / before.norm()), 1e-3)
    assert receipt.measured < receipt.measured_before_repair
    assert receipt.measured_before_repair == pytest.approx(receipt.curve.points[-1].measured, 1e-3)
    assert "repair      3 epochs" in str(receipt)
    assert type(receipt).from_json(receipt.to_json()) == receipt


REFUSALS = [
    (lambda: Distil(epochs=0), OptionError, "Expected epochs to be at least 1 but got 0."),
    (lambda: Distil(lr=0.0), OptionError, "Expected lr to be a number above 0 but got 0.0."),
    (lambda: Distil(lr=True), OptionError, "Expected lr to be a number but got True."),
    (lambda: Distil(lr=math.inf), OptionError, "Expected lr to be a number above 0 but got inf."),
    (lambda: Distil(seed=-1), OptionError, "Expected seed to be at least 0 but got -1."),
    (lambda: Distil(lr="1"), OptionError, "Expected lr to be a number but got '1'."),
    (
        lambda: Distil(moving="norms"),
        UnknownNameError,
        "Unknown moving 'norms'. Expected one of: taken, all.",
    ),
    (
        lambda: distil(*pair()[:2], (), Distil(lr=1e30)),
        InputError,
        "The repair diverged in epoch 1: its loss is inf. Expected a smaller lr than 1e+30.",
    ),
]


@pytest.mark.parametrize(("call", "kind", "text"), REFUSALS, ids=range(len(REFUSALS)))
def test_refusals(call, kind, text):
    with pytest.raises(kind) as raised:
        call()
    assert str(raised.value) == text
