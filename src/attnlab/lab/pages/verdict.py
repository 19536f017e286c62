"""The first sentence of the page, and the facts beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from attnlab.page.parts import Chip, Tone
from attnlab.results import Metric
from attnlab.results.record import StudyRecord
from attnlab.results.table import Group, Verdict

_WEAK = 0.3
"""Points of percent by which a baseline is called weak."""
_SHOWN_CHARACTERS = 60
_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def verdict_sentence(
    verdicts: Mapping[str, Mapping[str, Verdict]],
    plain: str,
    seeds: int = 0,
    reasons: Sequence[str] = (),
) -> str:
    """From module → place → verdict, where a place is a data set or a group.

    `plain` is what the modules are compared with, "the plain resnet20"; `reasons` are why nothing
    can be told where that is so. Bold parts are in `**`.
    """
    places = list(dict.fromkeys(place for found in verdicts.values() for place in found))
    better = {m: [p for p, v in found.items() if v == "better"] for m, found in verdicts.items()}
    worse = {m: [p for p, v in found.items() if v == "worse"] for m, found in verdicts.items()}
    known = any(v != "cannot tell" for found in verdicts.values() for v in found.values())
    if not known and seeds == 1:
        return f"One seed has no interval, so no module can be said to help or harm {plain}."
    if not known and reasons:
        return f"**No module** can be said to help or harm {plain} ({'; '.join(reasons)})."
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
    reasons: dict[str, None] = {}
    for group in record.table.groups:
        for row in group.rows:
            if not row.plain:
                compared = row.comparison
                found = "cannot tell" if compared is None else compared.verdict
                verdicts.setdefault(row.label, {})[record.name_of(group)] = found
                reasons |= {} if compared is None or not compared.note else {compared.note: None}
    backbones = {group.backbone for group in record.table.groups}
    plain = f"the plain {backbones.pop()}" if len(backbones) == 1 else "the plain backbone"
    sentence = verdict_sentence(verdicts, plain, len(record.study.seeds), list(reasons))
    if done < total:
        sentence += f" {done} of {total} runs are finished, so this may change."
    return sentence


def study_chips(record: StudyRecord) -> list[Chip]:
    """Runs, seeds, looks, recipe, deviations, baseline against reference, hours, commit."""
    done, total = len(record.finished), len(record.runs)
    seeds = len(record.study.seeds)
    hours = sum(run.result.seconds for run in record.finished if run.result) / 3600
    names = {str(run.stored.environment.get("accelerator", "none")) for run in record.finished}
    device = "GPU" if names - {"none"} else "CPU"
    gaps = {record.name_of(g): baseline_gap(g, record.metric) for g in record.table.groups}
    known = {name: gap for name, gap in gaps.items() if gap is not None}
    chips = [
        Chip(f"{done} / {total} runs", "good" if done == total else "warn"),
        *([Chip(f"{len(record.failed)} failed", "bad")] if record.failed else []),
        Chip(f"{seeds} seed" + ("s" if seeds > 1 else ""), "neutral" if seeds > 1 else "warn"),
        *_look_chips(record),
        Chip(f"recipe {record.study.recipe}"),
        *_deviation_chips(record.study.deviations),
        *(_baseline_chip(record, name, gap) for name, gap in known.items()),
    ]
    if record.finished and not known:
        chips.append(Chip("no reference figures"))
    if record.finished:
        time = f"{hours:.1f} {device}-h" if hours >= 0.1 else f"{60 * hours:.1f} {device}-min"
        chips.append(Chip(time))
    return [*chips, *_commit_chips(record)]


def _look_chips(record: StudyRecord) -> list[Chip]:
    if not record.table.sequential:
        return []
    looked = "looked and extended" if record.is_extended else "looks were planned"
    return [Chip(f"{looked}: anytime-valid intervals", "warn" if record.is_extended else "neutral")]


def _deviation_chips(found: Sequence[tuple[str, Any, Any]]) -> list[Chip]:
    if not found:
        return [Chip("no deviation from the recipe", "good")]
    texts = [f"{setting} {before} → {after}" for setting, before, after in found]
    number = "1 deviation" if len(found) == 1 else f"{len(found)} deviations"
    shown = ", ".join(texts)
    if len(shown) > _SHOWN_CHARACTERS:
        return [Chip(f"{number} from the recipe, listed below", "warn", shown)]
    return [Chip(f"{number} from the recipe: {shown}", "warn")]


class Gap(NamedTuple):
    """The plain backbone against the published figure of it."""

    text: str
    """`1.5 pt under`, `at`."""
    weak: bool | None
    """None where no spread says how much is much."""


def baseline_gap(group: Group, metric: Metric) -> Gap | None:
    """None where the paper or the runs have no figure. Weak is what is worse by more than the
    paper's own spread and 0.3 points, for values that are not percentages the spread over seeds."""
    plain = group.plain
    if plain is None or metric.name not in plain.paper or metric.name not in plain.values:
        return None
    own, paper = plain.values[metric.name], plain.paper[metric.name]
    gap = own.mean - paper.mean
    digits = max(0, metric.digits - 1)
    size = f"{abs(gap):.{digits}f}"
    unit = f" {metric.difference_unit}" if metric.difference_unit else ""
    side = "at" if float(size) == 0 else f"{size}{unit} {'under' if gap < 0 else 'over'}"
    given = (_WEAK if metric.unit == "%" else own.std, paper.std)
    limits = [limit for limit in given if limit is not None]
    worse = -gap if metric.better == "higher" else gap
    return Gap(side, worse > max(limits) if limits else None)


def _baseline_chip(record: StudyRecord, name: str, gap: Gap) -> Chip:
    text = f"baseline {name} {gap.text} reference"
    tone: Tone = "neutral" if gap.weak is None else "warn" if gap.weak else "good"
    return Chip(text, tone, record.table.paper_source)


def short_commit(commit: str) -> str:
    """The first digits; a `+` at the end, for files changed since, stays."""
    return f"{commit[:7]}+" if commit.endswith("+") else commit[:7]


def _commit_chips(record: StudyRecord) -> list[Chip]:
    commits = sorted({str(run.stored.environment.get("commit") or "") for run in record.finished})
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
