"""Gates that look over all tokens, in networks that must not look ahead.

A causal network (GPT-2) computes each position from the earlier ones. A gate that pools over tokens
tells every position of all later ones. Neither is known by the classes of modules but by what they
do: the values of a gate at the first places when the last one changes, and the states of the
network when the first or the last token of its input changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from attnlab._errors import InputError, SiteError
from attnlab.gates import BranchGate, StageGate, StepGate
from attnlab.residuals.attachment import to_channel_first
from attnlab.residuals.example import Example, Run, as_call, evaluating
from attnlab.residuals.padding import without_padding
from attnlab.residuals.site import Site
from attnlab.residuals.steps import StepKey, find_steps
from attnlab.residuals.watching import Observer, SeenStep, Watchable, watchable_in, watching
from attnlab.surgery.insertion._resolve import Resolved

MUCH = 10.0
"""How much an input's first or last values are changed by."""
_TRIALS = 24
"""So often random parameters are tried: the one hidden unit of an SE on few channels is off in half
of them, whatever the tokens are."""
LEAST = 1e-7
"""A change of this share of a state's largest value is one."""
_LESS = 1e-4
"""Backwards at most this share of what goes forwards: nothing, but for rounding."""


def is_token_site(site: Site) -> bool:
    """Return whether a gate there multiplies (inputs, tokens, channels)."""
    return len(site.shape) == 3 and site.channel_axis == 2


def looks_over_tokens(item: Resolved, site: Site) -> bool:
    """Return whether the gate at one token depends on others: tried with random parameters, since a
    gate that starts as a constant is none when it was trained."""
    if item.constant:
        return False
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        return any(_looks_back(item.build(site), site, seed) for seed in range(_TRIALS))


def _looks_back(gate: nn.Module, site: Site, seed: int) -> bool:
    torch.manual_seed(seed)
    gate.eval()
    for parameter in gate.parameters():  # so large that no function at the end is at its limit
        inputs = parameter[0].numel() if parameter.ndim > 1 else 4
        parameter.normal_(std=max(inputs, 1) ** -0.5)
    tokens = torch.randn(1, 6, site.channels)
    other = tokens.clone()
    other[:, -1] += torch.randn(site.channels)
    reads = site.reads or site.channels
    one, two = (_values(gate, to_channel_first(t, 2), reads) for t in (tokens, other))
    places = max(one.shape[2] - 1, 1)
    return not torch.allclose(one[:, :, :places], two[:, :, :places], rtol=1e-6, atol=1e-7)


