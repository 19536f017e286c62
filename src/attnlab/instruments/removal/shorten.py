"""`shorten(network, remove)`: a copy of a trained network without some of its residual steps."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn

from attnlab._checked import check_module, check_values, check_whole
from attnlab._errors import OptionError, SelectionError, nearest, unknown_name
from attnlab.instruments.removal.order import Chosen, removal_order
from attnlab.instruments.removal.rankings import RANKINGS
from attnlab.instruments.removal.trial import Trial, accuracy, flat, relative_change
from attnlab.residuals import Step, watchable
from attnlab.residuals.example import Example, call, evaluating, measure
from attnlab.surgery.answer import Answer
from attnlab.surgery.change import change_between, largest_change
from attnlab.surgery.receipt import count_parameters
from attnlab.surgery.shortening.check import check_exact
from attnlab.surgery.shortening.norms import re_estimate_norms
from attnlab.surgery.shortening.operation import decide, named
from attnlab.surgery.shortening.receipt import RemovedStep, ShortenReceipt
from attnlab.timing import Latency
from attnlab.timing import latency as time_in_turns


def shorten(
    network: nn.Module,
    remove: int | Sequence[str],
    by: str = "output",
    images: Iterable[Any] | None = None,
    *,
    test: Iterable[Any] | None = None,
    repair: bool = False,
    latency: bool = False,
    example: Example | None = None,
) -> tuple[nn.Module, ShortenReceipt]:
    """Remove residual steps with identity shortcuts from a trained network: a copy, and a receipt.

    The result computes what the network does when the branches of these steps are multiplied by
    zero, which is checked in float64. Modules that have no work left are gone, with their
    parameters and gates; the others keep their names. An activation behind an addition stays, but
    for a ReLU that follows another one.

    Args:
        network: trained; it is not changed.
        remove: how many steps, or which: names of blocks (`layer1.2`) or labels (`1.2`, and `1.2:1`
            for the second step of a transformer block).
        by: what decides which steps go, one of `attnlab.instruments.removal.RANKINGS`: the
            lowest score first.
        images: batches to rank the steps on, each a tensor, or a pair of images and classes.
        test: batches to measure the change on; `images` when None, on which the steps were chosen.
        repair: estimate the running statistics of BatchNorm on `images` again afterwards.
        latency: also time both networks in turns, on the first batch.
        example: an input to find the steps with; of the images when None.
    """
    began = perf_counter()
    check_module(network, "the network")
    check_values("shorten", shorten, {"by": by, "repair": repair, "latency": latency})
    if by not in RANKINGS:
        raise unknown_name("ranking", by, RANKINGS)
    _check_images(remove, by, images, repair)
    trial = None if images is None else Trial(network, images, example)
    judged = trial if test is None else Trial(network, test, example, "test")
    if example is None and judged is not None:
        example = judged.example
    chosen = _chosen(network, remove, by, trial, example)
    steps = [each.step for each in chosen]
    found = watchable(network, example)
    surgery = decide(network, steps, example)
    error, precision = check_exact(network, surgery, steps, example)
    shorter = copy.deepcopy(network)
    surgery.perform(shorter)
    repaired = re_estimate_norms(shorter, trial.samples) if repair and trial is not None else 0
    whole, macs_before = measure(network, example)
    rest, macs_after = measure(shorter, example)
    change = change_between(Answer(whole, 0), Answer(rest, 0))
    largest, relative, compared = change.largest, change.relative, change.compared
    measured: dict[str, Any] = {}
    if judged is not None:
        after = _answers(shorter, judged)
        largest, size, remarks = largest_change([(judged.before, after)])
        relative = None if largest is None else largest / max(size, 1e-300)
        compared = "; ".join(remarks)
        measured = _measured(judged, after)
    own = [
        gate.name
        for gate in found.gates
        if gate.kind != "inserted"
        and any(gate.name == name or gate.name.startswith(f"{name}.") for name in surgery.replaced)
    ]
    number = len(steps)
    receipt = ShortenReceipt(
        action=(
            f"{type(network).__name__} without {number} of its {len(found.steps)} residual "
            f"steps" + (f", chosen by {by!r}" if isinstance(remove, int) else "")
        ),
        sites=tuple(step.label for step in steps),
        parameters_before=count_parameters(network),
        parameters_after=count_parameters(shorter),
        macs_before=macs_before,
        macs_after=macs_after,
        max_change=largest,
        relative_change=relative,
        compared=compared,
        notes=_notes(remove, test, judged),
        rows=tuple(RemovedStep(c.step.label, c.step.name, c.score, c.next) for c in chosen),
        says=RANKINGS[by].says if isinstance(remove, int) else "",
        error=error,
        precision=precision,
        gates=surgery.gates,
        own_gates=tuple(own),
        replaced=surgery.replaced,
        repaired=repaired,
        latency=_timed(network, shorter, judged, example) if latency else None,
        seconds=perf_counter() - began,
        **measured,
    )
    return shorter, receipt


def _check_images(remove: object, by: str, images: object, repair: bool) -> None:
    named = isinstance(remove, list | tuple) and all(isinstance(name, str) for name in remove)
    if not named:
        if isinstance(remove, str):
            raise OptionError(
                f"Expected remove to be a number of steps or a list of names but got the text "
                f"{remove!r}. Pass [{remove!r}]."
            )
        if isinstance(remove, list | tuple):
            raise OptionError(f"Expected remove to be a list of names but got {remove!r}.")
        check_whole("remove", remove, 1)
    elif not remove:
        raise OptionError("Expected at least one step to remove but got an empty list.")
    elif by != "output":
        raise OptionError(f"The steps to remove are named, so there is nothing to rank by {by!r}.")
    if images is None and not named:
        raise OptionError(
            f"Ranking steps by {by!r} needs images. Pass batches, images=loader, or name the steps "
            f"to remove: remove=['layer1.2']."
        )
    if images is None and repair:
        raise OptionError("repair=True needs images to estimate statistics on: images=loader.")


def _chosen(
    network: nn.Module,
    remove: int | Sequence[str],
    by: str,
    trial: Trial | None,
    example: Example | None,
) -> list[Chosen]:
    if isinstance(remove, int):
        assert trial is not None, "checked before"
        return removal_order(trial, RANKINGS[by], remove)
    return [Chosen(step) for step in named_steps(watchable(network, example).steps, remove)]


def named_steps(steps: Sequence[Step], names: Sequence[str]) -> list[Step]:
    """Those with these labels, or all of the blocks with these names."""
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


def _answers(network: nn.Module, judged: Trial) -> Tensor:
    with evaluating(network):
        parts = [flat(call(network, each.inputs), each.number) for each in judged.samples]
    return torch.cat(parts)


def _measured(judged: Trial, after: Tensor) -> dict[str, Any]:
    found: dict[str, Any] = {
        "images": judged.images,
        "output_change": float(relative_change(judged.before, after).mean()),
    }
    if judged.labels is not None:
        found["accuracy_before"] = accuracy(judged.before, judged.labels)
        found["accuracy_after"] = accuracy(after, judged.labels)
    return found


def _notes(remove: object, test: object, judged: Trial | None) -> tuple[str, ...]:
    if isinstance(remove, int) and test is None and judged is not None:
        return ("measured on the images that the steps were chosen on: pass test= for others",)
    return ()


def _timed(
    network: nn.Module, shorter: nn.Module, judged: Trial | None, example: Example | None
) -> Latency:
    return time_in_turns(network, shorter, example if judged is None else judged.samples[0].inputs)
