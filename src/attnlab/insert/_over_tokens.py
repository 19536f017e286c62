"""At which sites a gate looks over all tokens of a sequence, and whether it may."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from attnlab.insert._causal import is_token_site, looks_over_tokens, refuse_leaks
from attnlab.insert._padding import mask_position, refuse_hidden_mask
from attnlab.insert._resolve import Resolved
from attnlab.insert.site import Site
from attnlab.record.example import Example, Run


def sites_over_tokens(
    network: nn.Module, run: Run, example: Example | None, item: Resolved, sites: Sequence[Site]
) -> list[Site]:
    """The sites at which the gate looks over all tokens; an error where it must not."""
    tokens = [site for site in sites if is_token_site(site)]
    if not tokens or not looks_over_tokens(item, tokens[0]):
        return []
    refuse_leaks(network, run, example, item.label, tokens)
    refuse_hidden_mask(network, example, item.label)
    return tokens


def padding_notes(network: nn.Module, item: Resolved, over_tokens: Sequence[Site]) -> list[str]:
    """For the receipt."""
    if not over_tokens or mask_position(network) is None:
        return []
    return [
        f"{item.label} looks over all tokens; those that are padding by the attention_mask of a "
        f"call are left out"
    ]
