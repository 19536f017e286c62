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
* a list of module names, or a text with spaces between them: behind the output of each;
* `"norms"`: behind each norm that feeds an activation, the papers' placement for VGG;
* `"in:backbone.body"`: every site inside this module; with one of the above behind a space, those
  of them that lie there: `"in:backbone.body stages:2,3"`;
* a predicate that is given each `Site`.

`"stiffest:2"`, `"softest:2"` and `"spread:2"`, so many blocks in every stage, need a measurement:
they stand in studies, where each run makes its own, and `attnlab place` turns them into one of the
above.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set

from attnlab._errors import SelectionError, unknown_name
from attnlab.residuals._block_forms import FORMS, whole_number
from attnlab.residuals.site import Site

Where = str | Sequence[str] | Callable[[Site], bool] | None
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
            f"or a function of a site but got {given!r}."
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
            f"behind {INSIDE}{module} but got {text.strip()!r}. Modules are named whole, without "
            f"{INSIDE}"
        )
    return module, rest


def lies_in(name: str, module: str) -> bool:
    """Whether `name` is the module or one inside it; everything lies in the network itself."""
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
        raise SelectionError(f"where={where!r} selects no site. {what_exists(sites)}")
    return chosen


def _select_by_text(sites: Sequence[Site], where: str) -> list[Site]:
    form, colon, values = where.partition(":")
    if measured_word(where) is not None:
        raise SelectionError(
            f"where={where!r} is chosen by a measurement, and insert measures nothing. `attnlab "
            f"place` does: it prints the where= that belongs here. In a study the word stands as "
            f"it is."
        )
    if form not in FORMS or not colon or not values.strip(" ,"):
        raise unknown_name("selection where =", where, _FORMS)
    chosen = FORMS[form](where, values, blocks_of(sites), what_exists(sites))
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
    count = whole_number(where, number.strip())
    if count < 1:
        raise SelectionError(
            f"where={where!r}: expected at least 1 block per stage but got {count}."
        )
    return word, count


def blocks_of(sites: Sequence[Site]) -> list[tuple[int, int]]:
    """The blocks in which the sites lie, as (stage, block), in the network's order."""
    return list(dict.fromkeys((site.stage, site.block) for site in sites))


def what_exists(sites: Sequence[Site]) -> str:
    """For messages: the blocks that there are."""
    blocks = blocks_of(sites)
    stages = sorted({stage for stage, _ in blocks})
    per_stage = "; ".join(
        f"stage {stage}: blocks {stage}.0 to {stage}.{max(b for s, b in blocks if s == stage)}"
        for stage in stages
    )
    return (
        f"There are {len(sites)} sites in {len(blocks)} blocks (numbers 0 to {len(blocks) - 1}): "
        f"{per_stage}."
    )
