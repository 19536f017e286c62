"""A study as a TOML file: data × backbone × attention × where × seeds, with one recipe."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from pydantic import (
    Field,
    PositiveFloat,
    PositiveInt,
    PrivateAttr,
    field_validator,
    model_validator,
)

from attnlab._errors import InputError, OptionError, nearest
from attnlab._files import write_whole
from attnlab._strict import Strict
from attnlab.data import DataConfig
from attnlab.data.config import Value, data_title
from attnlab.instruments.measurement import MeasureConfig
from attnlab.lab.study.claims import EquivalenceConfig, Paper
from attnlab.lab.study.files import list_studies as list_studies
from attnlab.lab.study.files import study_file, study_table_of
from attnlab.lab.tracking import TrackConfig, chosen
from attnlab.residuals.site import Place
from attnlab.residuals.where import EVERYWHERE
from attnlab.results.study import StudyInvocation
from attnlab.surgery.noise import NoiseConfig
from attnlab.tasks import TaskConfig

PLAIN = "plain"
"""The row of the backbone without attention."""

_FIGURE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(?:±\s*(\d+(?:\.\d+)?)\s*)?")


class Dataset(DataConfig):
    """One data set of a study; `recipe` names another recipe for it alone, or changes settings of
    the study's."""

    label: str = ""
    recipe: dict[str, Any] = {}
    task_options: dict[str, Value] = {}
    """Options of the study's task for it alone."""


class Backbone(Strict):
    """One backbone of a study."""

    name: str
    label: str = ""
    options: dict[str, Value] = {}
    noise: NoiseConfig | None = None
    """In the norms of every network that is built from it, the plain one too."""
    recipe: dict[str, Any] = {}
    """Another recipe for it alone, or changed settings; its plain network has it too."""


class Module(Strict):
    """One row of a study's table: a gate, or `none` for the plain backbone."""

    gate: str
    label: str = ""
    options: dict[str, Value] = {}
    where: str | tuple[str, ...] | None = None
    """Overrides the study's `where`."""
    start: Literal["paper", "identity"] = "paper"
    place: Place = "branch"
    shared: bool = False
    """One gate for all chosen blocks of a stage, as in EAN's searched schemes."""
    backbone_options: dict[str, Value] = {}
    """Options of the backbone for this row alone: a network built differently, to compare with."""
    branch_scale: PositiveFloat | None = None
    """The first γ of the norm in which every residual branch ends, as a control for gates."""
    recipe: dict[str, Any] = {}
    """Another recipe for this row alone, or changed settings. The plain row keeps that of the
    study, so the table says that their difference is of the recipe as well."""

    @property
    def is_plain(self) -> bool:
        """Whether it is what the other rows are compared with."""
        as_it_is = not self.backbone_options and self.branch_scale is None and not self.recipe
        return self.gate == "none" and as_it_is


class Axes(Strict):
    """What a study crosses. `data`, `backbone` and `attention` take names or tables."""

    task: TaskConfig = TaskConfig()
    """A name of `attnlab.tasks.list_tasks()`, or a table with its options; the same for all."""
    data: tuple[Dataset, ...] = Field(min_length=1)
    backbone: tuple[Backbone, ...] = Field(min_length=1)
    attention: tuple[Module, ...] = Field(min_length=1)
    where: tuple[str, ...] = (EVERYWHERE,)
    seeds: tuple[int, ...] = Field(min_length=1)
    """A list, or a number: `seeds = 5` is 0, 1, 2, 3, 4."""
    recipe: dict[str, Any]
    """A name of `attnlab.lab.training.list_recipes()`, or a table that starts from one:
    `{name = "digits", epochs = 3}`."""
    pretrain: dict[str, Any] | None = None
    """A recipe, by name or as a table, by which the plain backbone is trained first, once for each
    seed; every run starts from that network, and the gates are put into it."""
    measure: MeasureConfig = Field(default_factory=MeasureConfig)
    track: tuple[TrackConfig, ...] = ()
    """Names of `attnlab.lab.tracking.list_trackers()`, or tables with options. They are not part of
    any run."""
    threads: PositiveInt | None = None
    """Threads of each process that trains; part of every run. Those of the last plan if left out,
    or as `attnlab study run` has them."""
    devices: PositiveInt = 1
    """How many devices of one machine each run divides its batches among; part of every run,
    because batch norms see the part of their own device."""
    equivalence: EquivalenceConfig | None = None
    """Which row the others are to be as good as, and within what; for each group."""

    @field_validator("track")
    @classmethod
    def _each_once(cls, track: tuple[TrackConfig, ...]) -> tuple[TrackConfig, ...]:
        return chosen(track)

    @model_validator(mode="before")
    @classmethod
    def _written_short(cls, given: object) -> object:
        return _expanded(given) if isinstance(given, Mapping) else given


