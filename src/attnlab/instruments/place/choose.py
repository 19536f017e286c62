"""From scores to blocks, with the margins by which they were chosen."""

from __future__ import annotations

from math import isfinite

from attnlab._errors import InputError, SelectionError
from attnlab.instruments.place.block import Block, block_labels
from attnlab.instruments.place.result import BlockScore, Margin
from attnlab.instruments.place.strategy import Placing, Scored


def check_number_of_blocks(asked: Placing, candidates: list[list[Block]], why: str = "") -> None:
    """Refuse a budget that the blocks do not allow."""
    reason = f" ({why})" if why else ""
    for group in candidates:
        if asked.budget <= len(group):
            continue
        if asked.per_stage:
            stage = group[0].stage if group else "one"
            raise SelectionError(
                f"A budget of {asked.budget} blocks in every stage, but stage {stage} has "
                f"{len(group)} to choose from{reason}: {block_labels(group)}."
            )
        raise SelectionError(
            f"A budget of {asked.budget} blocks, but the network has {len(group)} to choose "
            f"from{reason}: {block_labels(group)}."
        )


def chosen_by_score(asked: Placing, found: Scored) -> tuple[list[BlockScore], list[Margin]]:
    """The best blocks of every group, and how far they are from the next."""
    best = {block: step for block in asked.blocks if (step := _best_step(block, found))}
    unscored = found.unscored or "no score"
    groups = [[block for block in group if block in best] for group in asked.groups]
    for before, after in zip(asked.groups, groups, strict=True):
        if not after:
            raise InputError(
                f"No block of {block_labels(before)} has a {found.quantity} ({unscored})."
            )
    left_out = len(best) < len(asked.blocks)
    check_number_of_blocks(asked, groups, unscored if left_out else "")
    sign = 1 if found.largest else -1
    chosen: dict[Block, str] = {}
    margins = []
    for group in groups:
        # The network's order decides an exact tie, and the margin of 0 tells.
        order = sorted(group, key=lambda block: -sign * found.scores[best[block]])
        taken, left = order[: asked.budget], order[asked.budget :]
        stage = group[0].stage if asked.per_stage else None
        if left:
            scores = found.scores[best[taken[-1]]], found.scores[best[left[0]]]
            apart = abs(scores[0] - scores[1])
            margins.append(Margin(stage, taken[-1].label, left[0].label, *scores, apart))
        where = "" if stage is None else f" of stage {stage}"
        for rank, block in enumerate(taken, 1):
            chosen[block] = _reason(found, best[block], rank, len(group), where)
    rows = [
        BlockScore(
            block.label,
            block.stage,
            block.name,
            block in chosen,
            found.scores[best[block]] if block in best else None,
            chosen.get(block, "" if block in best else unscored),
        )
        for block in asked.blocks
    ]
    return rows, margins


def _best_step(block: Block, found: Scored) -> str | None:
    """The label of its step with the largest score; None where none has one."""
    known = [s for s in block.steps if s in found.scores and isfinite(found.scores[s])]
    return max(known, key=lambda step: found.scores[step], default=None)


def _reason(found: Scored, step: str, rank: int, number: int, where: str) -> str:
    end = "largest" if found.largest else "smallest"
    detail = f" {found.details[step]}" if step in found.details else ""
    place = end if rank == 1 else f"number {rank} from the {end}"
    return f"{found.quantity} {found.scores[step]:.3g}{detail}, {place} of {number}{where}"
