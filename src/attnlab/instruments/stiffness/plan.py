"""What to watch in a network: its steps, their stages, and what follows each addition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import torch
from torch import Tensor, nn

from attnlab._checked import check_module
from attnlab._errors import OptionError, StepsNotFoundError, unknown_name
from attnlab.instruments.stiffness.after import activation_after, norms_after
from attnlab.instruments.stiffness.choices import GRANULARITIES, Granularity, Tokens
from attnlab.instruments.stiffness.norms import Activation
from attnlab.instruments.stiffness.stages import Stages, kept_steps
from attnlab.instruments.stiffness.tokens import check_tokens, chosen_tokens
from attnlab.residuals import Step, StepKey, Watchable, watchable
from attnlab.residuals.choose import trunk
from attnlab.residuals.example import Example, as_call
from attnlab.residuals.inputs import number_of_inputs
from attnlab.residuals.padding import MaskArgument, mask_arguments, padding_of_call, steps_beside
from attnlab.residuals.where import lies_in


@dataclass(frozen=True)
class Span:
    """Steps that are measured as one: from the shortcut of the first to the state after the
    last. One step, or those of a block (attention and MLP of a transformer's)."""

    steps: tuple[Step, ...]

    @property
    def first(self) -> Step:
        return self.steps[0]

    @property
    def last(self) -> Step:
        return self.steps[-1]


def check_granularity(granularity: str) -> None:
    """Refuse a choice that is none."""
    if granularity not in GRANULARITIES:
        raise unknown_name("granularity", granularity, GRANULARITIES)


def spans(steps: Sequence[Step], granularity: Granularity) -> tuple[Span, ...]:
    """`steps` one by one, or by block, in the order of execution."""
    check_granularity(granularity)
    if granularity == "step":
        return tuple(Span((step,)) for step in steps)
    blocks = groupby(steps, key=lambda step: (step.stage, step.block))
    return tuple(Span(tuple(members)) for _, members in blocks)


@dataclass(frozen=True)
class Plan:
    """The steps of a network in the order of execution, and what watching them needs besides."""

    found: Watchable
    activations: dict[StepKey, Activation | None]
    """What the network applies to the sum of each step, ready to be applied again."""
    norms: dict[StepKey, Activation | None]
    """The norm after the sum that makes the next state of it, in post-norm networks."""
    spans: tuple[Span, ...]
    """What is measured as one step: each step, or the steps of a block."""
    granularity: Granularity
    tokens: Tokens
    counted_tokens: Tensor | None
    """Which tokens of a state are counted, (tokens,); None for all."""
    masks: tuple[MaskArgument | None, ...]
    """What tells of padding in a call; the second tells of the states `beside` ..."""
    beside: frozenset[StepKey]
    """... the sequence that the first tells of: of the images in a network of images and texts."""
    inputs: int
    """How many inputs the example has."""

    @property
    def steps(self) -> tuple[Step, ...]:
        return self.found.steps

    @property
    def gated(self) -> set[StepKey]:
        """The steps on whose branch attnlab inserted a gate, at its end or further inside."""
        ours = [gate for gate in self.found.gates if gate.kind == "inserted"]
        return {step.key for gate in ours for step, _ in gate.calls.values() if step is not None}

    @property
    def stages(self) -> Stages:
        """The stage of every step that is measured."""
        return torch.tensor([span.first.stage for span in self.spans])

    @property
    def kept(self) -> list[bool]:
        """Whether a step counts; the first of every stage does not."""
        return kept_steps(self.stages).tolist()

    def describe(self) -> str:
        """`4 stages of 3+4+6+3 steps`."""
        stages = self.stages.tolist()
        counts = "+".join(str(stages.count(stage)) for stage in dict.fromkeys(stages))
        number = len(set(stages))
        return f"{number} stage{'s' * (number > 1)} of {counts} {self.granularity}s"


def plan_steps(
    model: nn.Module,
    example: Example | None = None,
    *,
    granularity: Granularity = "step",
    tokens: Tokens = "all",
) -> Plan:
    """Find the steps of `model` by one run on `example` (or on one made up)."""
    check_module(model)
    masks = mask_arguments(model) or (None,)
    check_tokens(tokens)
    check_granularity(granularity)
    if example is not None:
        for mask in masks:
            padding_of_call(mask, *as_call(model, example))  # a wrong mask is said
    found = watchable(model, example)
    inside = trunk(model)  # the sums of a detector's pyramid are not steps of a trajectory
    found = replace(found, steps=tuple(s for s in found.steps if lies_in(s.owner, inside)))
    if not found.steps:
        raise StepsNotFoundError(
            f"{type(model).__name__} has no residual step x + f(x), so it has no trajectory of "
            f"states and no stiffness: NSI compares a state with the next one of the same shape. "
            f"(VGG has no shortcut; DenseNet concatenates instead of adding.) Seen in one run on "
            f"an input of shape {found.run.input_shape}."
        )
    if granularity == "block":
        _check_carried_on(found.steps)
    graph = found.run.graph
    return Plan(
        found,
        {step.key: activation_after(model, graph, step) for step in found.steps},
        norms_after(model, graph, found.steps),
        spans(found.steps, granularity),
        granularity,
        tokens,
        chosen_tokens(model, found, example, tokens),
        masks,
        frozenset(steps_beside(model, graph, example, found.steps)),
        number_of_inputs(*as_call(model, example)),
    )


def _check_carried_on(steps: Sequence[Step]) -> None:
    """Refuse to add up the steps of blocks that change the state which they carry on."""
    carried = next((s for s in steps if s.form.carry in ("matrix", "factor")), None)
    if carried is not None:
        raise OptionError(
            f"granularity='block' adds up what the steps of a block add, and step {carried.label} "
            f"({carried.name}) carries its state on changed ({carried.form}), so that is not what "
            f"the block does. Measure single steps: granularity='step'."
        )
