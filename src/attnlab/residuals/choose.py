"""Which sites of a network are chosen, and where on their branches."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from attnlab._errors import OptionError, SelectionError, SiteError, nearest
from attnlab.residuals.branch_end import branch_end
from attnlab.residuals.example import Run
from attnlab.residuals.heads import has_attention
from attnlab.residuals.site import Place, Site
from attnlab.residuals.sites import (
    DeclaresSites,
    named_sites,
    sites_at_norms,
    sites_in_attention,
    step_sites,
)
from attnlab.residuals.steps import find_steps, no_steps_error, norms_before_activation
from attnlab.residuals.where import DRAWN, Where, lies_in, parse_where, select, split_inside

_DETECTORS = "torchvision.models.detection."


def trunk(model: nn.Module) -> str:
    """The name of a torchvision detector's backbone without its pyramid, whose sums are not
    residual steps; empty for any other network, all of which counts."""
    if not any(each.__module__.startswith(_DETECTORS) for each in type(model).__mro__):
        return ""
    names = {name for name, _ in model.named_modules()}
    return next((name for name in ("backbone.body", "backbone") if name in names), "")


def find_sites(
    model: nn.Module,
    run: Run,
    where: Where,
    *,
    both_ends: bool,
    place: Place = "branch",
    identity_only: bool = False,
) -> list[Site]:
    """The chosen sites of `model`. `both_ends`: the gate must see the shortcut as well. `place`:
    where on the branches of steps, `auto` as for a constant gate; of `heads`, the steps without
    attention are left out. `identity_only`: where a number
    of blocks per stage is chosen, it is among those whose shortcut is x_t itself. A network that
    declares its sites is believed."""
    where = where if callable(where) else parse_where(where)
    module, where = place_and_rest(model, where)
    found = find_steps(run.graph)
    names = _named(model, run, where, module)
    declared = isinstance(model, DeclaresSites) and not both_ends
    if names is None and found and not declared:
        inside = [step for step in found if lies_in(step.owner, module)]
        sites = step_sites(model, inside, at_addition=both_ends)
        if not sites:
            raise SelectionError(
                f"There is no residual step in {module!r}. The network has {len(found)}, the first "
                f"of them in {found[0].owner!r}."
            )
        if place == "heads":
            sites = sites_in_attention(model, run.graph, sites)
        elif place != "branch":
            sites = sites_at_norms(model, run.graph, sites, place)
        if identity_only and isinstance(where, str) and where.startswith(DRAWN):
            sites = [site for site in sites if site.kind == "identity"]
        return select(sites, where)
    if place in ("norm", "heads"):
        raise OptionError(
            f"place={place!r} moves gates on the branches of residual steps, and here modules are "
            "named. Leave place out: a gate acts after the module that is named."
        )
    if names is None and not isinstance(model, DeclaresSites):
        raise no_steps_error(model, run)
    if both_ends:
        raise SiteError(
            "A step gate reads x_t and x_t + f, so it acts at residual additions only, not after "
            "a module's output. Choose a gate that reads the branch (for example 'se'), or a "
            "network with residual steps."
        )
    if names is not None:
        return named_sites(model, run.graph, names, found)
    if module:
        raise SelectionError(
            f"where: the sites that a network declares lie in no module {module!r}."
        )
    assert isinstance(model, DeclaresSites)
    return select(named_sites(model, run.graph, model.attention_sites, found), where)


def place_and_rest(model: nn.Module, where: Where) -> tuple[str, Where]:
    """The module in which sites are chosen, and by what. A detector's is its backbone, unless
    `where` says another, or chooses by names or by a function."""
    module, rest = split_inside(where)
    if module is not None:
        names = [name for name, _ in model.named_modules() if name]
        if module not in names:
            raise SelectionError(
                f"where={where!r}: there is no module {module!r} in {type(model).__name__}."
                f"{nearest(module, names)}"
            )
        return module, rest
    by_text = where in (None, "norms") or (isinstance(where, str) and ":" in where)
    return (trunk(model) if by_text else ""), where


def _named(model: nn.Module, run: Run, where: Where, module: str) -> Sequence[str] | None:
    """The modules that `where` names, or None where it chooses among the sites."""
    if where is None or callable(where):
        return None
    if not isinstance(where, str):
        return where
    if where != "norms":
        return [where] if where in dict(model.named_modules()) else None
    names = [name for name in norms_before_activation(run.graph) if lies_in(name, module)]
    if not names:
        raise SiteError(
            "where='norms': the network has no norm module whose output goes straight into an "
            "activation. Name modules by hand: where=['module.name', ...]."
        )
    return names


def place_for_heads(model: nn.Module, run: Run, where: Where) -> Place:
    """Choose where a gate for heads goes if nobody said where: to the heads, if the chosen part of
    a network has attention on its steps."""
    if _named(model, run, where, "") is not None:
        return "branch"
    module, _ = place_and_rest(model, where)
    steps = [step for step in find_steps(run.graph) if lies_in(step.owner, module)]
    return "heads" if has_attention(run.graph, steps) else "branch"


def place_notes(model: nn.Module, run: Run, sites: Sequence[Site]) -> list[str]:
    """Say for the receipt which place constant gates have where an activation ends the branch."""
    steps = [site for site in sites if site.kind != "output"]
    moved = [site for site in steps if site.position == "inside"]
    if moved:
        return [
            f"{len(moved)} of {len(sites)} gates act after the norm that their branch ends in, "
            f"before its activation (place='norm'), where they fold; place='branch' puts them "
            f"after the activation"
        ]
    modules = dict(model.named_modules())
    ends = [branch_end(run.graph, site.step, modules) for site in steps if site.step is not None]
    behind = sum(end is not None and end.activated for end in ends)
    if not behind:
        return []
    return [
        f"{behind} of {len(sites)} gates act after the activation that ends their branch "
        f"(place='branch'); place='norm' puts them after the norm before it, where they fold"
    ]


def frozen_notes(model: nn.Module, sites: Sequence[Site]) -> list[str]:
    """Say for the receipt how many gates sit in blocks that do not train."""
    frozen = 0
    for site in sites:
        parameters = model.get_submodule(site.name).parameters()
        first = next(parameters, None)  # most blocks are told by it
        trains = first is None or first.requires_grad or any(p.requires_grad for p in parameters)
        frozen += not trains
    if not frozen:
        return []
    return [f"{frozen} of {len(sites)} gates act in blocks that are frozen; the gates train"]
