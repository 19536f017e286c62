"""Random blocks: what every other strategy has to beat."""

from __future__ import annotations

from attnlab._errors import OptionError
from attnlab._seeds import derive
from attnlab.instruments.place.block import Block
from attnlab.instruments.place.strategy import Asked, Picked, Strategy


def by_chance(asked: Asked) -> Picked:
    """With `per_stage`, the blocks of `where="random:k@seed"`; by the same hash without."""
    if asked.seed is None:
        raise OptionError(
            "Strategy 'random' needs its seed, so that the choice can be made again: seed=0."
        )
    assert asked.budget is not None
    seed = asked.seed

    def order(block: Block) -> int:
        return derive(seed, "place", block.stage, block.number)

    chosen = {b for group in asked.groups for b in sorted(group, key=order)[: asked.budget]}
    return Picked([b for b in asked.blocks if b in chosen], f"drawn with seed {seed}")


RANDOM = Strategy(
    "random", "blocks drawn with a seed: the null", "nothing", by_chance, frozenset({"seed"})
)