def _values(gate: nn.Module, branch: Tensor, reads: int) -> Tensor:
    if isinstance(gate, StepGate):
        return gate(branch.flip(1).repeat(1, -(-reads // branch.shape[1]), 1, 1)[:, :reads], branch)
    if isinstance(gate, StageGate):
        return gate(branch, None)[0]
    assert isinstance(gate, BranchGate)
    return gate(branch)


def refuse_leaks(
    network: nn.Module, run: Run, example: Example | None, label: str, sites: Sequence[Site]
) -> None:
    """Raise `SiteError` if one of `sites` lies in a part of `network` that does not look ahead."""
    if any(
        _is_text(leaf) and leaf.shape[1] == 1 for leaf in tree_leaves(as_call(network, example))
    ):
        raise InputError(
            f"{label!r} looks over all tokens of a sequence, and whether {type(network).__name__} "
            f"may look ahead cannot be seen on an example of one token. Pass a longer one: "
            f"example=..."
        )
    found = watchable_in(network, run, find_steps(run.graph))
    causal = causal_steps(network, found, example, TokenStates(), _changes)
    for site in sites:
        if causal and (site.step is None or site.step.key in causal):
            raise SiteError(
                f"{label!r} looks over all tokens of a sequence, and {type(network).__name__} is "
                f"causal: when the last token changes, no earlier position of the state at "
                f"{site.label}{f' ({site.name})' if site.name else ''} does. With this gate the "
                f"future would leak into every earlier position. Use a gate that is the same for "
                f"every input: 'asr:se'."
            )


def causal_steps(
    network: nn.Module,
    found: Watchable,
    example: Example | None,
    states: TokenStates,
    changes: Callable[[object], Iterator[Callable[[int], object]]],
) -> set[StepKey]:
    """The steps whose states carry what comes first on to later positions and never back, when the
    call is changed in each of these ways."""
    arguments = without_padding(network, *as_call(network, example))
    causal: set[StepKey] = set()
    with evaluating(network), watching(network, states, found=found):
        before = states.of(network, arguments)
        for change in changes(arguments):
            changed = states.of(network, change(-1))
            back = _moved(before, changed, last=True)
            still = {key for key, moved in back.items() if moved < LEAST}
            if not still:
                continue
            forth = _moved(before, states.of(network, change(0)), last=False)
            causal |= {
                key
                for key in still & forth.keys()
                if forth[key] > LEAST and back[key] <= _LESS * forth[key]
            }
    return causal


class TokenStates(Observer):
    """Keeps the states of token steps of one call, before and after each."""

    fewest = 2
    """States of fewer tokens are not kept."""

    def __init__(self) -> None:
        self.seen: dict[StepKey, tuple[Tensor, Tensor]] = {}

    def of(self, network: nn.Module, call: Any) -> dict[StepKey, tuple[Tensor, Tensor]]:
        self.seen = {}
        arguments, keywords = call
        network(*arguments, **keywords)
        return self.seen

    def step_seen(self, seen: SeenStep) -> Tensor | None:
        tokens = seen.shortcut.ndim == 3 and seen.step.channel_axis == 2
        if tokens and seen.shortcut.shape[1] >= self.fewest:
            state = seen.shortcut.detach().clone()
            self.seen[seen.step.key] = (state, state + seen.branch.detach())
        return None


def _moved(
    before: dict[StepKey, tuple[Tensor, Tensor]],
    after: dict[StepKey, tuple[Tensor, Tensor]],
    last: bool,
) -> dict[StepKey, float]:
    """Return of each step how much its state moves, relative to its largest value, in front of the
    positions (`last`: else after them) that moved in the first state that moved at all."""
    found: dict[StepKey, float] = {}
    position: int | None = None
    for key in [key for key in before if key in after]:
        (start, end), (new_start, new_end) = before[key], after[key]
        if start.shape != new_start.shape:
            continue
        if position is None:
            where = (start != new_start).any(2).any(0).nonzero()[:, 0]
            if len(where) == 0:
                continue
            position = int(where[0] if last else where[-1])
        beyond = slice(0, position) if last else slice(position + 1, None)
        difference = (new_end - end)[:, beyond]
        if difference.numel() == 0:
            continue
        scale = end.abs().max().item() or 1.0
        found[key] = difference.abs().max().item() / scale
    return found


def _is_text(leaf: object) -> bool:
    return isinstance(leaf, Tensor) and leaf.ndim == 2 and not leaf.is_floating_point()


def _changes(arguments: object) -> Iterator[Callable[[int], object]]:
    """For every input that may be a sequence: the arguments with its first (0) or last (-1) place
    changed. Masks and kinds of tokens, numbers of 0 and 1 alone, are none."""
    leaves, form = tree_flatten(arguments)
    for number, leaf in enumerate(leaves):
        if not isinstance(leaf, Tensor) or leaf.ndim < 2 or leaf.numel() == 0:
            continue
        if not leaf.is_floating_point() and (leaf.dtype == torch.bool or int(leaf.max()) <= 1):
            continue

        def change(place: int, number: int = number, leaf: Tensor = leaf) -> object:
            other = leaf.clone()
            if leaf.ndim == 4 and leaf.is_floating_point():
                other[:, :, place, place] += MUCH
            elif leaf.is_floating_point():
                other[:, place] += MUCH
            else:
                other[:, place] = torch.where(leaf[:, place] > 0, leaf[:, place] - 1, 1)
            return tree_unflatten([*leaves[:number], other, *leaves[number + 1 :]], form)

        yield change
