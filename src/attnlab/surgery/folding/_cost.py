"""What it costs to make gates constant, on some images: a share of what was there before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, sqrt
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from attnlab._errors import InputError, unknown_name
from attnlab.residuals.example import call, evaluating
from attnlab.residuals.selection import Call
from attnlab.surgery.answer import answer, leaves, right_answers
from attnlab.surgery.folding._halves import Halves, Part

CostName = Literal["output", "answers", "loss", "accuracy"]
"""`output`: the length of the change of the output relative to its length. `answers`: the share of
images whose largest output is another one. `loss`: the rise of the mean cross-entropy. `accuracy`:
the fall of the share of right answers. The last two need classes."""

COSTS: tuple[CostName, ...] = get_args(CostName)
NEEDS_CLASSES = ("loss", "accuracy")
_ONE_SIDED = 1.645  # of the normal distribution: 95 % lie below


class Cost(NamedTuple):
    """A cost on some images, and how large it may be on others like them."""

    value: float
    bound: float
    """The upper end of the one-sided 95 % interval, from the differences between images."""
    accuracy: float | None = None
    """The share of right answers, where the classes are known and the answers are classes."""
    accuracy_error: float | None = None
    """The standard error of its difference to what it was before, image by image."""


@dataclass(frozen=True)
class Judge:
    """What a network answered before, and what an answer that changed costs."""

    cost: CostName
    parts: tuple[Part, ...]
    calls: tuple[Call, ...]
    before: tuple[tuple[Tensor, ...], ...]

    @classmethod
    def of(
        cls, cost: CostName, parts: Sequence[Part], model: nn.Module, calls: tuple[Call, ...]
    ) -> Judge:
        """The judge of changes to `model`, as it answers now."""
        before = tuple(_numbers(model, part, calls) for part in parts)
        if cost != "output":
            for part, found in zip(parts, before, strict=True):
                _check_classes(cost, part, found)
        return cls(cost, tuple(parts), calls, before)

    @property
    def images(self) -> int:
        return sum(part.images for part in self.parts)

    @property
    def accuracy(self) -> float | None:
        """The accuracy as it was before."""
        return self._accuracy(self.before)[0]

    def judge(self, model: nn.Module) -> Cost:
        """Return what `model` costs as it is now."""
        answers = self.answers(model)
        accuracy, error = self._accuracy(answers)
        cost = self.cost_of([self.changes(answers)])
        return cost._replace(accuracy=accuracy, accuracy_error=error)

    def answers(self, model: nn.Module) -> list[tuple[Tensor, ...]]:
        """Return what `model` answers now."""
        return [_numbers(model, part, self.calls) for part in self.parts]

    def changes(self, answers: Sequence[tuple[Tensor, ...]]) -> tuple[Tensor, Tensor]:
        """Return what changed, and the size of what was there, image by image."""
        found = [
            _CHANGES[self.cost](before, after, part)
            for part, before, after in zip(self.parts, self.before, answers, strict=True)
        ]
        return torch.cat([change for change, _ in found]), torch.cat([size for _, size in found])

    def cost_of(self, changes: Sequence[tuple[Tensor, Tensor]]) -> Cost:
        """The cost of all these changes, of this judge and of others like it."""
        change, size = (torch.cat(each) for each in zip(*changes, strict=True))
        value, bound = _ratio(change, size)
        if self.cost == "output":
            return Cost(sqrt(value), sqrt(bound))
        # Of what is counted: where it was never seen, up to 3 in so many may still be so.
        return Cost(value, bound if self.cost == "loss" else bound + 3 / len(change))

    def _accuracy(
        self, answers: Sequence[tuple[Tensor, ...]]
    ) -> tuple[float, float] | tuple[None, None]:
        """The share of right answers, and the error of its difference to the one before."""
        right, gained = [], []
        for part, before, after in zip(self.parts, self.before, answers, strict=True):
            if part.classes is None or not (_are_classes(after, part) and _known(after, part)):
                return None, None
            first, second = (right_answers(x[0], part.classes) for x in (before, after))
            right.append(second.double())
            gained.append(second.double() - first.double())
        images = torch.cat(right)
        error = torch.cat(gained).std(correction=0) / len(images) ** 0.5
        return float(images.mean()), float(error)


def check_cost(cost: object, data: Halves | None = None) -> None:
    """Refuse costs that are not known, and those that need classes if there are none."""
    if cost not in COSTS:
        raise unknown_name("cost", cost, COSTS)
    if data is not None and cost in NEEDS_CLASSES and not data.labelled:
        raise InputError(
            f"cost={cost!r} needs the class of every image, and the batches have none. Expected "
            f"batches (images, classes), or a cost that needs no classes: 'output' or 'answers'."
        )


def _numbers(model: nn.Module, part: Part, calls: tuple[Call, ...]) -> tuple[Tensor, ...]:
    """What is compared of an answer, in float64."""
    output: object
    if calls:
        tensors = list(answer(model, part.inputs, calls).seen.values())
    else:
        with evaluating(model):
            output = call(model, part.inputs)
        tensors = [tensor for _, tensor in leaves(output)]
    found = tuple(tensor.double() for tensor in tensors if tensor.is_floating_point())
    if not found:
        raise InputError("The network's output on the images has no numbers.")
    return found


def _are_classes(found: tuple[Tensor, ...], part: Part) -> bool:
    """Whether it is one number per image and class."""
    return len(found) == 1 and found[0].ndim == 2 and len(found[0]) == part.images


def _known(found: tuple[Tensor, ...], part: Part) -> bool:
    """Whether the network knows the classes of the images."""
    assert part.classes is not None
    return 0 <= int(part.classes.min()) <= int(part.classes.max()) < found[0].shape[1]


def _check_classes(cost: str, part: Part, found: tuple[Tensor, ...]) -> None:
    if not _are_classes(found, part):
        shapes = ", ".join(str(tuple(tensor.shape)) for tensor in found)
        raise InputError(
            f"cost={cost!r} is for networks that answer with one number per class, (images, "
            f"classes), but this one answers with {shapes} to {part.images} images. Expected "
            f"cost='output', which takes any."
        )
    if cost in NEEDS_CLASSES and part.classes is not None and not _known(found, part):
        lowest, highest = int(part.classes.min()), int(part.classes.max())
        raise InputError(
            f"There are images of class {lowest if lowest < 0 else highest}, and the network "
            f"knows {found[0].shape[1]} classes, from 0 on. Expected the classes that it was "
            f"trained for, or a cost that needs none: 'output' or 'answers'."
        )


def _of_output(
    before: tuple[Tensor, ...], after: tuple[Tensor, ...], part: Part
) -> tuple[Tensor, Tensor]:
    """Squared lengths of the change and of what was there: per image where images are first."""
    rows = all(a.ndim and len(a) == part.images for a in before)
    change: list[Tensor] = []
    size: list[Tensor] = []
    for a, b in zip(before, after, strict=True):
        if a.shape != b.shape or not torch.equal(a.isfinite(), b.isfinite()):
            return torch.tensor([inf], dtype=torch.float64), torch.ones(1, dtype=torch.float64)
        a, b = torch.where(a.isfinite(), a, 0.0), torch.where(b.isfinite(), b, 0.0)
        a, b = (x.reshape(part.images if rows else 1, -1) for x in (a, b))
        change.append((a - b).square().sum(1).cpu())
        size.append(a.square().sum(1).cpu())
    return torch.stack(change).sum(0), torch.stack(size).sum(0)


def _of_answers(
    before: tuple[Tensor, ...], after: tuple[Tensor, ...], part: Part
) -> tuple[Tensor, Tensor]:
    del part
    changed = (before[0].argmax(1) != after[0].argmax(1)).double().cpu()
    return changed, torch.ones_like(changed)


def _of_loss(
    before: tuple[Tensor, ...], after: tuple[Tensor, ...], part: Part
) -> tuple[Tensor, Tensor]:
    assert part.classes is not None
    first, second = (
        cross_entropy(x[0].cpu(), part.classes, reduction="none") for x in (before, after)
    )
    return second - first, torch.ones_like(first)


def _of_accuracy(
    before: tuple[Tensor, ...], after: tuple[Tensor, ...], part: Part
) -> tuple[Tensor, Tensor]:
    assert part.classes is not None
    first, second = (right_answers(x[0], part.classes).double() for x in (before, after))
    return first - second, torch.ones_like(first)


_CHANGES = {
    "output": _of_output,
    "answers": _of_answers,
    "loss": _of_loss,
    "accuracy": _of_accuracy,
}


def _ratio(changes: Tensor, sizes: Tensor) -> tuple[float, float]:
    """Sum over sum, and its upper bound: the deviation of a ratio of means, to first order."""
    size = float(sizes.mean())
    if size <= 0 or not bool(changes.isfinite().all()):
        return inf, inf
    ratio = float(changes.mean()) / size
    error = float((changes - ratio * sizes).square().sum().sqrt()) / len(changes) / size
    return ratio, ratio + _ONE_SIDED * error
