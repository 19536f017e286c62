"""The loop over the batches of an epoch: what one step is, and what is known when all are done."""

from __future__ import annotations

from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

import torch

from attnlab._seeds import derive
from attnlab.data import Batch, Data
from attnlab.lab.training.accumulation import divided, joined
from attnlab.lab.training.config import RunConfig
from attnlab.lab.training.diagnose import NonFiniteLossError, non_finite_loss
from attnlab.lab.training.evaluate import in_layout
from attnlab.lab.training.finite import At, LossWatch
from attnlab.lab.training.midway import LossSums, Midway, random_state
from attnlab.lab.training.recipe import Recipe
from attnlab.lab.training.reporters import Reporter
from attnlab.lab.training.rounds import round_of
from attnlab.lab.training.saving import Saver
from attnlab.lab.training.schedule import learning_rate, rate_of_step, warmup
from attnlab.lab.training.state import State
from attnlab.tasks import Task
from attnlab.tasks.task import Loss

if TYPE_CHECKING:
    from lightning_fabric import Fabric


class TrainedEpoch(NamedTuple):
    """What is known of an epoch of training, over all processes."""

    lr: float
    loss: float
    figures: dict[str, float]
    parts: dict[str, float]
    images: float
    seconds: float
    waited: float
    """How many of the seconds were spent on waiting for data."""


def train_epoch(
    fabric: Fabric,
    config: RunConfig,
    state: State,
    task: Task,
    data: Data,
    epoch: int,
    show: Reporter,
    saver: Saver | None = None,
) -> TrainedEpoch:
    """One epoch of training, or as many steps as the recipe has between two tests; what is left of
    it if the run was taken up inside of it."""
    recipe, rank = config.recipe, fabric.global_rank
    round_ = round_of(recipe, data, config.data_seed, epoch, rank, fabric.world_size)
    steps, midway = len(round_.chunks), state.midway
    done, waited, before = (0, 0.0, 0.0) if midway is None else midway.reached
    left = round_.after(done)
    batches = left.batches(data, config.data_seed, fabric.device)
    rate = learning_rate(recipe, epoch)
    torch.manual_seed(derive(config.data_seed, "network", epoch, rank))  # dropout and the like
    sums, watch = LossSums(), LossWatch.of(fabric.device)
    if midway is not None:
        sums = LossSums(midway.own, fabric.device)
        midway.restore_random(fabric.device)
    began = perf_counter() - before

    def reached(step: int) -> Midway:
        watch.look()  # or what is saved could be lost already
        own = {**sums.saved(), **random_state(fabric.device)}
        return Midway(step, steps, perf_counter() - began, waited, own)

    state.model.train()
    for step, chunk in enumerate(left.chunks, done + 1):
        asked = perf_counter()
        batch = next(batches)
        waited += perf_counter() - asked
        batch = in_layout(batch, recipe.channels_last)
        number = round_.first + step - 1
        factor = warmup(recipe, number)
        if recipe.steps is not None:
            rate = rate_of_step(recipe, number)
        for group in state.optimizer.param_groups:
            group["lr"] = rate * factor * group.get("lr_scale", 1.0)
        loss = _step(
            fabric, recipe, state, task, batch, chunk.share, At(epoch + 1, step, rate), watch
        )
        sums.add(loss, len(chunk.images))
        show.step(epoch, step, steps)
        if saver is not None:
            saver.after(step, steps, reached)
    watch.look()
    seconds = perf_counter() - began
    if recipe.steps is not None:  # also if every step was done before
        rate = rate_of_step(recipe, round_.first + steps - 1)
    mean, figures, parts, images = sums.means(fabric)
    return TrainedEpoch(rate, mean, figures, parts, images, seconds, waited)


def _step(
    fabric: Fabric,
    recipe: Recipe,
    state: State,
    task: Task,
    batch: Batch,
    share: float,
    at: At,
    watch: LossWatch,
) -> Loss:
    """One step of the optimizer; the loss before it."""
    # Not after the step: the heap, freed to its top, would go back to the system and be faulted
    # in again at every step, which cost ResNet20 a tenth of its speed on the CPU.
    state.optimizer.zero_grad()
    parts = divided(batch, recipe.accumulate)
    losses = []
    for number, part in enumerate(parts, 1):
        with fabric.no_backward_sync(state.model, enabled=number < len(parts)):
            losses.append(_backward(fabric, state, task, part.batch, share * part.share, at, watch))
    loss = losses[0] if len(losses) == 1 else joined(losses, [part.share for part in parts])
    if recipe.clip is not None:
        fabric.clip_gradients(
            state.model, state.optimizer, max_norm=recipe.clip, error_if_nonfinite=False
        )
    state.optimizer.step()
    if state.average is not None:
        state.average.update_parameters(state.network)
    return loss


def _backward(
    fabric: Fabric, state: State, task: Task, batch: Batch, share: float, at: At, watch: LossWatch
) -> Loss:
    """Add the gradient of a batch, or of a part of one, to that of the parts before it."""
    loss = task.loss(state.model, batch)

    def wrong(value: float, at: At, later: int) -> NonFiniteLossError:
        again, inputs = partial(task.loss, state.network, batch), task.inputs(batch)
        return non_finite_loss(state.network, inputs, again, value, *at, later)

    watch.see(loss.mean, at, wrong)
    fabric.backward(loss.mean * share)
    return loss