class Study(Axes):
    """A grid of runs and what a paper says about it."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")
    title: str = ""
    paper: Paper | None = None
    small: dict[str, Any] = {}
    """Axes that `--small` puts in the place of the others: the same machinery, in minutes."""
    _invocation: StudyInvocation | None = PrivateAttr(None)

    @model_validator(mode="after")
    def _consistent(self) -> Study:
        for key in self.small:
            if key not in Axes.model_fields:
                valid = list(Axes.model_fields)
                raise OptionError(
                    f"[small] has no setting {key!r}.{nearest(key, valid)} "
                    f"It has: {', '.join(valid)}."
                )
        for axis in ("data", "backbone"):
            labels = [entry.label for entry in getattr(self, axis)]
            repeated = sorted({label for label in labels if labels.count(label) > 1})
            if repeated:
                raise OptionError(
                    f"Setting {axis!r} of study: {', '.join(repeated)} is given more than once; "
                    f"give each a label of its own."
                )
        self._check_labels()
        if len(set(self.seeds)) < len(self.seeds):
            raise OptionError(
                f"Setting 'seeds' of study: expected each once but got {list(self.seeds)}."
            )
        return self

    def _check_labels(self) -> None:
        """Refuse labels that would make two rows look like one, or a row like the plain one."""
        seen = set()
        for entry in self.attention:
            own_place = entry.gate == "none" or entry.where is not None
            for place in ("",) if own_place else self.where:
                label = row_label(entry, "" if place == EVERYWHERE else place)
                if label in seen:
                    raise OptionError(
                        f"Two rows of the study are called {label!r}; give each its own label."
                    )
                if label == PLAIN and not entry.is_plain:
                    raise OptionError(
                        f"A row of the study with gate {entry.gate!r} is called {PLAIN!r}, which "
                        f"is the backbone as it is; give it its own label."
                    )
                seen.add(label)

    def smaller(self) -> Study:
        """The form that runs in minutes: a study with its own name and no paper's figures."""
        if not self.small:
            raise OptionError(f"The study {self.name!r} has no [small] table, so no small form.")
        axes = {name: getattr(self, name) for name in Axes.model_fields}
        title = f"{self.title} (small form)" if self.title else ""
        made = Study(**{**axes, **self.small, "name": f"{self.name}-small", "title": title})
        return made.called_by(replace(self.invocation, small=True))

    @property
    def invocation(self) -> StudyInvocation:
        """How commands call it: by the file or the name that `load_study` was given."""
        return self._invocation or StudyInvocation(f"{self.name}.toml")

    def called_by(self, invocation: StudyInvocation) -> Study:
        """Copy the study, for commands on its page that call it in another way."""
        made = self.model_copy()
        made._invocation = invocation
        return made

    def with_seeds(self, seeds: Sequence[int]) -> Study:
        """Copy the study, with other seeds."""
        return self.model_copy(update={"seeds": tuple(seeds)})

    def with_threads(self, threads: int) -> Study:
        """Copy the study, with this number of threads per process, which makes its runs others."""
        return self.model_copy(update={"threads": threads})

    @cached_property
    def has_plain(self) -> bool:
        return any(entry.is_plain for entry in self.attention)


def row_label(entry: Module, place: str) -> str:
    """Return what a row is called in tables; `place` is where its gates are, empty if
    everywhere."""
    return f"{entry.label} @ {place}" if place else entry.label


def load_study(path: str | Path) -> Study:
    """The study in a TOML file, or one of `list_studies()` by its bare name."""
    file = study_file(path)
    table = study_table_of(file)
    try:
        found = Study(**{"name": file.stem, **table})
    except OptionError as error:
        raise OptionError(f"{file}: {error}") from None
    return found.called_by(StudyInvocation(str(path)))


def _expanded(given: Mapping[str, object]) -> dict[str, object]:
    """Names, numbers and single entries written out as lists of tables."""
    table = dict(given)
    for axis, key in (("data", "name"), ("backbone", "name"), ("attention", "gate")):
        if axis in table:
            whole = table[axis]
            entries = whole if isinstance(whole, list | tuple) else [whole]
            table[axis] = [_labelled(axis, key, entry) for entry in entries]
    for name in ("track", "where"):
        one = table.get(name)
        if isinstance(one, str) or (name == "track" and isinstance(one, Mapping)):
            table[name] = [one]
    seeds = table.get("seeds")
    if isinstance(seeds, bool):  # which Python counts as 1 and 0
        raise OptionError(
            f"Setting 'seeds' of study: expected a whole number or a list of them but got {seeds}."
        )
    if isinstance(seeds, int):
        if seeds < 1:
            raise OptionError(f"Setting 'seeds' of study: expected at least 1 but got {seeds}.")
        table["seeds"] = list(range(seeds))
    if isinstance(paper := table.get("paper"), Mapping):
        table["paper"] = _by_metric(paper)
    for name in ("recipe", "pretrain", "task"):
        if isinstance(table.get(name), str):
            table[name] = {"name": table[name]}
    return table


