"""Blocks that you name."""

from __future__ import annotations

from attnlab._errors import OptionError
from attnlab.instruments.place.strategy import Asked, Picked, Strategy
from attnlab.residuals.sites import step_sites
from attnlab.residuals.steps import steps
from attnlab.residuals.where import select


def by_hand(asked: Asked) -> Picked:
    """The blocks of `where`."""
    if asked.where is None:
        raise OptionError(
            "Strategy 'hand' is for blocks that you name: where='blocks:0,3', or a scheme, "
            "where='code:1001…'."
        )
    sites = step_sites(asked.network, steps(asked.network, asked.example), at_addition=True)
    inside = {(block.stage, block.number) for block in asked.blocks}
    chosen = select([s for s in sites if (s.stage, s.block) in inside], asked.where)
    named = {(site.stage, site.block) for site in chosen}
    blocks = [block for block in asked.blocks if (block.stage, block.number) in named]
    for group in asked.groups:
        number = len(set(group) & set(blocks))
        if asked.budget is not None and number != asked.budget:
            stage = f" of stage {group[0].stage}" if asked.per_stage else ""
            raise OptionError(
                f"where={asked.where!r} names {number} blocks{stage}, and the budget is "
                f"{asked.budget}. Leave the budget out, or name as many."
            )
    return Picked(blocks, f"named by hand: {asked.where}")


HAND = Strategy("hand", "the blocks that you name", "nothing", by_hand, frozenset({"where"}))
