"""Gradient accumulation against the large batch, in float64, written out with torch alone."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from lightning_fabric import Fabric
from tests.lab.training.small import run, small
from torch import Tensor, nn

from attnlab.data import Batch
from attnlab.lab.training import one_epoch
from attnlab.lab.training.accumulation import divided, joined, what_differs
from attnlab.lab.training.state import build_state
from attnlab.tasks import Task
from attnlab.tasks.segmentation import Segmentation, soft_dice
from attnlab.tasks.task import Loss

LR, DECAY, IMAGES = 0.3, 0.01, 11


class Smoothed:
    """A task as the loop sees it: the mean cross-entropy over a batch."""

    def loss(self, network: nn.Module, batch: Batch) -> Loss:
        logits = network(batch.inputs)
        return Loss(F.cross_entropy(logits, batch.targets, label_smoothing=0.1), {})


def network(norm: nn.Module) -> nn.Sequential:
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 8, 3), norm, nn.GELU(), nn.Flatten(), nn.Linear(8 * 16, 5)]
    return nn.Sequential(*layers).double()


def batch() -> Batch:
    numbers = torch.Generator().manual_seed(1)
    inputs = torch.randn(IMAGES, 3, 6, 6, generator=numbers, dtype=torch.float64)
    return Batch(inputs, torch.randint(5, (IMAGES,), generator=numbers))


def stepped(start: nn.Module, accumulate: int, task: Any) -> tuple[nn.Module, Loss]:
    """The network after one step of the training loop."""
    recipe = {"accumulate": accumulate, "lr": LR, "weight_decay": DECAY, "clip": 0.5}
    config = small(1, recipe)
    fabric = Fabric(accelerator="cpu", devices=1)
    state = build_state(fabric, config, copy.deepcopy(start))
    for group in state.optimizer.param_groups:
        group["lr"] = LR
    found = one_epoch._step(
        fabric,
        config.recipe,
        state,
        task,
        batch(),
        1.0,
        one_epoch.At(1, 1, LR),
        one_epoch.LossWatch(1),
    )
    return state.network, found


def by_hand(start: nn.Module) -> tuple[dict[str, Tensor], Tensor]:
    """The first step of SGD on the whole batch: clip the gradient, add the decay, go."""
    net = copy.deepcopy(start)
    images, classes = batch()
    loss = F.cross_entropy(net(images), classes, label_smoothing=0.1)
    gradients = torch.autograd.grad(loss, list(net.parameters()))
    norm = torch.sqrt(sum((g**2).sum() for g in gradients))  # type: ignore[arg-type]
    scale = min(1.0, 0.5 / (float(norm) + 1e-6))
    names = [name for name, _ in net.named_parameters()]
    moved = zip(names, net.parameters(), gradients, strict=True)
    return {n: (p - LR * (scale * g + DECAY * p)).detach() for n, p, g in moved}, loss.detach()


@pytest.mark.parametrize("accumulate", [1, 2, 3, 4, 11])
def test_it_is_the_large_batch(accumulate: int) -> None:
    """Also where 11 images are not so many equal parts. Group norms see one image at a time."""
    start = network(nn.GroupNorm(2, 8))
    wanted, loss = by_hand(start)
    found, joined = stepped(start, accumulate, Smoothed())
    for name, parameter in found.named_parameters():
        torch.testing.assert_close(parameter.detach(), wanted[name], rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(joined.mean.detach(), loss, rtol=1e-12, atol=0)


def test_batch_norms_see_a_part_at_a_time() -> None:
    """What differs, and how: the statistics are those of parts of 3, 4 and 4 images, one after the
    other; the loss is the mean over what each part gives by itself."""
    start = network(nn.BatchNorm2d(8))
    wanted, _ = by_hand(start)
    found, joined = stepped(start, 3, Smoothed())
    far = max(float((p - wanted[n]).detach().abs().max()) for n, p in found.named_parameters())
    assert far > 1e-3
    alone = copy.deepcopy(start).train()
    images, classes = batch()
    total = 0.0
    for part in (slice(0, 3), slice(3, 7), slice(7, 11)):
        logits = alone(images[part]).detach()
        total += float(F.cross_entropy(logits, classes[part], label_smoothing=0.1, reduction="sum"))
    assert float(joined.mean) == pytest.approx(total / IMAGES, rel=1e-12)
    torch.testing.assert_close(found[1].running_mean, alone[1].running_mean)  # type: ignore[index]
    torch.testing.assert_close(found[1].running_var, alone[1].running_var)  # type: ignore[index]
    assert int(found[1].num_batches_tracked) == 3  # type: ignore[index]


def test_ignored_pixels_make_parts_unequal() -> None:
    """Why a run with masks says so: the mean over parts is not that over all known pixels."""
    numbers = torch.Generator().manual_seed(0)
    logits = torch.randn(4, 3, 5, 5, generator=numbers, dtype=torch.float64)
    masks = torch.randint(3, (4, 5, 5), generator=numbers)
    masks[0, 1:] = 255
    whole = F.cross_entropy(logits, masks, ignore_index=255)
    each = [F.cross_entropy(logits[n : n + 2], masks[n : n + 2], ignore_index=255) for n in (0, 2)]
    assert abs(float(whole - sum(each) / 2)) > 1e-3  # type: ignore[arg-type]
    masks[0] = masks[1]
    parts = [soft_dice(logits[n : n + 2], masks[n : n + 2]) for n in (0, 2)]
    assert abs(float(soft_dice(logits, masks) - sum(parts) / 2)) > 1e-6  # type: ignore[arg-type]
    assert not Segmentation.mean_of_inputs
    assert Task.mean_of_inputs


def test_a_run_says_what_differs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from attnlab.lab.training import train

    train(small(1, {"accumulate": 4}), tmp_path / "norms", threads=1)
    assert (
        "accumulate = 4: 21 batch norms see parts of 4 images at a time, not 16, and their running "
        "statistics move 4 times a step, so this is not the training with whole batches."
    ) in capsys.readouterr().out
    run(small(1), tmp_path / "whole")
    assert "accumulate" not in capsys.readouterr().out


def test_nothing_differs_without_batch_norms() -> None:
    recipe = small(1, {"accumulate": 4}).recipe
    assert what_differs(recipe, Task, network(nn.GroupNorm(2, 8))) == []
    assert what_differs(small(1).recipe, Segmentation, network(nn.BatchNorm2d(8))) == []
    (said,) = what_differs(recipe, Segmentation, network(nn.GroupNorm(2, 8)))
    assert said == (
        "accumulate = 4: the loss of task Segmentation is not a mean over images, so its parts do "
        "not add up to the gradient of the whole batch, but come near."
    )


def test_parts_are_as_equal_as_can_be() -> None:
    sizes = [len(part.batch.inputs) for part in divided(batch(), 4)]
    assert sizes == [2, 3, 3, 3]
    assert sum(part.share for part in divided(batch(), 4)) == pytest.approx(1)


def test_a_figure_that_a_part_lacks_is_the_mean_over_the_others() -> None:
    """By the sums over 2, 3 and 5 images, of which the 3 have no accuracy."""
    accuracies = {0: torch.tensor(0.5), 2: torch.tensor(0.8)}
    losses = [
        Loss(torch.tensor(mean), {"accuracy": accuracies[n]} if n in accuracies else {})
        for n, mean in enumerate((1.0, 2.0, 4.0))
    ]
    found = joined(losses, [0.2, 0.3, 0.5])
    assert float(found.mean) == pytest.approx((2 * 1 + 3 * 2 + 5 * 4) / 10)
    assert float(found.figures["accuracy"]) == pytest.approx((2 * 0.5 + 5 * 0.8) / 7)


@pytest.mark.parametrize(
    ("images", "parts", "sizes"),
    [(11, 1, [11]), (1, 4, [1]), (3, 4, [1, 1, 1]), (2, 2, [1, 1]), (7, 3, [2, 2, 3])],
)
def test_small_batches_have_fewer_parts(images: int, parts: int, sizes: list[int]) -> None:
    """No image is lost, and each goes with its target."""
    inputs = torch.arange(float(images)).reshape(-1, 1)
    found = divided(Batch(inputs, torch.arange(images)), parts)
    assert [len(part.batch.inputs) for part in found] == sizes
    assert [part.share for part in found] == pytest.approx([size / images for size in sizes])
    assert torch.equal(torch.cat([part.batch.inputs for part in found]), inputs)
    assert torch.equal(torch.cat([part.batch.targets for part in found]), torch.arange(images))


def test_one_batch_norm_is_said_in_the_singular() -> None:
    (said,) = what_differs(small(1, {"accumulate": 4}).recipe, Task, network(nn.BatchNorm2d(8)))
    assert said == (
        "accumulate = 4: 1 batch norm sees parts of 4 images at a time, not 16, and their running "
        "statistics move 4 times a step, so this is not the training with whole batches."
    )
