"""The network of a run: the plain backbone under the seed first, then the gate."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import nn

from attnlab._errors import InputError
from attnlab._seeds import derive
from attnlab.backbones.weights import load_weights
from attnlab.create import create
from attnlab.insert import insert
from attnlab.train.config import RunConfig, Value


def build_network(config: RunConfig, classes: int, shape: Sequence[int]) -> nn.Module:
    """The network of `config` for images of `shape`. What it shares with the plain backbone has
    the same first values whatever the gate is, so runs with one seed pair."""
    example = torch.zeros(1, *shape)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(config.seed, "initialisation"))
        network = create(config.backbone, classes, **config.backbone_options)  # type: ignore[arg-type]
        if config.attention == "none":
            return network
        torch.manual_seed(derive(config.seed, "gate"))
        where = list(config.where) if isinstance(config.where, tuple) else config.where
        network, _ = insert(
            network,
            config.attention,
            where,
            config.start,
            example=example,
            inplace=True,
            **config.gate_options,
        )
    return network


def without_weights(options: Mapping[str, Value]) -> dict[str, Value]:
    """The options of a backbone without those that say what it started from: once trained, it can
    be built where that file is not, and nothing is fetched."""
    return {k: v for k, v in options.items() if k not in ("weights", "new_head")}


def load_network(directory: str | Path) -> nn.Module:
    """The trained network of a finished run, in eval mode."""
    folder = Path(directory)
    weights = folder / "model.safetensors"
    if not weights.is_file():
        raise InputError(f"There is no {weights}: the run is not finished, or not a run's folder.")
    config = RunConfig.from_json((folder / "config.json").read_text(encoding="utf-8"))
    data = json.loads((folder / "data.json").read_text(encoding="utf-8"))
    options = without_weights(config.backbone_options)
    config = config.model_copy(update={"backbone_options": options})
    network = build_network(config, data["classes"], data["shape"])
    load_weights(network, weights)
    return network.eval()
