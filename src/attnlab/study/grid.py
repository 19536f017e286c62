"""The runs of a study, in the order in which they are worked on."""

from __future__ import annotations

from dataclasses import dataclass

from attnlab._errors import OptionError, nearest
from attnlab.insert.where import parse_where
from attnlab.study.definition import Backbone, Dataset, Module, Study
from attnlab.train.config import DataConfig, RunConfig

Where = str | tuple[str, ...] | None


@dataclass(frozen=True)
class Cell:
    """One row of one group of a study's table: its runs differ in the seed only."""

    data: str
    backbone: str
    row: str
    plain: bool

    @property
    def group(self) -> str:
        """Rows of one group are compared with each other."""
        return f"{self.data} {self.backbone}"


@dataclass(frozen=True)
class PlannedRun:
    """A run and its place in a study."""

    cell: Cell
    config: RunConfig

    @property
    def run_id(self) -> str:
        return self.config.run_id

    @property
    def seed(self) -> int:
        return self.config.seed

    def __str__(self) -> str:
        return f"{self.cell.group} {self.cell.row} seed {self.seed}"


def planned_runs(study: Study) -> list[PlannedRun]:
    """Seed by seed, so that an unfinished study has whole pairs."""
    runs = [
        PlannedRun(Cell(data.label, backbone.label, row, entry.gate == "none"), config)
        for seed in study.seeds
        for data in study.data
        for backbone in study.backbone
        for row, entry, where in _rows(study)
        for config in [_config(study, data, backbone, entry, where, seed)]
    ]
    _refuse_repeated(runs)
    _check_paper(study, runs)
    return runs


def _rows(study: Study) -> list[tuple[str, Module, Where]]:
    rows: list[tuple[str, Module, Where]] = []
    places = [(text, _where(text)) for text in _where(study.where) or ()]
    for entry in study.attention:
        if entry.gate == "none" or entry.where is not None:
            rows.append((entry.label, entry, _where(entry.where)))
            continue
        for text, where in places:
            label = entry.label if where is None else f"{entry.label} @ {text}"
            rows.append((label, entry, where))
    return rows


def _where(given: Where) -> Where:
    where = parse_where(given)
    return tuple(where) if isinstance(where, list) else where


def _config(
    study: Study,
    data: Dataset,
    backbone: Backbone,
    entry: Module,
    where: Where,
    seed: int,
) -> RunConfig:
    settings = {name: getattr(data, name) for name in DataConfig.model_fields}
    return RunConfig(
        data=DataConfig(**settings),
        backbone=backbone.name,
        backbone_options=backbone.options,
        attention=entry.gate,
        gate_options=entry.options,
        where=where,
        start=entry.start,
        seed=seed,
        recipe={**study.recipe, **data.recipe},  # type: ignore[arg-type]
        measure=study.measure,
    )


def _refuse_repeated(runs: list[PlannedRun]) -> None:
    seen: dict[str, PlannedRun] = {}
    labels: dict[tuple[Cell, int], PlannedRun] = {}
    for run in runs:
        if run.run_id in seen:
            raise OptionError(
                f"Two rows of the study are the same run: {seen[run.run_id]} and {run}. "
                f"Remove one, or change its settings."
            )
        if (run.cell, run.seed) in labels:
            raise OptionError(
                f"Two rows of the study are called {run.cell.row!r}; give each its own label."
            )
        seen[run.run_id] = labels[run.cell, run.seed] = run


def _check_paper(study: Study, runs: list[PlannedRun]) -> None:
    if study.paper is None:
        return
    groups = list(dict.fromkeys(run.cell.group for run in runs))
    rows = list(dict.fromkeys(run.cell.row for run in runs))
    for group, figures in study.paper.top1.items():
        for kind, name, valid in [("group", group, groups), *(("row", r, rows) for r in figures)]:
            if name not in valid:
                raise OptionError(
                    f"[paper.top1] names the {kind} {name!r}, which the study does not have."
                    f"{nearest(name, valid)} It has: {', '.join(valid)}."
                )
