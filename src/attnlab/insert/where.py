"""Choose among the sites of a network.

`where` is one of

* `None` or `"all"`: every site; of a detector, every site of its backbone;
* `"stages:1,3"`: all blocks of these stages (from 1);
* `"blocks:0,5"` or `"blocks:1.0,2.3"`: blocks by their number in the network (from 0), or as
  stage.block;
* `"every:3"`: the first block and every third after it;
* a list of module names, or a text with spaces between them: behind the output of each;
* `"norms"`: behind each norm that feeds an activation, the papers' placement for VGG;
* `"in:backbone.body"`: every site inside this module; with one of the above behind a space, those
  of them that lie there: `"in:backbone.body stages:2,3"`;
* a predicate that is given each `Site`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set

from attnlab._errors import SelectionError, unknown_name
from attnlab.insert.site import Site

Where = str | Sequence[str] | Callable[[Site], bool] | None
EVERYWHERE = "all"

_FORMS = ("stages:1,2", "blocks:0,3", "blocks:1.0,2.3", "every:2", "norms", "in:module")
INSIDE = "in:"


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
            f"where={where!r}: expected stages:, blocks:, every: or norms behind {INSIDE}{module} "
            f"but got {text.strip()!r}. Modules are named whole, without {INSIDE}"
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
        raise SelectionError(f"where={where!r} selects no site. {_what_exists(sites)}")
    return chosen


def _select_by_text(sites: Sequence[Site], where: str) -> list[Site]:
    form, colon, values = where.partition(":")
    items = [item.strip() for item in values.split(",") if item.strip()]
    if form not in ("stages", "blocks", "every") or not colon or not items:
        raise unknown_name("selection where =", where, _FORMS)
    repeated = sorted({item for item in items if items.count(item) > 1})
    if repeated:
        raise SelectionError(f"where={where!r} names {', '.join(repeated)} more than once.")
    blocks = _blocks(sites)
    if form == "every":
        stride = _number(where, items[0])
        if len(items) > 1 or stride < 1:
            raise SelectionError(f"where={where!r}: expected one number of at least 1.")
        wanted = set(blocks[::stride])
        return [site for site in sites if (site.stage, site.block) in wanted]
    if form == "stages":
        stages = {_number(where, item) for item in items}
        _require(where, stages - {stage for stage, _ in blocks}, sites)
        return [site for site in sites if site.stage in stages]
    wanted = {_block(where, item, blocks, sites) for item in items}
    if len(wanted) < len(items):
        raise SelectionError(f"where={where!r} names one block in two ways.")
    return [site for site in sites if (site.stage, site.block) in wanted]


def _blocks(sites: Sequence[Site]) -> list[tuple[int, int]]:
    return list(dict.fromkeys((site.stage, site.block) for site in sites))


def _number(where: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise SelectionError(f"where={where!r}: expected a number but got {text!r}.") from None


def _block(
    where: str, item: str, blocks: list[tuple[int, int]], sites: Sequence[Site]
) -> tuple[int, int]:
    if "." in item:
        stage, _, block = item.partition(".")
        wanted = (_number(where, stage), _number(where, block))
    else:
        index = _number(where, item)
        wanted = blocks[index] if 0 <= index < len(blocks) else (-1, -1)
    _require(where, set() if wanted in blocks else {item}, sites)
    return wanted


def _require(where: str, missing: set[int] | set[str], sites: Sequence[Site]) -> None:
    if missing:
        names = ", ".join(str(item) for item in sorted(missing, key=str))
        raise SelectionError(
            f"where={where!r}: {names} does not exist in this network. {_what_exists(sites)}"
        )


def _what_exists(sites: Sequence[Site]) -> str:
    blocks = _blocks(sites)
    stages = sorted({stage for stage, _ in blocks})
    per_stage = "; ".join(
        f"stage {stage}: blocks {stage}.0 to {stage}.{max(b for s, b in blocks if s == stage)}"
        for stage in stages
    )
    return (
        f"There are {len(sites)} sites in {len(blocks)} blocks (numbers 0 to {len(blocks) - 1}): "
        f"{per_stage}."
    )
