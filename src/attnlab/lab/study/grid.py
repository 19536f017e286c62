"""The runs of a study, in the order in which they are worked on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from attnlab._errors import OptionError, nearest
from attnlab.data import DataConfig
from attnlab.lab.study.definition import Backbone, Dataset, Module, Study, row_label
from attnlab.lab.study.threads import default_threads
from attnlab.lab.training.config import RunConfig
from attnlab.lab.training.identity import Identity, identify
from attnlab.residuals.where import parse_where
from attnlab.results.study import StudyCell
from attnlab.tasks import task_class

Where = str | tuple[str, ...] | None


@dataclass(frozen=True)
class PlannedRun:
    """A run and its place in a study."""

    cell: StudyCell
    config: RunConfig
    threads: int
    devices: int = 1
    checksums: dict[str, str] = field(default_factory=dict, compare=False, repr=False)
    """Of data that were looked at for other runs of the same plan."""

    @cached_property
    def identity(self) -> Identity:
        """What it is made from now; data, weights and classes must be there."""
        return identify(self.config, self.checksums, threads=self.threads, devices=self.devices)

    @property
    def run_id(self) -> str:
        return self.identity.run_id

    @property
    def seed(self) -> int:
        return self.config.seed

    def __str__(self) -> str:
        return f"{self.cell.group} {self.cell.row} seed {self.seed}"


def planned_runs(study: Study) -> list[PlannedRun]:
    """Seed by seed, so that an unfinished study has whole pairs. Without threads of its own, a
    study has those of `default_threads`."""
    _check_yardstick(study)
    threads = study.threads or default_threads()
    checksums: dict[str, str] = {}
    first = [
        PlannedRun(cell, config, threads, study.devices, checksums)
        for data in study.data
        for backbone in study.backbone
        for row, entry, where in _rows(study)
        for config in [_config(study, data, backbone, entry, where, min(study.seeds))]
        for cell in [StudyCell(data.label, backbone.label, row, entry.is_plain)]
    ]
    # Settings are checked once, with the smallest seed: a larger one is valid if that is.
    runs = [
        replace(run, config=run.config.model_copy(update={"seed": seed}))
        for seed in study.seeds
        for run in first
    ]
    _refuse_repeated(runs)
    _check_paper(study, runs)
    _check_equivalence(study, runs)
    return runs


def check_names(runs: Sequence[PlannedRun]) -> None:
    """Refuse networks, gates and options of gates that do not exist, before anything is trained: in
    the last row they would be seen when all the others are done."""
    from attnlab.surgery.insertion import check_gate_options  # torch, which plans do without

    seen = set()
    for config in (run.config for run in runs):
        options = tuple(sorted((name, repr(value)) for name, value in config.gate_options.items()))
        names = (config.task.name, config.backbone, config.attention, options)
        if names in seen:
            continue
        seen.add(names)
        task_class(config.task).check_backbone(config.backbone)
        if config.attention != "none":
            check_gate_options(config.attention, config.gate_options)


def _rows(study: Study) -> list[tuple[str, Module, Where]]:
    rows: list[tuple[str, Module, Where]] = []
    places = [(text, _where(text)) for text in _where(study.where) or ()]
    for entry in study.attention:
        if entry.gate == "none" or entry.where is not None:
            rows.append((entry.label, entry, _where(entry.where)))
            continue
        for text, where in places:
            label = row_label(entry, "" if where is None else text)
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
    given = data.model_dump(exclude_unset=True)
    task = study.task.model_dump(exclude_unset=True)
    if data.task_options:
        task["options"] = {**task.get("options", {}), **data.task_options}
    settings: dict[str, Any] = {
        "task": task,
        "data": {name: value for name, value in given.items() if name in DataConfig.model_fields},
        "recipe": {**study.recipe, **data.recipe, **backbone.recipe, **entry.recipe},
        "pretrain": study.pretrain,
    }
    return RunConfig(
        **settings,
        backbone=backbone.name,
        backbone_options={**backbone.options, **entry.backbone_options},
        attention=entry.gate,
        gate_options=entry.options,
        where=where,
        start=entry.start,
        place=entry.place,
        shared=entry.shared,
        branch_scale=entry.branch_scale,
        noise=backbone.noise,
        seed=seed,
    )


def _refuse_repeated(runs: list[PlannedRun]) -> None:
    seen: dict[str, PlannedRun] = {}
    for run in runs:
        settings = run.config.model_copy(
            update={"recipe": run.config.recipe.model_copy(update={"name": None})}
        ).to_json()
        if settings in seen:
            raise OptionError(
                f"Two rows of the study are the same run: {seen[settings]} and {run}. "
                f"Remove one, or change its settings."
            )
        seen[settings] = run


def _check_yardstick(study: Study) -> None:
    """Figures of different meaning never stand in one table."""
    for data in study.data:
        for option in task_class(study.task).yardstick_options:
            if option in data.task_options:
                raise OptionError(
                    f"Option {option!r} of task {study.task.name!r} decides what its figures mean, "
                    f"so it is the same for all data of a study, but {data.label!r} sets it in "
                    f"task_options. Set it in the study's task, or make two studies."
                )


def _check_equivalence(study: Study, runs: list[PlannedRun]) -> None:
    if study.equivalence is None:
        return
    rows = list(dict.fromkeys(run.cell.row for run in runs))
    if study.equivalence.to not in rows:
        raise OptionError(
            f"Setting 'equivalence' of study: there is no row {study.equivalence.to!r}."
            f"{nearest(study.equivalence.to, rows)} It has: {', '.join(rows)}."
        )


def _check_paper(study: Study, runs: list[PlannedRun]) -> None:
    if study.paper is None:
        return
    metrics = [metric.name for metric in task_class(study.task).metrics]
    groups = list(dict.fromkeys(run.cell.group for run in runs))
    rows = list(dict.fromkeys(run.cell.row for run in runs))
    for metric, by_group in study.paper.figures.items():
        if metric not in metrics:
            raise OptionError(
                f"[paper] names the metric {metric!r}, which the task {study.task.name!r} does not "
                f"have.{nearest(metric, metrics)} It has: {', '.join(metrics)}."
            )
        for group, figures in by_group.items():
            checks = [("group", group, groups), *(("row", row, rows) for row in figures)]
            for kind, name, valid in checks:
                if name not in valid:
                    raise OptionError(
                        f"[paper.{metric}] names the {kind} {name!r}, which the study does not "
                        f"have.{nearest(name, valid)} It has: {', '.join(valid)}."
                    )
