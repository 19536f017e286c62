"""`shorten(network, remove)`: a copy of a trained network without some of its residual steps."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from time import perf_counter

from torch import nn

from attnlab._checked import check_values, check_whole
from attnlab._errors import OptionError, SelectionError, nearest
from attnlab.instruments.removal.images import RemovalTrials, trials_of
from attnlab.instruments.removal.order import Chosen, removal_order
from attnlab.instruments.removal.rankings import Ranking, ranking_named
from attnlab.instruments.removal.trial import run_on, text_loss
from attnlab.residuals import Step, Watchable, watchable
from attnlab.residuals.example import Example, evaluating, measure
from attnlab.subject import Source
from attnlab.subject import open as open_subject
from attnlab.surgery.answer import Answer, accuracy
from attnlab.surgery.change import (
    Change,
    change_between,
    largest_change,
    mean_image_change,
    relative_to,
)
from attnlab.surgery.history import Shortened, record_event, record_start
from attnlab.surgery.ordinary import making_ordinary_tensors
from attnlab.surgery.receipt import count_parameters
from attnlab.surgery.shortening.check import check_removal
from attnlab.surgery.shortening.norms import re_estimate_norms
from attnlab.surgery.shortening.operation import Removal, decide_removal, named
from attnlab.surgery.shortening.receipt import RemovedStep, ShortenReceipt
from attnlab.timing import Latency
from attnlab.timing import latency as time_in_turns


@making_ordinary_tensors
def shorten(
    network: Source,
    remove: int | Sequence[str],
    by: str = "output",
    images: Iterable[object] | None = None,
    *,
    test: Iterable[object] | None = None,
    repair: bool = False,
    latency: bool = False,
    example: Example | None = None,
) -> tuple[nn.Module, ShortenReceipt]:
    """Remove residual steps with identity shortcuts from a trained network: a copy, and a receipt.

    The result computes what the network does when the branches of these steps are multiplied by
    zero, which is checked in float64. Modules that have no work left are gone, with their
    parameters and gates; the others keep their names.

    Args:
        network: trained, as for `attnlab.open`; it is not changed.
        remove: how many steps, or which: names of blocks (`layer1.2`) or labels (`1.2`, and `1.2:1`
            for the second step of a transformer block).
        by: what decides which steps go, one of `attnlab.instruments.removal.RANKINGS`.
        images: batches to rank the steps on, each a tensor, or a pair of images and classes; the
            network's own training images when None.
        test: batches to measure the change on; those to rank on when None, or with the network's
            own images its test images.
        repair: estimate the running statistics of BatchNorm on `images` again afterwards.
        latency: also time both networks, interleaved, on the first batch.
        example: an input to find the steps with; of the images when None.
    """
    check_values("shorten", shorten, {"by": by, "repair": repair, "latency": latency})
    ranking = ranking_named(by)
    _check_remove(remove, by)
    operation = _operation(network, remove, ranking, images, test, example)
    if operation.trials is None:
        _check_without_images(remove, by, repair)
    return operation.perform(repair, latency)


def _operation(
    network: Source,
    remove: int | Sequence[str],
    ranking: Ranking,
    images: Iterable[object] | None,
    test: Iterable[object] | None,
    example: Example | None,
) -> _Operation:
    subject = open_subject(network)
    trials = trials_of(subject, images, test, example)
    if example is None and trials is not None:
        example = trials.judged.example
    return _Operation(subject.network, trials, example, remove, ranking)


@dataclass(frozen=True)
class _Operation:
    """One removal, with all that it needs to know."""

    network: nn.Module
    trials: RemovalTrials | None
    example: Example | None
    remove: int | Sequence[str]
    ranking: Ranking

    def perform(self, repair: bool, latency: bool) -> tuple[nn.Module, ShortenReceipt]:
        """Choose, check, take out, and measure what that did."""
        began = perf_counter()
        chosen = self._chosen()
        steps = [each.step for each in chosen]
        removal = decide_removal(self.network, steps, self.example)
        error, precision = check_removal(self.network, removal, steps, self.example)
        shorter = copy.deepcopy(self.network)
        record_start(shorter, self.example)
        removal.perform(shorter)
        record_event(shorter, Shortened(dict(removal.replaced)))
        repaired = 0
        if repair and self.trials is not None:
            repaired = re_estimate_norms(shorter, self.trials.ranked.samples)
        receipt = replace(
            self._receipt(shorter, chosen, removal),
            error=error,
            precision=precision,
            repaired=repaired,
            latency=self._timed(shorter) if latency else None,
        )
        return shorter, replace(receipt, seconds=perf_counter() - began)

    def _receipt(
        self, shorter: nn.Module, chosen: Sequence[Chosen], removal: Removal
    ) -> ShortenReceipt:
        found = watchable(self.network, self.example)
        whole, macs_before = measure(self.network, self.example)
        rest, macs_after = measure(shorter, self.example)
        measured = self._measured(shorter, change_between(Answer(whole, 0), Answer(rest, 0)))
        return ShortenReceipt(
            action=self._action(len(chosen), len(found.steps)),
            sites=tuple(each.step.label for each in chosen),
            parameters_before=count_parameters(self.network),
            parameters_after=count_parameters(shorter),
            macs_before=macs_before,
            macs_after=macs_after,
            max_change=measured.change.largest,
            relative_change=measured.change.relative,
            compared=measured.change.compared,
            notes=self._notes(),
            rows=tuple(RemovedStep(c.step.label, c.step.name, c.score, c.next) for c in chosen),
            says=self.ranking.says if isinstance(self.remove, int) else "",
            images=measured.images,
            output_change=measured.output_change,
            accuracy_before=measured.accuracy_before,
            accuracy_after=measured.accuracy_after,
            loss_before=measured.loss_before,
            loss_after=measured.loss_after,
            gates=removal.gates,
            own_gates=_own_gates(found, removal),
            replaced=removal.replaced,
            seconds=0.0,
        )

    def _chosen(self) -> list[Chosen]:
        if isinstance(self.remove, int):
            assert self.trials is not None, "checked before"
            return removal_order(self.trials.ranked, self.ranking, self.remove)
        steps = watchable(self.network, self.example).steps
        return [Chosen(step) for step in named_steps(steps, self.remove)]

    def _action(self, number: int, steps: int) -> str:
        chosen = f", chosen by {self.ranking.name!r}" if isinstance(self.remove, int) else ""
        name = type(self.network).__name__
        return f"{name} without {number} of its {steps} residual steps{chosen}"

    def _measured(self, shorter: nn.Module, on_example: Change) -> _Measured:
        """Measure on the images that judge, else on the example alone."""
        if self.trials is None:
            return _Measured(on_example)
        judged = self.trials.judged
        text = judged.is_text
        with evaluating(shorter):
            after = run_on(shorter, judged.samples)
            loss_after = text_loss(shorter, judged.samples) if text else None
        largest, size, remarks = largest_change([(judged.before, after)])
        relative = None if largest is None else relative_to(largest, size)
        labels = judged.labels
        return _Measured(
            Change(largest, relative, "; ".join(remarks)),
            judged.images,
            mean_image_change(judged.before, after),
            None if labels is None else accuracy(judged.before, labels),
            None if labels is None else accuracy(after, labels),
            judged.loss_before if text else None,
            loss_after,
        )

    def _notes(self) -> tuple[str, ...]:
        if isinstance(self.remove, int) and self.trials is not None and self.trials.same:
            return ("measured on the images that the steps were chosen on: pass test= for others",)
        return ()

    def _timed(self, shorter: nn.Module) -> Latency:
        inputs = self.example if self.trials is None else self.trials.judged.samples[0].inputs
        return time_in_turns(self.network, shorter, inputs)


@dataclass(frozen=True)
class _Measured:
    """What a removal changed."""

    change: Change
    images: int = 0
    output_change: float | None = None
    accuracy_before: float | None = None
    accuracy_after: float | None = None
    loss_before: float | None = None
    """Of a text."""
    loss_after: float | None = None


def _own_gates(found: Watchable, removal: Removal) -> tuple[str, ...]:
    """The network's own gates that went with their steps."""
    return tuple(
        gate.name
        for gate in found.gates
        if gate.kind != "inserted"
        and any(gate.name == name or gate.name.startswith(f"{name}.") for name in removal.replaced)
    )


