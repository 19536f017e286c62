"""Hyper-connections hand their streams on from step to step: which follow which, and that nothing
else changes the state in between."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from attnlab._errors import OptionError, SiteError
from attnlab.residuals.attachment import Attachment, StreamsAttachment
from attnlab.residuals.graph import Graph
from attnlab.residuals.steps import Step


def join_streams(graph: Graph, came: Sequence[Attachment]) -> list[str]:
    """Join those of `came` that keep streams into one chain per stage; return what to know."""
    stages: dict[int, list[StreamsAttachment]] = {}
    for each in came:
        if isinstance(each, StreamsAttachment):
            if each.owner is not each:
                raise OptionError(
                    "shared=True is one gate for the chosen blocks of a stage, and "
                    "hyper-connections read another stream in each. Leave it out."
                )
            stages.setdefault(each.site.series, []).append(each)
    for chain in stages.values():
        chain.sort(key=lambda each: _step(each).graph_node)
        for one, following in pairwise(chain):
            _check_follows(graph, _step(one), _step(following))
        for number, each in enumerate(chain):
            each.chain, each.memory = tuple(chain), chain[0].memory
            # Set here, in the network's own type: a third in float32 is no third in float64.
            each.hyper.read_one(None if each is chain[-1] else number + 1)
    if not stages:
        return []
    lengths = ", ".join(str(len(chain)) for chain in stages.values())
    return [
        f"streams are kept over {lengths} steps; what follows the last reads their mean, and the "
        f"instruments see what is read"
    ]


def _step(attachment: Attachment) -> Step:
    assert attachment.site.step is not None
    return attachment.site.step


def _check_follows(graph: Graph, one: Step, following: Step) -> None:
    if graph.before_layout(following.shortcut_node) == one.graph_node:
        return
    why = f"{one.activation} follows it" if one.activation else "another step or a norm is between"
    raise SiteError(
        f"Hyper-connections keep streams from step to step, but what step {following.label} "
        f"({following.name}) adds to is not what step {one.label} ({one.name}) made: {why}. Choose "
        f"steps that follow one another (where=...), in a network that keeps its state as it is "
        f"from addition to addition (pre-norm)."
    )
