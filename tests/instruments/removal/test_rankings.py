"""What rankings say, against hooks and formulas written here."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from importlib import import_module

import pytest
import timm
import torch
from tests.instruments.removal.by_hand import answer
from tests.surgery.folding.networks import stir
from torch import nn
from torch.nn import functional as F

import attnlab
from attnlab.instruments.removal import RANKINGS, RemovalTrial, removal_curves, removal_order
from attnlab.instruments.removal.curves import _rankings
from attnlab.instruments.removal.rankings.influence import influence
from attnlab.instruments.removal.rankings.tns import step_shares
from attnlab.residuals import Observer
from attnlab.residuals.watching import watching

GENERATOR = torch.Generator().manual_seed(5)
IMAGES = torch.randn(6, 3, 16, 16, generator=GENERATOR)
LABELS = torch.tensor([0, 3, 1, 9, 4, 4])
PAIRS = [(IMAGES[:4], LABELS[:4]), (IMAGES[4:], LABELS[4:])]
REMOVABLE = ["layer1.0", "layer1.1", "layer1.2", "layer2.1", "layer2.2", "layer3.1", "layer3.2"]


@pytest.fixture(scope="module")
def network() -> nn.Module:
    torch.manual_seed(0)
    return stir(attnlab.create("resnet20")).eval().double()


def scores(trial: RemovalTrial, name: str) -> dict[str, float]:
    found = RANKINGS[name].scores(trial, ())
    steps = {step.key: step.name for step in trial.found.steps}
    return {steps[key]: score for key, score in found.items()}


def without(network: nn.Module, *blocks: str) -> torch.Tensor:
    return answer(network, IMAGES, [f"{block}.bn2" for block in blocks])


def change(network: nn.Module, *blocks: str) -> float:
    whole = without(network)
    return ((without(network, *blocks) - whole).norm(dim=1) / whole.norm(dim=1)).mean().item()


def states(network: nn.Module) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """What goes into each block and what comes out, by hooks."""
    seen = {}
    hooks = [
        network.get_submodule(name).register_forward_hook(
            lambda _m, given, output, name=name: seen.__setitem__(name, (given[0], output))
        )
        for name in REMOVABLE
    ]
    with torch.no_grad():
        network(IMAGES.double())
    for hook in hooks:
        hook.remove()
    return seen


def test_output_changes(network: nn.Module) -> None:
    found = scores(RemovalTrial(network, PAIRS), "output")
    assert list(found) == REMOVABLE
    assert found == pytest.approx({name: change(network, name) for name in REMOVABLE}, rel=1e-10)


def test_loss_changes(network: nn.Module) -> None:
    def loss(*blocks: str) -> float:
        return F.cross_entropy(without(network, *blocks), LABELS).item()

    expected = {name: loss(name) - loss() for name in REMOVABLE}
    assert scores(RemovalTrial(network, PAIRS), "loss") == pytest.approx(expected, rel=1e-9)


def test_influences(network: nn.Module) -> None:
    expected = {
        name: (1 - F.cosine_similarity(x.flatten(1), y.flatten(1))).mean().item()
        for name, (x, y) in states(network).items()
    }
    assert scores(RemovalTrial(network, PAIRS), "influence") == pytest.approx(expected, rel=1e-10)


def test_influences_of_tokens_are_means_over_tokens() -> None:
    torch.manual_seed(0)
    options = {"img_size": 16, "patch_size": 8, "embed_dim": 24, "depth": 1, "num_classes": 5}
    network = stir(timm.create_model("vit_tiny_patch16_224", **options)).eval()
    seen = {}
    block = network.blocks[0]
    block.norm1.register_forward_hook(lambda _m, given, _o: seen.update(first=given[0]))
    block.norm2.register_forward_hook(lambda _m, given, _o: seen.update(second=given[0]))
    block.register_forward_hook(lambda _m, _g, output: seen.update(third=output))
    trial = RemovalTrial(network, [IMAGES])
    found = RANKINGS["influence"].scores(trial, ())
    with torch.no_grad():
        network(IMAGES)
    pairs = [(seen["first"], seen["second"]), (seen["second"], seen["third"])]
    expected = [(1 - F.cosine_similarity(x, y, dim=2)).mean().item() for x, y in pairs]
    assert list(found.values()) == pytest.approx(expected, rel=1e-4)


def test_the_influence_on_streams_is_that_on_all_streams_of_a_token() -> None:
    numbers = torch.Generator().manual_seed(6)
    state, following = torch.randn(2, 2, 3, 4, 5, generator=numbers, dtype=torch.float64)
    found = influence(state, following, channel_axis=3, stream_axis=2)
    expected = [
        1 - F.cosine_similarity(x.flatten(), y.flatten(), dim=0)
        for before, after in zip(state, following, strict=True)
        for x, y in zip(before, after, strict=True)
    ]
    torch.testing.assert_close(found, torch.stack(expected))


def test_nsi(network: nn.Module) -> None:
    expected = {
        name: ((y - x).flatten(1).norm(dim=1) / x.flatten(1).norm(dim=1)).mean().item()
        for name, (x, y) in states(network).items()
    }
    assert scores(RemovalTrial(network, PAIRS), "nsi") == pytest.approx(expected, rel=1e-6)


def test_shares_of_tns_by_hand() -> None:
    # Stage 1 keeps 1 and 3, of mean 2: the rectangle of 3 is 3 · (3/2 − 1) = 1.5. Stage 2 keeps 2
    # and 2: nothing. So TNS is 1.5. The first of stage 1 is 4, twice the mean: 4 · 1 = 4.
    nsi = torch.tensor([[4.0, 1.0, 3.0, 9.0, 2.0, 2.0]], dtype=torch.float64)
    stages = torch.tensor([1, 1, 1, 2, 2, 2])
    expected = torch.tensor([[4 / 1.5, 0, 1, 9 * 3.5 / 1.5, 0, 0]], dtype=torch.float64)
    torch.testing.assert_close(step_shares(nsi, stages), expected)


def test_shares_of_tns_are_those_of_each_image_alone() -> None:
    """Also of an image whose TNS is 0, and of a stage of one step, which keeps none."""
    nsi = torch.tensor(
        [[4.0, 1.0, 3.0, 9.0, 2.0, 6.0, 5.0], [1.0, 5.0, 1.0, 2.0, 7.0, 3.0, 1.0], [2.0] * 7],
        dtype=torch.float64,
    )
    stages = torch.tensor([1, 1, 1, 2, 2, 2, 3])
    alone = torch.cat([step_shares(each[None], stages) for each in nsi])
    torch.testing.assert_close(step_shares(nsi, stages), alone)
    assert alone[:, -1].tolist() == [0, 0, 0]
    assert not alone[2].any()
    # Of the first image 1 and 3 around 2, and 2 and 6 around 4: rectangles of 3 · 0.5 and 6 · 0.5,
    # of which the first lies in the second.
    expected = [4 / 3, 0, 1.5 / 3, 9 * 1.25 / 3, 0, 1, 0]
    assert alone[0].tolist() == pytest.approx(expected)


def test_a_state_of_nothing_has_no_influence_to_count() -> None:
    state = torch.tensor([[[3.0, 0.0], [0.0, 0.0], [1.0, 1.0]]])
    following = torch.tensor([[[0.0, 5.0], [1.0, 1.0], [0.0, 0.0]]])
    assert influence(state, following, channel_axis=2).tolist() == [1]
    half = influence(state.half(), 3 * state.half(), channel_axis=2)
    assert (half.dtype, half.tolist()) == (torch.float32, pytest.approx([0, 0], abs=1e-6))


class Nothing(nn.Module):
    """Two steps of a state that is zero until `later`."""

    def __init__(self, later: float = 0.0) -> None:
        super().__init__()
        self.stem, self.later = nn.Linear(12, 6, bias=False), later
        self.blocks = nn.ModuleList(nn.Linear(6, 6) for _ in range(2))

    def forward(self, x):
        x = self.later * self.stem(x.flatten(1))
        for block in self.blocks:
            x = x + 0 * block(x)
        return x + 1


@pytest.mark.parametrize(
    ("ranking", "message"),
    [
        ("influence", "The state of step 1.0 is zero on all images, so it has no direction."),
        ("nsi", "NSI of step 1.0 is not defined on any image: its state is zero."),
        ("tns", "TNS is not defined on any image: the state of a step is zero on each."),
    ],
)
def test_a_network_whose_state_is_nothing_is_not_ranked(ranking: str, message: str) -> None:
    trial = RemovalTrial(Nothing().eval(), [torch.randn(3, 3, 2, 2)])
    with pytest.raises(attnlab.AttnlabError) as error:
        RANKINGS[ranking].scores(trial, ())
    assert str(error.value) == f"{message} Choose another ranking: by='output'."


def test_ties_of_tns_are_decided_by_nsi(network: nn.Module) -> None:
    trial = RemovalTrial(network, PAIRS)
    share, nsi = scores(trial, "tns"), scores(trial, "nsi")
    ties = [name for name in REMOVABLE if share[name] < 1e-7]
    assert len(ties) >= 2
    assert sorted(ties, key=share.__getitem__) == sorted(ties, key=nsi.__getitem__)


def loss_change(network: nn.Module, *blocks: str) -> float:
    whole, rest = without(network), without(network, *blocks)
    return (F.cross_entropy(rest, LABELS) - F.cross_entropy(whole, LABELS)).item()


@pytest.mark.parametrize(("ranking", "measure"), [("output", change), ("loss", loss_change)])
def test_greedy_measures_again(
    network: nn.Module, ranking: str, measure: Callable[..., float]
) -> None:
    chosen = removal_order(RemovalTrial(network, PAIRS), RANKINGS[ranking], 3)
    gone: list[str] = []
    for each in chosen:
        left = {name: measure(network, *gone, name) for name in REMOVABLE if name not in gone}
        first, second = sorted(left.values())[:2]
        assert each.step.name == min(left, key=left.__getitem__)
        assert (each.score, each.next) == pytest.approx((first, second), rel=1e-9)
        gone.append(each.step.name)


def test_static_rankings_go_by_their_scores(network: nn.Module) -> None:
    trial = RemovalTrial(network, PAIRS)
    for name in ("nsi", "influence", "tns"):
        order = [each.step.name for each in removal_order(trial, RANKINGS[name], 7)]
        assert order == sorted(REMOVABLE, key=scores(trial, name).__getitem__)


def test_curves_measure_on_other_images(network: nn.Module) -> None:
    images = torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(6))
    result = removal_curves(network, [images], test=PAIRS, rankings=["nsi", "output"], most=3)
    assert (result.images, result.test_images, result.same_images) == (4, 6, False)
    for curve in result.curves:
        gone: list[str] = []
        for point in curve.points:
            gone += [point.name] if point.name else []
            assert point.output_change == pytest.approx(change(network, *gone), rel=1e-9)
            right = (without(network, *gone).argmax(1) == LABELS).double().mean().item()
            assert point.accuracy == pytest.approx(100 * right)
    alone = {step.name: step for step in result.steps}
    assert alone["layer2.0"].reason.startswith("its shortcut projects")
    assert alone["layer3.1"].output_change == pytest.approx(change(network, "layer3.1"), rel=1e-9)


def test_rankings_by_labels_are_drawn_where_there_are_labels(network: nn.Module) -> None:
    usual = {"output", "influence", "nsi", "tns"}
    for batches, expected in (([IMAGES], usual), (PAIRS, usual | {"loss"})):
        found = _rankings(None, RemovalTrial(network, batches))
        assert {ranking.name for ranking in found} == expected


def test_the_verdict_is_about_the_number_that_was_asked_for(network: nn.Module) -> None:
    settings = {"rankings": ["nsi", "output"], "most": 4}
    result = removal_curves(network, PAIRS, asked=2, asked_by="output", **settings)
    first_two = [point.name for point in result.curves[1].points[1:3]]
    assert f"per image {change(network, *first_two):.2g}." in result.verdict
    assert result.verdict.startswith("Without 2 steps, chosen by output")
    assert removal_curves(network, PAIRS, **settings).verdict.startswith("Without 4 steps")
    bars = result.figures()["alone"]["data"]["values"]
    assert len(bars) == len(result.steps)
    with pytest.raises(attnlab.AttnlabError, match="at most 4"):
        removal_curves(network, PAIRS, asked=5, **settings)
    with pytest.raises(attnlab.AttnlabError, match="one of nsi, output"):
        removal_curves(network, PAIRS, asked=2, asked_by="loss", **settings)


def test_the_receipt_measures_the_real_network(network: nn.Module) -> None:
    _, receipt = attnlab.shorten(network, 2, images=PAIRS)
    names = [row.name for row in receipt.rows]
    assert receipt.output_change == pytest.approx(change(network, *names), rel=1e-9)
    right = (without(network, *names).argmax(1) == LABELS).double().mean().item()
    assert receipt.accuracy_after == pytest.approx(100 * right)
    assert receipt.images == 6
    assert receipt.notes == (
        "measured on the images that the steps were chosen on: pass test= for others",
    )


def test_repair_is_the_mean_over_batches(network: nn.Module) -> None:
    shorter, receipt = attnlab.shorten(network, ["layer1.1"], images=PAIRS, repair=True)
    plain, _ = attnlab.shorten(network, ["layer1.1"], images=PAIRS)
    assert receipt.repaired == sum(isinstance(m, nn.BatchNorm2d) for m in shorter.modules()) == 19
    first = [plain.conv1(images.double()) for images, _ in PAIRS]
    mean = sum(each.mean((0, 2, 3)) for each in first) / 2
    variance = sum(each.var((0, 2, 3)) for each in first) / 2
    torch.testing.assert_close(shorter.bn1.running_mean, mean)
    torch.testing.assert_close(shorter.bn1.running_var, variance)
    assert shorter.bn1.momentum == plain.bn1.momentum == 0.1
    for (name, one), (_, other) in itertools.zip_longest(
        shorter.named_parameters(), plain.named_parameters()
    ):
        assert torch.equal(one, other), name


class Doubled(Observer):
    def step_seen(self, seen):
        return 2 * seen.branch


def test_an_observer_may_give_another_branch(network: nn.Module) -> None:
    images = IMAGES.double()
    with torch.no_grad(), watching(network, Doubled()):
        found = network(images)
    hooks = [
        network.get_submodule(f"layer{s}.{b}.bn2").register_forward_hook(lambda _m, _a, y: 2 * y)
        for s in (1, 2, 3)
        for b in (0, 1, 2)
    ]
    with torch.no_grad():
        expected = network(images)
    for hook in hooks:
        hook.remove()
    torch.testing.assert_close(found, expected)


def test_latency_on_request(network: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    briefly = partial(attnlab.latency, seconds=0.2)
    monkeypatch.setattr(
        import_module("attnlab.instruments.removal.shorten"), "time_in_turns", briefly
    )
    _, receipt = attnlab.shorten(network, REMOVABLE, images=[IMAGES], latency=True)
    assert receipt.latency is not None
    assert receipt.latency.ratio < 1, "a third of the work"
    assert f"  latency     {receipt.latency}" in str(receipt).splitlines()
