"""Gates that look over all tokens, in networks that keep several images or texts in one sequence.

Pixtral puts the patches of all its images into one row and lets none of them see another's; a gate
that pools over the row would. The bounds are an affair of the network's own masks, so they are
found by what the network does: two copies of the example come out as one row of twice the tokens,
or a change of one token never reaches some of the others. Tokens at one end that change nothing but
themselves, while others change many, are padding; a gate must not see that either.

Others have the tokens in front of the inputs (torch's transformers with batch_first=False): their
states grow along the second axis with the batch, or one row of the input changes the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from attnlab._errors import SiteError
from attnlab.residuals.example import Example, Run, as_call, evaluating
from attnlab.residuals.padding import without_padding
from attnlab.residuals.site import Site
from attnlab.residuals.steps import StepKey, find_steps
from attnlab.residuals.watching import SeenStep, Watchable, watchable_in, watching
from attnlab.surgery.insertion._causal import (
    LEAST,
    MUCH,
    TokenStates,
)
from attnlab.surgery.insertion._masks import sites_told

_INSTEAD = "Use a gate that is the same for every input: 'asr:se'."


def refuse_mixing(
    network: nn.Module, run: Run, example: Example | None, label: str, sites: Sequence[Site]
) -> None:
    """Raise `SiteError` if a gate over all tokens at one of `sites` would see several images or
    texts at once, or padding that nobody tells it of."""
    found = watchable_in(network, run, find_steps(run.graph))
    arguments = as_call(network, example)
    _refuse_tokens_first(network, found, arguments, label, sites)
    with evaluating(network), watching(network, probe := _Probe(), found=found):
        before = probe.of(network, without_padding(network, *arguments))
        packed = _joined(network, probe, arguments, before)
        padded: set[StepKey] = set()
        if before and not packed:
            calls = _Calls(network, probe, without_padding(network, *arguments), before)
            # To the end of the network: windows of attention meet there, packed images never.
            packed = set(before) if _Reach(calls, list(before)).is_packed() else set()
            first = _first_sequence(before)
            padded = set(first) if _Reach(calls, first).is_padded() else set()
    told = sites_told(network, example, sites) if padded else []
    name = type(network).__name__
    for site in sites:
        if packed and (site.step is None or site.step.key in packed):
            raise SiteError(
                f"{label!r} looks over all tokens of a sequence, and {name} packs several images "
                f"or texts into one at {site.label}{_named(site)}, of which none may see another. "
                f"With this gate each would change the others. {_INSTEAD}"
            )
        if padded and site not in told and (site.step is None or site.step.key in padded):
            raise SiteError(
                f"{label!r} looks over all tokens of a sequence, and in the example some of those "
                f"at {site.label}{_named(site)} are padding, which no argument of {name} that "
                f"attnlab knows tells of. With this gate padding would change the answer. "
                f"{_INSTEAD}"
            )


def _refuse_tokens_first(
    network: nn.Module, found: Watchable, arguments: object, label: str, sites: Sequence[Site]
) -> None:
    """Raise `SiteError` if the inputs are not along the first axis of a state at one of `sites`."""
    rows = _rows(arguments)
    with evaluating(network), watching(network, states := _AnyTokens(), found=found):
        try:
            twice = _twice(arguments, rows, lists=True)
            double = _drawn_alike(states, network, twice)
            changed = _drawn_alike(states, network, _with_another_first(twice, 2 * rows))
        except Exception:  # it takes no such batch
            return
    for site in sites:
        if site.step is None or site.step.key not in double.keys() & changed.keys():
            continue
        shape = site.step.shape
        state, other = double[site.step.key][0], changed[site.step.key][0]
        grows = shape[1] == rows and state.shape[:2] == (shape[0], 2 * rows)
        if grows or _first_changes_others(state, other, 2 * rows):
            raise SiteError(
                f"{label!r} looks over all tokens of a sequence, and {type(network).__name__} has "
                f"them along the first axis at {site.label}{_named(site)}, in front of the inputs. "
                f"With this gate each input would change the others. Let the network put the "
                f"inputs first (batch_first=True of torch's layers). {_INSTEAD}"
            )


def _drawn_alike(states: TokenStates, network: nn.Module, call: object) -> _States:
    """The states of a call, for which the same random numbers are drawn each time (ViTMAE)."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return states.of(network, call)


class _AnyTokens(TokenStates):
    """Keeps states of one token as well: of a single input, where tokens come first."""

    fewest = 1


def _first_changes_others(state: Tensor, changed: Tensor, rows: int) -> bool:
    """Whether a change of the first of so many inputs changes what others have in a state."""
    if state.shape != changed.shape or len(state) != rows:
        return False
    difference = (changed - state)[1:].abs().max()
    return bool(difference > LEAST * state.abs().max())


def _with_another_first(value: Any, rows: int) -> Any:
    """What is given, with another first of so many inputs; masks and kinds of tokens stay."""
    if isinstance(value, Tensor):
        kinds = not value.is_floating_point() and (value.dtype == torch.bool or value.max() <= 1)
        if not value.ndim or len(value) != rows or not value.numel() or kinds:
            return value
        other = value.clone()
        if value.is_floating_point():
            step = torch.linspace(-1, 1, other[0].numel()).to(other)
            other[0] += MUCH * step.view_as(other[0])
        else:
            other[0] = torch.where(value[0] > 0, value[0] - 1, 1)
        return other
    if isinstance(value, dict):
        return {name: _with_another_first(each, rows) for name, each in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_with_another_first(each, rows) for each in value)
    return value


