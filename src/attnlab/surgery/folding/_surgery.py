"""Decide on a fold as a whole, and perform it on any copy of the network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from attnlab._errors import FoldError
from attnlab.gates import ConstantGate
from attnlab.residuals.attachment import BranchAttachment
from attnlab.residuals.example import Example, run_once
from attnlab.residuals.graph import Graph
from attnlab.residuals.recorder import RecordedWhole
from attnlab.surgery.double import copied, exchange
from attnlab.surgery.folding._flow import Flow
from attnlab.surgery.folding._ids import Refusal
from attnlab.surgery.folding._places import Place
from attnlab.surgery.folding._plan import Plan, factors, multiply, offsets, plan
from attnlab.surgery.folding.structure import add_affine
from attnlab.surgery.insertion import attachments, remove_attachments


@dataclass(frozen=True)
class Surgery:
    """Everything that is done to the network."""

    places: tuple[Place, ...]
    decided: Plan
    product: dict[str, Tensor]
    """What each parameter is multiplied by."""
    affine: tuple[str, ...]
    """The norms that are given affine parameters."""

    def leaving(self, network: nn.Module) -> list[nn.Module]:
        """The constant gates of `network` that go with all their attachments: a copy on which this
        is performed need not have them."""
        folded = {held.name for place in self.places for held in place.folded}
        found = dict(attachments(network))
        kept = {id(each.gate_module) for name, each in found.items() if name not in folded}
        going = {
            id(gate): gate
            for each in found.values()
            if isinstance(each, BranchAttachment)
            and isinstance(gate := each.gate_module, ConstantGate)
        }
        return [gate for number, gate in going.items() if number not in kept]

    def perform(self, network: nn.Module) -> None:
        """Take the folded gates off `network` and multiply its parameters."""
        remove_attachments(
            network, keep=frozenset(held.name for p in self.places for held in p.kept)
        )
        for place in self.places:
            if place.scale is not None and place.folded:
                place.scale.take_out(network)
            elif place.is_module and place.folded:
                exchange(network, network.get_submodule(place.site.module), nn.Identity())
        for name in self.affine:
            add_affine(network, name)
        multiply(network, self.product, offsets(self.decided))


class _InPlace(RecordedWhole):
    """Stands where an attention module of the network was, and is one node of the recorded run."""

    def forward(self, branch: Tensor) -> Tensor:
        return branch.clone()


def _flow(
    model: nn.Module,
    graph: Graph,
    places: Sequence[Place],
    affine: Sequence[str],
    example: Example | None,
) -> tuple[nn.Module, Flow]:
    """The network that is to take the gates, and its run: if it has other modules then than now,
    another run than `graph`, which is that of `model`."""
    own = [place.site.module for place in places if place.is_module and place.folded]
    if not own and not affine:
        return model, Flow(graph)
    changed = copied(model)
    for name in own:
        exchange(changed, changed.get_submodule(name), _InPlace())
    for name in affine:
        add_affine(changed, name)
    return changed, Flow(run_once(changed, example).graph)


def decide(
    model: nn.Module,
    graph: Graph,
    places: Sequence[Place],
    example: Example | None,
    *,
    partial: bool,
    may_add_affine: bool,
) -> Surgery:
    """Places and plan, until every gate that is not kept has a layer to go to; `graph` is a run of
    `model` on the example."""
    affine: list[str] = []
    while True:
        decided = plan(*_flow(model, graph, places, affine, example), places)
        refused = {key: why for key, why in decided.items() if isinstance(why, Refusal)}
        if not refused:
            return Surgery(tuple(places), decided, factors(places, decided), tuple(affine))
        norms = [why.norm for why in refused.values() if why.norm and why.norm not in affine]
        if may_add_affine and norms:
            affine += dict.fromkeys(norms)
        elif partial:
            # A gate that stays after all stands in the way of others, so all is decided again.
            places = [
                place.keeping(str(refused[place.key])) if place.key in refused else place
                for place in places
            ]
        else:
            raise refusal_error(
                [(place, str(refused[place.key])) for place in places if place.key in refused],
                len(places),
                _advice(
                    bool(norms),
                    sum(bool(place.folded) for place in places) > len(refused),
                    any(place.scale is None for place in places),
                ),
            )


def refusal_error(items: list[tuple[Place, str]], total: int, advice: str) -> FoldError:
    """The error that names every site whose gates cannot be folded, with the reason."""
    listed = "\n".join(f"  {place.name}: {reason}." for place, reason in items)
    return FoldError(
        f"The gates of {len(items)} of {total} sites cannot be folded:\n{listed}\n{advice}"
    )


def _advice(norms: bool, others: bool, inserted: bool) -> str:
    """`norms`: some could take a gate if they were affine. `others`: some gates do fold.
    `inserted`: they are not constants of the network itself."""
    advice = []
    if norms:
        advice.append(
            "Give norms without affine parameters some, which adds keys: add_affine=True."
        )
    if others:
        advice.append("Keep the gates there and fold the others: partial=True.")
    if not advice and not inserted:
        advice.append("The network keeps them.")
    elif not advice:
        advice.append(
            "None of them folds where it is. Put them after layers that can take them when you "
            "insert (where=[names of norms or convolutions], for asr also place='norm'), and train "
            "again."
        )
    return " ".join(advice)
