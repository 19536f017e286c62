"""What gates that look over all tokens need of the network: that it may look ahead, that a sequence
is one text or image, and that its padding is known."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from torch import nn

from attnlab.residuals.example import Example, Run
from attnlab.residuals.padding import mask_argument
from attnlab.residuals.site import Site
from attnlab.surgery.insertion._causal import is_token_site, looks_over_tokens, refuse_leaks
from attnlab.surgery.insertion._causal_maps import refuse_map_leaks
from attnlab.surgery.insertion._masks import (
    is_inside,
    padding_masks_inside,
    refuse_hidden_mask,
)
from attnlab.surgery.insertion._packed import refuse_mixing
from attnlab.surgery.insertion._resolve import Resolved


def on_meta(network: nn.Module) -> bool:
    """Return whether nothing can be seen in the network's states, because they have no values."""
    return any(parameter.is_meta for parameter in network.parameters())


def sites_over_tokens(
    network: nn.Module, run: Run, example: Example | None, item: Resolved, sites: Sequence[Site]
) -> list[Site]:
    """The sites at which the gate looks over all tokens; an error where it must not."""
    maps = [site for site in sites if len(site.shape) > 2 and not is_token_site(site)]
    steps = [site.step for site in maps if site.step is not None]
    if steps and not on_meta(network):
        looks_around = partial(looks_over_tokens, item, maps[0])
        refuse_map_leaks(network, run, example, item.label, steps, looks_around)
    tokens = [site for site in sites if is_token_site(site)]
    if tokens and not looks_over_tokens(item, tokens[0]):
        tokens = []
    rows = [site for site in maps if len(site.shape) == 3 and site.channel_axis == 1]
    if rows and not looks_over_tokens(item, rows[0]):
        rows = []
    if tokens and not on_meta(network):
        refuse_leaks(network, run, example, item.label, tokens)
    if tokens or rows:
        refuse_hidden_mask(network, example, item.label, [*tokens, *rows])
    if tokens and not on_meta(network):
        refuse_mixing(network, run, example, item.label, tokens)
    return [*tokens, *rows]


def token_notes(network: nn.Module, item: Resolved, over_tokens: Sequence[Site]) -> list[str]:
    """Say for the receipt how the gates treat tokens."""
    notes = []
    if over_tokens and on_meta(network):
        notes.append(
            f"{item.label} looks over all tokens; whether the network may look ahead cannot be "
            f"seen on the meta device"
        )
    argument = mask_argument(network)
    if over_tokens and argument is not None:
        notes.append(
            f"{item.label} looks over all tokens; those that are padding by the {argument.name} of "
            f"a call are left out"
        )
    parts = padding_masks_inside(network) if over_tokens and argument is None else []
    told = [part for part in parts if any(is_inside(site.module, part) for site in over_tokens)]
    if told:
        notes.append(
            f"{item.label} looks over all tokens; those are left out that {told[0]!r} is told are "
            f"padding"
        )
    elif parts:
        notes.append(
            f"{item.label} looks over all tokens, padding too: {type(network).__name__} has no "
            f"argument that tells of it by a name that attnlab knows. If {parts[0]!r} is told, "
            f"use a gate that is the same for every input, such as 'asr:se'"
        )
    return notes