def _rows(arguments: object) -> int:
    tensors = [leaf for leaf in tree_leaves(arguments) if isinstance(leaf, Tensor) and leaf.ndim]
    return len(tensors[0]) if tensors else 0


def _named(site: Site) -> str:
    return f" ({site.name})" if site.name else ""


_States = dict[StepKey, tuple[Tensor, Tensor]]


class _Probe(TokenStates):
    """Keeps token states, and changes one token of a step if it is told which."""

    changed: tuple[StepKey, int] | None = None

    def step_seen(self, seen: SeenStep) -> Tensor | None:
        super().step_seen(seen)
        if self.changed is None or seen.step.key != self.changed[0]:
            return None
        branch = seen.branch.detach().clone()
        branch[:, self.changed[1]] += MUCH * torch.linspace(-1, 1, branch.shape[2]).to(branch)
        return branch


def _joined(network: nn.Module, probe: _Probe, arguments: object, before: _States) -> set[StepKey]:
    """The steps whose sequence grows when the batch does."""
    rows = _rows(arguments)
    joined: set[StepKey] = set()
    for lists in (True, False):  # Pixtral is told the sizes of its images in a list
        try:
            after = probe.of(network, _twice(arguments, rows, lists))
        except Exception:  # it takes no such batch, so doubling says nothing: perturbing still does
            continue
        joined |= {
            key
            for key, (state, _) in before.items()
            if key in after
            and len(after[key][0]) == len(state)
            and after[key][0].shape[1] == 2 * state.shape[1]
        }
    return joined


def _twice(value: Any, rows: int, lists: bool) -> Any:
    """What is given for twice the inputs: tensors with `rows` rows, and lists with as many items
    (`lists`), come twice."""
    if isinstance(value, Tensor):
        return torch.cat([value, value]) if value.ndim and len(value) == rows else value
    if isinstance(value, list) and lists and len(value) == rows:
        return [*value, *value]
    if isinstance(value, dict):
        return {name: _twice(each, rows, lists) for name, each in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_twice(each, rows, lists) for each in value)
    return value


def _first_sequence(before: _States) -> list[StepKey]:
    """The first steps, up to where the sequence gets another shape."""
    return list(next(groupby(before, key=lambda key: before[key][0].shape))[1])


@dataclass(frozen=True)
class _Calls:
    """A network that is run again and again, and the states of its first run."""

    network: nn.Module
    probe: _Probe
    arguments: Any
    before: _States


class _Reach:
    """How far a change of one token at the first of some steps reaches by the last of them."""

    def __init__(self, calls: _Calls, keys: list[StepKey]) -> None:
        self.calls = calls
        self.first, self.last = keys[0], keys[-1]
        self.end = calls.before[self.last][1]
        self.tokens = self.end.shape[1]
        self.reached: dict[int, Tensor] = {}
        """Of each changed token, by its place at the last step: (inputs, tokens), what moved."""

    def _moved(self, place: int) -> Tensor:
        """What moves by the last step when the token that lies there at `place` is changed."""
        if place not in self.reached:
            at_first = place * self.calls.before[self.first][1].shape[1] // self.tokens
            self.calls.probe.changed = self.first, at_first
            try:
                after = self.calls.probe.of(self.calls.network, self.calls.arguments)
            finally:
                self.calls.probe.changed = None
            # Exactly: a masked token is multiplied by zero, and a weak influence is one.
            self.reached[place] = (after[self.last][1] != self.end).any(2)
        return self.reached[place]

    def is_padded(self) -> bool:
        """Whether in one input the two tokens at one end each change only themselves, and that at
        the other end changes more. One alone may be a class token that only reads the others."""
        if self.tokens < 4:
            return False
        for place, next_to_it, other in ((0, 1, -1), (-1, -2, 0)):
            alone = (self._count(place) <= 1) & (self._count(other) > 1)
            if alone.any() and (alone & (self._count(next_to_it) <= 1)).any():
                return True
        return False

    def _count(self, place: int) -> Tensor:
        """How many tokens of each input a change of the token at `place` reaches."""
        return self._moved(place % self.tokens).sum(1)

    def is_packed(self) -> bool:
        """Whether the tokens of one input fall into several groups that never change each other."""
        if max(self._count(0).max(), self._count(-1).max()) < 2:
            return False  # no token changes another here: nothing can be seen
        # From the left: the first token that nothing reached yet begins the next text, or is still
        # of this one where a network looks only at neighbours; then what they reach overlaps.
        reached = self._moved(0).clone()
        while not reached.all():
            place = int((~reached).any(0).nonzero()[0])
            reached |= self._moved(place)
            reached[:, place] = True
        return any(
            _groups([moved[row] for moved in self.reached.values()]) > 1
            for row in range(len(reached))
        )


def _groups(sets: Sequence[Tensor]) -> int:
    """How many groups of two tokens or more are left when sets that overlap are joined."""
    groups: list[Tensor] = []
    for each in sets:
        joined = each
        for group in [group for group in groups if (group & each).any()]:
            joined = joined | group
        groups = [group for group in groups if not (group & each).any()] + [joined]
    return sum(int(group.sum()) > 1 for group in groups)
