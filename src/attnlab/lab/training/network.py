"""The network of a run: the plain backbone under the seed first, then the gate."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from attnlab._errors import InputError, OptionError
from attnlab._seeds import derive
from attnlab.lab.training.config import RunConfig
from attnlab.lab.training.directory import read_config, read_facts
from attnlab.lab.training.measured_where import with_placement
from attnlab.networks.backbones.weights import load_weights
from attnlab.networks.checkpoint import Description, options_for_loading, without_weights
from attnlab.surgery.insertion import attachments, set_branch_scale
from attnlab.surgery.insertion.insert import insert
from attnlab.surgery.noise import attach as attach_noise
from attnlab.tasks import CreatedTask, Task, build_task


def build_network(config: RunConfig, task: Task, shape: Sequence[int]) -> nn.Module:
    """The network of `config` for images of `shape`. What it shares with the plain backbone has
    the same first values whatever the gate is, so runs with one seed pair."""
    example = torch.zeros(1, *shape)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(config.seed, "initialisation"))
        network = task.build(config.backbone, config.backbone_options)
        if config.recipe.sync_batchnorm:
            _refuse_other_norms(network)
            # Before the gates go in, so that a norm that is no plain one is refused at insertion.
            network = nn.SyncBatchNorm.convert_sync_batchnorm(network)
        if config.branch_scale is not None:
            set_branch_scale(network, config.branch_scale, example)
        if config.attention != "none":
            network = _with_gates(config, network, example)
    if config.noise is not None:
        attach_noise(network, config.noise.build(), config.noise.during)
    return network


def _with_gates(config: RunConfig, network: nn.Module, example: torch.Tensor) -> nn.Module:
    torch.manual_seed(derive(config.seed, "gate"))
    where = list(config.where) if isinstance(config.where, tuple) else config.where
    network, _ = insert(
        network,
        config.attention,
        where,
        config.start,
        place=config.place,
        shared=config.shared,
        example=example,
        inplace=True,
        **config.gate_options,
    )
    if config.recipe.sync_batchnorm:
        for _, attachment in attachments(network):
            for name, child in list(attachment.named_children()):
                setattr(attachment, name, nn.SyncBatchNorm.convert_sync_batchnorm(child))
    return network


def _refuse_other_norms(network: nn.Module) -> None:
    """torch's conversion makes every batch norm a plain one, whatever else it did."""
    norms = [module for module in network.modules() if isinstance(module, _BatchNorm)]
    others = {type(n).__name__ for n in norms if not type(n).__module__.startswith("torch.nn.")}
    if others:
        raise OptionError(
            f"sync_batchnorm would turn {', '.join(sorted(others))} into plain batch norms, and "
            f"what they do besides would be gone. Leave it out."
        )


def description(config: RunConfig, task: Task) -> Description | None:
    """How anybody builds the network; None where only its task can."""
    if not isinstance(task, CreatedTask):
        return None
    return Description(
        config.backbone,
        task.num_classes,
        without_weights(config.backbone_options),
        None if config.attention == "none" else config.attention,
        list(config.where) if isinstance(config.where, tuple) else config.where,
        config.start,
        dict(config.gate_options),
        list(task.facts.shape),
        place=config.place,
        shared=config.shared,
        noise=None if config.noise is None else config.noise.model_dump(exclude_none=True),
    )


def load_network(directory: str | Path) -> nn.Module:
    """The trained network of a finished run, in eval mode."""
    folder = Path(directory)
    weights = folder / "model.safetensors"
    if not weights.is_file():
        raise InputError(f"There is no {weights}: the run is not finished, or not a run's folder.")
    network = untrained_network(folder)
    load_weights(network, weights)
    return network.eval()


def untrained_network(directory: str | Path, *, gates: bool = True) -> nn.Module:
    """The network of a run with its first weights, if nothing had to be read or fetched for them;
    with `gates=False`, the plain one."""
    folder = Path(directory)
    config = with_placement(read_config(folder), folder)
    changed: dict[str, object] = {
        "backbone_options": without_weights(config.backbone_options),
        "gate_options": options_for_loading(config.attention, config.gate_options),
    }
    if not gates:
        changed |= {"attention": "none", "gate_options": {}, "where": None}
    config = config.model_copy(update=changed)
    facts = read_facts(folder)
    return build_network(config, build_task(config.task, facts), facts.shape)
