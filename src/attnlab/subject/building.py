"""The network of a run: the plain backbone under the seed first, then the gate."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from attnlab._errors import OptionError
from attnlab._seeds import derive
from attnlab.data import Facts
from attnlab.networks.backbones.weights import fill
from attnlab.networks.checkpoint import Description, without_weights
from attnlab.networks.preprocessing import Preprocessing
from attnlab.subject.network_config import NetworkConfig
from attnlab.surgery.insertion import attachments, set_branch_scale
from attnlab.surgery.insertion.insert import insert
from attnlab.surgery.noise import attach as attach_noise
from attnlab.tasks import CreatedTask, Task


def build_network(
    config: NetworkConfig,
    task: Task,
    *,
    sync_batchnorm: bool = False,
    trained: nn.Module | None = None,
) -> nn.Module:
    """The network of `config` for the data of the task. What it shares with the plain backbone has
    the same first values whatever the gate is, so runs with one seed pair; those of `trained`, a
    plain backbone like it, if there is one."""
    example = task.facts.example()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(config.seed, "initialisation"))
        network = task.build(config.backbone, config.backbone_options)
        if trained is not None:
            fill(network, trained.state_dict(), "the network that was trained before")
        if sync_batchnorm:
            _refuse_other_norms(network)
            # Before the gates go in, so that other norms than plain ones are refused there.
            network = nn.SyncBatchNorm.convert_sync_batchnorm(network)
        if config.branch_scale is not None:
            set_branch_scale(network, config.branch_scale, example)
        if config.attention != "none":
            network = _with_gates(config, network, example, sync_batchnorm)
    if config.noise is not None:
        attach_noise(network, config.noise.build(), config.noise.during)
    return network


def _with_gates(
    config: NetworkConfig, network: nn.Module, example: torch.Tensor, sync_batchnorm: bool
) -> nn.Module:
    torch.manual_seed(derive(config.seed, "gate"))
    where = list(config.where) if isinstance(config.where, tuple) else config.where
    options: dict[str, Any] = dict(config.gate_options)
    network, _ = insert(
        network,
        config.attention,
        where,
        config.start,
        place=config.place,
        shared=config.shared,
        example=example,
        inplace=True,
        **options,
    )
    if sync_batchnorm:
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


def own_preprocessing(facts: Facts) -> Preprocessing | None:
    """How the images of a run were prepared; None if it has text."""
    if len(facts.shape) != 3:
        return None
    channels, height, width = facts.shape
    return Preprocessing((channels, height, width), facts.mean, facts.std)


def description(config: NetworkConfig, task: Task) -> Description | None:
    """How anybody builds the network; None where only its task can."""
    if not isinstance(task, CreatedTask):
        return None
    facts = task.facts
    return Description(
        config.backbone,
        task.num_classes,
        without_weights(config.backbone_options),
        None if config.attention == "none" else config.attention,
        list(config.where) if isinstance(config.where, tuple) else config.where,
        config.start,
        dict(config.gate_options),
        list(facts.shape),
        place=config.place,
        shared=config.shared,
        noise=None if config.noise is None else config.noise.model_dump(exclude_none=True),
        preprocessing=own_preprocessing(facts),
    )
