"""Scales that a network learned (LayerScale): into the layers before them, wherever they are.

For `fuse`, whose networks are for eval mode. They are found and walked back as by `fold`, which
takes those at the ends of steps' branches alone.
"""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor, nn

from attnlab.residuals.example import Example, run_once
from attnlab.residuals.graph import Graph
from attnlab.surgery.double import exchange
from attnlab.surgery.folding._flow import Flow
from attnlab.surgery.folding._ids import Refusal
from attnlab.surgery.folding._own_constants import Scale, scale_by_parameter, scaled_input
from attnlab.surgery.folding._plan import by_ids, check_sign, foldable_parameters, multiply
from attnlab.surgery.folding._walk import Demand, Scaling, walk_back


def merge_scales(network: nn.Module, example: Example | None) -> tuple[list[str], dict[str, str]]:
    """Multiply the scales into the layers before them; the parameters that went, and why others
    stay."""
    flow = Flow(run_once(network, example).graph)
    found = dict(_scales(network, flow.graph))
    # A scale that goes cannot take another.
    foldable = foldable_parameters(network) - found.keys()
    merged: list[str] = []
    left: dict[str, str] = {}
    may_be_absent: dict[tuple[type, str], bool] = {}
    for name, (scale, value) in found.items():
        try:
            scaling = _into(flow, scale, value, foldable)
            _take_out(network, flow.graph, scale, example, may_be_absent)
        except Refusal as reason:
            left[name] = str(reason)
        else:
            factors = {at: by_ids(value)[ids] for at, ids in scaling.parameters.items()}
            multiply(network, factors, scaling.offsets)
            merged.append(name)
    return merged, left


def _scales(network: nn.Module, graph: Graph) -> Iterator[tuple[str, tuple[Scale, Tensor]]]:
    """The parameters that multiply a tensor, each with its numbers; norms have theirs inside."""
    parameters = dict(network.named_parameters())
    for node in graph.nodes:
        source = scaled_input(graph, node)
        if source is not None:
            found = scale_by_parameter(network, graph, node, source, parameters)
            if found is not None:
                scale, value = found
                yield scale.name, (scale, value.detach().cpu().double().flatten())


def _into(flow: Flow, scale: Scale, value: Tensor, foldable: frozenset[str]) -> Scaling:
    """What takes the scale."""
    ids = scale.ids(flow.nodes[scale.source].shape)
    demand = Demand(scale.node, scale.source, ids)
    found = walk_back(flow, [demand], len(value), foldable)
    check_sign(value, found.not_negative)
    return found


def _take_out(
    network: nn.Module,
    graph: Graph,
    scale: Scale,
    example: Example | None,
    may_be_absent: dict[tuple[type, str], bool],
) -> None:
    """Take the multiplication out of the network: the module that does nothing else, or a parameter
    that may be absent."""
    module = network.get_submodule(scale.module)
    if scale.alone:
        exchange(network, module, nn.Identity())
        return
    kind = (type(module), scale.attribute)
    parameter = module._parameters[scale.attribute]
    module._parameters[scale.attribute] = None
    if kind not in may_be_absent:  # tried once for all blocks of a class: a run may take seconds
        try:
            after = run_once(network, example).graph
            may_be_absent[kind] = len(after.nodes) < len(graph.nodes)
        except Exception:  # its forward needs the parameter
            may_be_absent[kind] = False
    if not may_be_absent[kind]:
        module._parameters[scale.attribute] = parameter
        raise Refusal(f"the forward of {type(module).__name__} multiplies by it itself")