def _check_remove(remove: object, by: str) -> None:
    if isinstance(remove, str):
        raise OptionError(
            f"Expected remove to be a number of steps or a list of names but got the text "
            f"{remove!r}. Pass [{remove!r}]."
        )
    if not isinstance(remove, list | tuple):
        check_whole("remove", remove, 1)
        return
    if not all(isinstance(name, str) for name in remove):
        raise OptionError(f"Expected remove to be a list of names but got {remove!r}.")
    if not remove:
        raise OptionError("Expected at least one step to remove but got an empty list.")
    if by != "output":
        raise OptionError(f"The steps to remove are named, so there is nothing to rank by {by!r}.")


def _check_without_images(remove: object, by: str, repair: bool) -> None:
    if isinstance(remove, int):
        raise OptionError(
            f"Ranking steps by {by!r} needs images. Pass batches, images=loader, or name the steps "
            f"to remove: remove=['layer1.2']."
        )
    if repair:
        raise OptionError("repair=True needs images to estimate statistics on: images=loader.")


def named_steps(steps: Sequence[Step], names: Sequence[str]) -> list[Step]:
    """Return the steps with these labels, or all of the blocks with these names."""
    found: dict[str, Step] = {}
    for name in names:
        here = [step for step in steps if name in (step.label, step.name)]
        if not here:
            valid = dict.fromkeys(each for step in steps for each in (step.name, step.label))
            listed = ", ".join(named(step) for step in steps)
            raise SelectionError(
                f"There is no residual step {name!r}.{nearest(name, valid)} Expected labels or "
                f"names of: {listed}."
            )
        found.update((step.label, step) for step in here)
    return list(found.values())
