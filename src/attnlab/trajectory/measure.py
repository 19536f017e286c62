"""`stiffness(model, loader)`: stream a data set through a network and measure its trajectory."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from attnlab._errors import InputError
from attnlab.insert import attachments
from attnlab.insert._example import Example, evaluating
from attnlab.trajectory.capture import capture
from attnlab.trajectory.conventions import Convention, nsi
from attnlab.trajectory.grid import Grid, regular_grid
from attnlab.trajectory.plan import Plan
from attnlab.trajectory.result import StepResult, StiffnessResult
from attnlab.trajectory.stages import kept_members
from attnlab.trajectory.step_index import StepIndex, step_indices


class StiffnessWarning(UserWarning):
    """The number is right but does not mean what one may think."""


def stiffness(
    model: nn.Module,
    loader: Iterable[Any],
    *,
    convention: Convention = "state",
    grid: Grid | None = None,
    si: int = 0,
    example: Example | None = None,
    name: str | None = None,
    progress: bool | None = None,
) -> StiffnessResult:
    """NSI, TNS, δ(M), p̂(M) and the stiffest step of `model` over `loader`, in one pass.

    Runs in eval mode without gradients; memory does not grow with the data.

    Args:
        model: any network with residual steps.
        loader: batches: a tensor, a tuple whose first element is one, or a dictionary of keyword
            inputs (Hugging Face).
        convention: of NSI, see `attnlab.trajectory.conventions`.
        grid: the degrees M at which δ and p̂ are evaluated.
        si: on how many inputs, the first ones, to compute SI of every step (slow).
        example: an input to find the steps with; the first input of the loader when None.
        name: of the network, for the report.
        progress: show a progress bar; on a terminal when None.
    """
    from attnlab.trajectory import metrics

    started = time.perf_counter()
    grid = regular_grid() if grid is None else grid
    batches = _batches(loader, _device(model), progress)
    first = next(batches, None)
    if first is None:
        raise InputError("Expected a loader with at least one batch but got an empty one.")
    if example is None:
        example = _head(first, 1)
    with evaluating(model), capture(model, example) as steps:
        stages = steps.stages
        kept = bool(kept_members(stages))
        counted = metrics.CountedInputs(stages)
        per_step = metrics.NeuralStiffnessIndex(stages)
        total = metrics.TotalNeuralStiffness(stages)
        surface = metrics.StiffnessSurface(stages, grid)
        proportion = metrics.StiffnessProportion(stages, grid)
        which = metrics.StiffestBlock(stages)
        mutated: set[str] = set()
        for batch in _chain(first, batches):
            _call(model, batch)
            values = nsi(steps.norms, convention).cpu()
            for metric in (counted, per_step, total, surface, proportion):
                metric.update(values)
            if kept:
                which.update(values)
            mutated.update(step.step.label for step in steps if step.mutated)
    indices = _indices(model, first, si, example) if si else []
    number, left_out = counted.compute()
    nsi_values, tns_values, share = per_step.compute(), total.compute(), proportion.compute()
    stiffest_inputs = which.compute() if kept else None
    return StiffnessResult(
        network=name or type(model).__name__,
        convention=convention,
        plan=steps.plan.describe(),
        parameters=sum(p.numel() for p in model.parameters()),
        inputs=int(number),
        skipped=int(left_out),
        tns=tns_values.mean.item(),
        tns_spread=tns_values.spread.item(),
        stiffest_share_of_tns=stiffest_inputs.share.item() if stiffest_inputs else float("nan"),
        nsi=_step_results(model, steps.plan, nsi_values, stiffest_inputs, int(number), indices),
        relative_degrees=tuple(grid.relative.tolist()),
        absolute_degrees=tuple(grid.absolute.tolist()),
        surface=tuple(map(tuple, surface.compute().tolist())),
        proportion=tuple(map(tuple, share.values.tolist())),
        proportion_integral=share.integral.item(),
        seconds=time.perf_counter() - started,
        notes=tuple(_notes(model, steps.plan, convention, mutated, tns_values.mean.item())),
    )


def _step_results(
    model: nn.Module,
    plan: Plan,
    values: Any,
    stiffest: Any,
    inputs: int,
    indices: list[StepIndex],
) -> tuple[StepResult, ...]:
    gated = {(a.site.stage, a.site.block, a.site.part) for _, a in attachments(model)}
    low, middle, high = values.quantiles.tolist()
    shares = (stiffest.inputs / inputs).tolist() if stiffest else [0.0] * len(plan.steps)
    found: list[tuple[float | None, float | None]] = [(None, None)] * len(plan.steps)
    for place, index in enumerate(indices):
        if index.spectral is not None:
            spectral = index.spectral
            found[place] = spectral.value.mean().item(), spectral.residual.max().item()
    return tuple(
        StepResult(
            label=step.label,
            stage=step.stage,
            name=step.name,
            kind=step.kind,
            kept=plan.kept[n],
            gated=(step.stage, step.block, step.part) in gated,
            mean=values.mean[n].item(),
            spread=values.spread[n].item(),
            minimum=values.minimum[n].item(),
            quantile_05=low[n],
            median=middle[n],
            quantile_95=high[n],
            maximum=values.maximum[n].item(),
            stiffest_share=shares[n],
            si=found[n][0],
            si_residual=found[n][1],
        )
        for n, step in enumerate(plan.steps)
    )


def _notes(
    model: nn.Module, plan: Plan, convention: Convention, mutated: set[str], total: float
) -> Iterator[str]:
    members = kept_members(plan.stages)
    if all(len(blocks) == 1 for blocks in members):
        note = (
            f"{plan.describe()}: no stage keeps more than one step after its first, so TNS is "
            f"identically zero, whatever the weights. Use a deeper network."
        )
        warnings.warn(note, StiffnessWarning, stacklevel=3)
        yield note
    elif total == 0:
        yield (
            "Every step's branch is zero, as in networks that start with zero-initialised last "
            "norms and were not trained: TNS is 0."
        )
    if any(True for _ in attachments(model)):
        effect = {
            "paper": "counts the branch before its gate: a gate of 0.5 doubles NSI and TNS, so "
            "networks with attention score higher by convention alone",
            "branch": "counts the branch after its gate",
            "state": "counts states, after gate and activation",
        }[convention]
        yield f"The network has gates; convention {convention!r} {effect}."
    if mutated:
        yield (
            f"x_t is changed in place before it is added, in {', '.join(sorted(mutated)[:5])}: "
            f"norms are those of the tensor that is really added."
        )


def _indices(model: nn.Module, first: Any, si: int, example: Example) -> list[StepIndex]:
    images = _head(first, si)
    if not isinstance(images, Tensor):
        raise InputError(
            f"SI needs batches with one input tensor but the loader gives {type(images).__name__}."
        )
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        return step_indices(model, images, example=example)
    finally:
        for module in training:
            module.training = True


def _device(model: nn.Module) -> torch.device:
    parameter = next(model.parameters(), None)
    return torch.device("cpu") if parameter is None else parameter.device


def _batches(loader: Iterable[Any], device: torch.device, progress: bool | None) -> Iterator[Any]:
    with _progress(loader, progress) as watched:
        for batch in watched:
            yield _inputs(batch, device)


def _inputs(batch: Any, device: torch.device) -> Tensor | dict[str, Any]:
    if isinstance(batch, Tensor):
        return batch.to(device)
    if isinstance(batch, Mapping):
        return {k: v.to(device) if isinstance(v, Tensor) else v for k, v in batch.items()}
    if isinstance(batch, tuple | list) and batch and isinstance(batch[0], Tensor):
        return batch[0].to(device)
    raise InputError(
        f"Expected batches that are a tensor, start with one, or are a dictionary of inputs but "
        f"got {type(batch).__name__}."
    )


def _head(batch: Tensor | dict[str, Any], number: int) -> Tensor | dict[str, Any]:
    if isinstance(batch, Tensor):
        return batch[:number]
    return {k: v[:number] if isinstance(v, Tensor) else v for k, v in batch.items()}


def _call(model: nn.Module, batch: Tensor | dict[str, Any]) -> None:
    if isinstance(batch, Tensor):
        model(batch)
    else:
        model(**batch)


def _chain(first: Any, rest: Iterator[Any]) -> Iterator[Any]:
    yield first
    yield from rest


@contextmanager
def _progress(loader: Iterable[Any], wanted: bool | None) -> Iterator[Iterable[Any]]:
    if wanted is None:
        wanted = sys.stderr.isatty()
    if not wanted:
        yield loader
        return
    from rich.console import Console
    from rich.progress import track

    try:
        total: int | None = len(loader)  # type: ignore[arg-type]
    except TypeError:
        total = None
    yield track(loader, description="stiffness", total=total, console=Console(stderr=True))
