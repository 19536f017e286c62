"""What a run is made from, and so which run it is.

Its id covers what decides its weights and nothing else: the settings that differ from their
defaults, the content of the data, of a file of weights and of the files of a task, the source of
every class that came in by a dotted path, the threads per process, which decide in which order
sums are taken, and the number of processes, whose batch norms see a part of each batch. A new
setting with a default, another place of the data or another label give the same id; an edited gate
or one image more give another.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from attnlab._checksums import file_checksum
from attnlab._errors import InputError
from attnlab._imported import is_path
from attnlab._sources import source_digest
from attnlab.data import data_checksum
from attnlab.lab.training.config import RunConfig
from attnlab.results.damage import read_object, reading
from attnlab.results.identity import FILE as FILE
from attnlab.results.identity import Identity as Identity
from attnlab.results.identity import flat_settings
from attnlab.tasks import task_class

_REMEDY = "Remove the run's folder to train it anew, or use another directory."


def identify(
    config: RunConfig,
    checksums: dict[str, str] | None = None,
    *,
    threads: int | None = None,
    devices: int = 1,
) -> Identity:
    """The identity of a run; data, weights and classes must be there. `checksums` remembers those
    of data for the next call; `threads` are as they are now when None; `devices` are those among
    which its batches are divided."""
    settings = config.model_dump(mode="json", exclude_defaults=True)
    for recipe in ("recipe", "pretrain"):
        settings.get(recipe, {}).pop("name", None)
    for place in ("root", "download"):
        settings.get("data", {}).pop(place, None)
    for option, file in task_class(config.task).files(config.task.options).items():
        given = settings.setdefault("task", {}).setdefault("options", {})
        given[option] = f"sha256:{file_checksum(file)}"
    weights = _weights(config)
    if weights is not None:
        settings["backbone_options"].pop("weights")
    return Identity(
        settings=settings,
        data=_data(config, {} if checksums is None else checksums),
        threads=_threads_now() if threads is None else threads,
        weights=weights,
        devices=devices,
        sources={
            **{f"{kind} {path}": source_digest(path) for kind, path in own_classes_of(config)},
            **_own_description(config),
        },
    )


def _own_description(config: RunConfig) -> dict[str, str]:
    """The content of a file that describes the backbone, `ultralytics:my.yaml`."""
    library, _, name = config.backbone.rpartition(":")
    if not library or not Path(name).is_file():
        return {}
    return {f"backbone {name}": file_checksum(Path(name))}


def _threads_now() -> int:
    import torch

    return torch.get_num_threads()


def own_classes_of(config: RunConfig) -> Iterator[tuple[str, str]]:
    """The user's own classes in a config, each with what it is."""
    library, _, _ = config.backbone.rpartition(":")
    named = [
        ("task", config.task.name),
        ("data", config.data.name),
        ("transform", config.data.augmentation.transform or ""),
        ("backbone", "" if library else config.backbone),
        *(("gate", name) for name in re.split(r"[+:*]", config.attention)),
        ("optimizer", config.recipe.optimizer),
        ("schedule", config.recipe.schedule),
    ]
    if config.pretrain is not None:
        named += [
            ("optimizer", config.pretrain.optimizer),
            ("schedule", config.pretrain.schedule),
        ]
    yield from ((kind, name) for kind, name in named if is_path(name))


def check_stored(folder: Path, config: RunConfig, identity: Identity) -> None:
    """Refuse a directory that holds another run, or the same settings under other defaults."""
    stored = read_identity(folder)
    if stored is not None and stored.run_id != identity.run_id:
        raise InputError(
            f"{folder} holds run {stored.run_id}, expected {identity.run_id} ({config.label}): "
            f"{'; '.join(stored.differences(identity))}. Use another directory, or train it as it "
            f"was begun."
        )
    changed = changed_defaults(folder, config)
    if changed:
        raise InputError(
            f"{folder} holds this run as another version of attnlab understood it: "
            f"{'; '.join(changed)}. Use another directory, or set these to what they were."
        )


def changed_defaults(folder: Path, config: RunConfig) -> list[str]:
    """Settings that differ in the stored run though its id is the same: defaults changed."""
    file = folder / "config.json"
    if not file.is_file():
        return []
    places = task_class(config.task).file_options
    found = read_object(file, _REMEDY)
    with reading(file, _REMEDY):
        stored = dict(flat_settings(_without_places(found, places)))
    now = dict(flat_settings(_without_places(config.model_dump(mode="json"), places)))
    return [
        f"{name} was {value!r}, is {now.get(name)!r}"
        for name, value in stored.items()
        if now.get(name) != value
    ]


def read_identity(folder: Path) -> Identity | None:
    """Return what a run's directory says it was made from; None where it says nothing."""
    file = folder / FILE
    if not file.is_file():
        return None
    found = read_object(file, _REMEDY)
    with reading(file, _REMEDY):
        return Identity(**found)


def _data(config: RunConfig, known: dict[str, str]) -> str:
    key = config.data.model_dump_json(exclude={"augmentation"})
    if key not in known:
        known[key] = data_checksum(config.data)
    return known[key]


def _weights(config: RunConfig) -> str | None:
    given = config.backbone_options.get("weights")
    if not isinstance(given, str) or not Path(given).is_file():
        return None
    return file_checksum(Path(given))


def _without_places(settings: dict[str, Any], task_places: Sequence[str]) -> dict[str, Any]:
    data = {k: v for k, v in settings["data"].items() if k not in ("root", "download")}
    recipe = {k: v for k, v in settings["recipe"].items() if k != "name"}
    options = {k: v for k, v in settings["backbone_options"].items() if k != "weights"}
    task = settings["task"]
    chosen = {k: v for k, v in task.get("options", {}).items() if k not in task_places}
    return {
        **settings,
        "task": {**task, "options": chosen},
        "data": data,
        "recipe": recipe,
        "pretrain": {k: v for k, v in (settings.get("pretrain") or {}).items() if k != "name"},
        "backbone_options": options,
    }
