"""What each strategy measures, against the same thing written out."""

from __future__ import annotations

import copy
from itertools import combinations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import attnlab
from attnlab.gates import BranchGate
from attnlab.instruments.place import Placement, list_strategies
from attnlab.surgery.insertion import attachments


@pytest.fixture(scope="module")
def network() -> nn.Module:
    """Three stages of three blocks, with norms that are not those of a fresh network."""
    torch.manual_seed(0)
    network = attnlab.create("resnet20")
    for norm in (m for m in network.modules() if isinstance(m, nn.BatchNorm2d)):
        nn.init.uniform_(norm.weight, 0.3, 1.5)
        nn.init.uniform_(norm.running_var, 0.5, 2.0)
    return network.eval()


@pytest.fixture(scope="module")
def batches() -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(1)
    return [
        (
            torch.randn(number, 3, 16, 16, generator=generator),
            torch.randint(10, (number,), generator=generator),
        )
        for number in (6, 4)
    ]


def scores(found: Placement) -> dict[str, float]:
    return {block.label: block.score for block in found.blocks if block.score is not None}


def nsi_by_hooks(network: nn.Module, images: torch.Tensor) -> dict[str, torch.Tensor]:
    """‖out − in‖ / ‖in‖ of every block whose ends have one shape, per image, in float64."""
    found: dict[str, torch.Tensor] = {}
    handles = []
    for stage in (1, 2, 3):
        for number, block in enumerate(network.get_submodule(f"layer{stage}")):  # type: ignore
            label = f"{stage}.{number}"

            def hook(_: nn.Module, args: tuple, out: torch.Tensor, label: str = label) -> None:
                if number_of(label) and args[0].shape == out.shape:
                    change = (out - args[0]).double().flatten(1).norm(dim=1)
                    found[label] = change / args[0].double().flatten(1).norm(dim=1)

            handles.append(block.register_forward_hook(hook))
    with torch.no_grad():
        network(images)
    for handle in handles:
        handle.remove()
    return found


def number_of(label: str) -> int:
    return int(label.partition(".")[2])


@pytest.fixture(scope="module")
def by_hooks(network: nn.Module, batches: list) -> dict[str, torch.Tensor]:
    return nsi_by_hooks(network, torch.cat([images for images, _ in batches]))


@pytest.mark.parametrize(
    ("strategy", "expected", "largest"),
    [
        ("stiffest", lambda z: z.mean(), True),
        ("softest", lambda z: z.mean(), False),
        ("nsi-spread", lambda z: z.std(correction=0), True),
    ],
)
def test_stiffness(network, batches, by_hooks, strategy, expected, largest) -> None:
    found = attnlab.place(network, 2, strategy, batches)
    wanted = {label: expected(z).item() for label, z in by_hooks.items()}
    assert scores(found) == pytest.approx(wanted, rel=1e-4)
    order = sorted(wanted, key=lambda label: wanted[label], reverse=largest)
    assert found.where == f"blocks:{','.join(sorted(order[:2]))}"
    (margin,) = found.margins
    assert (margin.chosen, margin.following) == (order[1], order[2])
    assert margin.margin == pytest.approx(abs(wanted[order[1]] - wanted[order[2]]), rel=1e-3)
    assert found.images == 10


@pytest.mark.parametrize("strategy", ["stiffest", "nsi-spread"])
def test_reasons_and_skipped_images(network, batches, by_hooks, strategy) -> None:
    """A reason has the other moment of the same NSI; an image without a finite one is told."""
    (images, labels), *others = batches
    broken = torch.full_like(images[:1], float("nan"))
    spoilt = [(torch.cat([images, broken]), torch.cat([labels, labels[:1]])), *others]
    found = attnlab.place(network, 2, strategy, spoilt)
    assert found.images == 10
    assert found.notes[0] == "1 images were skipped: a norm is zero or not finite"
    for block in found.chosen:
        z = by_hooks[block.label]
        mean, spread = f"{z.mean():.3g}", f"{z.std(correction=0):.3g}"
        other = f"± {spread} over" if strategy == "stiffest" else f"around a mean of {mean}"
        assert other in block.reason


def test_the_share_of_tns(network, batches, by_hooks) -> None:
    """Areas of unions by inclusion and exclusion of rectangles at the origin."""
    found = attnlab.place(network, 1, "tns", batches, per_stage=True)
    shares: dict[str, list[float]] = {label: [] for label in by_hooks}
    for image in range(10):
        boxes: dict[str, tuple[float, float]] = {}
        for stage in "123":
            own = {k: z[image].item() for k, z in by_hooks.items() if k[0] == stage}
            mean = sum(own.values()) / len(own)
            boxes |= {k: (max(z / mean - 1, 0), z) for k, z in own.items()}
        total = sum(
            (-1) ** (size + 1) * min(a for a, _ in some) * min(b for _, b in some)
            for size in range(1, len(boxes) + 1)
            for some in combinations(boxes.values(), size)
        )
        for label, (width, height) in boxes.items():
            shares[label].append(width * height / total)
    wanted = {label: sum(each) / 10 for label, each in shares.items()}
    assert scores(found) == pytest.approx(wanted, rel=1e-4, abs=1e-9)
    chosen = [max((k for k in wanted if k[0] == s), key=lambda k: wanted[k]) for s in "123"]
    assert found.where == f"blocks:{','.join(chosen)}"
    assert [margin.stage for margin in found.margins] == [1, 2, 3]


