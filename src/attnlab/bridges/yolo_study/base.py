"""What all tasks share whose networks Ultralytics trains: its names and files, its settings, its
trainer."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor, nn

from attnlab._errors import InputError, OptionError
from attnlab.bridges.yolo_study.batches import YoloData
from attnlab.bridges.yolo_study.kinds import KINDS, TITLES, Kind
from attnlab.bridges.yolo_study.offline import import_offline, offline
from attnlab.bridges.yolo_study.settings import check_settings, check_size, check_their_values
from attnlab.data import Batch, Data, Facts, Value
from attnlab.results.metric import Metric
from attnlab.tasks.elsewhere import Assignment, TaskTrainedElsewhere
from attnlab.tasks.task import P

_YAML = (".yaml", ".yml")
_SCALE, _WITHOUT_SCALE = re.compile(r"(\d+)([nslmx])(.+)?$"), r"\1\3"
"""Their names: yolo11n is the description yolo11.yaml at the scale n."""
PREFIX = "ultralytics:"
"""Before the name of a network."""


def share(name: str, label: str, nothing: float | None = None) -> Metric:
    """A metric that is a share; up to `nothing` next to nothing was found."""
    return Metric(name=name, label=label, unit="%", scale=100, least=0, most=1, nothing=nothing)


class UltralyticsTask(TaskTrainedElsewhere[P]):
    """A task whose networks Ultralytics trains, by its trainer and its settings; the metrics are
    those of its validator.

    The backbone is the name of one of its networks, `ultralytics:yolo11n`, or your own YAML,
    `ultralytics:my.yaml`. All options but `imgsz` are its settings for training and validation, as
    its own command has them (`lr0`, `mosaic`, `optimizer`, …).

    Args:
        facts: of the data.
        imgsz: the side that images are resized to.
        settings: Ultralytics' own.
    """

    recipe = "ultralytics"
    kind: ClassVar[Kind]
    their_metrics: ClassVar[Mapping[str, str]]
    """What their validator calls each metric."""
    mean_of_inputs = False

    def __init__(self, facts: Facts, imgsz: int = 640, **settings: Value) -> None:
        super().__init__(facts)
        self.facts = replace(facts, shape=(3, imgsz, imgsz))
        self.imgsz, self.settings = imgsz, settings

    @classmethod
    def check_options(cls, options: Mapping[str, Value], what: str) -> None:
        check_settings(options, ["imgsz"], cls.kind, what)
        if "imgsz" in options:
            check_size(options["imgsz"])

    @classmethod
    def check_backbone(cls, backbone: str) -> None:
        network_name(backbone)

    @property
    def title(self) -> str:
        """The task, for messages."""
        return f"Task {TITLES[self.kind.name]!r}"

    def check(self, backbone: str, options: Mapping[str, Value]) -> None:
        del options
        network_name(backbone)
        import_offline()
        check_their_values(self.settings, self.title)

    def prepared(self, data: Data) -> Data:
        return data if isinstance(data, YoloData) else self.written(data)

    @abstractmethod
    def written(self, data: Data) -> YoloData:
        """The data as Ultralytics reads them."""

    def chosen(self, *names: str) -> dict[str, Value]:
        """Return the settings that were given, without those that have their default."""
        return {name: self.settings[name] for name in names if name in self.settings}

    def build(self, backbone: str, options: Mapping[str, Value]) -> nn.Module:
        name = network_name(backbone)
        if options:
            raise OptionError(
                f"{backbone!r} has no option {next(iter(options))!r}: networks of Ultralytics are "
                f"described by their YAML."
            )
        kind = self.kind
        with offline():
            try:
                network = self.built(kind.network(), _layers(name))
            except (FileNotFoundError, KeyError, TypeError, ValueError) as error:
                raise InputError(
                    f"Ultralytics builds no {kind.what} from {name!r}: {error}. Expected one of "
                    f"its names, such as {PREFIX}{kind.example}, or a YAML of your own."
                ) from None
        layers: Any = network.model
        head = type(layers[-1]).__name__
        if head not in kind.heads:
            fitting = [TITLES[each.name] for each in KINDS if head in each.heads]
            raise InputError(
                f"{self.title} trains a {kind.what}, such as {PREFIX}{kind.example}, which ends in "
                f"{' or '.join(kind.heads)}, but {name!r} ends in {head}"
                f"{f', which is for task {fitting[0]!r}' if fitting else ''}."
            )
        named: Any = network
        named.names = dict(enumerate(self.class_names()))
        return network

    @abstractmethod
    def built(self, network: type[nn.Module], layers: dict[str, Any]) -> nn.Module:
        """The network with these layers, for the data."""

    @abstractmethod
    def class_names(self) -> tuple[str, ...]:
        """Return what Ultralytics is told that the classes are called."""

    def train(self, network: nn.Module, data: Data, assignment: Assignment) -> None:
        assert isinstance(data, YoloData)
        with offline(quiet=False):
            from attnlab.bridges.yolo_study.training import train_network

            settings = {"imgsz": self.imgsz, **self.settings}
            train_network(network, data, assignment, settings, self.figures)

    def figures(self, found: Mapping[str, float]) -> dict[str, float | None]:
        """The values of the task's metrics in what their validator says."""
        return {
            name: float(found[f"metrics/{title}"]) for name, title in self.their_metrics.items()
        }

    def arguments(self, settings: Mapping[str, Value]) -> Any:
        """Their settings as an object, with their defaults."""
        from ultralytics.cfg import get_cfg

        return get_cfg(overrides={"task": self.kind.name, **settings})

    def validator(self) -> Any:
        """Theirs, as it is in training, with nothing to validate yet."""
        given: dict[str, Value] = {"imgsz": self.imgsz, "plots": False, "save_dir": "."}
        arguments = self.arguments({**given, **self.chosen(*self.kind.validation)})
        return self.kind.validator()(save_dir=Path(), args=arguments)

    def inputs(self, batch: Batch) -> Tensor:
        images: Tensor = batch.inputs
        return images


