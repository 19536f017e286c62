"""Build a gate for each site and attach it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import chain
from typing import NamedTuple

import torch
from torch import nn

from attnlab._errors import OptionError, SiteError
from attnlab.gates import (
    BranchGate,
    CarryGate,
    ConstantGate,
    Gate,
    HyperConnections,
    StageGate,
    StepGate,
)
from attnlab.residuals.adapters import mark_adapters
from attnlab.residuals.attachment import (
    Attachment,
    BranchAttachment,
    CarryAttachment,
    HeadsAttachment,
    OwnedAttachment,
    StageAttachment,
    StageMemory,
    StepAttachment,
    StreamsAttachment,
)
from attnlab.residuals.site import Site
from attnlab.residuals.steps import StepKey
from attnlab.surgery.insertion._resolve import Resolved
from attnlab.surgery.insertion.host import attachments, hang


class Tokens(NamedTuple):
    """The sites at which a gate looks over all tokens of a sequence."""

    over: Collection[Site] = ()
    beside: Collection[StepKey] = ()
    """The steps where they are not the tokens that the network's mask tells of."""

    def tell(self, attachment: Attachment) -> None:
        """Let the gate know it."""
        attachment.over_tokens = attachment.site in self.over
        step = attachment.site.step
        attachment.beside = step is not None and step.key in self.beside


def attach_gate(
    network: nn.Module,
    item: Resolved,
    sites: Sequence[Site],
    start: str,
    tokens: Tokens,
    *,
    shared: bool = False,
) -> None:
    """Attach a gate of `item` at each of `sites`; of a stage gate, and of others with `shared`, one
    per stage."""
    mark_adapters(network)
    if item.form == "stage":
        _attach_stage_gates(network, item, sites, start, tokens)
        return
    owners: dict[tuple[int, int], tuple[OwnedAttachment, float | None]] = {}
    # First those at additions: gates draw their first weights in this order.
    for site in sorted(sites, key=lambda site: site.host != "addition"):
        stage = (site.series, site.channels)
        if shared and stage in owners:
            owner, scale = owners[stage]
            borrowed = _attachment(network, owner.gate_module, site, scale, owner)
            tokens.tell(borrowed)
            hang(network, borrowed)
            continue
        gate = item.build(site).requires_grad_(item.trainable)
        scale = _started(gate, start)
        attachment = _attachment(network, gate, site, scale)
        tokens.tell(attachment)
        owners[stage] = attachment, scale
        hang(network, attachment)


def _attach_stage_gates(
    network: nn.Module,
    item: Resolved,
    sites: Sequence[Site],
    start: str,
    tokens: Tokens,
) -> None:
    series: dict[tuple[int, int], list[Site]] = {}
    for site in sites:
        series.setdefault((site.series, site.channels), []).append(site)
    for members in series.values():
        gate, memory = item.build(members[0]).requires_grad_(item.trainable), StageMemory()
        if not isinstance(gate, StageGate):
            raise OptionError(f"Expected a StageGate but {item.label} built {type(gate).__name__}.")
        _match(network, gate, members[0])
        scale = _started(gate, start)
        for site in members:
            attachment = StageAttachment(
                gate,
                memory,
                site,
                first=site is members[0],
                last=site is members[-1],
                scale=scale,
            )
            _match(network, attachment, site)
            tokens.tell(attachment)
            hang(network, attachment)


def _started(gate: nn.Module, start: str) -> float | None:
    if start == "paper":
        return None
    assert isinstance(gate, Gate)
    return 1.0 / gate.start_constant()


def _attachment(
    network: nn.Module,
    gate: nn.Module,
    site: Site,
    scale: float | None,
    owner: OwnedAttachment | None = None,
) -> OwnedAttachment:
    attachment: OwnedAttachment
    if site.host == "input" and isinstance(gate, StepGate):
        if not gate.at_heads:
            raise SiteError(
                f"{type(gate).__name__} reads both ends of a step, and in front of an output "
                f"projection there is none. Leave place='heads' out, or choose 'head' or 'element'."
            )
        attachment = HeadsAttachment(gate, site, scale, owner=owner)
    elif isinstance(gate, HyperConnections):
        attachment = StreamsAttachment(gate, site, scale, owner=owner)
    elif isinstance(gate, CarryGate):
        attachment = CarryAttachment(gate, site, scale, owner=owner)
    elif isinstance(gate, StepGate):
        attachment = StepAttachment(gate, site, scale, owner=owner)
    elif isinstance(gate, BranchGate):
        attachment = BranchAttachment(gate, site, scale, owner=owner)
    else:
        raise SiteError(
            f"Expected a gate (a subclass of attnlab.gates.BranchGate, StepGate or StageGate) "
            f"but got {type(gate).__name__}."
        )
    _match(network, attachment, site)
    return attachment


def _match(network: nn.Module, module: nn.Module, site: Site) -> None:
    """Give a new module the dtype, device and mode of its host."""
    host = network.get_submodule(site.home)
    # Lazily: the first parameter decides, and this runs for every gate of a deep network.
    parameters = chain(host.parameters(), network.parameters())
    reference = next((p for p in parameters if p.is_floating_point()), torch.empty(0))
    wanted = (reference.device, reference.dtype)
    # `to` rebuilds its closures and walks twice, and the attachment of a gate comes after the gate.
    if any(
        (each.device, each.dtype) != wanted for each in chain(module.parameters(), module.buffers())
    ):
        module.to(*wanted)
    if module.training != host.training:
        module.train(host.training)


_SMALL = 0.1
"""Below this a note says how small a gate is."""


def start_notes(network: nn.Module, sites: Sequence[Site]) -> list[str]:
    """Return what to know of the constant gates at `sites`, which were just attached, as they
    start."""
    chosen = {(site.home, site.label) for site in sites}
    gates = [
        attachment.gate_module
        for _, attachment in attachments(network)
        if (attachment.site.home, attachment.site.label) in chosen
        and isinstance(attachment.gate_module, ConstantGate)
    ]
    notes = []
    with torch.no_grad():
        first = [gate.constant().abs().mean() for gate in gates]
    values = [value.item() for value in first if not value.is_meta]
    if values and max(values) < _SMALL:
        notes.append(
            f"the gates start at {min(values):.3g} to {max(values):.3g}, so the network starts "
            f"nearly without its branches, as with a layer scale: train it with Adam or AdamW; a "
            f"trained network loses what it knows"
        )
    if any(_equal_units(gate) for gate in gates):
        notes.append(
            "all hidden units of a gate start equal and stay equal for ever (layer_initial): "
            "layer_spread=0.5 lets them part and starts with the same gate, layer_initial=None "
            "starts with random layers"
        )
    return notes


def _equal_units(gate: nn.Module) -> bool:
    """Whether a layer has several units, all with the same weights."""
    return any(
        layer.weight.ndim > 1
        and not layer.weight.is_meta
        and len(layer.weight) > 1
        and bool((layer.weight == layer.weight[:1]).all())
        for layer in gate.modules()
        if isinstance(layer, nn.Linear | nn.modules.conv._ConvNd)
    )
