"""The forms of `where` that choose blocks by a text, one function each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from attnlab._errors import SelectionError
from attnlab._seeds import derive

Block = tuple[int, int]
"""Stage, and block within it."""


def by_stages(where: str, text: str, blocks: Sequence[Block], exists: str) -> set[Block]:
    """`1,3`: all blocks of these stages."""
    stages = {whole_number(where, item) for item in _items(where, text)}
    _require(where, stages - {stage for stage, _ in blocks}, exists)
    return {block for block in blocks if block[0] in stages}


def by_blocks(where: str, text: str, blocks: Sequence[Block], exists: str) -> set[Block]:
    """`0,5` or `1.0,2.3`: blocks by number in the network, or as stage.block."""
    items = _items(where, text)
    wanted = {_block(where, item, blocks, exists) for item in items}
    if len(wanted) < len(items):
        raise SelectionError(f"where={where!r} names one block in two ways.")
    return wanted


def by_stride(where: str, text: str, blocks: Sequence[Block], exists: str) -> set[Block]:
    """`3`: the first block and every third after it."""
    del exists
    items = _items(where, text)
    stride = whole_number(where, items[0])
    if len(items) > 1 or stride < 1:
        raise SelectionError(f"where={where!r}: expected one number of at least 1.")
    return set(blocks[::stride])


def by_code(where: str, text: str, blocks: Sequence[Block], exists: str) -> set[Block]:
    """`1001…`: a bit per block of the network, in its order; the notation of searched schemes."""
    code = text.strip()
    if set(code) - {"0", "1"}:
        raise SelectionError(f"where={where!r}: expected a 0 or a 1 per block but got {code!r}.")
    if len(code) != len(blocks):
        raise SelectionError(
            f"where={where!r}: the code has {len(code)} bits, and the network {len(blocks)} "
            f"blocks. {exists}"
        )
    return {block for bit, block in zip(code, blocks, strict=True) if bit == "1"}


def by_chance(where: str, text: str, blocks: Sequence[Block], exists: str) -> set[Block]:
    """`2@7`: two blocks in every stage, drawn with seed 7."""
    count, seed = _count_and_seed(where, text)
    check_per_stage(where, count, blocks, exists)
    return {
        block
        for stage in dict(blocks)
        for block in _drawn([b for b in blocks if b[0] == stage], count, seed)
    }


def by_chance_anywhere(where: str, text: str, blocks: Sequence[Block], exists: str) -> set[Block]:
    """`4@7`: four blocks of the network, whatever their stages, drawn with seed 7."""
    del exists
    count, seed = _count_and_seed(where, text)
    if not 1 <= count <= len(blocks):
        raise SelectionError(
            f"where={where!r}: expected 1 to {len(blocks)} blocks but got {count}."
        )
    return set(_drawn(blocks, count, seed))


def _count_and_seed(where: str, text: str) -> tuple[int, int]:
    number, at, seed = text.partition("@")
    if not at or not seed.strip():
        raise SelectionError(
            f"where={where!r}: a random choice needs its seed, so that it can be made again: "
            f"{where.rpartition(':')[0]}:{number.strip()}@0."
        )
    return whole_number(where, number), whole_number(where, seed)


def _drawn(blocks: Sequence[Block], count: int, seed: int) -> list[Block]:
    # By a hash, not a generator: the same on every machine and for every version of Python.
    return sorted(blocks, key=lambda block: derive(seed, "place", *block))[:count]


FORMS: Mapping[str, Callable[[str, str, Sequence[Block], str], set[Block]]] = {
    "stages": by_stages,
    "blocks": by_blocks,
    "every": by_stride,
    "code": by_code,
    "random": by_chance,
    "any": by_chance_anywhere,
}


def check_per_stage(where: str, count: int, blocks: Sequence[Block], exists: str) -> None:
    """Refuse a number of blocks per stage that some stage does not have."""
    if count < 1:
        raise SelectionError(
            f"where={where!r}: expected at least 1 block per stage but got {count}."
        )
    for stage in dict(blocks):
        there = sum(block[0] == stage for block in blocks)
        if count > there:
            raise SelectionError(
                f"where={where!r}: {count} blocks of every stage, but stage {stage} has {there} "
                f"to choose from. {exists}"
            )


def whole_number(where: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise SelectionError(f"where={where!r}: expected a number but got {text!r}.") from None


def _items(where: str, text: str) -> list[str]:
    items = [item.strip() for item in text.split(",") if item.strip()]
    repeated = sorted({item for item in items if items.count(item) > 1})
    if repeated:
        raise SelectionError(f"where={where!r} names {', '.join(repeated)} more than once.")
    return items


def _block(where: str, item: str, blocks: Sequence[Block], exists: str) -> Block:
    if "." in item:
        stage, _, block = item.partition(".")
        wanted = (whole_number(where, stage), whole_number(where, block))
    else:
        index = whole_number(where, item)
        wanted = blocks[index] if 0 <= index < len(blocks) else (-1, -1)
    _require(where, set() if wanted in blocks else {item}, exists)
    return wanted


def _require(where: str, missing: set[int] | set[str], exists: str) -> None:
    if missing:
        names = ", ".join(str(item) for item in sorted(missing, key=str))
        raise SelectionError(f"where={where!r}: {names} does not exist in this network. {exists}")
