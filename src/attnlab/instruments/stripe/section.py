"""The part of a study's page about gates: are they constant?"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from attnlab.instruments.block_figures import block_figure, heat_figure, some_of
from attnlab.instruments.different import ENOUGH, too_few_inputs
from attnlab.instruments.stripe.figures import gates_figure
from attnlab.instruments.stripe.history import GateHistory
from attnlab.instruments.stripe.result import ALIKE, StripeResult
from attnlab.page.glossary import words
from attnlab.page.parts import Figure, Folded, Heading, Part, Row, Section, Text
from attnlab.page.plot import BESIDE, FULL
from attnlab.results.record import RunRecord, StudyRecord
from attnlab.results.table import Group

_SHOWN_MODULES = 3
_SHOWN_BLOCKS = 3


def gates_section(record: StudyRecord) -> Section:
    """The section that says of every row whether its gates are constant."""
    maps = []
    for group in record.table.groups:
        cells = _ratio_cells(record, group)
        if cells:
            name = record.name_of(group)
            width = FULL if len(record.table.groups) == 1 else BESIDE
            figure = heat_figure(cells, legend="ratio", title=name, limit=1.0, width=width)
            maps.append(block_figure(figure))
    if not maps:
        missing = "No finished run has gates whose values were recorded."
        return Section("Is it constant?", "", [], missing)
    parts: list[Part | Folded] = [Row(maps), *_pictures(record), words("gate", "ratio", "fold")]
    lead = (
        "The stripe observation: spread of a gate across test images, relative to its spread "
        "across channels. Near 0 the gate is the same for every image, so a constant could take "
        "its place and fold away; 1 and above, it depends on the image as much as on the channel. "
        "An empty field: no gate."
    )
    fewest = min(found.different_images for found in _measured(record))
    if fewest < ENOUGH:
        again = f"Measure again on at least {ENOUGH} different images: measure.images."
        return Section("Is it constant?", lead, parts, too_few_inputs(fewest, "image"), again)
    constant, alike, vary = _kinds(record)
    return Section(
        "Is it constant?",
        lead,
        parts,
        _answer(constant, alike, vary),
        _to_do(record, constant, alike),
    )


def _measured(record: StudyRecord) -> list[StripeResult]:
    """Return the stripes that were measured, of all runs."""
    rows = ((group, row.label) for group in record.table.groups for row in group.rows)
    return [found for row in rows for found in record.measured(*row, StripeResult)]


def _kinds(record: StudyRecord) -> tuple[list[str], list[str], list[str]]:
    """The modules whose gates are the same for every image, nearly so, and not at all so."""
    ratios: dict[str, list[float]] = {}
    varying: set[str] = set()
    for group in record.table.groups:
        for row in group.rows:
            for found in record.measured(group, row.label, StripeResult):
                ratios.setdefault(row.label, []).extend(found.ratios())
                if not all(site.constant for site in found.sites):
                    varying.add(row.label)
    constant = [label for label in ratios if label not in varying]
    rest = {label: fmean(ratios[label]) for label in ratios if label in varying and ratios[label]}
    alike = [f"{label} ({mean:.2f})" for label, mean in rest.items() if mean < ALIKE]
    return constant, alike, [f"{m} ({r:.2f})" for m, r in rest.items() if r >= ALIKE]


def _answer(constant: Sequence[str], alike: Sequence[str], vary: Sequence[str]) -> str:
    sentences = []
    if constant:
        sentences.append(f"The gates of {', '.join(constant)} are the same for every image.")
    if alike:
        sentences.append(
            f"Those of {', '.join(alike)} differ more between channels than between images."
        )
    if vary:
        sentences.append(f"Those of {', '.join(vary)} depend on the image as much or more.")
    return " ".join(sentences).replace("Those", "The gates", 1 if not constant else 0)


def _to_do(record: StudyRecord, constant: Sequence[str], alike: Sequence[str]) -> str:
    rows = [row for group in record.table.groups for row in group.rows]
    folded = {row.label for row in rows if row.fold_error is not None}
    fold = [label for label in constant if label in folded]
    if fold:
        return (
            f"The gates of {fold[0]} fold away, so they cost nothing; whether to have them is the "
            f"question above."
        )
    if constant:
        # A gate that scales the state as well is constant, and no layer can take it.
        return (
            f"The gates of {constant[0]} are constant, and no run of them was folded: attnlab fold "
            f"RUN says whether they can be."
        )
    if alike:
        return (
            "A constant may do as well: try asr:NAME in the study, or fold with --constants, which "
            "says what that changes."
        )
    return "Keep these gates: a constant in their place would change the network."


def _ratio_cells(record: StudyRecord, group: Group) -> list[tuple[str, str, float]]:
    cells = []
    for row in group.rows:
        by_block: dict[str, list[float]] = {}
        for found in record.measured(group, row.label, StripeResult):
            for site in found.sites:
                if site.ratio is not None:
                    by_block.setdefault(site.label, []).append(site.ratio)
        cells += [(row.label, block, fmean(values)) for block, values in by_block.items()]
    return cells


def _pictures(record: StudyRecord) -> list[Part | Folded]:
    """The gates of one run of each of the first modules: the first in full, the others folded."""
    group = record.table.groups[0]
    gated = [row.label for row in group.rows if record.measured(group, row.label, StripeResult)]
    images: list[Part | Folded] = []
    epochs: list[Part | Folded] = []
    for label in gated[:_SHOWN_MODULES]:
        run = record.of(group, label)[0]
        found, moves = run.stored.measured_result(StripeResult), _moves(run)
        if found is not None:
            figures = stripe_figures(found)
            title = f"{label} on {record.name_of(group)}, seed {run.entry.seed}"
            images += [Folded(title, [Row(figures)])] if images else [Heading(title), Row(figures)]
        if moves:
            title = f"{label}: change of the gate from epoch to epoch"
            epochs += [Folded(title, [Row(moves)])] if epochs else [Heading(title), Row(moves)]
    if not epochs:
        text = (
            "Gates were not recorded epoch by epoch, so there is no picture of when they settle: "
            "set every_epoch = true in the study's [measure]."
        )
        epochs = [Text(text, quiet=True)]
    return [*images, *epochs]


def stripe_figures(found: StripeResult) -> list[Figure]:
    """Pictures of a few gates of one network."""
    return [Figure(gates_figure(site)) for site in some_of(found.sites, _SHOWN_BLOCKS)]


def _moves(run: RunRecord) -> list[Figure]:
    """How the mean gates of a few blocks moved from epoch to epoch; empty if that is not known."""
    history = GateHistory.of_records(run.stored.history)
    if len(history.epochs) < 2:
        return []
    names = some_of(list(history.means), _SHOWN_BLOCKS)
    return [Figure(history.figure(name)) for name in names]
