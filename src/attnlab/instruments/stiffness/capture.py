"""Watch the steps of a network while it runs: norms and gates, and no feature map kept."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn

from attnlab._checked import check_module
from attnlab._errors import InputError
from attnlab.instruments.stiffness.block_sums import BlockSums, GateShown, gate_product, own_gate
from attnlab.instruments.stiffness.choices import Granularity, Tokens
from attnlab.instruments.stiffness.conventions import StepNorms
from attnlab.instruments.stiffness.norms import norm, step_norms
from attnlab.instruments.stiffness.plan import Plan, Span, plan_steps
from attnlab.instruments.stiffness.stages import Stages
from attnlab.instruments.stiffness.tokens import check_same_tokens, of_tokens
from attnlab.residuals import Observer, SeenGate, SeenStep, Step, StepKey
from attnlab.residuals.example import Example, uncompiled
from attnlab.residuals.inputs import number_of_inputs
from attnlab.residuals.padding import MaskArgument, padding_of_call
from attnlab.residuals.watching import watching


class StreamNorms(NamedTuple):
    """The norms of one step, each (inputs, streams)."""

    shortcut: Tensor
    """The norm of what carries each stream on, (C X)_i."""
    update: Tensor
    """The norm of what is added to each stream."""


class CapturedStep(NamedTuple):
    """One step of the last forward, or one block of steps; norms are per input."""

    step: Step
    """The step; the first one of a block."""
    shortcut: Tensor
    """‖x_t‖."""
    branch: Tensor
    """‖f(x_t)‖, before the gates that attnlab inserted at the end of the branch; else what the
    network adds. A gate further inside is a part of f. Of a block: of the sum of its branches."""
    update: Tensor
    """‖f(x_t) ⊗ Δt‖, what the network adds."""
    change: Tensor
    """‖x_{t+1} − x_t‖, after the activation that follows the addition, if any."""
    normed_change: Tensor
    """The change after the norm that follows the addition in a post-norm network, if any."""
    gate: Tensor | None
    """Δt, (inputs, channels): the product of these gates, averaged over space where it varies
    there; None without one, and for a block of several steps."""
    streams: StreamNorms | None
    """The norms stream by stream, if the state has several streams (hyper-connections)."""
    mutated: bool
    """Whether x_t was changed in place between the owner's entry and the addition. The norms are
    those of what is really added; the state that the previous step left is another one."""
    own_gates: dict[str, Tensor]
    """What the network itself multiplies by in this step, by the names that `stripe` has for it:
    LayerScale, squeeze-and-excitation, gated attention, rows and matrices over streams. Each is
    (inputs, numbers), averaged over places. Empty for a block of several steps."""


class Captured(Observer):
    """What the last forward of the watched network showed; a sequence of `CapturedStep`."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._span_of = {step.key: span for span in plan.spans for step in span.steps}
        self._found: dict[StepKey, CapturedStep] = {}
        self._gates: dict[StepKey, list[GateShown]] = {}
        """At the end of the branch: the shape of what each multiplied, which is not kept."""
        self._branches: dict[StepKey, Tensor] = {}
        self._own: dict[StepKey, dict[str, Tensor]] = {}
        self._sums: dict[StepKey, BlockSums] = {}
        """Of the blocks of several steps that are under way, by their first step."""
        self._inputs = 0
        self._counted: Tensor | None = None
        self._beside: Tensor | None = None
        self.tokens_seen, self.tokens_padded = 0, 0
        """How many tokens the calls so far had where some were padded, and how many of them."""

    @property
    def stages(self) -> Stages:
        """The stage of every step."""
        return self.plan.stages

    @property
    def norms(self) -> StepNorms:
        """All norms of the last forward, each (inputs, steps)."""
        steps = list(self)
        return StepNorms(
            torch.stack([step.shortcut for step in steps], 1),
            torch.stack([step.branch for step in steps], 1),
            torch.stack([step.update for step in steps], 1),
            torch.stack([step.change for step in steps], 1),
            torch.stack([step.normed_change for step in steps], 1),
        )

    def __iter__(self) -> Iterator[CapturedStep]:
        firsts = [span.first for span in self.plan.spans]
        missing = [step for step in firsts if step.key not in self._found]
        if missing:
            raise InputError(
                f"{len(missing)} of {len(self)} steps were not seen in the last forward, the first "
                f"of them {missing[0].label} ({missing[0].name}). Run the network inside the "
                f"`with` block; if it takes another path on this input, pass example=."
            )
        return (self._found[step.key] for step in firsts)

    def __len__(self) -> int:
        return len(self.plan.spans)

    def call_begun(self, arguments: tuple[object, ...], keywords: dict[str, object]) -> None:
        """Forget the last forward."""
        self._found.clear()
        self._gates.clear()
        self._branches.clear()
        self._own.clear()
        self._sums.clear()
        self._inputs = number_of_inputs(arguments, keywords)
        first, *others = self.plan.masks
        self._counted = self._counted_by(first, arguments, keywords)
        self._beside = self._counted_by(others[0], arguments, keywords) if others else None

    def _counted_by(
        self, mask: MaskArgument | None, arguments: tuple[object, ...], keywords: dict[str, object]
    ) -> Tensor | None:
        """(inputs, tokens), True where a token counts that `mask` tells of; None for all."""
        valid = padding_of_call(mask, arguments, keywords)
        if valid is not None:
            self.tokens_seen += valid.numel()
            self.tokens_padded += int((~valid).sum())
        chosen = self.plan.counted_tokens
        if chosen is None:
            return valid
        chosen = chosen.expand(self._inputs, -1)
        if valid is not None:
            check_same_tokens(valid, chosen)
            chosen = chosen.to(valid.device) & valid
        return chosen

    def _counted_at(self, step: Step, features: Tensor) -> Tensor | None:
        """Which tokens of a state at `step` count; None for all."""
        counted = self._beside if step.key in self.plan.beside else self._counted
        if counted is None or self.plan.counted_tokens is not None:
            return counted
        # One that was made of all tokens, as a head pools them, is no padding.
        pooled = features.ndim == 3 and features.shape[1] == 1 < counted.shape[1]
        return None if pooled else counted

    def gate_seen(self, seen: SeenGate) -> None:
        if seen.gate.kind != "inserted":
            return
        if seen.position == "unknown":
            raise InputError(
                f"The gate {seen.gate.name!r} acts in a call that was not made on the example, so "
                f"its step is not known. Pass an example that takes this path: example=..."
            )
        if seen.step is None or seen.position != "end" or seen.branch is None:
            return
        key = seen.step.key
        span = self._span_of.get(key)
        if span is None:  # outside of the backbone
            return
        if key not in self._gates:
            branch = seen.branch.detach()
            if len(span.steps) > 1:
                self._sum(span).before_gate(key, branch)
            else:
                self._branches[key] = self._norm(
                    branch, seen.step, f"what {seen.gate.name!r} multiplies"
                )
        told = GateShown(seen.branch.shape, seen._replace(branch=None))
        self._gates.setdefault(key, []).append(told)

    def step_seen(self, seen: SeenStep) -> None:
        step, inputs = seen.step, self._inputs
        if inputs == 0 or seen.shortcut.shape[0] % inputs:
            raise InputError(
                f"Expected the state of step {step.label} ({step.name}) to have the {inputs} "
                f"inputs along its first axis but got shape {tuple(seen.shortcut.shape)}."
            )
        if self._tokens_are_first(seen):
            raise InputError(
                f"Expected the state of step {step.label} ({step.name}) to have the {inputs} "
                f"inputs along its first axis but got shape {tuple(seen.shortcut.shape)}, with the "
                f"tokens in front of them. Let the network put the inputs first (batch_first=True "
                f"of torch's layers), or pass one input at a time."
            )
        span = self._span_of[step.key]
        with torch.no_grad():
            if len(span.steps) > 1:
                self._block_seen(seen, span)
            else:
                self._found[step.key] = self._single(seen)

    def _tokens_are_first(self, seen: SeenStep) -> bool:
        """Whether the second axis of a state grew with the inputs since the example, and the first
        did not."""
        then, now = seen.step.shape, tuple(seen.shortcut.shape)
        before, inputs = self.plan.inputs, self._inputs
        if not len(now) == len(then) == 3 or inputs == before:
            return False
        first, second = (now[axis] * before == then[axis] * inputs for axis in (0, 1))
        return second and not first

    def _single(self, seen: SeenStep) -> CapturedStep:
        step, inputs = seen.step, self._inputs
        activation, last_norm = self.plan.activations[step.key], self.plan.norms[step.key]
        counted = self._counted_at(step, seen.shortcut)
        if counted is None:
            norms = step_norms(seen.shortcut, seen.branch, inputs, activation)
            state, update, change = norms
        else:
            what = f"the state of step {step.label} ({step.name})"
            state = self._norm(seen.shortcut, step, what)
            change = update = self._norm(seen.branch, step, what)
            if activation is not None:
                after = activation(seen.shortcut + seen.branch)
                change = self._norm(after - seen.shortcut, step, what)
        normed = change
        if last_norm is not None:
            after = last_norm(seen.shortcut + seen.branch)
            what = f"the state after step {step.label}"
            normed = self._norm(after - seen.shortcut, step, what)
        gates = self._gates.pop(step.key, [])
        gate = gate_product(gates, inputs, counted) if gates else None
        branch = self._branches.pop(step.key, update)
        streams = self._streams(seen) if step.form.streams > 1 else None
        own = self._own.pop(step.key, {})
        return CapturedStep(
            step, state, branch, update, change, normed, gate, streams, seen.mutated, own
        )

    def _streams(self, seen: SeenStep) -> StreamNorms:
        step = seen.step
        norms = []
        for features in (seen.shortcut, seen.branch):
            counted = self._counted_at(step, features)
            if counted is not None:
                features = of_tokens(features, counted, f"the state of step {step.label}")
            by_stream = step.form.by_stream(features, step.channel_axis)
            norms.append(norm(by_stream.flatten(0, 1), len(by_stream) * step.form.streams))
        return StreamNorms(*(each.unflatten(0, (-1, step.form.streams)) for each in norms))

    def _block_seen(self, seen: SeenStep, span: Span) -> None:
        block = self._sum(span)
        sums = block.add(seen, self.plan)
        self._gates.pop(seen.step.key, None)
        if seen.step.key != span.last.key:
            return
        what = f"the state of block {span.first.label} ({span.first.name})"
        norms = [self._norm(features, span.first, what) for features in sums.features()]
        state, branch, update, change, normed = norms
        self._found[span.first.key] = CapturedStep(
            span.first, state, branch, update, change, normed, None, None, block.mutated, {}
        )
        del self._sums[span.first.key]

    def _sum(self, span: Span) -> BlockSums:
        return self._sums.setdefault(span.first.key, BlockSums(span))

    def _norm(self, features: Tensor, step: Step, what: str) -> Tensor:
        counted = self._counted_at(step, features)
        if counted is not None:
            features = of_tokens(features, counted, what)
        return norm(features, self._inputs)


