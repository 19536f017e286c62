"""Insertion of a gate that lives inside a norm (IEBN): the norm is exchanged, its keys are kept."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from attnlab._errors import SiteError
from attnlab.gates import InstanceEnhancementBatchNorm
from attnlab.residuals.choose import place_and_rest
from attnlab.residuals.graph import Graph
from attnlab.residuals.sites import step_sites
from attnlab.residuals.steps import Step, find_steps
from attnlab.residuals.where import Where, lies_in, select
from attnlab.surgery.double import exchange


def replace_norms(
    network: nn.Module, graph: Graph, where: Where, start: str, *, trainable: bool = True
) -> list[str]:
    """Exchange every BatchNorm2d but those on shortcuts; return their names.

    With `where`, only those inside the chosen blocks, or the named norms themselves.
    """
    names = _chosen(network, graph, where)
    for name in names:
        norm = network.get_submodule(name)
        assert isinstance(norm, nn.BatchNorm2d)
        enhanced = InstanceEnhancementBatchNorm.from_batch_norm(norm)
        enhanced.gate.requires_grad_(trainable)
        if start == "identity":
            enhanced.start_identity()
        exchange(network, norm, enhanced)
    return names


def has_gates_in_norms(network: nn.Module) -> bool:
    """Return whether some norm of `network` has a gate inside (IEBN)."""
    return any(isinstance(module, InstanceEnhancementBatchNorm) for module in network.modules())


def plain_norms(network: nn.Module) -> None:
    """Exchange every norm with a gate inside for the BatchNorm2d that it was."""
    for norm in list(network.modules()):
        if isinstance(norm, InstanceEnhancementBatchNorm):
            exchange(network, norm, norm.plain())


def _chosen(network: nn.Module, graph: Graph, where: Where) -> list[str]:
    norms = [
        name
        for name, module in network.named_modules()
        if isinstance(module, nn.BatchNorm2d)
        and not isinstance(module, InstanceEnhancementBatchNorm)
    ]
    found = find_steps(graph)
    module, where = place_and_rest(network, where)
    norms = [name for name in norms if lies_in(name, module)]
    if where is None:
        shortcuts = _shortcut_modules(graph, found)
        chosen = [name for name in norms if name not in shortcuts]
    elif callable(where) or (isinstance(where, str) and where not in norms):
        blocks = [site.name for site in select(step_sites(network, found, at_addition=True), where)]
        shortcuts = _shortcut_modules(graph, found)
        chosen = [
            name
            for name in norms
            if name not in shortcuts and any(name.startswith(f"{block}.") for block in blocks)
        ]
    else:
        chosen = _named(norms, [where] if isinstance(where, str) else where)
    if not chosen:
        raise SiteError(
            f"'iebn' replaces BatchNorm2d modules, and {type(network).__name__} has none "
            f"{'there' if norms else 'at all'}. Choose a gate that reads the branch, for example "
            f"'ie', the same gate after any layer."
        )
    _refuse_other_norms(network, chosen)
    return chosen


def _refuse_other_norms(network: nn.Module, chosen: Sequence[str]) -> None:
    """Refuse subclasses of BatchNorm2d, whose further work a gate in their place would lose."""
    other = sorted(
        {
            type(network.get_submodule(name)).__name__
            for name in chosen
            if type(network.get_submodule(name)) is not nn.BatchNorm2d
        }
    )
    if other:
        raise SiteError(
            f"'iebn' replaces plain BatchNorm2d modules, but {type(network).__name__} uses "
            f"{', '.join(other)}, which does more than normalise. Choose a gate that reads the "
            f"branch, for example 'ie'."
        )


def _named(norms: Sequence[str], where: Sequence[str]) -> list[str]:
    for name in where:
        if name not in norms:
            raise SiteError(
                f"'iebn' replaces BatchNorm2d modules, and {name!r} is not one. The first are: "
                f"{', '.join(norms[:4])}."
            )
    return list(where)


def _shortcut_modules(graph: Graph, found: Sequence[Step]) -> set[str]:
    return {
        name
        for step in found
        if step.kind == "projection"
        for node in graph.between(step.state_node, step.shortcut_node)
        for name, _ in node.produced_by
    }
