"""`place(network, budget)`: in which blocks gates belong, by one of several strategies."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from torch import nn

from attnlab._checked import check_batches, check_module, check_whole
from attnlab._errors import InputError, OptionError
from attnlab.instruments.place.block import find_blocks
from attnlab.instruments.place.choose import check_budget, chosen_by_score
from attnlab.instruments.place.gate_spread import SPREAD, spread_scores
from attnlab.instruments.place.registry import strategy_named
from attnlab.instruments.place.result import Placement
from attnlab.instruments.place.strategy import Asked, Scored, Strategy
from attnlab.instruments.stripe.measure import stripe
from attnlab.residuals.example import Example, example_input
from attnlab.residuals.inputs import head, inputs_of
from attnlab.residuals.where import MEASURED, measured_word, split_inside
from attnlab.surgery.insertion import attachments


def place(
    network: nn.Module,
    budget: int | None = None,
    strategy: str = "stiffest",
    loader: Iterable[Any] | None = None,
    *,
    per_stage: bool = False,
    gate: str | None = None,
    name: str | None = None,
) -> Placement:
    """Propose the blocks of `network` in which gates belong, by a measurement; `.where` of the
    result is for `attnlab.insert`. The network is not changed. Blocks that need no measurement are
    written as `where` at once: `"all"`, `"every:3"`, `"code:1001…"`, `"random:1@0"`, `"any:3@0"`.

    Args:
        network: any network with residual steps.
        budget: how many blocks get a gate.
        strategy: a name of `attnlab.instruments.place.list_strategies()`.
        loader: batches of training images, (images, classes) for `effect` and `spread`. What is
            chosen by looking at test images is not a fair choice.
        per_stage: choose this many blocks in every stage, so that every choice costs the same.
        gate: of the strategy `spread`: whose spread, `se` when None.
        name: of the network, for the report.
    """
    began = time.perf_counter()
    check_module(network)
    chosen = strategy_named(strategy)
    if gate is not None and chosen is not SPREAD:
        raise OptionError(
            f"Strategy {strategy!r} takes no gate, which is for {SPREAD.name!r}. Leave it out."
        )
    budget = _budget(chosen, budget)
    batches = _batches(chosen, loader)
    example = _example(network, batches)
    asked = Asked(
        network,
        find_blocks(network, example),
        example,
        budget,
        per_stage,
        batches,
        "se" if gate is None else gate,
    )
    check_budget(asked, asked.groups)
    found = placed(asked, chosen, chosen.run(asked), began=began, name=name)
    gates = sum(True for _ in attachments(network))
    if gates:
        note = (
            f"the network carries {gates} of our gates; what is measured is the network with them"
        )
        found = replace(found, notes=(*found.notes, note))
    return found


def placed(
    asked: Asked,
    strategy: Strategy,
    found: Scored,
    *,
    began: float,
    name: str | None = None,
    inside: str | None = None,
) -> Placement:
    """What a strategy found, as a placement; `inside` is the module of an `in:`."""
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
    network: nn.Module, where: str, loader: Iterable[Any], *, name: str | None = None
) -> Placement:
    """What a word of a study, such as `stiffest:1`, chooses: that many blocks in every stage.

    `stiffest` and `softest` are measured on `network` as it is, `spread` on the gates that it has.
    """
    began = time.perf_counter()
    word = measured_word(where)
    if word is None:
        raise OptionError(
            f"Expected one of {', '.join(MEASURED)} with a number of blocks per stage, such as "
            f"'stiffest:1', but got {where!r}."
        )
    strategy = strategy_named(word[0])
    batches = _batches(strategy, loader)
    example = _example(network, batches)
    asked = Asked(network, find_blocks(network, example, where), example, word[1], True, batches)
    check_budget(asked, asked.groups)
    if strategy is SPREAD:
        strategy = replace(strategy, what="gates that differ most between images")
        found = spread_scores(stripe(network, batches))
    else:
        found = strategy.run(asked)
    inside, _ = split_inside(where)
    return placed(asked, strategy, found, began=began, name=name, inside=inside)


def _budget(strategy: Strategy, given: int | None) -> int:
    if given is None:
        raise OptionError(
            f"Strategy {strategy.name!r} needs a budget: how many blocks get a gate, budget=3."
        )
    check_whole("the budget", given, 1)
    return given


def _batches(strategy: Strategy, loader: Iterable[Any] | None) -> Iterable[Any]:
    """Something that can be gone through more than once."""
    if loader is None:
        raise InputError(
            f"Strategy {strategy.name!r} measures on images: pass batches of training images, "
            f"loader=...{', with their classes' if strategy.needs == 'labels' else ''}."
        )
    check_batches(loader)
    batches = list(loader) if iter(loader) is loader else loader
    if next(iter(batches), None) is None:
        raise InputError("Expected a loader with at least one batch but got an empty one.")
    return batches


def _example(network: nn.Module, batches: Iterable[Any]) -> Example:
    for batch in batches:
        for inputs in inputs_of(batch, network):
            return head(inputs, 1)
    return example_input(network)
