"""Scales per channel that a network learned (LayerScale): into the layer before them.

For `fuse`, which may take out any of them, for eval mode. `_own_constants` finds those at the ends
of steps' branches for `fold`, whose networks go on training.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from attnlab.residuals.example import Example, run_once
from attnlab.residuals.graph import Node, Ref, axis_order
from attnlab.surgery.double import exchange
from attnlab.surgery.folding._branches import constant_value
from attnlab.surgery.folding._flow import Flow, arguments, viewed
from attnlab.surgery.folding._ids import Refusal
from attnlab.surgery.folding._plan import foldable_parameters

_PASSES = ("dropout", "identity", "contiguous", "clone", "detach")


@dataclass(frozen=True)
class _Scale:
    """A multiplication by a parameter, and the layer that can take it."""

    parameter: str
    node: Node
    layer: nn.Module
    values: Tensor


def merge_scales(network: nn.Module, example: Example | None) -> tuple[list[str], dict[str, str]]:
    """Multiply the scales into the layers before them; the parameters that went, and why others
    stay."""
    flow = Flow(run_once(network, example).graph)
    own = foldable_parameters(network)
    merged: list[str] = []
    left: dict[str, str] = {}
    may_be_absent: dict[tuple[type, str], bool] = {}
    for node in flow.nodes:
        name = _scale_of(flow, node)
        if name is None or not node.data:
            continue
        try:
            if name not in own:
                raise Refusal("it is shared by several modules")
            scale = _read(network, flow, node, name, own)
            _take_out(network, flow, scale, example, may_be_absent)
        except Refusal as reason:
            left[name] = str(reason)
        else:
            _into_layer(scale.layer, scale.values)
            merged.append(name)
    return merged, left


def _scale_of(flow: Flow, node: Node) -> str | None:
    """The parameter by which a tensor is multiplied per channel, if that is what `node` does."""
    if node.operation != "mul" or len(node.data_inputs) != 1 or len(node.inputs) != 2:
        return None
    (other,) = (i for i in node.inputs if i != node.data_inputs[0])
    factor, _ = viewed(flow.nodes, flow.nodes[other])
    shape = flow.nodes[other].shape
    values = [side for side in shape if side > 1]
    fits = len(values) == 1 and len(shape) <= len(node.shape)
    return factor.name if factor.name and fits else None


def _read(network: nn.Module, flow: Flow, node: Node, name: str, own: frozenset[str]) -> _Scale:
    (other,) = (i for i in node.inputs if i != node.data_inputs[0])
    shape = flow.nodes[other].shape
    axis = len(node.shape) - len(shape) + next(i for i, side in enumerate(shape) if side > 1)
    (before,) = node.data_inputs
    reader = node.index
    while True:
        if flow.readers[before] != [reader] or before in flow.graph.outputs:
            raise Refusal("what it scales is read elsewhere as well")
        layer_node = flow.nodes[before]
        if layer_node.kind in ("convolution", "linear"):
            break
        axis = _axis_before(layer_node, axis)
        reader, (before,) = before, layer_node.data_inputs
    layer = network.get_submodule(layer_node.owner)
    if not isinstance(layer, _ConvNd | nn.Linear):
        raise Refusal(f"{layer_node.owner} before it is not a layer of torch.nn")
    out = len(layer_node.shape) - 1 if isinstance(layer, nn.Linear) else 1
    weight = arguments(layer_node).get("weight")
    stored = isinstance(weight, Ref) and flow.nodes[weight.index].name in own
    if axis != out or not stored or flow.graph.calls.get(layer_node.owner) != 1:
        raise Refusal(f"{layer_node.owner} before it cannot take it")
    if isinstance(layer, _ConvTransposeNd):
        raise Refusal(f"{layer_node.owner} before it is a transposed convolution")
    return _Scale(name, node, layer, constant_value(network, flow, Ref(other)).reshape(-1))


def _axis_before(node: Node, axis: int) -> int:
    """Where the axis was before the node moved it."""
    if len(node.data_inputs) == 1 and not node.random:
        if node.operation in _PASSES:
            return axis
        if node.operation in ("permute", "transpose"):
            return axis_order(node, len(node.shape))[axis]
    raise Refusal(f"it comes after {node.operation}, which is not a layer")


def _take_out(
    network: nn.Module,
    flow: Flow,
    scale: _Scale,
    example: Example | None,
    may_be_absent: dict[tuple[type, str], bool],
) -> None:
    """Take the multiplication out of the network: the module that does nothing else, or a parameter
    that may be absent."""
    owner, _, name = scale.parameter.rpartition(".")
    module = network.get_submodule(owner)
    calls = [n for n in flow.nodes if n.owner == owner and n.data]
    inner = any(module.children())
    if calls == [scale.node] and len(module._parameters) == 1 and not inner and owner:
        exchange(network, module, nn.Identity())
        return
    kind = (type(module), name)
    parameter = module._parameters[name]
    module._parameters[name] = None
    if kind not in may_be_absent:  # tried once for all blocks of a class: a run may take seconds
        try:
            after = run_once(network, example).graph
            may_be_absent[kind] = len(after.nodes) < len(flow.nodes)
        except Exception:  # its forward needs the parameter
            may_be_absent[kind] = False
    if not may_be_absent[kind]:
        module._parameters[name] = parameter
        raise Refusal(f"the forward of {type(module).__name__} multiplies by it itself")


def _into_layer(layer: nn.Module, values: Tensor) -> None:
    assert isinstance(layer, _ConvNd | nn.Linear)
    trains = layer.weight.requires_grad
    axes = layer.weight.ndim - 1
    layer.weight = nn.Parameter(layer.weight * values.reshape(-1, *[1] * axes), trains)
    if layer.bias is not None:
        layer.bias = nn.Parameter(layer.bias * values, trains)
