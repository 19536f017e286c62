"""`stiffness(model, loader)`: stream a data set through a network and measure its trajectory."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from attnlab._checked import check_batches, check_module, check_whole
from attnlab._errors import InputError, OptionError
from attnlab.record.example import Example, call, evaluating
from attnlab.record.inputs import Inputs, head
from attnlab.trajectory._loading import batches
from attnlab.trajectory.capture import capture
from attnlab.trajectory.conventions import Convention, nsi
from attnlab.trajectory.grid import Grid, regular_grid
from attnlab.trajectory.plan import Plan
from attnlab.trajectory.result import StepResult, StiffnessResult, most_often_stiffest
from attnlab.trajectory.stages import kept_members
from attnlab.trajectory.step_index import StepIndex, step_indices

if TYPE_CHECKING:
    from attnlab.trajectory.meters import Measured


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
        loader: batches: a tensor, a tuple whose first element is one or, for detectors, a list of
            images of any sizes, or a dictionary of keyword inputs (Hugging Face).
        convention: of NSI, see `attnlab.trajectory.conventions`.
        grid: the degrees M at which δ and p̂ are evaluated.
        si: on how many inputs, the first ones, to compute SI of every step (slow).
        example: an input to find the steps with; the first input of the loader when None.
        name: of the network, for the report.
        progress: show a progress bar; on a terminal when None.
    """
    from attnlab.trajectory.meters import Meters  # torchmetrics takes seconds to import

    started = time.perf_counter()
    check_module(model)
    check_batches(loader)
    check_whole("si", si, 0)
    if grid is not None and not isinstance(grid, Grid):
        raise OptionError(f"Expected grid to be an attnlab.trajectory.Grid but got {grid!r}.")
    grid = regular_grid() if grid is None else grid
    inputs = batches(loader, model, progress)
    first = next(inputs, None)
    if first is None:
        raise InputError("Expected a loader with at least one batch but got an empty one.")
    if example is None:
        example = head(first, 1)
    mutated: set[str] = set()
    with evaluating(model), capture(model, example) as steps:
        meters = Meters(steps.stages, grid)
        for batch in chain([first], inputs):
            call(model, batch)
            meters.update(nsi(steps.norms, convention).cpu())
            mutated.update(step.step.label for step in steps if step.mutated)
    found = meters.compute()
    indices = _indices(model, first, si, example) if si else []
    total = found.total.mean.item()
    results = _step_results(steps.plan, found, indices)
    return StiffnessResult(
        network=name or type(model).__name__,
        convention=convention,
        plan=steps.plan.describe(),
        parameters=sum(p.numel() for p in model.parameters()),
        inputs=int(found.counts.inputs),
        skipped=int(found.counts.skipped),
        tns=total,
        tns_spread=found.total.spread.item(),
        stiffest_share_of_tns=found.stiffest.share.item(),
        stiffest=most_often_stiffest(results),
        nsi=results,
        relative_degrees=tuple(grid.relative.tolist()),
        absolute_degrees=tuple(grid.absolute.tolist()),
        surface=tuple(map(tuple, found.surface.tolist())),
        proportion=tuple(map(tuple, found.proportion.values.tolist())),
        proportion_integral=found.proportion.integral.item(),
        seconds=time.perf_counter() - started,
        notes=tuple(_notes(steps.plan, convention, mutated, total)),
    )


def _step_results(plan: Plan, found: Measured, indices: list[StepIndex]) -> tuple[StepResult, ...]:
    values = found.nsi
    low, middle, high = values.quantiles.tolist()
    shares = (found.stiffest.inputs / found.counts.inputs).tolist()
    spectral = {n: index.spectral for n, index in enumerate(indices) if index.spectral is not None}
    return tuple(
        StepResult(
            label=step.label,
            stage=step.stage,
            name=step.name,
            kind=step.kind,
            kept=plan.kept[n],
            gated=step.key in plan.gated,
            mean=values.mean[n].item(),
            spread=values.spread[n].item(),
            minimum=values.minimum[n].item(),
            quantile_05=low[n],
            median=middle[n],
            quantile_95=high[n],
            maximum=values.maximum[n].item(),
            stiffest_share=shares[n],
            si=spectral[n].value.mean().item() if n in spectral else None,
            si_residual=spectral[n].residual.max().item() if n in spectral else None,
        )
        for n, step in enumerate(plan.steps)
    )


def _notes(plan: Plan, convention: Convention, mutated: set[str], total: float) -> Iterator[str]:
    members = kept_members(plan.stages)
    if all(len(steps) == 1 for steps in members):
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
    if any(gate.kind == "inserted" for gate in plan.found.gates):
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


def _indices(model: nn.Module, first: Inputs, si: int, example: Example) -> list[StepIndex]:
    images = head(first, si)
    if not isinstance(images, Tensor):
        raise InputError(
            f"SI needs batches with one input tensor but the loader gives {type(images).__name__}."
        )
    with evaluating(model):
        return step_indices(model, images, example=example)
