"""Train one network. The loop is `train_epoch`; the rest gets a run there and back again."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from attnlab._checked import check_whole
from attnlab._errors import InputError, OptionError
from attnlab._extras import needs
from attnlab._files import write_whole
from attnlab._seeds import derive
from attnlab.data import Data, load_data
from attnlab.data.batches import check_batch_size, training_chunks
from attnlab.lab.tracking import TrackConfig, TrackedRun, Tracking, check_installed, chosen
from attnlab.lab.training.batch_noise import check_batch_noise
from attnlab.lab.training.config import RunConfig
from attnlab.lab.training.diagnose import non_finite_loss
from attnlab.lab.training.directory import begin, write_metrics
from attnlab.lab.training.evaluate import evaluate, in_layout, summed
from attnlab.lab.training.gate_norms import check_gate_norms
from attnlab.lab.training.identity import Identity, check_stored, identify
from attnlab.lab.training.measured_where import source_config
from attnlab.lab.training.placement import choose
from attnlab.lab.training.reporters import Progress, Reporter, reporter
from attnlab.lab.training.schedule import base_rate, learning_rate, warmup
from attnlab.lab.training.state import State, build_state, resume, save_state, synchronise_buffers
from attnlab.lab.training.surroundings import deterministic, terminating
from attnlab.networks import checkpoint
from attnlab.residuals import watchable
from attnlab.residuals.selection import fixed_macs
from attnlab.results import RunResult, StoredRun
from attnlab.results.placement import PlacementRecord
from attnlab.subject.building import build_network, description
from attnlab.subject.run import with_placement
from attnlab.surgery.receipt import count_parameters
from attnlab.tasks import Task, build_task

if TYPE_CHECKING:
    from lightning_fabric import Fabric

EachEpoch = Callable[[nn.Module, Task, Data, torch.device], Mapping[str, Any]]
"""What else is recorded of an epoch: called with the network that is tested."""


def train(
    config: RunConfig,
    directory: str | Path,
    *,
    threads: int | None = None,
    devices: int = 1,
    progress: Progress | None = None,
    each_epoch: EachEpoch | None = None,
    source: str | Path | None = None,
    track: Sequence[str | TrackConfig] = (),
    group: str = "",
) -> RunResult:
    """Train the network of `config` in `directory`; return its result.

    A directory with checkpoints is taken up where it stands, one with a result is not trained
    again. On the CPU the same config, with the same number of threads, gives the same weights to
    the bit, however often it was stopped.

    Args:
        config: what to train.
        directory: the run's own; nothing is written elsewhere.
        threads: of torch, per process; as they are when None.
        devices: processes, each with a GPU where there are any, else on the CPU. `batch_size` is
            over all of them. From 2 on, the calling script needs an `if __name__ == "__main__"`
            guard, and `progress` must be a function at the top of a module.
        progress: called with each epoch's record; None shows a bar or prints a line.
        each_epoch: called after each epoch; what it returns is added to the epoch's record.
        source: of a `where` that asks for a measurement, the directory of the run that is measured
            (`attnlab.lab.training.placement`), which is trained first where it is not finished;
            `source` below `directory` when None.
        track: trackers that get the curves too, names of `attnlab.lab.tracking.list_trackers()` or
            settings. The run and its result are the same with and without.
        group: what trackers put the run under, such as the name of its study.
    """
    if not isinstance(config, RunConfig):
        raise OptionError(f"Expected a RunConfig to train but got a {type(config).__name__}.")
    check_whole("devices", devices, 1)
    if threads is not None:
        check_whole("threads", threads, 1)
    folder = Path(directory)
    if folder.exists() and not folder.is_dir():
        raise InputError(f"Expected a folder for the run but {str(folder)!r} is a file.")
    trackers = chosen(track)
    check_installed(trackers)
    identity = identify(config)
    if (folder / "result.json").is_file():
        check_stored(folder, config, identity)
        return StoredRun(folder, identity.run_id).result
    # Before any process is started: errors are plain, and processes share one copy of the images.
    data = load_data(config.data)
    build_task(config.task, data.facts).check(config.backbone, config.backbone_options)
    check_batch_size(data.facts.train, config.recipe, devices)
    check_batch_noise(config, data.facts, devices)
    check_stored(folder, config, identity)
    placement = None
    measured = source_config(config)
    if measured is not None:
        if devices > 1 and _launched():
            raise InputError(
                f"where={config.where!r} is chosen by a measurement of another run, which is made "
                f"in one process. Start without torchrun or srun, or name the blocks."
            )
        below = folder / "source" if source is None else Path(source)
        found = train(
            measured,
            below,
            threads=threads,
            devices=devices,
            progress=progress,
            each_epoch=each_epoch,
        )
        placement = choose(config, folder, below, found.run_id, data, threads)
    with needs("study"):
        from lightning_fabric import Fabric  # takes seconds, so not where it is not needed

    fabric = Fabric(
        accelerator="auto",
        devices=devices,
        # Processes of torchrun and srun are there already; others are started here.
        strategy="auto" if devices == 1 else "ddp" if _launched() else "ddp_spawn",
        precision=config.recipe.precision,
    )
    launched: Any = _run  # Fabric hands on the arguments, though its annotation does not say so
    with terminating():
        result: RunResult = fabric.launch(
            launched,
            config,
            identity,
            folder,
            data,
            threads,
            progress,
            each_epoch,
            placement,
            trackers,
            group,
        )
    return result


def _launched() -> bool:
    return "TORCHELASTIC_RUN_ID" in os.environ or int(os.environ.get("SLURM_NTASKS", "1")) > 1


def _run(
    fabric: Fabric,
    config: RunConfig,
    identity: Identity,
    folder: Path,
    data: Data,
    threads: int | None,
    progress: Progress | None,
    each_epoch: EachEpoch | None,
    placement: PlacementRecord | None,
    trackers: Sequence[TrackConfig],
    group: str,
) -> RunResult:
    placed = config if placement is None else with_placement(config, folder)
    with deterministic(threads):
        task = build_task(config.task, data.facts)
        network = build_network(
            placed, task, data.facts.shape, sync_batchnorm=config.recipe.sync_batchnorm
        )
        check_gate_norms(network, data.facts.shape, config.recipe.batch_size // fabric.world_size)
        if fabric.is_global_zero:
            begin(folder, config, identity, data.facts)
        fabric.barrier()
        state = build_state(fabric, config, network)
        resume(fabric, state, folder / "checkpoints", identity.run_id)
        run = TrackedRun(folder, identity.run_id, config.label, config.model_dump(), group)
        tracking = Tracking(trackers if fabric.is_global_zero else (), run)
        shown = progress if fabric.is_global_zero else _silent
        show = reporter(shown, config.label, config.recipe.epochs, task.metrics[0])
        if config.recipe.lr_batch not in (None, config.recipe.batch_size):
            show.note(_scaled(config))
        try:
            tracking.write(state.history)  # an epoch may be saved and not written yet
            for epoch in range(len(state.history), config.recipe.epochs):
                record = _epoch(fabric, config, state, task, data, epoch, show)
                if each_epoch is not None:
                    record |= each_epoch(state.tested, task, data, fabric.device)
                state.history.append(record)
                save_state(fabric, state, folder / "checkpoints", identity.run_id)
                if fabric.is_global_zero:
                    write_metrics(folder, state.history)
                tracking.write(state.history)
                show.epoch(record)
        except (KeyboardInterrupt, SystemExit):
            if fabric.is_global_zero:
                _say_stopped(config, len(state.history), folder)
            raise
        finally:
            show.close()
            tracking.close(finished=len(state.history) == config.recipe.epochs)
        return _finish(fabric, placed, identity, state, task, data, folder, placement)


def _epoch(
    fabric: Fabric,
    config: RunConfig,
    state: State,
    task: Task,
    data: Data,
    epoch: int,
    show: Reporter,
) -> dict[str, Any]:
    began = perf_counter()
    trained = train_epoch(fabric, config, state, task, data, epoch, show)
    synchronise_buffers(fabric, state.network)
    if state.average is not None:
        synchronise_buffers(fabric, state.average)
    recipe = config.recipe
    with fabric.autocast():
        tested = evaluate(
            state.tested,
            task,
            data,
            recipe.test_batch_size,
            fabric.device,
            rank=fabric.global_rank,
            processes=fabric.world_size,
            channels_last=recipe.channels_last,
        )
    return {"epoch": epoch + 1, **trained, "test": tested, "seconds": perf_counter() - began}


def train_epoch(
    fabric: Fabric,
    config: RunConfig,
    state: State,
    task: Task,
    data: Data,
    epoch: int,
    show: Reporter,
) -> dict[str, Any]:
    """One epoch of training; what is recorded of it."""
    recipe, model, optimizer = config.recipe, state.model, state.optimizer
    rank, processes = fabric.global_rank, fabric.world_size
    rate = learning_rate(recipe, epoch)
    chunks = training_chunks(data.facts.train, recipe, config.seed, epoch, rank, processes)
    batches = data.training(chunks, config.seed, epoch, fabric.device)
    torch.manual_seed(derive(config.seed, "network", epoch, rank))  # dropout and the like
    sums: torch.Tensor | None = None
    names: list[str] = []
    parts: list[str] = []
    seen, waited, began = 0, 0.0, perf_counter()
    model.train()
    for step, chunk in enumerate(chunks, 1):
        asked = perf_counter()
        batch = next(batches)
        waited += perf_counter() - asked
        batch = in_layout(batch, recipe.channels_last)
        factor = warmup(recipe, epoch * len(chunks) + step - 1)
        for group in optimizer.param_groups:
            group["lr"] = rate * factor
        # Not after the step: the heap, freed to its top, would go back to the system and be faulted
        # in again at every step, which cost ResNet20 a tenth of its speed on the CPU.
        optimizer.zero_grad()
        loss = task.loss(model, batch)
        value = loss.mean.item()
        if not abs(value) < float("inf"):
            again = partial(task.loss, state.network, batch)
            inputs = task.inputs(batch)
            raise non_finite_loss(state.network, inputs, again, value, epoch + 1, step, rate)
        fabric.backward(loss.mean * chunk.share)
        if recipe.clip is not None:
            fabric.clip_gradients(model, optimizer, max_norm=recipe.clip, error_if_nonfinite=False)
        optimizer.step()
        if state.average is not None:
            state.average.update_parameters(state.network)
        names, parts = list(loss.figures), list(loss.parts)
        number = len(chunk.images)
        others = (*loss.figures.values(), *loss.parts.values())
        means = torch.stack([loss.mean.detach().double(), *others])
        sums = number * means if sums is None else sums + number * means
        seen += number
        show.step(epoch, step, len(chunks))
    seconds = perf_counter() - began
    assert sums is not None
    *totals, everyone = summed(fabric, torch.cat([sums, sums.new_tensor([seen])]))
    loss_mean, *figures = (total / everyone for total in totals)
    shown = dict(zip((*names, *parts), figures, strict=True))
    return {
        "lr": rate,
        "train_loss": loss_mean,
        "train": {name: shown[name] for name in names},
        **({"loss_parts": {name: shown[name] for name in parts}} if parts else {}),
        "train_seconds": seconds,
        "data_seconds": waited,
        "images_per_second": everyone / seconds,
    }


def _finish(
    fabric: Fabric,
    config: RunConfig,
    identity: Identity,
    state: State,
    task: Task,
    data: Data,
    folder: Path,
    placement: PlacementRecord | None,
) -> RunResult:
    """Write the weights and, last of all, the result: it marks the run as trained."""
    result = _result(config, identity, state, task, data, placement)
    if fabric.is_global_zero:
        weights = checkpoint.to_bytes(state.tested, description(config, task))
        write_whole(folder / "model.safetensors", weights)
        write_metrics(folder, state.history)
        write_whole(folder / "result.json", result.model_dump_json(indent=1) + "\n")
    fabric.barrier()
    return result


def _result(
    config: RunConfig,
    identity: Identity,
    state: State,
    task: Task,
    data: Data,
    placement: PlacementRecord | None,
) -> RunResult:
    history, network, metric = state.history, state.tested, task.metrics[0]
    batch = next(data.testing([torch.tensor([0])], next(network.parameters()).device))
    values = [record["test"][metric.name] for record in history]
    best = metric.best(values)
    return RunResult(
        run_id=identity.run_id,
        label=config.label,
        epochs=len(history),
        metrics=task.metrics,
        values=history[-1]["test"],
        best_value=values[best],
        best_epoch=history[best]["epoch"],
        train_loss=history[-1]["train_loss"],
        parameters=count_parameters(network),
        macs=fixed_macs(network, task.inputs(batch)),
        train_images_per_second=median(record["images_per_second"] for record in history),
        data_share=sum(r["data_seconds"] for r in history)
        / sum(r["train_seconds"] for r in history),
        seconds=sum(record["seconds"] for record in history),
        sites=_sites(network, task.inputs(batch)),
        placement=placement,
    )


def _sites(network: nn.Module, inputs: Any) -> int:
    return sum(gate.kind != "own" for gate in watchable(network, inputs).gates)


def _scaled(config: RunConfig) -> str:
    recipe = config.recipe
    return (
        f"{config.label}: lr {recipe.lr:g} is for batches of {recipe.lr_batch}; with "
        f"{recipe.batch_size} it is {base_rate(recipe):g}"
    )


def _say_stopped(config: RunConfig, done: int, folder: Path) -> None:
    print(
        f"{config.label}: stopped in epoch {done + 1}; {done} of {config.recipe.epochs} epochs are "
        f"saved in {folder}. Run the same again to go on.",
        file=sys.stderr,
    )


def _silent(record: Any) -> None:
    del record
