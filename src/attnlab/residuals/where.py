"""Choose among the sites of a network.

`where` is one of

* `None` or `"all"`: every site; of a detector, every site of its backbone;
* `"stages:1,3"`: all blocks of these stages (from 1);
* `"blocks:0,5"` or `"blocks:1.0,2.3"`: blocks by their number in the network (from 0), or as
  stage.block;
* `"every:3"`: the first block and every third after it;
* `"code:1001…"`: a bit per block of the network, as searched schemes are written;
* `"random:2@7"`: two blocks in every stage, drawn with seed 7, the same on every machine;
* `"any:4@7"`: four blocks of the network, whatever their stages, drawn likewise;
* a list of module names, or a text with spaces between them: after the output of each;
* `"norms"`: after each norm that feeds an activation, the papers' placement for VGG;
* `"in:backbone.body"`: every site inside this module; followed by a space and one of
  the above, those of them that lie there: `"in:backbone.body stages:2,3"`;
* a predicate that is given each `Site`.

`"stiffest:2"`, `"softest:2"` and `"spread:2"`, two blocks in every stage, need a measurement: in a
study each run makes its own, and `attnlab place` turns them into one of the above.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass

from attnlab._checked import in_message, where_in_message
from attnlab._errors import SelectionError, unknown_name
from attnlab._seeds import derive
from attnlab.residuals.site import Site

Where = str | Sequence[str] | Callable[[Site], bool] | None
_Block = tuple[int, int]
"""Stage, and block within it."""
EVERYWHERE = "all"

_FORMS = (
    "stages:1,2",
    "blocks:0,3",
    "blocks:1.0,2.3",
    "every:2",
    "code:1001",
    "random:1@0",
    "any:3@0",
    "norms",
    "in:module",
)
INSIDE = "in:"
MEASURED = ("stiffest", "softest", "spread")
"""Words for that many blocks in every stage, chosen by a measurement."""
DRAWN = ("random:", "any:")
"""How selections begin that are drawn with a seed."""


def parse_where(given: str | Sequence[str] | None) -> str | list[str] | None:
    """`where` as people type it and as files have it: None for every site, a selection or the name
    of one module as a text, or a list of module names."""
    if given is None or given == EVERYWHERE:
        return None
    if not isinstance(given, Sequence | Set | Mapping):
        raise SelectionError(
            f"Expected where to be None, a selection such as {_FORMS[0]!r}, a list of module names "
            f"or a function of a site but got {in_message(given)}."
        )
    if isinstance(given, str):
        names = [given] if ":" in given else given.split()
        where: str | list[str] = names[0] if len(names) == 1 else names
    else:
        where = list(given)
    if not where:
        raise SelectionError(
            f"where={given!r} selects no site. Expected None or {EVERYWHERE!r} for every site, a "
            f"selection such as {_FORMS[0]!r}, or names of modules."
        )
    return where


def split_inside(where: Where) -> tuple[str | None, Where]:
    """The module that `where` names with `in:`, None without one, and the rest of it."""
    if not isinstance(where, str) or not where.startswith(INSIDE):
        return None, where
    module, _, text = where.removeprefix(INSIDE).partition(" ")
    rest = parse_where(text.strip() or None)
    if isinstance(rest, list) or (rest and rest != "norms" and ":" not in rest):
        raise SelectionError(
            f"where={where!r}: expected stages:, blocks:, every:, code:, random:, any: or norms "
            f"after {INSIDE}{module} but got {text.strip()!r}. Modules are named whole, without "
            f"{INSIDE}"
        )
    return module, rest


def lies_in(name: str, module: str) -> bool:
    """Return whether `name` is the module or one inside it; everything lies in the network
    itself."""
    return not module or name == module or name.startswith(f"{module}.")


def select(sites: Sequence[Site], where: Where) -> list[Site]:
    """The chosen sites, in the network's order. Empty and overlapping choices are errors."""
    if where is None:
        return list(sites)
    if callable(where):
        chosen = [site for site in sites if where(site)]
    elif isinstance(where, str):
        chosen = _select_by_text(sites, where)
    else:
        return list(sites)  # module names: the sites were made from them
    if not chosen:
        raise SelectionError(f"{where_in_message(where)} selects no site. {_what_exists(sites)}")
    return chosen


def _select_by_text(sites: Sequence[Site], where: str) -> list[Site]:
    form, colon, values = where.partition(":")
    if measured_word(where) is not None:
        raise SelectionError(
            f"where={where!r} is chosen by a measurement, and insert measures nothing. `attnlab "
            f"place` does: it prints the where= that belongs here. In a study the word stands as "
            f"it is."
        )
    if form not in _BY_TEXT or not colon or not values.strip(" ,"):
        raise unknown_name("selection where =", where, _FORMS)
    chosen = _BY_TEXT[form](_Asked(where, values, _blocks(sites), _what_exists(sites)))
    return [site for site in sites if (site.stage, site.block) in chosen]


def measured_word(where: Where) -> tuple[str, int] | None:
    """The word and the number of blocks per stage of a `where` that asks for a measurement; None
    for any other."""
    if not isinstance(where, str):
        return None
    _, rest = split_inside(where)
    if not isinstance(rest, str):
        return None
    word, colon, number = rest.partition(":")
    if word not in MEASURED or not colon:
        return None
    count = _whole_number(where, number.strip())
    _check_per_stage(where, count)
    return word, count


def _blocks(sites: Sequence[Site]) -> list[_Block]:
    """The blocks in which the sites lie, as (stage, block), in the network's order."""
    return list(dict.fromkeys((site.stage, site.block) for site in sites))


