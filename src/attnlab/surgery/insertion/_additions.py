"""Gates at additions: the module that adds runs its forward under a small function mode, where it
cannot go the short way of `_marked`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from attnlab._errors import SiteError
from attnlab.residuals.adapters import inside_adapter, is_adapter
from attnlab.residuals.attachment import Attachment
from attnlab.residuals.checkpointing import runs_again
from attnlab.residuals.operations import add_up, addends
from attnlab.residuals.steps import Step
from attnlab.surgery.insertion._marked import GatedAddition, checkpointed_error


def host_at(
    owner: nn.Module, additions: list[GatedAddition], step: Step, attachment: Attachment
) -> None:
    """Let `attachment` act at the addition of `step` in `owner`, after those that do already."""
    for gated in additions:
        # The owner is called otherwise where the network was put into another in between.
        if replace(gated.step.key, owner=step.owner) == step.key:
            _put(gated.attachments, attachment)
            return
    gated = GatedAddition(step, [attachment])
    gated.mark_behind(owner)
    additions.append(gated)


def _put(attachments: list[Attachment], new: Attachment) -> None:
    """Add `new`. One that changes the state stays the last: what the others multiply is the branch,
    without a share of the state."""
    last = attachments[-1] if attachments else None
    if last is None or not last.goes_last:
        attachments.append(new)
    elif new.goes_last:
        raise SiteError(
            f"The state of step {last.site.label} is changed by the gate {last.name!r} already, "
            f"and two there are one. Leave the second out, or take the first off: "
            f"attnlab.remove(network)."
        )
    else:
        attachments.insert(-1, new)


def discard(additions: list[GatedAddition], gone: Collection[int]) -> None:
    """Forget the attachments with these ids."""
    for gated in additions:
        gated.attachments = [a for a in gated.attachments if id(a) not in gone]
    additions[:] = [gated for gated in additions if gated.attachments]


def run_additions(
    owner: nn.Module,
    additions: list[GatedAddition],
    forward: Callable[..., object],
    args: tuple[object, ...],
    kwargs: dict[str, object],
) -> object:
    """`forward(*args, **kwargs)` with the additions gated; another number of them is an error."""
    seen = [0] * len(additions)
    with _AdditionMode(additions, seen):
        output = forward(*args, **kwargs)
    for count, gated in zip(seen, additions, strict=True):
        if count != gated.step.owner_additions:
            if any(is_adapter(module) for module in owner.modules()):
                raise SiteError(
                    f"The forward of {type(owner).__name__} made {count} additions like the gated "
                    f"one, of which {gated.step.owner_additions} were seen at insertion: adapters "
                    f"of peft were put into it since. Put the adapters in first, "
                    f"peft.get_peft_model(model, config), and then the gates: attnlab.insert."
                )
            raise SiteError(
                f"The forward of {type(owner).__name__} made {count} additions like the gated "
                f"one, of which {gated.step.owner_additions} were seen at insertion, so the "
                f"gated one cannot be told. Insert again with an example that takes this path "
                f"(example=...), or choose other sites with where=."
            )
    return output


def count_additions(
    steps: Sequence[Step],
    forward: Callable[..., object],
    args: tuple[object, ...],
    kwargs: dict[str, object],
) -> list[int]:
    """For each of `steps`, how many additions like it `forward(*args, **kwargs)` makes."""
    seen = [0] * len(steps)
    with _AdditionMode([GatedAddition(step, []) for step in steps], seen):
        forward(*args, **kwargs)
    return seen


class _AdditionMode(TorchFunctionMode):
    """Counts, for each gated addition, those that could be it, and gates the branch of the one.

    `seen` is a list outside the mode: torch.compile lets no one read a mode's attributes.
    """

    def __init__(self, additions: list[GatedAddition], seen: list[int]) -> None:
        super().__init__()
        self.additions = additions
        self.seen = seen
        self.trains = torch.is_grad_enabled()
        """Whether there will be a backward pass, which may run a part of the forward again."""

    def __torch_function__(
        self,
        function: Callable[..., object],
        types: object,
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        del types
        added = addends(function, args, kwargs)
        # A compiled graph asks nobody in between; there adapters come before gates.
        if added is None or (not torch.compiler.is_compiling() and inside_adapter()):
            return function(*args, **(kwargs or {}))
        found = None
        for number, gated in enumerate(self.additions):
            if gated.step.key.could_be(added.first.shape, added.plain):
                if self.seen[number] == gated.step.key.addition:
                    found = gated
                self.seen[number] += 1
        if found is None:
            return function(*args, **(kwargs or {}))
        if self.trains and not torch.compiler.is_compiling() and runs_again(run_additions.__code__):
            raise checkpointed_error(found)
        step = found.step
        operands = (added.first, added.second())  # seen by who records, as a part of the branch
        branch, shortcut = operands[step.branch_operand], operands[1 - step.branch_operand]
        with torch._C.DisableTorchFunction():
            branch = found.gated(branch, shortcut)
        if not added.plain:
            return add_up(shortcut, branch, step.overwrites)
        return shortcut.add_(branch) if step.overwrites else shortcut + branch
