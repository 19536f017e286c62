"""The page of a single run, finished or not."""

from __future__ import annotations

import json
from pathlib import Path

from attnlab._spread import evenly_spread
from attnlab.instruments.block_figures import heat_figure
from attnlab.instruments.classes.result import ClassesResult
from attnlab.instruments.classes.section import run_classes_section
from attnlab.instruments.stiffness import StiffnessResult
from attnlab.instruments.stiffness.figures import nsi_figure
from attnlab.instruments.stripe import StripeResult
from attnlab.instruments.stripe.section import stripe_figures
from attnlab.lab.pages.figures import MetricCurve, curves_figure
from attnlab.page.glossary import words
from attnlab.page.parts import (
    Chip,
    Code,
    Figure,
    Folded,
    Notes,
    Page,
    Part,
    Row,
    Section,
    Text,
)
from attnlab.page.tables import Cell, Table, number_cell
from attnlab.results import Metric, StoredRun
from attnlab.results.epoch import EpochRecord
from attnlab.results.study import StudyInvocation
from attnlab.surgery.folding import FoldReceipt


def is_run(folder: Path) -> bool:
    """Return whether `folder` is the directory of a run."""
    return (folder / "config.json").is_file() and not (folder / "studies").is_dir()


def run_page(folder: Path) -> Page:
    """Show what the directory of a run says."""
    run = StoredRun(folder)
    sections = [_way(run), *_depth(run), *_stiffness(run), *_gates(run), *_fold(run)]
    sections += run_classes_section(run.measured_result(ClassesResult))
    sections += [_alerts(run), _reproduce(run)]
    config = run.config
    gate = "" if config.attention == "none" else f" with {config.attention}"
    data = config.data.name if run.data is None else run.data.name
    return Page(
        title=f"{config.backbone}{gate} on {data}",
        subtitle=f"One run, seed {config.seed} · {folder.name}",
        verdict=_verdict(run),
        chips=_chips(run),
        sections=sections,
    )


def _found(run: StoredRun, name: str) -> dict | None:
    measured = run.measurements.get(name)
    return None if measured is None else measured.found


def _metric(run: StoredRun) -> Metric | None:
    """Return the metric of the result; of a run that is not finished, the first of what it
    records."""
    if run.is_trained:
        return run.result.metric
    name = next(iter(run.history[0].test), None) if run.history else None
    return None if name is None else Metric(name=name, label=name, digits=4, sample="input")


def _verdict(run: StoredRun) -> str:
    budget = run.config.recipe.budget
    if not run.is_trained:
        of = "" if budget.whole is None else f" of {budget.whole}"
        return f"Not finished: {budget.after(len(run.history))}{of} {budget.unit}s are done."
    result = run.result
    metric = result.metric
    return (
        f"{metric.label} **{metric.text(result.value)}** on the test {metric.samples} after "
        f"{budget.after(result.epochs)} {budget.unit}s. One seed says nothing about chance: a "
        f"study compares several."
    )


def _chips(run: StoredRun) -> list[Chip]:
    chips = [Chip(f"recipe {run.config.recipe.name or 'own'}")]
    if run.failure is not None:
        chips.append(Chip("the last attempt failed", "bad", run.failure.error))
    if not run.is_trained:
        return [Chip("running or stopped", "warn"), *chips]
    result = run.result
    others = [
        Chip(f"{metric.label} {metric.text(value)}")
        for metric in result.metrics[1:]
        if (value := result.values.get(metric.name)) is not None
    ]
    return [
        *others,
        Chip(f"{result.parameters / 1e6:.3f} M parameters"),
        *(
            []
            if result.macs is None
            else [Chip(f"{result.macs / 1e6:.2f} M MACs per {result.metric.sample}")]
        ),
        Chip(f"{result.seconds / 60:.1f} min"),
        *chips,
    ]


def _way(run: StoredRun) -> Section:
    title, metric, history = "How did it get there?", _metric(run), run.history
    budget = run.config.recipe.budget
    if metric is None or not history:
        return Section(title, "", [], "No epoch is done.")
    loss = Metric(
        name="train_loss", label="training loss", better="lower", digits=3, sample=metric.sample
    )
    figures = []
    losses = [record.train_loss for record in history if record.train_loss is not None]
    found = [value for record in history if (value := record.test[metric.name]) is not None]
    for which, part, values in (
        (metric, "test", [metric.shown(value) for value in found]),
        (loss, "training", losses),
    ):
        if values:
            curve = MetricCurve(which.label, *[values] * 3)
            figures.append(Figure(curves_figure([curve], [], which, part=part, budget=budget)))
    best = metric.best(found)
    tests = f"{len(history)} epochs" if budget.unit == "epoch" else f"{len(history)} tests"
    answer = f"The best of {tests} on the test {metric.samples} was "
    answer += f"{'' if budget.unit == 'epoch' else 'after '}{budget.unit} {budget.after(best + 1)}"
    answer += ", the last." if best + 1 == len(history) else "; the result is the last one."
    to_do = (
        "If the loss still falls at the end, train longer; if it falls and the result does not "
        f"rise, the network learns its training {metric.samples} by heart."
    )
    return Section(title, "", [Row(figures)], answer, to_do)


