"""Train one network: get a run to the loop, which is `train_epoch`, and back again."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import nn

from attnlab._address import is_address, local_path
from attnlab._checked import check_whole
from attnlab._errors import InputError, OptionError
from attnlab._extras import needs
from attnlab._files import write_whole
from attnlab.data import Data, load_data
from attnlab.data.batches import check_batch_size
from attnlab.lab.tracking import TrackConfig, TrackedRun, Tracking, check_trackers, chosen
from attnlab.lab.training.accumulation import what_differs
from attnlab.lab.training.config import RunConfig
from attnlab.lab.training.elsewhere import (
    ElsewhereRun,
    check_elsewhere,
    resumed,
    train_elsewhere,
)
from attnlab.lab.training.evaluate import evaluate
from attnlab.lab.training.gate_norms import check_batch_noise, check_gate_norms
from attnlab.lab.training.identity import Identity, check_stored, identify
from attnlab.lab.training.one_epoch import TrainedEpoch, train_epoch
from attnlab.lab.training.placement import choose_placement, source_config
from attnlab.lab.training.reporters import Progress, Reporter, reporter
from attnlab.lab.training.saving import SaveEvery, Saver
from attnlab.lab.training.schedule import base_rate
from attnlab.lab.training.state import State, build_state, resume, synchronise_buffers
from attnlab.lab.training.stopping import Stop, forwarding, terminating
from attnlab.lab.training.surroundings import begin, deterministically, write_metrics
from attnlab.networks import checkpoint
from attnlab.residuals import watchable
from attnlab.residuals.selection import fixed_macs
from attnlab.results import RunResult, StoredRun
from attnlab.results.epoch import EpochRecord
from attnlab.results.manifest import write_manifest
from attnlab.results.result import PlacementRecord
from attnlab.subject.building import build_network, description
from attnlab.subject.run import load_network, with_placement
from attnlab.surgery.receipt import count_parameters
from attnlab.tasks import Task, build_task
from attnlab.tasks.elsewhere import TaskTrainedElsewhere

if TYPE_CHECKING:
    from lightning_fabric import Fabric

EachEpoch = Callable[[nn.Module, Task, Data, torch.device], Mapping[str, object]]
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
    save_minutes: float | None = 10.0,
    save_steps: int | None = None,
) -> RunResult:
    """Train the network of `config` in `directory`; return its result.

    A directory with checkpoints is taken up where it stands, one with a result is not trained
    again. On the CPU the same config, with the same number of threads, gives the same weights to
    the bit, however often it was stopped. One that was begun with other threads or devices is
    refused.
    A run that is asked to stop (SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, Ctrl-C) saves after the step
    that is under way, and ends.

    Args:
        config: what to train.
        directory: the run's own; nothing is written elsewhere. At an address of fsspec
            (`s3://bucket/runs/NAME`) a run goes on from its last checkpoint on any machine.
        threads: of torch, per process; as they are when None.
        devices: processes, each with a GPU if there are any, else on the CPU. `batch_size` is
            over all of them. From 2 on, the calling script needs an `if __name__ == "__main__"`
            guard, and `progress` must be a function at the top of a module.
        progress: called with each epoch's record; None shows a bar or prints a line.
        each_epoch: called after each epoch; what it returns is added to the epoch's record.
        source: the directory of the run that has to be there first, which is trained if it is not
            finished: of a `where` that asks for a measurement, the run that is measured
            (`attnlab.lab.training.placement`), of `pretrain` the one that this one starts from;
            `source` below `directory` when None.
        track: trackers that get the curves too, names of `attnlab.lab.tracking.list_trackers()` or
            settings. The run and its result are the same with and without.
        group: what trackers put the run under, such as the name of its study.
        save_minutes: a checkpoint is written when the last one is so old, also in the middle of an
            epoch; None writes one at the end of each epoch only.
        save_steps: a checkpoint is also written each time this many steps of an epoch are done.
    """
    if is_address(directory):
        with _at_address(str(directory), devices) as here:
            return train(
                config,
                here,
                threads=threads,
                devices=devices,
                progress=progress,
                each_epoch=each_epoch,
                source=source,
                track=track,
                group=group,
                save_minutes=save_minutes,
                save_steps=save_steps,
            )
    folder = local_path(directory)
    every = SaveEvery(save_minutes, save_steps)
    every.check()
    _check_arguments(config, folder, threads, devices)
    trackers = chosen(track)
    check_trackers(trackers)
    threads = torch.get_num_threads() if threads is None else threads
    identity = identify(config, threads=threads, devices=devices)
    if StoredRun(folder).has_result:
        check_stored(folder, config, identity)
        return StoredRun(folder, identity.run_id).result
    # Before any process is started: errors are plain, and processes share one copy of the images.
    data = _fitting_data(config, devices)
    check_stored(folder, config, identity)
    job = _Job(
        config, identity, folder, data, threads, progress, each_epoch, trackers, group, every
    )
    below = folder / "source" if source is None else Path(source)
    return _launch(_after_first(job, below, devices), devices)


def _fitting_data(config: RunConfig, devices: int) -> Data:
    """The data of a run, which its task can be trained on, in batches that can be made."""
    data = load_data(config.data)
    task = build_task(config.task, data.facts)
    if isinstance(task, TaskTrainedElsewhere):
        check_elsewhere(config, devices)
    task.check(config.backbone, config.backbone_options)
    data = task.prepared(data)
    check_batch_size(data.facts.train, config.recipe, devices)
    check_batch_noise(config, data.facts, devices)
    return data


def _after_first(job: _Job, below: Path, devices: int) -> _Job:
    """The job with what comes of another run that has to be there first, which is trained in
    `below`: where its gates go, or the network that it starts from."""
    measured, before = source_config(job.config), job.config.pretraining
    if measured is not None:
        job = job._replace(placement=_placed(job, measured, below, devices))
    if before is not None:
        if devices > 1 and _launched():
            raise InputError(
                "pretrain makes another run first, and torchrun and srun start one. Start without "
                "them: devices alone starts the processes of both."
            )
        _train_first(job, before, devices, below)
        job = job._replace(start=below)
    return job


@contextmanager
def _at_address(address: str, devices: int) -> Iterator[Path]:
    """The folder of this machine in which a run at an address is trained."""
    from attnlab.lab.study.lock import working_at

    if devices > 1 and _launched():
        raise InputError(
            f"A run at an address is claimed by one process, and torchrun or srun started several "
            f"for {address!r}. Give a folder that they share, or leave the launcher out."
        )
    with working_at(address) as folder:
        yield folder


class _Job(NamedTuple):
    """What each process of a run is given. A tuple: Fabric rebuilds the fields of what it hands to
    other processes, which a frozen dataclass refuses."""

    config: RunConfig
    identity: Identity
    folder: Path
    data: Data
    threads: int
    progress: Progress | None
    each_epoch: EachEpoch | None
    trackers: Sequence[TrackConfig]
    group: str
    every: SaveEvery
    placement: PlacementRecord | None = None
    start: Path | None = None
    """The run whose trained network it starts from."""

    @property
    def placed(self) -> RunConfig:
        """The config with the blocks that a measurement chose."""
        return self.config if self.placement is None else with_placement(self.config, self.folder)


def _check_arguments(config: RunConfig, folder: Path, threads: int | None, devices: int) -> None:
    if not isinstance(config, RunConfig):
        raise OptionError(f"Expected a RunConfig to train but got a {type(config).__name__}.")
    check_whole("devices", devices, 1)
    if threads is not None:
        check_whole("threads", threads, 1)
    if folder.exists() and not folder.is_dir():
        raise InputError(f"Expected a folder for the run but {str(folder)!r} is a file.")


def _placed(job: _Job, measured: RunConfig, below: Path, devices: int) -> PlacementRecord:
    """Choose where the gates go: train the run that is `measured` in `below`, and choose by it."""
    if devices > 1 and _launched():
        raise InputError(
            f"where={job.config.where!r} is chosen by a measurement of another run, which is made "
            f"in one process. Start without torchrun or srun, or name the blocks."
        )
    found = _train_first(job, measured, devices, below)
    return choose_placement(job.config, job.folder, below, found.run_id, job.data, job.threads)


def _train_first(job: _Job, first: RunConfig, devices: int, below: Path) -> RunResult:
    """Train in `below`, as the run itself will be, another that has to be there before it."""
    return train(
        first,
        below,
        threads=job.threads,
        devices=devices,
        progress=job.progress,
        each_epoch=job.each_epoch,
        save_minutes=job.every.minutes,
        save_steps=job.every.steps,
    )


def _launch(job: _Job, devices: int) -> RunResult:
    """Train in as many processes as there are devices."""
    with needs("study"):
        from lightning_fabric import Fabric  # takes seconds, so not where it is not needed
        from lightning_fabric.plugins.environments.lightning import LightningEnvironment

    spawned = devices > 1 and not _launched()
    fabric = Fabric(
        accelerator="auto",
        devices=devices,
        # Processes of torchrun and srun are there already; others are started here.
        strategy="auto" if devices == 1 else "ddp_spawn" if spawned else "ddp",
        precision=job.config.recipe.precision,
        # Else, in a job of Slurm, Fabric would count on as many tasks of it as there are devices.
        plugins=LightningEnvironment() if spawned else None,
    )
    launched: Any = _run  # Fabric hands on the arguments, though its annotation does not say so
    with forwarding() if spawned else nullcontext():
        result: RunResult = fabric.launch(launched, job)
    return result


def _launched() -> bool:
    return "TORCHELASTIC_RUN_ID" in os.environ or int(os.environ.get("SLURM_NTASKS", "1")) > 1


def _run(fabric: Fabric, job: _Job) -> RunResult:
    config = job.config
    with deterministically(job.threads), terminating() as stop:
        task, state = _begun(fabric, job)
        saver = Saver(
            fabric, state, job.folder / "checkpoints", job.identity.run_id, job.every, stop
        )
        run = TrackedRun(
            job.folder, job.identity.run_id, config.label, config.model_dump(), job.group
        )
        tracking = Tracking(job.trackers if fabric.is_global_zero else (), run)
        shown = job.progress if fabric.is_global_zero else _silent
        show = reporter(shown, config.label, config.recipe.budget, task.metrics[0])
        if config.recipe.lr_batch not in (None, config.recipe.batch_size):
            show.note(_scaled(config))
        for note in what_differs(config.recipe, type(task), state.network):
            show.note(f"{config.label}: {note}")
        for note in job.data.facts.notes:
            show.note(f"{config.data.title}: {note}")
        try:
            tracking.write(state.history)  # an epoch may be saved and not written yet
            if isinstance(task, TaskTrainedElsewhere):
                _train_elsewhere(fabric, job, state, task, show, stop, tracking)
            for epoch in range(len(state.history), config.recipe.epochs):
                _train_and_save(fabric, job, state, task, epoch, show, saver)
                tracking.write(state.history)
                show.epoch(state.history[-1])
        except (KeyboardInterrupt, SystemExit):
            if fabric.is_global_zero:
                _say_stopped(config, state, job.folder)
            raise
        finally:
            show.close()
            tracking.close(finished=len(state.history) == config.recipe.epochs)
        return _finish(fabric, job, state, task)


def _begun(fabric: Fabric, job: _Job) -> tuple[Task, State]:
    """The run where it stands: at its start, or after the epochs that are saved."""
    config, facts = job.config, job.data.facts
    task = build_task(config.task, facts)
    network = build_network(
        job.placed,
        task,
        sync_batchnorm=config.recipe.sync_batchnorm,
        trained=None if job.start is None else load_network(job.start),
    )
    check_gate_norms(network, facts.example(), config.recipe.batch_size // fabric.world_size)
    if fabric.is_global_zero:
        begin(job.folder, config, job.identity, facts)
    fabric.barrier()
    if isinstance(task, TaskTrainedElsewhere):
        return task, resumed(network.to(fabric.device), job.folder, job.identity.run_id)
    state = build_state(fabric, config, network)
    resume(fabric, state, job.folder / "checkpoints", job.identity.run_id)
    return task, state


def _train_elsewhere(
    fabric: Fabric,
    job: _Job,
    state: State,
    task: TaskTrainedElsewhere,
    show: Reporter,
    stop: Stop,
    tracking: Tracking,
) -> None:
    """Train all epochs that are left by the program that the task names."""

    def written() -> None:
        tracking.write(state.history)

    run = ElsewhereRun(
        job.folder,
        job.identity.run_id,
        job.config,
        job.threads,
        job.each_epoch,
        stop,
        show,
        written,
    )
    train_elsewhere(run, task, state, job.data, fabric.device)


def _train_and_save(
    fabric: Fabric,
    job: _Job,
    state: State,
    task: Task,
    epoch: int,
    show: Reporter,
    saver: Saver,
) -> None:
    """One epoch; it is saved before it is written down, so that what is written can be taken up."""
    with saver.epoch():
        with saver.deferred():
            trained = train_epoch(fabric, job.config, state, task, job.data, epoch, show, saver)
        record = _tested(fabric, job.config, state, task, job.data, epoch, trained)
        if job.each_epoch is not None:
            record = record.with_more(job.each_epoch(state.tested, task, job.data, fabric.device))
        with saver.deferred():
            state.history.append(record)
            state.midway = None
            saver.save(None)
            if fabric.is_global_zero:
                write_metrics(job.folder, state.history)


def _tested(
    fabric: Fabric,
    config: RunConfig,
    state: State,
    task: Task,
    data: Data,
    epoch: int,
    trained: TrainedEpoch,
) -> EpochRecord:
    """Test the network; what is written down of the epoch."""
    began = perf_counter()
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
    record = EpochRecord(
        epoch=epoch + 1,
        lr=trained.lr,
        train_loss=trained.loss,
        train={**trained.figures},
        train_seconds=trained.seconds,
        data_seconds=trained.waited,
        images_per_second=trained.images / trained.seconds,
        test=tested,
        seconds=trained.seconds + perf_counter() - began,
    )
    # Not said of a loss that is one thing: what is not said is not written.
    return record.model_copy(update={"loss_parts": trained.parts}) if trained.parts else record


def _finish(fabric: Fabric, job: _Job, state: State, task: Task) -> RunResult:
    """Write the weights, the result and, last of all, the manifest, which marks the run as
    trained."""
    result = _result(job, state, task)
    if fabric.is_global_zero:
        weights = checkpoint.to_bytes(state.tested, description(job.placed, task))
        write_whole(job.folder / "model.safetensors", weights)
        write_metrics(job.folder, state.history)
        write_whole(job.folder / "result.json", result.model_dump_json(indent=1) + "\n")
        write_manifest(job.folder, job.identity.run_id)
    fabric.barrier()
    return result


def _result(job: _Job, state: State, task: Task) -> RunResult:
    history, network, metric = state.history, state.tested, task.metrics[0]
    batch = next(job.data.testing([torch.tensor([0])], next(network.parameters()).device))
    values = [value for record in history if (value := record.test[metric.name]) is not None]
    best, last = metric.best(values), history[-1]
    assert last.train_loss is not None
    return RunResult(
        run_id=job.identity.run_id,
        label=job.config.label,
        epochs=len(history),
        metrics=task.metrics,
        values=last.test,
        best_value=values[best],
        best_epoch=history[best].epoch,
        train_loss=last.train_loss,
        parameters=count_parameters(network),
        macs=fixed_macs(network, task.inputs(batch)),
        train_images_per_second=median(record.images_per_second for record in history),
        data_share=sum(r.data_seconds for r in history) / sum(r.train_seconds for r in history),
        seconds=sum(record.seconds for record in history),
        sites=_sites(network, task.inputs(batch)),
        placement=job.placement,
    )


def _sites(network: nn.Module, inputs: Any) -> int:
    return sum(gate.kind in ("inserted", "norm") for gate in watchable(network, inputs).gates)


def _scaled(config: RunConfig) -> str:
    recipe = config.recipe
    return (
        f"{config.label}: lr {recipe.lr:g} is for batches of {recipe.lr_batch}; with "
        f"{recipe.batch_size} it is {base_rate(recipe):g}"
    )


def _say_stopped(config: RunConfig, state: State, folder: Path) -> None:
    done, midway = len(state.history), state.midway
    part = f" and {midway.step} of {midway.steps} steps of the next" if midway is not None else ""
    print(
        f"{config.label}: stopped in epoch {done + 1}; {done} of {config.recipe.epochs} epochs"
        f"{part} are saved in {folder}. Run the same again to go on.",
        file=sys.stderr,
    )


def _silent(record: EpochRecord) -> None:
    del record
