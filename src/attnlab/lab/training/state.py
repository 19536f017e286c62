"""Everything that changes while a run trains, to a checkpoint and back."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from attnlab._errors import InputError, OptionError
from attnlab._imported import imported, is_path
from attnlab.lab.training.config import RunConfig
from attnlab.lab.training.midway import Midway
from attnlab.lab.training.recipe import Recipe
from attnlab.results.checkpoints import load_checkpoint, save_checkpoint
from attnlab.results.epoch import EpochRecord
from attnlab.surgery.insertion import attachments
from attnlab.tasks.elsewhere import TrainerState
from attnlab.tasks.task import gathered

if TYPE_CHECKING:
    from lightning_fabric import Fabric


Groups = list[dict[str, Any]]
"""Parameters with the settings of their own, as torch's optimizers take them."""


def parameter_groups(recipe: Recipe, network: nn.Module) -> Groups:
    """All parameters alike, or matrices apart from norms, biases and gates, which do not decay, or
    timm's groups by layer, each with its `lr_scale`."""
    if recipe.layer_decay is not None:
        from timm.optim import param_groups_layer_decay

        spared: Any = getattr(network, "no_weight_decay", tuple)  # timm's positions and tokens
        found: Groups = param_groups_layer_decay(
            network, recipe.weight_decay, spared(), layer_decay=recipe.layer_decay
        )
        return found
    if recipe.decay_on == "all":
        return [{"params": list(network.parameters())}]
    gates = {id(p) for _, gate in attachments(network) for p in gate.parameters()}
    matrices: list[nn.Parameter] = []
    others: list[nn.Parameter] = []
    for parameter in network.parameters():
        matrix = parameter.ndim > 1 and id(parameter) not in gates
        (matrices if matrix else others).append(parameter)
    groups: Groups = [{"params": matrices}, {"params": others, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]


def build_optimizer(recipe: Recipe, network: nn.Module) -> torch.optim.Optimizer:
    """SGD or AdamW, in torch's fused form, which needs fewer passes; or
    the user's own, given lr, weight_decay and its options."""
    # Fabric cannot clip between unscaling and a fused step, which unscales by itself.
    fused = not (recipe.precision == "16-mixed" and recipe.clip is not None)
    decay, parameters = recipe.weight_decay, parameter_groups(recipe, network)
    if is_path(recipe.optimizer):
        return _own(recipe, parameters)
    if recipe.optimizer == "adamw":
        return torch.optim.AdamW(
            parameters, recipe.lr, recipe.betas, weight_decay=decay, fused=fused
        )
    return torch.optim.SGD(
        parameters, recipe.lr, momentum=recipe.momentum, weight_decay=decay, fused=fused
    )


def _own(recipe: Recipe, parameters: Groups) -> torch.optim.Optimizer:
    found: Any = imported("optimizer", recipe.optimizer, torch.optim.Optimizer)
    settings = {"lr": recipe.lr, "weight_decay": recipe.weight_decay, **recipe.optimizer_options}
    try:
        made: torch.optim.Optimizer = found(parameters, **settings)
    except TypeError as error:
        raise OptionError(
            f"Optimizer {recipe.optimizer!r} does not take {', '.join(settings)} ({error}). "
            f"Expected a class that is built with parameters, lr, weight_decay and its "
            f"optimizer_options."
        ) from None
    return made


@dataclass
class State:
    """A run between two steps."""

    network: nn.Module
    """The plain module, without the wrappers of compilation and processes."""
    model: Any
    """What is called to train: the network in its wrappers."""
    optimizer: Any
    average: AveragedModel | None
    history: list[EpochRecord] = field(default_factory=list)
    """One record per epoch that is done."""
    midway: Midway | None = None
    """How far the next one is, if the run was taken up inside of it."""
    elsewhere: TrainerState | None = None
    """What another program's trainer needs to go on, if one trains the network."""

    @property
    def tested(self) -> nn.Module:
        """The network that is tested and saved."""
        return self.network if self.average is None else self.average.module


def build_state(fabric: Fabric, config: RunConfig, network: nn.Module) -> State:
    """The network, the optimizer and the average on their device, in their wrappers."""
    recipe = config.recipe
    if recipe.sync_batchnorm and fabric.device.type == "cpu":
        raise InputError(
            "sync_batchnorm needs an accelerator: torch has no synchronised batch norm on the "
            "CPU. Leave it out."
        )
    if recipe.channels_last:
        network.to(memory_format=torch.channels_last)
    network.to(fabric.device)
    average = None
    if recipe.ema is not None:
        average = AveragedModel(
            network, multi_avg_fn=get_ema_multi_avg_fn(recipe.ema), use_buffers=True
        )
    optimizer = build_optimizer(recipe, network)
    called = torch.compile(network) if recipe.compile else network
    model, optimizer = fabric.setup(called, optimizer)  # type: ignore[arg-type]
    return State(network, model, optimizer, average)


def save_state(
    fabric: Fabric, state: State, folder: Path, run_id: str, midway: Midway | None = None
) -> None:
    """Write a checkpoint of the epochs that are done, and of a part of the next one; the first
    process only."""
    everyones = [] if midway is None else gathered([midway.own])
    if fabric.is_global_zero:
        content = {
            "run_id": run_id,
            "network": state.network.state_dict(),
            "optimizer": state.optimizer.state_dict(),
            "average": None if state.average is None else state.average.state_dict(),
            "precision": fabric.strategy.precision.state_dict(),
            "history": [record.given() for record in state.history],
        }
        if midway is not None:
            content["midway"] = midway.saved(everyones)
        save_checkpoint(folder, len(state.history), content, 0 if midway is None else midway.step)
    fabric.barrier()


def resume(fabric: Fabric, state: State, folder: Path, run_id: str) -> None:
    """Take up the newest whole checkpoint, if there is one."""
    content = load_checkpoint(folder) if fabric.is_global_zero else None
    content = fabric.broadcast(content)
    if content is None:
        return
    found = content.get("run_id")
    if found != run_id:
        raise InputError(
            f"The checkpoints in {folder} are of run {found}, expected {run_id}. Use another "
            f"directory."
        )
    state.network.load_state_dict(content["network"])
    state.optimizer.load_state_dict(content["optimizer"])
    if state.average is not None:
        state.average.load_state_dict(content["average"])
    fabric.strategy.precision.load_state_dict(content["precision"])
    state.history = [EpochRecord(**record) for record in content["history"]]
    if "midway" in content:
        state.midway = Midway.read(content["midway"], fabric.global_rank)


def synchronise_buffers(fabric: Fabric, network: nn.Module) -> None:
    """Give all processes the first one's batch statistics, which are what is tested and saved."""
    if fabric.world_size > 1:
        for buffer in network.buffers():
            torch.distributed.broadcast(buffer, 0)
