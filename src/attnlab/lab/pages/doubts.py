"""What makes every verdict of a page doubtful, whatever its figures are: a plain network that has
learned nothing, runs that diverged, too few test images; and which rows may be deployed."""

from __future__ import annotations

import math
from collections.abc import Iterator

from attnlab._words import counted, listed
from attnlab.page.parts import Chip
from attnlab.results.record import RunRecord, StudyRecord
from attnlab.results.run_files import RunData
from attnlab.results.table import Group, StudyRow

_SIGMAS = 3.0
"""Standard errors of a share above chance that are still chance."""
_FEWEST_IMAGES = 6
"""If all images on which two networks differ speak for one of them, six are the fewest that a sign
test calls more than chance at 5 % (2 / 2⁶ = 0.03; of five it is 0.06)."""
_DIVERGED = "The loss is "
"""How `attnlab.lab.training.NonFiniteLossError` begins."""


def doubts(record: StudyRecord) -> list[Chip]:
    """The alerts for the top of the page."""
    found = [*_diverged(record)]
    for group in record.table.groups:
        found += [*_at_chance(record, group), *_few_images(record, group)]
    return found


def deployable(record: StudyRecord, label: str) -> list[RunRecord]:
    """The runs of a row, in the first group where it was shown to be better than the plain network
    or equivalent to a row of the study that has attention; none if it is worse in another
    group."""
    places = [(g, row) for g in record.table.groups for row in g.rows if row.label == label]
    compared = [row.comparison.verdict for _, row in places if row.comparison is not None]
    if "worse" in compared:
        return []
    good = (group for group, row in places if _shown_good(row, group))
    return next((record.of(group, label) for group in good), [])


def _shown_good(row: StudyRow, group: Group) -> bool:
    better = row.comparison is not None and row.comparison.verdict == "better"
    equal = row.equivalence
    # As good as the plain network is a reason to take that, which is simpler.
    plain = group.plain is not None and equal is not None and equal.to == group.plain.label
    return better or (equal is not None and equal.verdict == "equivalent" and not plain)


def _diverged(record: StudyRecord) -> Iterator[Chip]:
    """Runs whose loss was lost, or ended above what it was after the first epoch."""
    lost = [str(run.entry) for run in record.failed if _DIVERGED in run.failure]
    rose = [str(run.entry) for run in record.finished if _rose(run)]
    if lost:
        yield Chip(
            f"{counted(len(lost), 'run')} diverged: {listed(lost)}.",
            "bad",
            "Their loss is not a number. What is left is a choice of the runs that went well: set "
            "a smaller learning rate, or clip, and train all rows anew.",
        )
    if rose:
        yield Chip(
            f"{counted(len(rose), 'run')} ended worse than it began: {listed(rose)}."
            if len(rose) == 1
            else f"{len(rose)} runs ended worse than they began: {listed(rose)}.",
            "bad",
            "The training loss of the last epoch is above that of the first. A comparison with "
            "such runs is one of accidents: set a smaller learning rate, or clip.",
        )


def _rose(run: RunRecord) -> bool:
    losses = [loss for loss in run.stored.curve.losses if loss is not None]
    return len(losses) > 1 and losses[-1] > losses[0]


def _at_chance(record: StudyRecord, group: Group) -> Iterator[Chip]:
    reached = _chance(record, group) or _blind(record, group) or _nothing(record, group)
    if reached:
        yield Chip(
            f"The plain network on {record.name_of(group)} has learned nothing.",
            "bad",
            f"It reaches {reached}. A difference from that says nothing about a module: train "
            f"longer, or look at the learning rate and the data.",
        )


def _nothing(record: StudyRecord, group: Group) -> str:
    """A metric by which the plain network has learned nothing, whatever the data are."""
    values = {} if group.plain is None else group.plain.values
    for metric in record.table.metrics:
        value = values.get(metric.name)
        if value is None or metric.nothing is None:
            continue
        more = value.mean - metric.shown(metric.nothing)
        if (more if metric.better == "higher" else -more) <= 0:
            return (
                f"{metric.label} {metric.shown_text(value.mean)}, and up to "
                f"{metric.text(metric.nothing)} is next to nothing"
            )
    return ""


def _chance(record: StudyRecord, group: Group) -> str:
    """What the plain network reaches beside what chance does; empty if it is clearly more, or if
    the result is not a share of images."""
    metric, plain = record.metric, group.plain
    value = None if plain is None else plain.values.get(metric.name)
    images, chance = _test_images(record, group)
    if value is None or chance is None or not images:
        return ""
    error = math.sqrt(chance * (1 - chance) / images)
    if value.mean / metric.scale > chance + _SIGMAS * error:
        return ""
    return (
        f"{metric.shown_text(value.mean)}, and the commonest class alone has "
        f"{metric.text(chance)} of the {images} test {metric.samples}"
    )


def _blind(record: StudyRecord, group: Group) -> str:
    """What the plain network reaches beside what is reached without looking at an image; empty if
    it is more, or if that is not known."""
    facts, metric = _facts(record, group), record.metric
    value = None if group.plain is None else group.plain.values.get(metric.name)
    if facts is None or facts.blind is None or value is None:
        return ""
    if value.mean > metric.shown(facts.blind):
        return ""
    return (
        f"{metric.label} {metric.shown_text(value.mean)}, and the commonest class everywhere has "
        f"{metric.text(facts.blind)}"
    )


def _facts(record: StudyRecord, group: Group) -> RunData | None:
    """What is known of the data, from a finished run."""
    own = (run for run in record.finished if run.entry.cell.group == group.name)
    return next((run.stored.data for run in own if run.stored.data is not None), None)


def _test_images(record: StudyRecord, group: Group) -> tuple[int | None, float | None]:
    """How many there are, and the share of the commonest class; None where it is not known, or
    where the result is not a share of images."""
    if record.metric.unit != "%" or record.metric.better != "higher":
        return None, None
    facts = _facts(record, group)
    return (None, None) if facts is None else (facts.test, facts.chance)


def _few_images(record: StudyRecord, group: Group) -> Iterator[Chip]:
    """Alert if the largest difference, or the margin of an equivalence, is of a few images."""
    images, chance = _test_images(record, group)
    metric = record.metric
    if not images or chance is None:
        return
    compared = [row.comparison for row in group.rows if row.comparison is not None]
    margins = [row.equivalence.margin for row in group.rows if row.equivalence is not None]
    effects = [*(abs(each.difference.mean) for each in compared), *margins]
    known = [effect for effect in effects if math.isfinite(effect)]
    if not known or max(known) / metric.scale * images >= _FEWEST_IMAGES:
        return
    number = max(known) / metric.scale * images
    yield Chip(
        f"{record.name_of(group)} has too few test {metric.samples} for this question: {images}.",
        "bad",
        f"The largest difference in question, {max(known):.{metric.digits}f} "
        f"{metric.difference_unit}, is {number:.1f} of them; fewer than {_FEWEST_IMAGES} cannot "
        f"show anything even if no {metric.sample} speaks against it. Test on more "
        f"{metric.samples}.",
    )
