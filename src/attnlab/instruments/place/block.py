"""The blocks of a network among which a placement chooses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from attnlab.residuals.choose import place_and_rest
from attnlab.residuals.example import Example, run_once
from attnlab.residuals.steps import find_steps, no_steps_error
from attnlab.residuals.where import Where, lies_in


@dataclass(frozen=True)
class Block:
    """A block that a gate may go into; what a `where` names."""

    stage: int
    number: int
    """Within the stage, from 0."""
    name: str
    """The name of its module."""
    steps: tuple[str, ...]
    """The labels of its steps; a transformer block has two."""

    @property
    def label(self) -> str:
        """`1.0`, as `where="blocks:1.0"` has it."""
        return f"{self.stage}.{self.number}"


def find_blocks(network: nn.Module, example: Example, where: Where = None) -> list[Block]:
    """The blocks of `network`, of a detector those of its backbone, or those of the module that
    `where` names with `in:`."""
    run = run_once(network, example)
    found = find_steps(run.graph)
    module, _ = place_and_rest(network, where)
    steps = [step for step in found if lies_in(step.owner, module)]
    if not steps:
        raise no_steps_error(network, run)
    names = dict.fromkeys((step.stage, step.block, step.name) for step in steps)
    return [
        Block(
            stage,
            number,
            name,
            tuple(s.label for s in steps if (s.stage, s.block) == (stage, number)),
        )
        for stage, number, name in names
    ]


def by_stage(blocks: Sequence[Block]) -> list[list[Block]]:
    """The blocks of each stage, in the network's order."""
    return [
        [b for b in blocks if b.stage == stage]
        for stage in dict.fromkeys(block.stage for block in blocks)
    ]


def block_labels(blocks: Sequence[Block]) -> str:
    """`1.1, 1.2, 2.1`, shortened if there are many."""
    labels = [block.label for block in blocks]
    return ", ".join(labels if len(labels) <= 12 else [*labels[:11], "…", labels[-1]])
