"""`place(network, budget)`: in which blocks gates belong, by one of several strategies."""

from __future__ import annotations

import time
from dataclasses import replace

from torch import nn

from attnlab._checked import check_batches, check_module, check_whole
from attnlab._errors import InputError, OptionError
from attnlab.instruments.place.block import find_blocks
from attnlab.instruments.place.choose import check_number_of_blocks, chosen_by_score
from attnlab.instruments.place.gate_spread import SPREAD, spread_scores
from attnlab.instruments.place.registry import strategy_named
from attnlab.instruments.place.result import Placement
from attnlab.instruments.place.strategy import Placing, Scored, Strategy
from attnlab.instruments.stripe.measure import stripe
from attnlab.residuals.example import Example, example_input
from attnlab.residuals.inputs import Batches, head, inputs_of
from attnlab.residuals.where import MEASURED, measured_word, split_inside
from attnlab.subject import Source, Subject, subject_of
from attnlab.subject import open as open_subject
from attnlab.surgery.insertion import attachments

IMAGES = 512
"""Training images that are measured if the network was opened without a limit; as many as a study
measures for its words."""


def place(
    network: Source,
    budget: int | None = None,
    strategy: str = "stiffest",
    loader: Batches | None = None,
    *,
    per_stage: bool = False,
    spread_gate: str | None = None,
) -> Placement:
    """Propose the blocks in which gates belong, with the reason and the margin of each choice.

    `.where` of the result is for `attnlab.insert`; the network is not changed. What is measured are
    training images: a choice by looking at test images is not fair. Blocks that need no measurement
    are written as `where` at once: all, every:3, code:1001, random:1@0, any:3@0.

    Args:
        network: any network with residual steps, as for `attnlab.open`.
        budget: how many blocks get a gate.
        strategy: stiffest, softest, tns or nsi-spread (how far the steps move the features), effect
            (of a gate on the loss, in one backward pass), or spread (of gates over images, after a
            short warm-up).
        loader: batches in the place of the network's own training images; (images, classes) for
            effect and spread.
        per_stage: choose this many blocks in every stage, so that every choice costs the same.
        spread_gate: whose spread the strategy spread measures; se if left out.
    """
    began = time.perf_counter()
    chosen = strategy_named(strategy)
    gate = _gate(chosen, spread_gate)
    budget = _budget(chosen, budget)
    subject = _with_images(network, loader, chosen)
    asked = _asked(subject.network, _training_batches(subject), budget, per_stage, gate)
    found = placed(asked, chosen, chosen.run(asked), began=began, name=subject.name)
    return subject.sign(replace(found, notes=(*found.notes, *_remarks(subject))))


def _asked(
    network: nn.Module,
    batches: Batches,
    budget: int,
    per_stage: bool,
    gate: str = "se",
    where: str | None = None,
) -> Placing:
    """What a strategy is asked for; an error if there are fewer blocks than the budget."""
    example = _example(network, batches)
    blocks = find_blocks(network, example, where)
    asked = Placing(network, blocks, example, budget, per_stage, batches, gate)
    check_number_of_blocks(asked, asked.groups)
    return asked


def placed(
    asked: Placing,
    strategy: Strategy,
    found: Scored,
    *,
    began: float,
    name: str | None = None,
    inside: str | None = None,
) -> Placement:
    """Return what a strategy found, as a placement; `inside` is the module of an `in:`."""
    rows, margins = chosen_by_score(asked, found)
    notes = list(found.notes)
    labels = [row.label for row in rows if row.chosen]
    if not asked.per_stage and len({block.stage for block in asked.blocks}) > 1:
        notes.append(
            "blocks of different stages cost differently; per_stage=True gives every choice the "
            "same parameters and MACs"
        )
    everywhere = len(labels) == len(asked.blocks) and inside is None
    where = "all" if everywhere else f"blocks:{','.join(labels)}"
    return Placement(
        network=name or type(asked.network).__name__,
        strategy=strategy.name,
        what=strategy.what,
        where=where if inside is None else f"in:{inside} {where}",
        budget=asked.budget,
        per_stage=asked.per_stage,
        quantity=found.quantity,
        images=found.images,
        blocks=tuple(rows),
        margins=tuple(margins),
        seconds=time.perf_counter() - began,
        notes=tuple(notes),
    )