_DEPTH = (
    ("state_norm", "‖x‖"),
    ("nsi", "NSI"),
    ("gate_mean", "gate"),
    ("gate_spread", "spread of the gate"),
    ("carry", "gain of the state"),
)
"""What is shown of every step: the name in `EpochRecord`, and the head of the column."""
_MOST_ROWS = 24
"""Epochs that are drawn of a long run."""


def _depth(run: StoredRun) -> list[Section]:
    """How norms, NSI, gates and attention moved while it trained, if that was measured."""
    budget = run.config.recipe.budget
    history = [record for record in run.history if record.state_norm]
    if not history:
        return []
    last = history[-1]
    after = f"After {budget.unit} {budget.after(last.epoch)}"
    assert last.state_norm is not None
    cells = [
        (f"{budget.unit} {budget.after(record.epoch)}", label, value)
        for record in (history[place] for place in evenly_spread(len(history), _MOST_ROWS))
        for label, value in (record.state_norm or {}).items()
    ]
    figure = Figure(heat_figure(cells, legend="‖x‖"), "Norm of the state in front of every step.")
    norms = list(last.state_norm.values())
    answer = (
        f"{after} the state is {norms[0]:.3g} long in front of the first step and "
        f"{norms[-1]:.3g} in front of the last."
    )
    parts: list[Part | Folded] = [figure, _depth_table(last, after), words("step", "NSI")]
    if last.sink:
        share = max(last.sink.values())
        name = max(last.sink, key=lambda each: last.sink[each] if last.sink else 0.0)
        answer += f" The first token gets at most {100 * share:.0f} % of the attention ({name})."
        rows = [[Cell(name), number_cell(value, "{:.3f}")] for name, value in last.sink.items()]
        parts.insert(2, Table(["attention", "share of the first token"], rows))
    return [Section("What moved inside while it trained?", "", parts, answer)]


def _depth_table(record: EpochRecord, caption: str) -> Table:
    """A row per step, of the columns that were measured."""
    found = [(head, getattr(record, name)) for name, head in _DEPTH if getattr(record, name)]
    labels = list(record.state_norm or {})
    rows = [
        [Cell(label), *(number_cell(values.get(label), "{:.4g}") for _, values in found)]
        for label in labels
    ]
    return Table(["step", *(head for head, _ in found)], rows, caption)


def _stiffness(run: StoredRun) -> list[Section]:
    found = run.measured_result(StiffnessResult)
    if found is None:
        return []
    figure = Figure(nsi_figure(found.nsi), "NSI: mean, 5–95 % of inputs.", wide=len(found.nsi) > 30)
    answer = f"TNS {found.tns:.3g}: the larger, the more single steps stick out of their stage."
    parts: list[Part | Folded] = [figure, words("step", "NSI", "TNS")]
    return [Section("How stiff are its steps?", "", parts, answer)]


def _gates(run: StoredRun) -> list[Section]:
    found = run.measured_result(StripeResult)
    if found is None:
        return []
    parts: list[Part | Folded] = [Row(stripe_figures(found)), found.table(), words("gate", "ratio")]
    return [Section("Are its gates constant?", "", parts, found.verdict)]


def _fold(run: StoredRun) -> list[Section]:
    receipt = run.measured_result(FoldReceipt)
    if receipt is None:
        return []
    change = receipt.float64_change
    moved = "was not compared" if change is None else f"changes by {change:.0e}, relatively"
    answer = (
        f"Its gates fold away: {receipt.parameters_after:,} parameters are left, and in float64 "
        f"the output {moved}."
    )
    command = StudyInvocation("", str(run.directory.parent)).fold(run.directory.name)
    to_do = f"`{command}` writes the plain network."
    return [Section("Does it fold?", "", [words("fold")], answer, to_do)]


def _alerts(run: StoredRun) -> Section:
    notes = dict.fromkeys(note for m in run.measurements.values() for note in m.notes)
    chips = [Chip(note, "warn") for note in notes]
    if run.failure is not None:
        chips.insert(0, Chip("The last attempt failed.", "bad", run.failure.error))
    return Section("Alerts", "", [Notes(chips or [Chip("Nothing to report.", "good")])])


def _reproduce(run: StoredRun) -> Section:
    shown = [start.shown() for start in run.starts]
    data = "" if run.data is None else f"{run.data.name}, SHA-256 {run.data.checksum}"
    parts: list[Part | Folded] = [
        Text(f"Data: {data}"),
        Folded("Settings", [Code(json.dumps(run.config.given(), indent=1, ensure_ascii=False))]),
        Folded("Environment", [Code(json.dumps(shown, indent=1, ensure_ascii=False))]),
    ]
    answer = "Same settings, data and number of threads on a CPU give the same weights to the bit."
    return Section("Reproduce", "", parts, answer)
