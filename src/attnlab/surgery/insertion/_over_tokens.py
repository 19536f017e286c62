"""At which sites a gate looks over all tokens of a sequence, and whether it may."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from attnlab.residuals.example import Example, Run
from attnlab.residuals.known_padding import mask_position, refuse_hidden_mask
from attnlab.residuals.site import Site
from attnlab.surgery.insertion._causal import (
    is_token_site,
    looks_over_tokens,
    on_meta,
    refuse_leaks,
)
from attnlab.surgery.insertion._resolve import Resolved


def sites_over_tokens(
    network: nn.Module, run: Run, example: Example | None, item: Resolved, sites: Sequence[Site]
) -> list[Site]:
    """The sites at which the gate looks over all tokens; an error where it must not."""
    tokens = [site for site in sites if is_token_site(site)]
    if not tokens or not looks_over_tokens(item, tokens[0]):
        return []
    if not on_meta(network):
        refuse_leaks(network, run, example, item.label, tokens)
    refuse_hidden_mask(network, example, item.label)
    return tokens


def token_notes(network: nn.Module, item: Resolved, over_tokens: Sequence[Site]) -> list[str]:
    """For the receipt."""
    notes = []
    if over_tokens and on_meta(network):
        notes.append(
            f"{item.label} looks over all tokens; whether the network may look ahead cannot be "
            f"seen on the meta device"
        )
    if over_tokens and mask_position(network) is not None:
        notes.append(
            f"{item.label} looks over all tokens; those that are padding by the attention_mask of "
            f"a call are left out"
        )
    return notes