def place_by_word(
    network: nn.Module, where: str, loader: Batches, *, name: str | None = None
) -> Placement:
    """Return what a word of a study, such as `stiffest:1`, chooses: that many blocks in every
    stage.

    `stiffest` and `softest` are measured on `network` as it is, `spread` on the gates that it has.
    """
    began = time.perf_counter()
    check_module(network)
    word = measured_word(where)
    if word is None:
        raise OptionError(
            f"Expected one of {', '.join(MEASURED)} with a number of blocks per stage, such as "
            f"'stiffest:1', but got {where!r}."
        )
    strategy = strategy_named(word[0])
    check_batches(loader)
    batches = _repeatable(loader)
    asked = _asked(network, batches, word[1], True, where=where)
    if strategy is SPREAD:
        strategy = replace(strategy, what="gates that differ most between images")
        found = spread_scores(stripe(network, batches))
    else:
        found = strategy.run(asked)
    inside, _ = split_inside(where)
    return placed(asked, strategy, found, began=began, name=name, inside=inside)


def _gate(strategy: Strategy, given: str | None) -> str:
    if given is not None and strategy is not SPREAD:
        raise OptionError(
            f"Strategy {strategy.name!r} takes no spread_gate, which is for {SPREAD.name!r}. Leave "
            f"it out."
        )
    return "se" if given is None else given


def _budget(strategy: Strategy, given: int | None) -> int:
    if given is None:
        raise OptionError(
            f"Strategy {strategy.name!r} needs a budget, how many blocks get a gate: budget=3, or "
            f"--budget 3."
        )
    check_whole("the budget", given, 1)
    return given


def _with_images(network: Source, loader: Batches | None, strategy: Strategy) -> Subject:
    """The subject with images to choose on. Other instruments take random pixels if there are none;
    a choice made on those would look like one that means something."""
    opened = open_subject(network)
    if loader is None and opened.data is None and opened.loader is None:
        classes = ", with their classes" if strategy.needs == "labels" else ""
        raise InputError(
            f"Strategy {strategy.name!r} measures on images, and {opened.name!r} was opened "
            f"without any: pass training images{classes}, data='digits' (in a command --data "
            f"digits) or loader=batches."
        )
    subject = subject_of(opened, loader)
    if strategy.needs == "labels" and subject.loader is None and subject.task is None:
        raise InputError(
            f"Strategy {strategy.name!r} needs the labels of the images, and {subject.name!r} has "
            f"no images with labels of its own classes. Pass data with as many classes as it has "
            f"outputs, such as digits, or batches (images, classes)."
        )
    return subject


def _training_batches(subject: Subject) -> Batches:
    if subject.loader is not None:
        return _repeatable(subject.loader)
    return _repeatable(subject.batches(IMAGES, subject.part or "train"))


def _repeatable(loader: Batches) -> Batches:
    """Batches that can be gone through more than once, and at least one."""
    batches = list(loader) if iter(loader) is loader else loader
    if next(iter(batches), None) is None:
        raise InputError("Expected a loader with at least one batch but got an empty one.")
    return batches


def _example(network: nn.Module, batches: Batches) -> Example:
    for batch in batches:
        for inputs in inputs_of(batch, network):
            return head(inputs, 1)
    return example_input(network)


def _remarks(subject: Subject) -> list[str]:
    found = []
    gates = sum(True for _ in attachments(subject.network))
    if gates:
        found.append(
            f"the network carries {gates} of our gates; what is measured is the network with them"
        )
    if subject.part == "test":
        found.append("chosen by looking at test images, so a result on them is not a fair one")
    return found
