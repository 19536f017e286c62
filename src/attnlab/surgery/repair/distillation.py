"""A short training in which a network learns to answer as another did, on unlabelled images.

The loss is the squared distance of the answers relative to the squared length of the teacher's, so
it needs no classes and is the square of the relative change of the output. Norms keep their
statistics and nothing is dropped: the network stays in eval mode.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from math import cos, isfinite, pi
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn

from attnlab._checked import check_path, check_whole
from attnlab._errors import InputError, OptionError, unknown_name
from attnlab.residuals.example import Example, call
from attnlab.surgery.answer import leaves
from attnlab.surgery.repair._progress import Progress, identity_of
from attnlab.surgery.repair.result import Repair

Moving = Literal["taken", "all"]


@dataclass(frozen=True)
class Distil:
    """How a network is repaired."""

    epochs: int = 10
    lr: float = 1e-3
    """The learning rate of Adam at the start; it falls to zero on half a cosine."""
    moving: Moving = "taken"
    """`taken`: the parameters that took constants, and scale and shift of every norm. `all`: every
    parameter."""
    seed: int = 0
    """Decides the order of the batches."""
    report: Callable[[int, float], None] | None = field(default=None, repr=False, compare=False)
    """Told of each epoch, from 1, and its loss."""
    checkpoints: str | Path | None = field(default=None, repr=False, compare=False)
    """A folder that gets a checkpoint after every epoch and keeps the last two. The same repair,
    after a stop, goes on from there and ends in the same bits."""

    # The two above are left out of repr, which decides whether a checkpoint is of this repair.
    def __post_init__(self) -> None:
        check_whole("epochs", self.epochs, 1)
        check_whole("seed", self.seed, 0)
        if isinstance(self.lr, bool) or not isinstance(self.lr, int | float):
            raise OptionError(f"Expected lr to be a number but got {self.lr!r}.")
        if not (isfinite(self.lr) and self.lr > 0):
            raise OptionError(f"Expected lr to be a number above 0 but got {self.lr}.")
        if self.moving not in get_args(Moving):
            raise unknown_name("moving", self.moving, get_args(Moving))
        if self.checkpoints is not None:
            check_path("checkpoints", self.checkpoints)


class Lesson(NamedTuple):
    """Inputs, and what the teacher answered."""

    inputs: Example
    answers: tuple[Tensor, ...]


def distil(
    network: nn.Module,
    lessons: Sequence[Lesson],
    taken: Collection[str],
    settings: Distil,
) -> Repair:
    """Train `network` in place until it answers more as the teacher did; the same each time.

    `taken` names the parameters that took constants. Modes, gradients and the random state are as
    before afterwards. With checkpoints, the same call with the network as it was before the repair
    goes on after the last epoch that is there; a folder of another repair is refused.
    """
    moving = _moving(network, taken, settings.moving)
    modes = [(module, module.training) for module in network.modules()]
    required = [(p, p.requires_grad) for p in network.parameters()]
    chosen = {id(p) for p in moving}
    try:
        network.eval()
        for parameter, _ in required:
            parameter.requires_grad_(id(parameter) in chosen)
        with torch.enable_grad(), torch.random.fork_rng(devices=[]):
            done = _train(network, lessons, moving, settings)
    finally:
        for parameter, before in required:
            parameter.grad = None
            parameter.requires_grad_(before)
        for module, mode in modes:
            module.training = mode
    count = sum(p.numel() for p in moving)
    return Repair(settings.epochs, settings.moving, count, tuple(done.losses), done.seconds)


def _train(
    network: nn.Module,
    lessons: Sequence[Lesson],
    moving: list[nn.Parameter],
    settings: Distil,
) -> Progress:
    optimizer = torch.optim.Adam(moving, settings.lr)
    progress = Progress(network, optimizer, torch.Generator().manual_seed(settings.seed))
    checkpoints = settings.checkpoints
    if checkpoints is not None:
        inputs, answers = zip(*lessons, strict=True)
        identity = identity_of(network, moving, inputs, answers, settings)
        progress.resume(Path(checkpoints), identity)
    steps = settings.epochs * len(lessons)
    step = len(progress.losses) * len(lessons)
    for epoch in range(len(progress.losses) + 1, settings.epochs + 1):
        total = 0.0
        for number in torch.randperm(len(lessons), generator=progress.order).tolist():
            for group in optimizer.param_groups:
                group["lr"] = settings.lr * (1 + cos(pi * step / steps)) / 2
            optimizer.zero_grad()
            loss = _loss(network, lessons[number])
            if not bool(loss.isfinite()):
                raise InputError(
                    f"The repair diverged in epoch {epoch}: its loss is {loss.item()}. Expected a "
                    f"smaller lr than {settings.lr:g}."
                )
            loss.backward()
            optimizer.step()
            total += loss.item()
            step += 1
        progress.losses.append(total / len(lessons))
        if checkpoints is not None:
            progress.save(Path(checkpoints), identity)
        if settings.report is not None:
            settings.report(epoch, progress.losses[-1])
    return progress


def _loss(network: nn.Module, lesson: Lesson) -> Tensor:
    found = [t for _, t in leaves(call(network, lesson.inputs)) if t.is_floating_point()]
    distance = found[0].new_zeros(())
    size = 0.0
    for answer, wanted in zip(found, lesson.answers, strict=True):
        wanted = wanted.to(answer)
        distance = distance + (answer - wanted).square().sum()
        size += float(wanted.square().sum())
    return distance / max(size, 1e-30)


def _moving(network: nn.Module, taken: Collection[str], moving: Moving) -> list[nn.Parameter]:
    named = {n: p for n, p in network.named_parameters() if p.is_floating_point()}
    if moving == "all":
        return list(named.values())
    wanted = {name for name in taken if name in named}
    for name, module in network.named_modules():
        if _is_norm(module):
            prefix = f"{name}." if name else ""
            wanted |= {f"{prefix}{each}" for each, _ in module.named_parameters(recurse=False)}
    return [parameter for name, parameter in named.items() if name in wanted]


def _is_norm(module: nn.Module) -> bool:
    kinds = (nn.modules.batchnorm._NormBase, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm)
    return isinstance(module, kinds)
