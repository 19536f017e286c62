"""The folder of a run, opened: its network with its weights, its own images, and its task."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import torch
from pydantic import TypeAdapter
from torch import nn

from attnlab._errors import InputError, WeightsError
from attnlab._imported import is_path
from attnlab.data import Data, Facts, load_data
from attnlab.networks.backbones.weights import load_weights
from attnlab.networks.checkpoint import foreign_classes, options_for_loading, without_weights
from attnlab.results import StoredRun
from attnlab.results.damage import reading
from attnlab.results.mirror import fetch_weights
from attnlab.results.provenance import provenance
from attnlab.results.result import FILE as PLACEMENT
from attnlab.subject.building import build_network, description
from attnlab.subject.network_config import NetworkConfig
from attnlab.subject.subject import Subject
from attnlab.tasks import TaskConfig, build_task

_ANEW = "Train the run anew, in another directory."
_WEIGHTS = "model.safetensors"
_BATCH = 256
"""Images at a time where the recipe of the run does not say it."""
_FACTS = TypeAdapter(Facts)
Config = TypeVar("Config", bound=NetworkConfig)


def open_run(directory: str | Path, *, trust: bool = False, images: bool = True) -> Subject:
    """The network of a finished run on its own test images.

    Args:
        directory: the run's folder.
        trust: whether classes that are not attnlab's, which the run names, may be imported.
        images: whether its images are needed; without them, a run can be opened where they are not.
    """
    folder = Path(directory)
    config = read_network_config(folder)
    _check_trust(folder, config, trust)
    data = load_data(config.data) if images else None
    if data is not None:
        check_data(folder, data)
    facts = read_facts(folder) if data is None else data.facts
    task = build_task(config.task, facts)
    data = None if data is None else task.prepared(data)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return Subject(
        name=folder.resolve().name,
        network=load_network(folder).to(device),
        data=data,
        task=task,
        description=description(config, task),
        provenance=provenance(
            config.backbone,
            gate=None if config.attention == "none" else config.attention,
            weights=folder / _WEIGHTS,
            data=f"{facts.name} (test images of the run)" if images else "",
            data_checksum=facts.checksum if images else "",
        ),
        batch_size=_test_batch_size(folder),
        device=device,
    )


def read_network_config(directory: str | Path) -> NetworkConfig:
    """Return what decides the network of a run, with the blocks that a measurement chose for its
    gates."""
    folder = Path(directory)
    settings = stored_settings(folder)
    with reading(folder / "config.json", _ANEW):
        known = {name: settings[name] for name in NetworkConfig.model_fields if name in settings}
        return with_placement(NetworkConfig(**known), folder)


def read_task(directory: str | Path) -> TaskConfig:
    """Return the task of a run, from its settings alone."""
    folder = Path(directory)
    settings = stored_settings(folder)
    with reading(folder / "config.json", _ANEW):
        return TaskConfig.model_validate(settings["task"])


def stored_settings(folder: Path) -> dict[str, Any]:
    """Read all settings of a run, as its config.json holds them."""
    if not (folder / "config.json").is_file():
        inside = sorted(each.parent for each in folder.glob("*/config.json"))
        one = f" It holds {len(inside)}: pass one, such as {str(inside[0])!r}." if inside else ""
        raise InputError(
            f"There is no {str(folder / 'config.json')!r}, so {str(folder)!r} is not a run's "
            f"folder.{one}"
        )
    stored = StoredRun(folder)
    stored.check("config.json")
    return stored.config.given()


def read_facts(folder: Path) -> Facts:
    """Return the facts about the data that the run was trained on."""
    stored = StoredRun(folder)
    stored.check("data.json")
    with reading(folder / "data.json", _ANEW):
        return _FACTS.validate_python({} if stored.data is None else stored.data.given())


def check_data(folder: Path, data: Data) -> None:
    """Refuse data that are not those of the run."""
    before, now = read_facts(folder).checksum, data.facts.checksum
    if before != now:
        raise InputError(
            f"The data changed since the run in {folder} began: checksum {before[:12]}… then, "
            f"{now[:12]}… now. Give it the data that it was trained with, or train anew."
        )


def load_network(directory: str | Path) -> nn.Module:
    """The trained network of a finished run, in eval mode."""
    folder = Path(directory)
    weights = folder / _WEIGHTS
    fetch_weights(folder)
    if not weights.is_file():
        raise InputError(f"There is no {weights}: the run is not finished, or not a run's folder.")
    StoredRun(folder).check_weights()
    network = untrained_network(folder)
    load_weights(network, weights)
    return network.eval()


def untrained_network(directory: str | Path, *, gates: bool = True) -> nn.Module:
    """The network of a run with its first weights, if nothing had to be read or fetched for them;
    with `gates=False`, the plain one."""
    folder = Path(directory)
    config = read_network_config(folder)
    changed: dict[str, object] = {
        "backbone_options": without_weights(config.backbone_options),
        "gate_options": options_for_loading(config.attention, config.gate_options),
    }
    if not gates:
        changed |= {"attention": "none", "gate_options": {}, "where": None}
    config = config.model_copy(update=changed)
    facts = read_facts(folder)
    return build_network(config, build_task(config.task, facts))


def with_placement(config: Config, folder: Path) -> Config:
    """`config` with the blocks that were chosen for it, where that was by a measurement."""
    if config.asks_for_measurement is None:
        return config
    stored = StoredRun(folder)
    found = stored.placement
    if found is None:
        stored.check(PLACEMENT)
        raise InputError(
            f"There is no {str(folder / PLACEMENT)!r}, which says what where={config.where!r} "
            f"chose for this run."
        )
    return config.model_copy(update={"where": found.where})


def _check_trust(folder: Path, config: NetworkConfig, trust: bool) -> None:
    names = [config.data.name, config.task.name, config.data.augmentation.transform or ""]
    gate = None if config.attention == "none" else config.attention
    own = [*foreign_classes(config.backbone, gate), *(name for name in names if is_path(name))]
    if own and not trust:
        raise WeightsError(
            f"The run {str(folder)!r} names classes that are not attnlab's ({', '.join(own)}), "
            f"and a folder may not have code imported. If you trust it, pass trust=True, in a "
            f"command --trust."
        )


def _test_batch_size(folder: Path) -> int:
    """Return how many images at a time the run itself was tested with."""
    return StoredRun(folder).config.recipe.test_batch_size or _BATCH
