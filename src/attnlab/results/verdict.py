"""What a table of modules says, in a sentence or two."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from attnlab.results.table import Group, StudyTable, Verdict

Verdicts = Mapping[str, Mapping[str, Verdict]]
"""By module and place, where a place is a data set or a group."""

_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def table_verdict(
    table: StudyTable, seeds: int, name_of: Callable[[Group], str] = lambda group: group.name
) -> str:
    """The sentence for a table some of whose runs are finished; `seeds` are planned for a row."""
    verdicts: dict[str, dict[str, Verdict]] = {}
    reasons: dict[str, None] = {}
    for group in table.groups:
        for row in group.rows:
            if not row.plain:
                compared = row.comparison
                found = "cannot tell" if compared is None else compared.verdict
                verdicts.setdefault(row.label, {})[name_of(group)] = found
                reasons |= {} if compared is None or not compared.note else {compared.note: None}
    backbones = {group.backbone for group in table.groups}
    plain = f"the plain {backbones.pop()}" if len(backbones) == 1 else "the plain backbone"
    return verdict_sentence(verdicts, plain, seeds, list(reasons))


def verdict_sentence(
    verdicts: Verdicts, plain: str, seeds: int = 0, reasons: Sequence[str] = ()
) -> str:
    """Make one sentence of the verdict of every module in every place.

    `plain` is what the modules are compared with, "the plain resnet20"; `reasons` are why nothing
    can be told where that is so. Bold parts are in `**`.
    """
    if not any(v != "cannot tell" for found in verdicts.values() for v in found.values()):
        return _unknown_sentence(plain, seeds, reasons)
    places = list(dict.fromkeys(place for found in verdicts.values() for place in found))
    better, worse = _places_of(verdicts, "better"), _places_of(verdicts, "worse")
    sentences = [*_gains(better, plain, places), *_losses(worse, plain, places)]
    unknown = [m for m, found in verdicts.items() if "cannot tell" in found.values()]
    none = [m for m, p in better.items() if not p and m not in unknown]
    if not sentences:
        number = f" ({seeds} seeds)" if seeds else ""
        sentences.append(f"**No module** differs from {plain} by more than seed noise{number}.")
    elif not any(better.values()):
        sentences.append("No module beats it.")
    elif none:
        verb = "shows" if len(none) == 1 else "show"
        anywhere = " anywhere" if len(places) > 1 else ""
        sentences.append(f"{len(none)} of {len(verdicts)} modules {verb} no gain{anywhere}.")
    if unknown:
        what = "Nothing" if len(places) == 1 else "Not everything"
        sentences.append(f"{what} can be told about {_bold(unknown)}: see the alerts.")
    return " ".join(sentences)


def _unknown_sentence(plain: str, seeds: int, reasons: Sequence[str]) -> str:
    if seeds == 1:
        return f"One seed has no interval, so no module can be said to help or harm {plain}."
    if reasons:
        return f"**No module** can be said to help or harm {plain} ({'; '.join(reasons)})."
    return f"No interval yet, so no module can be said to help or harm {plain}."


def _places_of(verdicts: Verdicts, verdict: Verdict) -> dict[str, list[str]]:
    """Return, by module, the places where it has this verdict."""
    return {
        module: [place for place, own in found.items() if own == verdict]
        for module, found in verdicts.items()
    }


def _gains(better: Mapping[str, list[str]], plain: str, places: Sequence[str]) -> list[str]:
    everywhere = [m for m, p in better.items() if len(p) == len(places)]
    some = {m: p for m, p in better.items() if p and m not in everywhere}
    sentences = []
    if everywhere:
        verb = "beats" if len(everywhere) == 1 else "beat"
        sentences.append(
            f"{_bold(everywhere)} {verb} {plain}{_all(places)} by more than seed noise."
        )
    for where in dict.fromkeys(tuple(p) for p in some.values()):
        modules = [m for m, p in some.items() if tuple(p) == where]
        if sentences:
            verb = "does" if len(modules) == 1 else "do"
            sentences.append(f"{_bold(modules)} {verb} so on {_and(where)} only.")
        else:
            verb = "beats" if len(modules) == 1 else "beat"
            sentences.append(
                f"{_bold(modules)} {verb} {plain} by more than seed noise on {_and(where)} only."
            )
    return sentences


def _losses(worse: Mapping[str, list[str]], plain: str, places: Sequence[str]) -> list[str]:
    sentences = []
    for where in dict.fromkeys(tuple(p) for p in worse.values() if p):
        modules = [m for m, p in worse.items() if tuple(p) == where]
        verb = "is" if len(modules) == 1 else "are"
        on = "" if len(places) == 1 else f" on {_and(where)}"
        sentences.append(f"{_bold(modules)} {verb} worse than {plain}{on} by more than seed noise.")
    return sentences


def _bold(modules: Sequence[str]) -> str:
    return f"**{', '.join(modules)}**"


def _all(places: Sequence[str]) -> str:
    if len(places) == 1:
        return f" on {places[0]}"
    number = _NUMBERS[len(places)] if len(places) < len(_NUMBERS) else str(len(places))
    return " on both data sets" if len(places) == 2 else f" on all {number} data sets"


def _and(places: Sequence[str]) -> str:
    return " and ".join([", ".join(places[:-1]), places[-1]] if len(places) > 1 else places)
