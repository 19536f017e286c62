"""Find the sites of a host network, and how a gate can act there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Protocol, runtime_checkable

import torch
from torch import nn

from attnlab._errors import SelectionError, SiteError, nearest
from attnlab.residuals.attachment import Attachment
from attnlab.residuals.branch_end import BranchEnd, branch_end
from attnlab.residuals.graph import Graph, Node
from attnlab.residuals.heads import sites_at_heads
from attnlab.residuals.site import Place, Site, position_of
from attnlab.residuals.steps import Step

_CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)
# A gate belongs on the branch, before it is dropped at random.
_DROPS = ("DropPath", "StochasticDepth", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d")


@runtime_checkable
class DeclaresSites(Protocol):
    """A network that says where its paper puts attention, because that is not at its residual
    additions or it has none."""

    attention_sites: tuple[str, ...]


def step_sites(model: nn.Module, steps: Sequence[Step], *, at_addition: bool) -> list[Site]:
    """A site for each step: after a module whose output is the branch if there is one, else at
    the addition itself, which is also where a gate can see both ends of the step."""
    modules = dict(model.named_modules())
    per_owner = Counter(step.owner for step in steps)
    seen: Counter[str] = Counter()
    sites = []
    for step in steps:
        place, seen[step.owner] = seen[step.owner], seen[step.owner] + 1
        suffix = f"_{place}" if per_owner[step.owner] > 1 else ""
        home, attribute = _home(modules, step.owner, "attnlab" + suffix)
        slot = "" if at_addition else _slot(modules, step)
        sites.append(
            Site(
                name=step.name,
                stage=step.stage,
                block=step.block,
                part=step.part,
                kind=step.kind,
                host="output" if slot else "addition",
                module=slot or step.owner,
                home=home,
                attribute=attribute,
                shape=step.shape,
                channel_axis=step.channel_axis,
                series=step.stage,
                step=step,
                position="end",
                refusal="" if slot else _addition_refusal(modules, step),
            )
        )
    return sites


def sites_at_norms(
    model: nn.Module, graph: Graph, sites: Sequence[Site], place: Place
) -> list[Site]:
    """The sites of steps, moved after the norms that their branches end in; with `auto`, only
    where an activation follows, so that a constant gate folds there and not at the end."""
    modules = dict(model.named_modules())
    moved = []
    for site in sites:
        assert site.step is not None
        end = branch_end(graph, site.step, modules)
        if end is not None and (end.activated or place == "norm"):
            site = _behind_norm(modules, site, end)
        elif place == "norm":
            reason = "place='norm': its branch does not end in a norm that a module returns"
            site = replace(site, refusal=reason)
        moved.append(site)
    return moved


def sites_in_attention(model: nn.Module, graph: Graph, sites: Sequence[Site]) -> list[Site]:
    """The sites of those steps that are attention, moved in front of its output projection."""
    modules = dict(model.named_modules())
    moved = sites_at_heads(model, graph, sites, lambda name: _beside(modules, name))
    if not moved:
        raise SiteError(
            f"place='heads': there is no attention (softmax, then a product with the values) on "
            f"any of the {len(sites)} steps. Leave place out: the gate acts at the end of branches."
        )
    return moved


def _behind_norm(modules: dict[str, nn.Module], site: Site, end: BranchEnd) -> Site:
    # Named after the norm, so not as at the end of the branch: weights of one place do not load
    # into the other, and where=[norms] is the same network.
    home, attribute = _beside(modules, end.module)
    return replace(
        site,
        host="output",
        module=end.module,
        home=home,
        attribute=attribute,
        shape=end.node.shape,
        channel_axis=end.node.channels_on,
        position="inside" if end.activated else "end",
        refusal="",
    )


def named_sites(
    model: nn.Module, graph: Graph, names: Sequence[str], steps: Sequence[Step]
) -> list[Site]:
    """A site after the output of each named module. It takes its place from the step on whose
    branch it lies; in a network without `steps`, sites are numbered by themselves."""
    modules = dict(model.named_modules())
    produced = {name: node for node in graph.nodes for name, _ in node.produced_by}
    sites: list[Site] = []
    series, number = 0, 0
    for name in names:
        if name not in modules or not name:
            raise SelectionError(
                f"The network has no module named {name!r}.{nearest(name, modules)} "
                f"Names are those of model.named_modules()."
            )
        node = produced.get(name)
        shape = node.shape if node is not None else ()
        if sites and prod(shape[1:]) == prod(sites[-1].shape[1:]):
            number += 1
        else:
            series, number = series + 1, 0
        refusal = _output_refusal(modules[name], graph, name, node)
        step, position = position_of(graph, None if refusal else node, steps)
        stage, block, part = (0, 0, 0) if steps else (series, number, 0)
        if step is not None:
            stage, block, part = step.stage, step.block, step.part
        home, attribute = _beside(modules, name)
        sites.append(
            Site(
                name=name,
                stage=stage,
                block=block,
                part=part,
                kind="output",
                host="output",
                module=name,
                home=home,
                attribute=attribute,
                shape=shape,
                channel_axis=0 if node is None else node.channels_on,
                series=series,
                step=step,
                position=position,
                refusal=refusal,
            )
        )
    return sites


def _slot(modules: dict[str, nn.Module], step: Step) -> str:
    """The outermost module whose output is exactly the branch, before any random drop.
    A second gate goes after the first."""
    if step.branch_shared:
        return ""
    gates = [m for name in step.branch_modules if isinstance(m := modules[name], Attachment)]
    if any(gate.site.host == "addition" for gate in gates):
        return ""
    candidates = [
        name
        for name in step.branch_modules
        if not isinstance(modules[name], torch.jit.ScriptModule | Attachment)
    ]
    kept = [name for name in candidates if type(modules[name]).__name__ not in _DROPS]
    return (kept or candidates or [""])[-1]


def _beside(modules: dict[str, nn.Module], name: str) -> tuple[str, str]:
    """Where a gate after the module `name` hangs, and as what."""
    home, _ = _home(modules, name.rpartition(".")[0], "attnlab")
    relative = name.removeprefix(home).strip(".").replace(".", "_")
    return home, f"attnlab_{relative}"


def _home(modules: dict[str, nn.Module], owner: str, attribute: str) -> tuple[str, str]:
    """The nearest module that a child can be hung on: containers would run it."""
    path = owner
    while path and isinstance(modules[path], _CONTAINERS):
        path = path.rpartition(".")[0]
    if path == owner:
        return path, attribute
    relative = owner.removeprefix(path).strip(".").replace(".", "_")
    return path, f"{attribute}_{relative}"


def _addition_refusal(modules: dict[str, nn.Module], step: Step) -> str:
    owner = f"{step.owner!r} ({type(modules[step.owner]).__name__}, {step.source})"
    if step.owner_calls > 1:
        return (
            f"its addition is made by {owner}, which runs {step.owner_calls} times in one forward: "
            f"one gate there would act on all of them"
        )
    if isinstance(modules[step.owner], torch.jit.ScriptModule):
        return f"its addition is made by {owner}, which is scripted; insert before scripting"
    if step.overwrites and step.branch_operand == 0:
        return f"its addition in {owner} overwrites the branch in place"
    return ""


def _output_refusal(module: nn.Module, graph: Graph, name: str, node: Node | None) -> str:
    if isinstance(module, Attachment):
        return "it is a gate that attnlab inserted; name the module after which it acts"
    calls = graph.calls.get(name, 0)
    if calls == 0:
        return "the module did not run on the example"
    if calls > 1:
        return f"the module runs {calls} times in one forward: one gate would act on all of them"
    if node is None:
        return "the module does not return a single tensor"
    if len(node.shape) < 2:
        return f"its output has shape {node.shape}: no channels"
    return ""