class CapturedWithOwn(Captured):
    """What `Captured` shows, and what the network itself multiplies by."""

    sees_products = True

    def gate_seen(self, seen: SeenGate) -> None:
        super().gate_seen(seen)
        if seen.gate.kind == "inserted" or seen.step is None:
            return
        span = self._span_of.get(seen.step.key)
        if span is not None and len(span.steps) == 1:
            gates = self._own.setdefault(seen.step.key, {})
            gates[seen.gate.name] = own_gate(seen, self._inputs, self._counted)


@contextmanager
def capture(
    model: nn.Module,
    example: Example | None = None,
    *,
    granularity: Granularity = "step",
    tokens: Tokens = "all",
    own_gates: bool = True,
) -> Iterator[Captured]:
    """Watch `model` inside a `with` block; afterwards it is as before, whatever happened.

        with capture(model) as steps:
            model(images)
            nsi(steps.norms, "branch")      # (inputs, steps)

    Every forward of the network replaces what the one before showed. `example` is an input to find
    the steps with; one is made up when None. `granularity="block"` takes the steps of a block
    together (attention and MLP of a transformer's), `tokens="class"` or `"patch"` counts these
    tokens alone. Tokens that the call says are padding (`attention_mask`) are never counted. What
    the network itself multiplies by is seen where its modules multiply as often as on the example;
    `own_gates=False` leaves it out. A compiled network runs uncompiled inside the block.
    """
    check_module(model)
    model = uncompiled(model)
    kind = CapturedWithOwn if own_gates else Captured
    captured = kind(plan_steps(model, example, granularity=granularity, tokens=tokens))
    with watching(model, captured, found=captured.plan.found):
        yield captured
