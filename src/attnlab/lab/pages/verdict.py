"""The first sentence of the page, and the facts beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from attnlab.page.parts import Chip, Tone
from attnlab.results import Metric
from attnlab.results.record import StudyRecord
from attnlab.results.table import Group
from attnlab.results.verdict import table_verdict

_WEAK = 0.3
"""Points of percent by which a baseline is called weak."""
_SHOWN_CHARACTERS = 60


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
    sentence = table_verdict(record.table, len(record.study.seeds), record.name_of)
    if done < total:
        sentence += f" {done} of {total} runs are finished, so this may change."
    return sentence


def study_chips(record: StudyRecord) -> list[Chip]:
    """Runs, seeds, looks, recipe, deviations, baseline against reference, hours, commit."""
    done, total = len(record.finished), len(record.runs)
    seeds = len(record.study.seeds)
    hours = sum(run.result.seconds for run in record.finished if run.result) / 3600
    machines = [run.stored.environment for run in record.finished if run.stored.environment]
    device = "GPU" if any(each.accelerator != "none" for each in machines) else "CPU"
    gaps = {record.name_of(g): baseline_gap(g, record.metric) for g in record.table.groups}
    known = {name: gap for name, gap in gaps.items() if gap is not None}
    chips = [
        Chip(f"{done} / {total} runs", "good" if done == total else "warn"),
        *([Chip(f"{len(record.failed)} failed", "bad")] if record.failed else []),
        Chip(f"{seeds} seed" + ("s" if seeds > 1 else ""), "neutral" if seeds > 1 else "warn"),
        *_look_chips(record),
        Chip(f"recipe {record.study.recipe}"),
        *_start_chips(record.study.definition.get("pretrain")),
        *_deviation_chips(record.study.deviations),
        *(_baseline_chip(record, name, gap) for name, gap in known.items()),
    ]
    if record.finished and not known:
        chips.append(Chip("no reference figures"))
    if record.finished:
        # By the clock: on a busy machine that is more than the processor's time.
        time = f"{hours:.1f} h" if hours >= 0.1 else f"{60 * hours:.1f} min"
        chips.append(Chip(f"{time} of training on {device}"))
    return [*chips, *_commit_chips(record)]


def _start_chips(pretrain: object) -> list[Chip]:
    """Say that the runs of a study go on from trained networks, with the settings of that
    training."""
    if not isinstance(pretrain, Mapping):
        return []
    shown = ", ".join(f"{name} = {value}" for name, value in pretrain.items())
    return [Chip("from trained networks", detail=shown)]


def _look_chips(record: StudyRecord) -> list[Chip]:
    if not record.table.sequential:
        return []
    if any(plan.until_decided for plan in record.plans) and not record.is_extended:
        return [Chip("looks were planned: anytime-valid intervals")]
    looked = "looked and extended" if record.is_extended else "seen before it was planned"
    return [Chip(f"{looked}: anytime-valid intervals", "warn")]


def _deviation_chips(found: Sequence[tuple[str, object, object]]) -> list[Chip]:
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
    """Return None if the paper or the runs have no figure. Weak is what is worse by more than the
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
    machines = [run.stored.environment for run in record.finished]
    commits = sorted({(each.commit if each else None) or "" for each in machines})
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
