"""What a module carries of gates: those at its children, those at its additions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torch import nn

from attnlab.residuals.padding import MaskArgument
from attnlab.surgery.insertion._marked import GatedAddition, MarkHook
from attnlab.surgery.insertion._outputs import OutputHook, follow

if TYPE_CHECKING:
    from attnlab.surgery.insertion._guard import Guard

ATTRIBUTE = "_attnlab"


@dataclass
class Hosted:
    """Kept in the module's `__dict__`, so that it is copied and pickled with it."""

    outputs: dict[str, OutputHook] = field(default_factory=dict)
    """By the names of the children after which gates act."""
    inputs: dict[str, OutputHook] = field(default_factory=dict)
    """By the names of the children in front of which gates act, or whose input gates read."""
    additions: list[GatedAddition] = field(default_factory=list)
    guard: Guard | None = None
    """Of the network that gates were inserted into."""
    mask: MaskArgument | None = None
    """Of a part of that network, with gates that look over all tokens: what tells of padding."""
    children: dict[str, nn.Module | None] = field(default_factory=dict)
    """Those that the module had when it was last looked at."""
    rebuilt: bool = False
    """Whether children came or went, or the module was given another forward, since insertion."""
    traced: bool = False
    """Whether torch.fx has traced it: its gates are in a graph as well."""

    shortened: dict[str, str] = field(default_factory=dict)
    """Of a network of Hugging Face: what took the place of which of its modules."""
    only: OutputHook | None = field(default=None, init=False)
    """The hook after a child, if nothing else is carried and nobody has changed the module: what
    most blocks have, found once because every block asks for it in every run."""
    marks: MarkHook | None = field(default=None, init=False)
    """The same of one gated addition: what marks its branch."""

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name not in ("only", "marks") and "marks" in self.__dict__:  # else it is being made
            self.refresh()

    def refresh(self) -> None:
        """Find `only` and `marks` anew; who writes into one of the lists here calls this."""
        more = self.guard is not None or self.mask is not None
        changed = more or self.rebuilt or self.traced
        found = len(self.outputs) + len(self.inputs) + len(self.additions)
        alone = found == 1 and not changed
        self.only = next(iter(self.outputs.values())) if alone and self.outputs else None
        self.marks = self.additions[0].marks if alone and self.additions else None

    def look(self, module: nn.Module) -> None:
        """Let hooks follow children that were exchanged, and notice those that came or went."""
        follow(module, self.outputs)
        follow(module, self.inputs)
        if _names(module._modules) != _names(self.children):
            self.rebuilt = True
        self.children = dict(module._modules)

    @property
    def hooks(self) -> list[tuple[str, OutputHook]]:
        """Return the hooks at children, with their names."""
        return [*self.outputs.items(), *self.inputs.items()]

    @property
    def empty(self) -> bool:
        carried = self.outputs or self.inputs or self.additions
        return not (carried or self.guard or self.mask or self.shortened)


def _names(children: Mapping[str, nn.Module | None]) -> set[str]:
    return {name for name, child in children.items() if child is not None}


def hosted_by(module: nn.Module) -> Hosted | None:
    """Return what `module` carries, or None."""
    found: Hosted | None = module.__dict__.get(ATTRIBUTE)
    return found


def set_hosted(module: nn.Module, hosted: Hosted | None) -> None:
    """Let `module` carry this, or nothing."""
    if hosted is None:
        module.__dict__.pop(ATTRIBUTE, None)
    else:
        module.__dict__[ATTRIBUTE] = hosted
