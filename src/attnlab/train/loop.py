"""Train one network. The loop is `train_epoch`; the rest gets a run there and back again."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from safetensors.torch import save

from attnlab._files import write_whole
from attnlab._seeds import derive
from attnlab.train.batches import check_batches, training_chunks
from attnlab.train.config import RunConfig
from attnlab.train.data import Data
from attnlab.train.diagnose import non_finite_loss
from attnlab.train.directory import begin, check_config, write_metrics
from attnlab.train.evaluate import evaluate, summed
from attnlab.train.measurements import epoch_stiffness, measurements
from attnlab.train.network import build_network
from attnlab.train.reporters import Progress, Reporter, reporter
from attnlab.train.result import RunResult
from attnlab.train.schedule import learning_rate
from attnlab.train.sources import load_data
from attnlab.train.state import State, build_state, resume, save_state, synchronise_buffers
from attnlab.train.surroundings import deterministic, terminating

if TYPE_CHECKING:
    from lightning_fabric import Fabric


def train(
    config: RunConfig,
    directory: str | Path,
    *,
    threads: int | None = None,
    devices: int = 1,
    progress: Progress | None = None,
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
    """
    folder = Path(directory)
    if (folder / "result.json").is_file():
        check_config(folder, config)
        return RunResult.load(folder)
    # Before any process is started: errors are plain, and processes share one copy of the images.
    data = load_data(config.data, config.recipe)
    check_batches(data.facts.train, config.recipe, devices)
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
        result: RunResult = fabric.launch(launched, config, folder, data, threads, progress)
    return result


def _launched() -> bool:
    return "TORCHELASTIC_RUN_ID" in os.environ or int(os.environ.get("SLURM_NTASKS", "1")) > 1


def _run(
    fabric: Fabric,
    config: RunConfig,
    folder: Path,
    data: Data,
    threads: int | None,
    progress: Progress | None,
) -> RunResult:
    with deterministic(threads):
        network = build_network(config, data.facts.classes, data.facts.shape)
        if fabric.is_global_zero:
            begin(folder, config, data)
        fabric.barrier()
        state = build_state(fabric, config, network)
        resume(fabric, state, folder / "checkpoints", config.run_id)
        shown = progress if fabric.is_global_zero else _silent
        show = reporter(shown, config.label, config.recipe.epochs)
        try:
            for epoch in range(len(state.history), config.recipe.epochs):
                record = _epoch(fabric, config, state, data, epoch, show)
                state.history.append(record)
                save_state(fabric, state, folder / "checkpoints", config.run_id)
                if fabric.is_global_zero:
                    write_metrics(folder, state.history)
                show.epoch(record)
        except (KeyboardInterrupt, SystemExit):
            if fabric.is_global_zero:
                _say_stopped(config, len(state.history), folder)
            raise
        finally:
            show.close()
        return _finish(fabric, config, state, data, folder)


def _epoch(
    fabric: Fabric, config: RunConfig, state: State, data: Data, epoch: int, show: Reporter
) -> dict[str, Any]:
    began = perf_counter()
    trained = train_epoch(fabric, config, state, data, epoch, show)
    synchronise_buffers(fabric, state.network)
    if state.average is not None:
        synchronise_buffers(fabric, state.average)
    recipe = config.recipe
    accuracy = evaluate(fabric, state.tested, data, recipe.test_batch_size, recipe.channels_last)
    stiffness = epoch_stiffness(fabric, config, state.tested, data)
    return {
        "epoch": epoch + 1,
        **trained,
        "test_loss": accuracy.loss,
        "top1": accuracy.top1,
        "top5": accuracy.top5,
        **stiffness,
        "seconds": perf_counter() - began,
    }


def train_epoch(
    fabric: Fabric, config: RunConfig, state: State, data: Data, epoch: int, show: Reporter
) -> dict[str, Any]:
    """One epoch of training; what is recorded of it."""
    recipe, model, optimizer = config.recipe, state.model, state.optimizer
    rank, processes = fabric.global_rank, fabric.world_size
    rate = learning_rate(recipe, epoch)
    for group in optimizer.param_groups:
        group["lr"] = rate
    chunks = training_chunks(data.facts.train, recipe, config.seed, epoch, rank, processes)
    batches = data.training(chunks, recipe, config.seed, epoch, fabric.device)
    torch.manual_seed(derive(config.seed, "network", epoch, rank))  # dropout and the like
    sums = torch.zeros(3, dtype=torch.float64, device=fabric.device)
    waited, began = 0.0, perf_counter()
    model.train()
    for step, chunk in enumerate(chunks, 1):
        asked = perf_counter()
        images, labels = next(batches)
        waited += perf_counter() - asked
        if recipe.channels_last:
            images = images.contiguous(memory_format=torch.channels_last)
        # Not after the step: the heap, freed to its top, would go back to the system and be faulted
        # in again at every step, which cost ResNet20 a tenth of its speed on the CPU.
        optimizer.zero_grad()
        logits = model(images)
        loss = F.cross_entropy(logits, labels, label_smoothing=recipe.label_smoothing)
        value = loss.item()
        if not abs(value) < float("inf"):
            raise non_finite_loss(state.network, images, value, epoch + 1, step, rate)
        fabric.backward(loss * chunk.share)
        if recipe.clip is not None:
            fabric.clip_gradients(model, optimizer, max_norm=recipe.clip, error_if_nonfinite=False)
        optimizer.step()
        if state.average is not None:
            state.average.update_parameters(state.network)
        right = (logits.argmax(1) == labels).sum()
        sums += torch.stack([loss.detach() * len(labels), right, right.new_tensor(len(labels))])
        show.step(epoch, step, len(chunks))
    seconds = perf_counter() - began
    loss_sum, correct, seen = summed(fabric, sums)
    return {
        "lr": rate,
        "train_loss": loss_sum / seen,
        "train_top1": correct / seen,
        "train_seconds": seconds,
        "data_seconds": waited,
        "images_per_second": seen / seconds,
    }


def _finish(fabric: Fabric, config: RunConfig, state: State, data: Data, folder: Path) -> RunResult:
    """Measure, then write the weights and, last of all, the result: it marks the run as done."""
    result = measurements(fabric, config, state.tested, data, state.history, folder)
    if fabric.is_global_zero:
        tensors = {k: v.detach().cpu().contiguous() for k, v in state.tested.state_dict().items()}
        about = {
            "run_id": config.run_id,
            "backbone": config.backbone,
            "attention": config.attention,
        }
        write_whole(folder / "model.safetensors", save(tensors, about))
        write_metrics(folder, state.history)
        write_whole(folder / "result.json", result.model_dump_json(indent=1) + "\n")
    fabric.barrier()
    return result


def _say_stopped(config: RunConfig, done: int, folder: Path) -> None:
    print(
        f"{config.label}: stopped in epoch {done + 1}; {done} of {config.recipe.epochs} epochs are "
        f"saved in {folder}. Run the same again to go on.",
        file=sys.stderr,
    )


def _silent(record: Any) -> None:
    del record