class Named(nn.Module):
    """What a validator asks of a network before it sees its answers."""

    def __init__(self, names: tuple[str, ...]) -> None:
        super().__init__()
        self.names, self.end2end = dict(enumerate(names)), False


def network_name(backbone: str) -> str:
    """The name of one of their networks, or a file of the user's."""
    name = backbone.removeprefix(PREFIX)
    if name == backbone or "://" in name:
        raise InputError(
            f"A task of Ultralytics trains networks of Ultralytics, and {backbone!r} is none. "
            f"Expected {PREFIX}NAME, such as {PREFIX}yolo11n, or {PREFIX}FILE.yaml."
        )
    if Path(name).suffix in _YAML and not Path(name).is_file():
        raise InputError(
            f"There is no file {name!r}. Expected a YAML of your own, or {PREFIX}NAME."
        )
    if Path(name).suffix and Path(name).suffix not in _YAML:
        raise InputError(
            f"Expected a name or a YAML of Ultralytics but got {name!r}: its files of weights are "
            f"whole pickled programs, which attnlab does not read."
        )
    return name


def _layers(name: str) -> dict[str, Any]:
    """The description of a network. Their own reader takes a file of theirs in the place of the
    user's if it has the same name, and the other way round."""
    from ultralytics.nn.tasks import guess_model_scale, yaml_model_load
    from ultralytics.utils import ROOT, YAML

    if Path(name).suffix in _YAML:
        return {**YAML.load(name), "scale": guess_model_scale(name), "yaml_file": name}
    named = f"{name}.yaml", f"{_SCALE.sub(_WITHOUT_SCALE, name)}.yaml"
    beside = [file for file in named if Path(file).exists()]
    if beside:
        raise ValueError(f"the file {beside[0]!r} is here too; name it, or go to another folder")
    if not {file.name for file in (ROOT / "cfg" / "models").rglob("*.yaml")} & set(named):
        raise FileNotFoundError(f"it has no network {name!r}")
    found: dict[str, Any] = yaml_model_load(named[0])
    return found
