"""`stiffness(model, loader)`: stream a data set through a network and measure its trajectory."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from attnlab._checked import check_whole
from attnlab._errors import InputError, OptionError, unknown_name
from attnlab.instruments.stiffness.after import unexplained
from attnlab.instruments.stiffness.capture import Captured, capture
from attnlab.instruments.stiffness.choices import CONVENTIONS, Convention, Granularity, Tokens
from attnlab.instruments.stiffness.conventions import nsi
from attnlab.instruments.stiffness.grid import Grid, regular_grid
from attnlab.instruments.stiffness.plan import Plan, check_granularity
from attnlab.instruments.stiffness.result import StepResult, StiffnessResult, most_often_stiffest
from attnlab.instruments.stiffness.stages import kept_members
from attnlab.instruments.stiffness.step_index import StepIndex, step_indices
from attnlab.instruments.stiffness.tokens import check_tokens
from attnlab.residuals.example import Example, call, evaluating
from attnlab.residuals.inputs import Inputs, head, inputs_of
from attnlab.subject import Source, subject_of

if TYPE_CHECKING:
    from attnlab.instruments.stiffness.meters import MeteredStiffness, MeteredStreams


def batches(
    loader: Iterable[Any], model: nn.Module, progress: bool | None, number: int | None
) -> Iterator[Inputs]:
    """The inputs of every batch for `model`, with a progress bar on a terminal; of `number`
    batches, if that is known."""
    with _progress(loader, progress, number) as watched:
        for batch in watched:
            yield from inputs_of(batch, model)


@contextmanager
def _progress(
    loader: Iterable[Any], wanted: bool | None, number: int | None
) -> Iterator[Iterable[Any]]:
    if wanted is None:
        wanted = sys.stderr.isatty()
    if not wanted:
        yield loader
        return
    from rich.console import Console
    from rich.progress import track

    yield track(loader, description="stiffness", total=number, console=Console(stderr=True))


class StiffnessWarning(UserWarning):
    """The number is right but does not mean what one may think."""


def stiffness(
    network: Source,
    loader: Iterable[Any] | None = None,
    *,
    convention: Convention = "state",
    granularity: Granularity = "step",
    tokens: Tokens = "all",
    grid: Grid | None = None,
    si: int = 0,
    example: Example | None = None,
    name: str | None = None,
    progress: bool | None = None,
) -> StiffnessResult:
    """NSI per step, TNS, δ(M), p̂(M) and the stiffest step of a network, exactly and in one pass.

    Runs in eval mode without gradients; memory does not grow with the data. Tokens that are padding
    by the `attention_mask` of a batch are left out, so that TNS does not depend on them.

    Args:
        network: any network with residual steps, as for `attnlab.open`.
        loader: batches in the place of the network's own images: a tensor, a tuple whose first
            element is one or, for detectors, a list of images of any sizes, or a dictionary of
            keyword inputs (Hugging Face).
        convention: of NSI. state: block outputs; normed: these after the norm of a post-norm
            network; branch: what is added; paper: before the gate.
        granularity: what one step is: a residual addition, or (`block`) all additions of a block,
            attention and MLP of a transformer's.
        tokens: of a transformer's states `all`, or its `class` or `patch` tokens alone.
        grid: the degrees M at which δ and p̂ are evaluated.
        si: on how many inputs, the first ones, to compute SI of every step (slow).
        example: an input to find the steps with; the first input of the loader when None.
        name: of the network, for the report.
        progress: show a progress bar; on a terminal when None.
    """
    # torchmetrics takes seconds to import.
    from attnlab.instruments.stiffness.meters import Meters, StreamMeters

    started = time.perf_counter()
    _check_options(convention, granularity, tokens, si, grid)
    subject = subject_of(network, loader)
    model, grid = subject.network, regular_grid() if grid is None else grid
    inputs = batches(subject.inputs(), model, progress, subject.number_of_batches())
    first = next(inputs, None)
    if first is None:
        raise InputError("Expected a loader with at least one batch but got an empty one.")
    if example is None:
        example = head(first, 1)
    mutated: set[str] = set()
    with (
        evaluating(model),
        capture(model, example, granularity=granularity, tokens=tokens) as steps,
    ):
        if convention == "normed":
            _check_passed_on(steps.plan)
        meters, streams = Meters(steps.stages, grid), StreamMeters(steps.plan)
        for batch in chain([first], inputs):
            call(model, batch)
            meters.update(nsi(steps.norms, convention).cpu())
            streams.update([step.streams for step in steps])
            mutated.update(step.step.label for step in steps if step.mutated)
    found = meters.compute()
    indices = _indices(model, first, si, example) if si else []
    total = found.total.mean.item()
    per_stream = streams.compute()
    results = _step_results(steps.plan, found, indices, per_stream)
    measured = StiffnessResult(
        network=name or subject.name,
        convention=convention,
        plan=steps.plan.describe(),
        granularity=granularity,
        tokens=tokens,
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
        stream_tns=per_stream.tns,
        seconds=time.perf_counter() - started,
        notes=(
            *_notes(steps.plan, convention, mutated, total),
            *_token_notes(steps),
            *_carry_notes(steps.plan),
        ),
    )
    return subject.sign(measured)


def _check_options(
    convention: str, granularity: str, tokens: str, si: int, grid: Grid | None
) -> None:
    check_whole("si", si, 0)
    if convention not in CONVENTIONS:
        raise unknown_name("NSI convention", convention, CONVENTIONS)
    check_granularity(granularity)
    check_tokens(tokens)
    if si and (granularity, tokens) != ("step", "all"):
        raise OptionError(
            f"SI is that of a single step's branch, with all tokens, but granularity is "
            f"{granularity!r} and tokens {tokens!r}. Leave si out, or leave these."
        )
    if grid is not None and not isinstance(grid, Grid):
        raise OptionError(
            f"Expected grid to be an attnlab.instruments.stiffness.Grid but got {grid!r}."
        )


def _step_results(
    plan: Plan, found: MeteredStiffness, indices: list[StepIndex], streams: MeteredStreams
) -> tuple[StepResult, ...]:
    values = found.nsi
    low, middle, high = values.quantiles.tolist()
    shares = (found.stiffest.inputs / found.counts.inputs).tolist()
    spectral = {n: index.spectral for n, index in enumerate(indices) if index.spectral is not None}
    return tuple(
        StepResult(
            label=span.first.label,
            stage=span.first.stage,
            name=span.first.name,
            kind=span.first.kind,
            kept=plan.kept[n],
            gated=any(step.key in plan.gated for step in span.steps),
            mean=values.mean[n].item(),
            spread=values.spread[n].item(),
            minimum=values.minimum[n].item(),
            quantile_05=low[n],
            median=middle[n],
            quantile_95=high[n],
            maximum=values.maximum[n].item(),
            stiffest_share=shares[n],
            streams=streams.nsi.get(span.first.key, ()),
            si=spectral[n].value.mean().item() if n in spectral else None,
            si_residual=spectral[n].residual.max().item() if n in spectral else None,
        )
        for n, span in enumerate(plan.spans)
    )


def _check_passed_on(plan: Plan) -> None:
    """Refuse `normed` where the next state is made of a sum in a way that is not understood."""
    found = unexplained(plan.found.run.graph, plan.steps, plan.norms)
    if found is not None:
        step, after, operation = found
        raise OptionError(
            f"convention='normed' takes the states that the network passes on, and between step "
            f"{step.label} ({step.name}) and step {after.label} the sum goes through "
            f"{operation!r}, which is neither an activation nor a norm. Use convention='state'."
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
            "normed": "counts states, after gate, activation and the norm after the addition",
        }[convention]
        yield f"The network has gates; convention {convention!r} {effect}."
    normed = sum(norm is not None for norm in plan.norms.values())
    if convention == "normed" and not normed:
        yield "No norm lies between a sum and the next state: 'normed' is 'state' here."
    elif convention != "normed" and normed:
        yield (
            f"After {normed} of {len(plan.steps)} steps a norm makes the next state of the sum "
            f"(post-norm), which {convention!r} leaves out; 'normed' includes it."
        )
    if mutated:
        yield (
            f"x_t is changed in place before it is added, in {', '.join(sorted(mutated)[:5])}: "
            f"norms are those of the tensor that is really added."
        )


def _carry_notes(plan: Plan) -> Iterator[str]:
    carried = [step for step in plan.steps if step.form.carry in ("matrix", "factor")]
    if carried:
        yield (
            f"{len(carried)} of {len(plan.steps)} steps carry their state on changed "
            f"({carried[0].form}): NSI is what is added relative to what is carried, not to the "
            f"state before. What the carries do themselves says attnlab steps."
        )


def _token_notes(steps: Captured) -> Iterator[str]:
    counted = steps.plan.counted_tokens
    if counted is not None:
        yield f"Counted are {int(counted.sum())} of {len(counted)} tokens ({steps.plan.tokens})."
    if steps.tokens_padded:
        share = 100 * steps.tokens_padded / steps.tokens_seen
        yield f"Padding, {share:.0f} % of the tokens of padded batches, is left out of all norms."


def _indices(model: nn.Module, first: Inputs, si: int, example: Example) -> list[StepIndex]:
    images = head(first, si)
    if not isinstance(images, Tensor):
        raise InputError(
            f"SI needs batches with one input tensor but the loader gives {type(images).__name__}."
        )
    with evaluating(model):
        return step_indices(model, images, example=example)