def _labelled(axis: str, key: str, entry: object) -> object:
    if isinstance(entry, str):
        entry = {key: entry}
    if not isinstance(entry, dict):
        return entry
    if isinstance(recipe := entry.get("recipe"), str):
        entry = {**entry, "recipe": {"name": recipe}}
    name = entry.get(key, "")
    return {**entry, "label": entry.get("label") or _default_label(axis, name, entry)}


def _default_label(axis: str, name: str, entry: Mapping[str, Any]) -> str:
    label = PLAIN if (axis, name) == ("attention", "none") else name
    if axis == "data":
        return data_title(name, entry.get("root"))
    if axis == "attention" and "branch_scale" in entry:
        label += f", last scale {entry['branch_scale']}"
    noise = entry.get("noise")
    if axis == "backbone" and isinstance(noise, Mapping):
        label += f", {NoiseConfig(**noise).label}"
    return label


def _by_metric(paper: Mapping[str, Any]) -> dict[str, object]:
    """The tables of single metrics, `[paper.top1]`, under `figures`."""
    table = {name: value for name, value in paper.items() if name in Paper.model_fields}
    metrics = {name: groups for name, groups in paper.items() if name not in table}
    figures = {**table.get("figures", {}), **metrics}
    return {**table, "figures": {name: _figures(name, each) for name, each in figures.items()}}


def _figures(metric: str, groups: object) -> object:
    if not isinstance(groups, Mapping) or not all(isinstance(g, Mapping) for g in groups.values()):
        raise OptionError(
            f"[paper.{metric}]: expected a table of groups with a figure per row, as in "
            f'[paper.{metric}."cifar10 resnet164"], but got {groups!r}.'
        )
    return {
        group: {row: _figure(row, figure) for row, figure in rows.items()}
        for group, rows in groups.items()
    }


def _figure(row: str, given: object) -> object:
    if isinstance(given, int | float) and not isinstance(given, bool):
        return {"mean": given}
    if not isinstance(given, bool | str):
        return given
    match = _FIGURE.fullmatch(str(given))
    if match is None:
        raise OptionError(
            f"The paper's figure of {row!r}: expected a number or text like '94.26 ± 0.14' but got "
            f"{given!r}."
        )
    return {"mean": match[1], "std": match[2]}


TEMPLATE = """\
# A study: every combination of data, backbone, attention, where and seed is one run.
#   attnlab study plan {path}     what will run, and how long it will take
#   attnlab study run {path}      run it; the same again resumes
#   attnlab study show {path}     the table
title = "Does attention help?"

# What is learned: classification, multilabel (data = "digit-pairs"), regression (data =
# "digit-angles"); or your own class. Others have networks and recipes of their own: `attnlab study
# new FILE --like mask-gates` (segmentation), shapes-demo (boxes), yolo-gates (Ultralytics),
# language-gates (text). A table sets options:
#   {{ name = "classification", options = {{ label_smoothing = 0.1 }} }}
task = "classification"

# digits (embedded), fake, cifar10, cifar100, stl10; or a table with any setting:
#   {{ name = "cifar10", root = "data", download = true, train_subset = 5000 }}
#   {{ name = "folder", root = "photos", size = 224, augmentation = {{ crop = "resized" }} }}
data = "digits"

# Names of attnlab.create: resnet20, resnet164, "timm:resnet50", "torchvision:resnet18";
# a list compares several.
backbone = "resnet20"

# "none" is the plain backbone, which the others are compared with. `attnlab modules` lists the
# gates. A table sets more:
#   {{ gate = "se", label = "SE, r = 8", options = {{ reduction = 8 }}, where = "stages:3" }}
attention = ["none", "se", "step", "asr:se"]

# Where the gates go: "all", "stages:1,3", "blocks:0,5", "every:2"; several make several rows. So
# many blocks in every stage cost the same, whichever: "random:1@0", "stiffest:1", "spread:1".
where = ["all"]

# A number (0, 1, 2, ...) or a list. One seed gives no interval; five are what the papers use.
seeds = 3

# A recipe, with any setting changed. `clip` bounds the gradient: regression, whose loss has no
# bound, is lost in its first steps without it.
recipe = {{ name = "digits", epochs = 6, clip = 1.0 }}
"""


def new_study(path: str | Path, like: str | None = None) -> Path:
    """Write a study to start from, or a copy of one in `list_studies()`; an existing file is not
    touched."""
    text = None if like is None else study_file(like).read_text(encoding="utf-8")
    file = Path(path)
    if file.suffix != ".toml":
        file = file.with_name(f"{file.name}.toml")
    if file.exists():
        raise InputError(f"{file} exists already. Give another name, or remove it first.")
    return write_whole(file, TEMPLATE.format(path=file) if text is None else text)
