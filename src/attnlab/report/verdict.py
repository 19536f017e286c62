"""The first sentence of the page, and the facts beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attnlab.report.parts import Chip
from attnlab.report.read import StudyRecord
from attnlab.report.standing import plain_row
from attnlab.study.statistics import Verdict
from attnlab.study.table import Group
from attnlab.train.recipe import list_recipes, load_recipe

_WEAK = 0.3
"""Points under a reference from which on a baseline is called weak; its own spread if larger."""
_SHOWN_CHARACTERS = 60
_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def verdict_sentence(
    verdicts: Mapping[str, Mapping[str, Verdict]], plain: str, seeds: int = 0
) -> str:
    """From module → place → verdict, where a place is a data set or a group.

    `plain` is what the modules are compared with, "the plain resnet20". Bold parts are in `**`.
    """
    places = list(dict.fromkeys(place for found in verdicts.values() for place in found))
    better = {m: [p for p, v in found.items() if v == "better"] for m, found in verdicts.items()}
    worse = {m: [p for p, v in found.items() if v == "worse"] for m, found in verdicts.items()}
    known = any(v != "cannot tell" for found in verdicts.values() for v in found.values())
    if not known and seeds == 1:
        return f"One seed has no interval, so no module can be said to help or harm {plain}."
    if not known:
        return f"No interval yet, so no module can be said to help or harm {plain}."
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
        if everywhere or len(sentences):
            verb = "does" if len(modules) == 1 else "do"
            sentences.append(f"{_bold(modules)} {verb} so on {_and(where)} only.")
        else:
            verb = "beats" if len(modules) == 1 else "beat"
            sentences.append(
                f"{_bold(modules)} {verb} {plain} by more than seed noise on {_and(where)} only."
            )
    for where in dict.fromkeys(tuple(p) for p in worse.values() if p):
        modules = [m for m, p in worse.items() if tuple(p) == where]
        verb = "is" if len(modules) == 1 else "are"
        on = "" if len(places) == 1 else f" on {_and(where)}"
        sentences.append(f"{_bold(modules)} {verb} worse than {plain}{on} by more than seed noise.")
    none = [m for m, p in better.items() if not p]
    if not sentences:
        number = f" ({seeds} seeds)" if seeds else ""
        return f"**No module** differs from {plain} by more than seed noise{number}."
    if not any(better.values()):
        sentences.append("No module beats it.")
    elif none:
        verb = "shows" if len(none) == 1 else "show"
        anywhere = " anywhere" if len(places) > 1 else ""
        sentences.append(f"{len(none)} of {len(verdicts)} modules {verb} no gain{anywhere}.")
    return " ".join(sentences)


def _bold(modules: Sequence[str]) -> str:
    return f"**{', '.join(modules)}**"


def _all(places: Sequence[str]) -> str:
    if len(places) == 1:
        return f" on {places[0]}"
    number = _NUMBERS[len(places)] if len(places) < len(_NUMBERS) else str(len(places))
    return " on both data sets" if len(places) == 2 else f" on all {number} data sets"


def _and(places: Sequence[str]) -> str:
    return " and ".join([", ".join(places[:-1]), places[-1]] if len(places) > 1 else places)


def study_verdict(record: StudyRecord) -> str:
    """The sentence for a study, finished or not."""
    done, total = len(record.finished), len(record.runs)
    if not done:
        failed = len(record.failed)
        if failed == total:
            return f"**All {total} runs failed**, so there is nothing to compare. See the alerts."
        more = f", {failed} failed" if failed else ""
        return f"Nothing is finished yet: 0 of {total} runs{more}."
    if not record.study.has_plain:
        return "The study has no plain backbone, so no module can be said to help."
    verdicts: dict[str, dict[str, Verdict]] = {}
    for group in record.table.groups:
        for row in group.rows:
            if not row.plain:
                found = "cannot tell" if row.comparison is None else row.comparison.verdict
                verdicts.setdefault(row.label, {})[record.name_of(group)] = found
    backbones = {group.backbone for group in record.table.groups}
    plain = f"the plain {backbones.pop()}" if len(backbones) == 1 else "the plain backbone"
    sentence = verdict_sentence(verdicts, plain, len(record.study.seeds))
    if done < total:
        sentence += f" {done} of {total} runs are finished, so this may change."
    return sentence


def study_chips(record: StudyRecord) -> list[Chip]:
    """Runs, seeds, recipe, deviations, baseline against reference, hours, commit."""
    done, total = len(record.finished), len(record.runs)
    seeds = len(record.study.seeds)
    hours = sum(run.result.seconds for run in record.finished if run.result) / 3600
    names = {str(run.environment.get("accelerator", "none")) for run in record.finished}
    device = "GPU" if names - {"none"} else "CPU"
    chips = [
        Chip(f"{done} / {total} runs", "good" if done == total else "warn"),
        *([Chip(f"{len(record.failed)} failed", "bad")] if record.failed else []),
        Chip(f"{seeds} seed" + ("s" if seeds > 1 else ""), "neutral" if seeds > 1 else "warn"),
        Chip(f"recipe {_recipe_name(record)}"),
        *_deviation_chips(deviations(record)),
        *(_baseline_chip(record, group) for group in record.table.groups if _has_reference(group)),
    ]
    if record.finished and not any(_has_reference(group) for group in record.table.groups):
        chips.append(Chip("no reference figures"))
    if record.finished:
        time = f"{hours:.1f} {device}-h" if hours >= 0.1 else f"{60 * hours:.1f} {device}-min"
        chips.append(Chip(time))
    return [*chips, *_commit_chips(record)]


def _recipe_name(record: StudyRecord) -> str:
    return str(record.study.recipe.get("name") or "of its own")


def deviations(record: StudyRecord) -> list[tuple[str, Any, Any]]:
    """(setting, as the named recipe has it, as the study has it)."""
    found: dict[tuple[str, str], tuple[str, Any, Any]] = {}
    for run in record.runs:
        recipe = run.planned.config.recipe
        if recipe.name not in list_recipes():
            continue
        named = load_recipe(str(recipe.name)).model_dump()
        for setting, value in recipe.model_dump().items():
            if value != named[setting]:
                found[setting, repr(value)] = (setting, named[setting], value)
    return list(found.values())


def _deviation_chips(found: Sequence[tuple[str, Any, Any]]) -> list[Chip]:
    if not found:
        return [Chip("no deviation from the recipe", "good")]
    texts = [f"{setting} {before} → {after}" for setting, before, after in found]
    number = "1 deviation" if len(found) == 1 else f"{len(found)} deviations"
    shown = ", ".join(texts)
    if len(shown) > _SHOWN_CHARACTERS:
        return [Chip(f"{number} from the recipe, listed below", "warn", shown)]
    return [Chip(f"{number} from the recipe: {shown}", "warn")]


def _has_reference(group: Group) -> bool:
    plain = plain_row(group)
    return plain is not None and plain.paper is not None and plain.top1 is not None


def baseline_gap(group: Group) -> tuple[float, bool] | None:
    """Points above the published figure of the plain backbone, and whether that is weak."""
    plain = plain_row(group)
    if plain is None or plain.paper is None or plain.top1 is None:
        return None
    gap = plain.top1.mean - plain.paper.mean
    return gap, gap < -max(_WEAK, plain.paper.std or 0.0)


def _baseline_chip(record: StudyRecord, group: Group) -> Chip:
    found = baseline_gap(group)
    assert found is not None
    gap, weak = found
    side = "at" if abs(gap) < 0.05 else f"{abs(gap):.1f} pt {'under' if gap < 0 else 'over'}"
    text = f"baseline {record.name_of(group)} {side} reference"
    return Chip(text, "warn" if weak else "good", record.table.paper_source)


def short_commit(commit: str) -> str:
    """The first digits; a `+` at the end, for files changed since, stays."""
    return f"{commit[:7]}+" if commit.endswith("+") else commit[:7]


def _commit_chips(record: StudyRecord) -> list[Chip]:
    commits = sorted({str(run.environment.get("commit") or "") for run in record.finished})
    if not record.finished:
        return []
    if len(commits) > 1:
        shown = ", ".join(short_commit(commit) or "unknown" for commit in commits)
        return [Chip(f"{len(commits)} commits", "warn", shown)]
    commit = commits[0]
    if not commit:
        return [Chip("commit unknown")]
    changed = commit.endswith("+")
    return [
        Chip(
            f"{commit[:7]} · {'modified' if changed else 'clean'}", "warn" if changed else "neutral"
        )
    ]