def _what_exists(sites: Sequence[Site]) -> str:
    """Say for a message which blocks there are."""
    blocks = _blocks(sites)
    stages = sorted({stage for stage, _ in blocks})
    per_stage = "; ".join(
        f"stage {stage}: blocks {stage}.0 to {stage}.{max(b for s, b in blocks if s == stage)}"
        for stage in stages
    )
    exists = (
        f"There are {len(sites)} sites in {len(blocks)} blocks (numbers 0 to {len(blocks) - 1}): "
        f"{per_stage}."
    )
    if sites and all(site.refusal for site in sites):
        return f"{exists} No gate can act at any of them; of the first, {sites[0].refusal}."
    return exists


@dataclass(frozen=True)
class _Asked:
    """A selection by a text, and the blocks that it chooses from."""

    where: str
    text: str
    """What follows the colon."""
    blocks: Sequence[_Block]
    exists: str
    """The blocks that there are, for messages."""

    def error(self, what: str) -> SelectionError:
        return SelectionError(f"where={self.where!r}: {what}")

    def items(self) -> list[str]:
        items = [item.strip() for item in self.text.split(",") if item.strip()]
        repeated = sorted({item for item in items if items.count(item) > 1})
        if repeated:
            raise SelectionError(
                f"where={self.where!r} names {', '.join(repeated)} more than once."
            )
        return items

    def require(self, missing: set[int] | set[str]) -> None:
        """Refuse stages or blocks that the network does not have."""
        if missing:
            names = ", ".join(str(item) for item in sorted(missing, key=str))
            raise self.error(f"{names} does not exist in this network. {self.exists}")

    def count_and_seed(self) -> tuple[int, int]:
        number, at, seed = self.text.partition("@")
        if not at or not seed.strip():
            raise self.error(
                f"a random choice needs its seed, so that it can be made again: "
                f"{self.where.rpartition(':')[0]}:{number.strip()}@0."
            )
        return _whole_number(self.where, number), _whole_number(self.where, seed)


def _by_stages(asked: _Asked) -> set[_Block]:
    """`1,3`: all blocks of these stages."""
    stages = {_whole_number(asked.where, item) for item in asked.items()}
    asked.require(stages - {stage for stage, _ in asked.blocks})
    return {block for block in asked.blocks if block[0] in stages}


def _by_blocks(asked: _Asked) -> set[_Block]:
    """`0,5` or `1.0,2.3`: blocks by number in the network, or as stage.block."""
    items = asked.items()
    wanted = {_block(asked, item) for item in items}
    if len(wanted) < len(items):
        raise SelectionError(f"where={asked.where!r} names one block in two ways.")
    return wanted


def _block(asked: _Asked, item: str) -> _Block:
    if "." in item:
        stage, _, block = item.partition(".")
        wanted = (_whole_number(asked.where, stage), _whole_number(asked.where, block))
    else:
        index = _whole_number(asked.where, item)
        wanted = asked.blocks[index] if 0 <= index < len(asked.blocks) else (-1, -1)
    asked.require(set() if wanted in asked.blocks else {item})
    return wanted


def _by_stride(asked: _Asked) -> set[_Block]:
    """`3`: the first block and every third after it."""
    items = asked.items()
    stride = _whole_number(asked.where, items[0])
    if len(items) > 1 or stride < 1:
        raise asked.error("expected one number of at least 1.")
    return set(asked.blocks[::stride])


def _by_code(asked: _Asked) -> set[_Block]:
    """`1001…`: a bit per block of the network, in its order; the notation of searched schemes."""
    code = asked.text.strip()
    if set(code) - {"0", "1"}:
        raise asked.error(f"expected a 0 or a 1 per block but got {code!r}.")
    if len(code) != len(asked.blocks):
        raise asked.error(
            f"the code has {len(code)} bits, and the network {len(asked.blocks)} blocks. "
            f"{asked.exists}"
        )
    return {block for bit, block in zip(code, asked.blocks, strict=True) if bit == "1"}


def _by_chance(asked: _Asked) -> set[_Block]:
    """`2@7`: two blocks in every stage, drawn with seed 7."""
    count, seed = asked.count_and_seed()
    _check_per_stage(asked.where, count)
    stages: dict[int, list[_Block]] = defaultdict(list)
    for block in asked.blocks:
        stages[block[0]].append(block)
    for stage, there in stages.items():
        if count > len(there):
            raise asked.error(
                f"{count} blocks of every stage, but stage {stage} has {len(there)} to choose "
                f"from. {asked.exists}"
            )
    return {block for there in stages.values() for block in _drawn(there, count, seed)}


def _by_chance_anywhere(asked: _Asked) -> set[_Block]:
    """`4@7`: four blocks of the network, whatever their stages, drawn with seed 7."""
    count, seed = asked.count_and_seed()
    if not 1 <= count <= len(asked.blocks):
        raise asked.error(f"expected 1 to {len(asked.blocks)} blocks but got {count}.")
    return set(_drawn(asked.blocks, count, seed))


def _drawn(blocks: Sequence[_Block], count: int, seed: int) -> list[_Block]:
    # By a hash, not a generator: the same on every machine and for every version of Python.
    return sorted(blocks, key=lambda block: derive(seed, "place", *block))[:count]


_BY_TEXT: Mapping[str, Callable[[_Asked], set[_Block]]] = {
    "stages": _by_stages,
    "blocks": _by_blocks,
    "every": _by_stride,
    "code": _by_code,
    "random": _by_chance,
    "any": _by_chance_anywhere,
}


def _check_per_stage(where: str, count: int) -> None:
    if count < 1:
        raise SelectionError(
            f"where={where!r}: expected at least 1 block per stage but got {count}."
        )


def _whole_number(where: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise SelectionError(f"where={where!r}: expected a number but got {text!r}.") from None
