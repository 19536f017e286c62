"""A module that ran has run the children at which gates act.

A gate after a child acts when that child runs. A block that takes another path than at insertion
(in training, for images of another size, with a faster kernel) may leave the child out and add
something else in its place, which no gate would multiply. Where the whole step is left out (a
decoder that is given nothing to attend to, a layer that is dropped), no gate is missing.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch._compile import _disable_dynamo
from torch.utils._pytree import tree_leaves, tree_map

from attnlab._errors import SiteError
from attnlab.residuals.classes import own_class
from attnlab.residuals.copying import deep_copy
from attnlab.residuals.steps import Step
from attnlab.surgery.insertion._additions import count_additions
from attnlab.surgery.insertion._hosted import Hosted, hosted_by
from attnlab.surgery.insertion._outputs import OutputHook, gate_names, hooks_at

_TRIES = 8
"""A block that leaves steps out at random may not do so when it runs once more."""


def run_children(
    module: nn.Module,
    hosted: Hosted,
    forward: Callable[..., object],
    *args: object,
    **kwargs: object,
) -> object:
    """`forward(*args, **kwargs)` of `module`; an error if a step was made without its gate, because
    the child at which that acts did not run."""
    hooks = [*hosted.outputs.values(), *hosted.inputs.values()]
    before = [hook.calls for hook in hooks]
    output = forward(*args, **kwargs)
    for hook in hooks:
        hook.traced = False
    missed = [hook for hook, calls in zip(hooks, before, strict=True) if hook.calls == calls]
    if missed:
        check_left_out(module, hosted, missed, output, args, kwargs)
    return output


def trace_children(
    module: nn.Module,
    hosted: Hosted,
    forward: Callable[..., object],
    *args: object,
    **kwargs: object,
) -> object:
    """The same while torch.compile traces; what a child that does not run means is found outside of
    the graph."""
    hooks = [*hosted.outputs.values(), *hosted.inputs.values()]
    for hook in hooks:
        hook.traced = False
    output = forward(*args, **kwargs)
    missed = [hook for hook in hooks if not hook.traced]
    for hook in hooks:
        hook.traced = False  # as it was, so that no graph waits for another value
    if missed:
        check_left_out(module, hosted, missed, output, args, kwargs)
    return output


@_disable_dynamo
def check_left_out(
    module: nn.Module,
    hosted: Hosted,
    hooks: Sequence[OutputHook],
    output: object,
    args: tuple[object, ...],
    kwargs: dict[str, object],
) -> None:
    """Raise `SiteError` unless the steps at the children with these hooks were left out as well."""
    if any(output is each for each in tree_leaves((args, kwargs))):
        return  # what is handed on as it came has no step
    missed = [name for name, hook in hosted.hooks if any(hook is each for each in hooks)]
    attachments = [each for hook in hooks for each in hook.attachments]
    steps = [each.site.step for each in attachments]
    keepers = [each.site.module.rpartition(".")[0] for each in attachments]
    left_out = False
    if all(
        step is not None and step.owner == keeper
        for step, keeper in zip(steps, keepers, strict=True)
    ):
        known = {step.key: step for step in steps if step is not None}
        try:
            left_out = _left_out(module, set(missed), list(known.values()), args, kwargs)
        except Exception:  # what cannot be run once more is not known to be left out
            left_out = False
    if not left_out:
        raise SiteError(
            f"The {gate_names(attachments[:1])} acts {attachments[0].site.at}, but this time the "
            f"forward of {type(module).__name__} did not run its {missed[0]!r}, as it did at "
            f"insertion, and would answer without the gate. Insert again with an example that "
            f"takes this path (example=...), or choose other sites with where=."
        )


def _left_out(
    module: nn.Module,
    missed: set[str],
    steps: Sequence[Step],
    args: tuple[object, ...],
    kwargs: dict[str, object],
) -> bool:
    """Whether a copy of `module`, when it does not run these children, leaves out their steps."""
    given, named = copied_arguments(args, kwargs)
    with torch.no_grad(), torch.random.fork_rng():
        for _ in range(_TRIES):
            ran = deep_copy(module)
            for each in ran.modules():
                for hook in hooks_at(each):
                    hook.hidden = True  # what a gate adds is no step
            hosted = hosted_by(ran)
            assert hosted is not None
            before = {name: hook.calls for name, hook in hosted.hooks}
            forward = functools.partial(own_class(ran).forward, ran)
            seen = count_additions(steps, forward, given, named)
            if {name for name, hook in hosted.hooks if hook.calls == before[name]} == missed:
                return all(
                    count == step.owner_additions - _alike(step, steps)
                    for step, count in zip(steps, seen, strict=True)
                )
    return False


def copied_arguments(
    args: tuple[object, ...], kwargs: dict[str, object]
) -> tuple[tuple[object, ...], dict[str, object]]:
    """The arguments of a call for one more, which may change them; an error if nobody can copy
    them."""
    return copy.deepcopy(tree_map(_detached, (args, kwargs)))


def _alike(step: Step, steps: Sequence[Step]) -> int:
    """How many of `steps` are additions that could be `step`, itself included."""
    return sum(step.key.could_be(other.shape, other.key.plain) for other in steps)


def _detached(value: object) -> object:
    return value.detach() if isinstance(value, Tensor) else value
