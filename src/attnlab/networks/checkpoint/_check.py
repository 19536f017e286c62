"""Whether a description is that of a network: built by it, another one answers the same."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import zip_longest
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from attnlab._errors import WeightsError
from attnlab.networks.backbones.unwrap import without_prefix
from attnlab.networks.backbones.weights import fill
from attnlab.networks.checkpoint.description import Description
from attnlab.residuals.example import evaluating
from attnlab.surgery.change import largest_change, relative_to
from attnlab.surgery.insertion import attachments

_MOST_CHANGE = 1e-3


def filled(description: Description, state: Mapping[str, Tensor], source: str) -> nn.Module:
    """The network of `description` with the values, dtypes and memory layout of `state`."""
    with torch.random.fork_rng(devices=[]):
        network = description.build()
    state = without_prefix(state, network.state_dict(), source)
    dtypes = {value.dtype for value in state.values() if value.is_floating_point()}
    if len(dtypes) == 1:
        network.to(dtypes.pop())  # what is not in the file as well
    for name, value in network.state_dict(keep_vars=True).items():
        given = state.get(name, value)
        if given.shape == value.shape and _layout(given) != _layout(value):
            value.data = torch.empty_like(given)  # not assigned: tied tensors stay tied
    fill(network, state, source)
    return network


def _layout(tensor: Tensor) -> tuple[object, ...]:
    return tensor.dtype, tensor.device, tensor.stride()


def check_description(network: nn.Module, description: Description, path: Path) -> None:
    """Raise a `WeightsError`, which says that `path` was not written, if it is of another one."""
    refused = f"{str(path)!r} was not written, because {description.shown()} is another network"
    try:
        built = filled(description, network.state_dict(), str(path))
    except WeightsError as error:
        raise WeightsError(f"{refused}. {error}{_about_place(network, description)}") from error
    example = description.example(network)
    try:
        expected = _answer(network, example)
    except Exception:  # its input is something else, so there is nothing to compare
        return
    change = _largest_change(expected, _answer(built.to(example.device), example))
    if not change <= _MOST_CHANGE:
        raise WeightsError(
            f"{refused}: with the same weights, its output differs by {change:.1e}, relative. "
            f"Describe it as it was made; options of the gate are gate_options={{...}}."
        )


def _about_place(network: nn.Module, description: Description) -> str:
    """What to change where the gates are at norms and the description says otherwise."""
    sites = (attachment.site for _, attachment in attachments(network))
    moved = any(site.kind != "output" and site.position == "inside" for site in sites)
    if not moved or description.place != "branch":
        return ""
    return " Its gates act behind norms, where insert puts them by default: pass place='auto'."


def _answer(network: nn.Module, example: Tensor) -> list[Tensor]:
    with evaluating(network):
        leaves = tree_leaves(network(example))
    return [leaf.double() for leaf in leaves if isinstance(leaf, Tensor)]


def _largest_change(expected: list[Tensor], found: list[Tensor]) -> float:
    """max |Δ| / max |y|, the worst of all outputs; infinite if they cannot be compared."""
    change = 0.0
    for one, other in zip_longest(expected, found, fillvalue=torch.empty(0)):
        if one.shape != other.shape or not torch.equal(one.isfinite(), other.isfinite()):
            return float("inf")
        largest, size, _ = largest_change([(one, other)])
        change = max(change, relative_to(largest or 0.0, size))
    return change