class Ones(BranchGate):
    """A gate of one value per channel, which is a parameter."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels)
        self.value = nn.Parameter(torch.ones(1, channels, 1, 1))

    def forward(self, branch: torch.Tensor) -> torch.Tensor:
        del branch
        return self.value

    def start_constant(self) -> float:
        return 1.0


def test_the_predicted_effect_is_the_gradient_of_a_gate(network, batches) -> None:
    """With real gates of ones, one image at a time."""
    found = attnlab.place(network, 2, "effect", batches)
    gated, _ = attnlab.insert(network, Ones)
    sums: dict[str, float] = {}
    for images, labels in batches:
        for image, label in zip(images, labels, strict=True):
            gated.zero_grad()
            F.cross_entropy(gated(image[None]), label[None]).backward()
            for _, attachment in attachments(gated):
                gradient = attachment.gate_module.get_parameter("value").grad
                assert gradient is not None
                total = gradient.double().abs().sum().item()
                sums[attachment.site.label] = sums.get(attachment.site.label, 0.0) + total
    wanted = {label: total / 10 / 100 for label, total in sums.items()}
    assert len(wanted) == 9
    assert scores(found) == pytest.approx(wanted, rel=1e-4)


def test_the_effect_of_a_frozen_network(network, batches) -> None:
    frozen = copy.deepcopy(network).requires_grad_(False)
    assert scores(attnlab.place(frozen, 1, "effect", batches)) == pytest.approx(
        scores(attnlab.place(network, 1, "effect", batches))
    )


def test_a_transformer_block_is_chosen_with_both_its_steps() -> None:
    torch.manual_seed(0)
    vit = attnlab.create("timm:test_vit", num_classes=10).eval()
    images = torch.randn(4, 3, 160, 160)
    labels = torch.tensor([0, 1, 2, 3])
    found = attnlab.place(vit, 2, "effect", [(images, labels)])
    _, receipt = attnlab.insert(vit, "ie", where=found.where)
    assert len(receipt.sites) == 4
    assert found.notes[0].startswith("the images have 4 classes and the network 10")


def test_gate_spread_is_of_a_warmed_up_network(network, batches) -> None:
    """A hundred steps of torch's SGD on six of the ten images, drawn anew; then how much each gate
    differs between all ten, by hooks: twice what SE gives, which starts at a half."""
    found = attnlab.place(network, 1, "spread", batches, per_stage=True)
    images, labels = (torch.cat(parts) for parts in zip(*batches, strict=True))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        gated, _ = attnlab.insert(network, "se", start="identity", example=images[:1])
        optimizer = torch.optim.SGD(gated.train().parameters(), 0.05, momentum=0.9)
        for _ in range(100):
            drawn = torch.randperm(10)[:6]
            optimizer.zero_grad()
            F.cross_entropy(gated(images[drawn]), labels[drawn]).backward()
            optimizer.step()
    wanted: dict[str, float] = {}
    for _, attachment in attachments(gated.eval()):
        attachment.gate_module.register_forward_hook(
            lambda _m, _g, gate, label=attachment.site.label: wanted.__setitem__(
                label, 2 * gate.double().flatten(1).std(0, correction=0).mean().item()
            )
        )
    with torch.no_grad():
        gated(images)
    assert scores(found) == pytest.approx(wanted, rel=1e-3, abs=1e-6)
    assert found.images == 10
    assert found.notes[-1] == (
        f"the gates have hardly moved in 100 steps (largest spread {max(wanted.values()):.1g}), so "
        f"the choice rests on next to nothing"
    )
    # At the start all are 0; where the one hidden unit of stage 1 is dead, they stay so.
    assert sum(score > 0 for score in wanted.values()) >= 6
    for stage in (1, 2, 3):
        own = {k: v for k, v in wanted.items() if k.startswith(f"{stage}.")}
        assert max(own, key=lambda label: own[label]) in found.where


def test_the_network_is_left_as_it_was(network, batches) -> None:
    before = copy.deepcopy(network.state_dict())
    network.train()
    for strategy in ("stiffest", "tns", "effect", "spread"):
        attnlab.place(network, 1, strategy, batches)
    assert all(module.training for module in network.modules())
    network.eval()
    assert all(torch.equal(value, before[key]) for key, value in network.state_dict().items())
    assert all(parameter.grad is None for parameter in network.parameters())
    assert not any(images.requires_grad for images, _ in batches)


def test_batches_that_can_be_seen_once(network, batches) -> None:
    once = attnlab.place(network, 1, "tns", (batch for batch in batches))
    assert scores(once) == scores(attnlab.place(network, 1, "tns", batches))


def test_every_strategy_has_a_line() -> None:
    names = [strategy.name for strategy in list_strategies()]
    assert len(names) == len(set(names)) == 6
    assert all(strategy.what for strategy in list_strategies())
