"""Merge what inference does not need apart: re-parameterisable blocks, branches, norms, scales."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd
from torch.nn.utils.fusion import fuse_conv_bn_weights, fuse_linear_bn_weights

from attnlab.residuals.example import Example, call, evaluating, run_once
from attnlab.residuals.graph import Node, Ref
from attnlab.surgery.double import double_example, exchange
from attnlab.surgery.folding._blocks import merge_blocks
from attnlab.surgery.folding._branches import PLAIN_NORMS, find_branches
from attnlab.surgery.folding._flow import Flow, arguments
from attnlab.surgery.folding._ids import Refusal
from attnlab.surgery.folding._plan import foldable_parameters
from attnlab.surgery.folding._scales import merge_scales

_ROUNDS = 4
"""Sums of sums are merged from the inside out; no block that we know needs more than two."""


@dataclass(frozen=True)
class Merged:
    """What was merged in a network, by the names that the modules had, and what was not."""

    blocks: tuple[str, ...]
    """Blocks that merged themselves."""
    branches: tuple[str, ...]
    """Modules whose sum of branches became one convolution."""
    norms: tuple[str, ...]
    scales: tuple[str, ...]
    left: tuple[tuple[str, str], ...]
    """Modules that look as if they could be merged, each with the reason why it stays."""

    @property
    def in_words(self) -> str:
        """How many of each kind were merged, in words."""
        counts = {
            "re-parameterisable block": len(self.blocks) + len(self.branches),
            "norm": len(self.norms),
            "scale": len(self.scales),
        }
        said = [f"{n} {what}{'' if n == 1 else 's'}" for what, n in counts.items()]
        return " and ".join(said[: 3 if self.scales else 2])


def merge_in_double(network: nn.Module, example: Example | None) -> Merged:
    """Merge in float64 if the network has one precision, so that values are rounded once."""
    dtypes = {p.dtype for p in (*network.parameters(), *network.buffers()) if p.is_floating_point()}
    if len(dtypes) != 1:
        return merge_layers(network, example)
    (dtype,) = dtypes
    try:
        return merge_layers(network.double(), double_example(network, example))
    finally:
        network.to(dtype)


def merge_layers(network: nn.Module, example: Example | None) -> Merged:
    """Merge what can be in `network` itself, and put it in eval mode.

    Blocks that know how to merge themselves do, if their own method gives the same output; then
    sums of linear branches become one convolution; then each BatchNorm goes into the layer next to
    it, and scales per channel into the layer before them. The new parameters are computed in the
    precision of the network.
    """
    network.eval()
    parameter = next((p for p in network.parameters() if p.is_floating_point()), torch.empty(0))
    with torch.no_grad(), _default_dtype(parameter.dtype):
        blocks, left = merge_blocks(network, example)
        branches, refused = _merge_branches(network, example)
        flow = Flow(run_once(network, example).graph)
        norms, stay = _merge_norms(network, flow)
        scales, more = merge_scales(network, example)
    kept = {name: why for name, why in left.items() if name not in branches}
    reasons = {**kept, **refused, **stay, **more}
    return Merged(
        tuple(blocks), tuple(branches), tuple(norms), tuple(scales), tuple(reasons.items())
    )


@contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    # Several of timm's blocks build their merged layer without saying a dtype.
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype if dtype in (torch.float32, torch.float64) else before)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _merge_branches(
    network: nn.Module, example: Example | None
) -> tuple[list[str], dict[str, str]]:
    merged: list[str] = []
    refused: dict[str, str] = {}
    for _ in range(_ROUNDS):
        found, refused = find_branches(network, Flow(run_once(network, example).graph))
        found = [each for each in found if each.name not in refused]
        if not found:
            break
        for each in found:
            exchange(network, each.module, each.merged)
        try:
            with evaluating(network):
                call(network, example)
        except Exception as error:  # its owner reads an attribute of the module, or more
            for each in found:
                exchange(network, each.merged, each.module)
            why = str(error.__cause__ or error).splitlines()[0]
            refused |= {each.name: f"without it the network does not run: {why}" for each in found}
            break
        merged += [each.name for each in found]
    return merged, refused


def _merge_norms(network: nn.Module, flow: Flow) -> tuple[list[str], dict[str, str]]:
    """Merge norms into layers; the names of those that went, and why the others stay."""
    modules = dict(network.named_modules())
    nodes = {n.owner: n for n in flow.nodes if n.operation == "batch_norm" and n.data}
    own = foldable_parameters(network)
    merged: list[str] = []
    left: dict[str, str] = {}
    for name, norm in modules.items():
        if not isinstance(norm, _BatchNorm):
            continue
        try:
            rest = _without_norm(norm, nodes.get(name), flow.graph.calls.get(name, 0))
            _merge_norm(flow, nodes[name], modules, own, norm)
        except Refusal as reason:
            left[name] = str(reason)
        else:
            exchange(network, norm, rest)
            merged.append(name)
    return merged, left


def _merge_norm(
    flow: Flow, node: Node, modules: dict[str, nn.Module], own: frozenset[str], norm: _BatchNorm
) -> None:
    try:
        _into_layer_before(_layer_before(flow, node, modules, own), norm)
    except Refusal as reason:
        if type(norm) not in PLAIN_NORMS:
            raise
        try:
            layer = _layer_after(flow, node, modules, own)
        except Refusal as other:
            raise Refusal(f"{reason}, and {other}") from None
        _into_layer_after(layer, norm)


def _without_norm(norm: _BatchNorm, node: Node | None, calls: int) -> nn.Module:
    """What is left of a norm without its normalisation."""
    from timm.layers.norm_act import BatchNormAct2d

    if norm.running_mean is None:
        raise Refusal("it has no running statistics, so it depends on the batch")
    if not calls:
        raise Refusal("it is not called in eval mode")
    if calls > 1 or node is None:
        raise Refusal("it is called more than once" if calls > 1 else "its forward is not known")
    if type(norm) in PLAIN_NORMS:
        return nn.Identity()
    if type(norm) is not BatchNormAct2d:
        raise Refusal(f"what a {type(norm).__name__} does besides is not known")
    drop, activation = norm.get_submodule("drop"), norm.get_submodule("act")
    return activation if isinstance(drop, nn.Identity) else nn.Sequential(drop, activation)


def _layer_before(
    flow: Flow, norm: Node, modules: dict[str, nn.Module], own: frozenset[str]
) -> nn.Module:
    """The layer whose output only `norm` reads and whose weight is its own, as it is stored."""
    node = flow.nodes[norm.inputs[0]]
    if flow.readers[node.index] != [norm.index]:
        raise Refusal(f"what it reads ({node.owner or node.operation}) is read elsewhere as well")
    layer = _own_layer(flow, node, modules, own, "after")
    if isinstance(layer, _ConvTransposeNd) and layer.groups > 1:
        raise Refusal(f"{node.owner} is a transposed convolution in groups")
    return layer


def _layer_after(
    flow: Flow, norm: Node, modules: dict[str, nn.Module], own: frozenset[str]
) -> nn.Module:
    """The layer that alone reads what `norm` returns, and does not pad it."""
    readers = flow.readers[norm.index]
    if len(readers) != 1 or norm.index in flow.graph.outputs:
        raise Refusal(f"{len(readers)} operations read what it returns")
    node = flow.nodes[readers[0]]
    layer = _own_layer(flow, node, modules, own, "before")
    if isinstance(layer, _ConvTransposeNd):
        raise Refusal(f"{node.owner} after it is a transposed convolution")
    if isinstance(layer, _ConvNd) and layer.padding not in ("valid", (0,) * len(layer.kernel_size)):
        raise Refusal(f"{node.owner} after it pads with zeros")
    return layer


def _own_layer(
    flow: Flow, node: Node, modules: dict[str, nn.Module], own: frozenset[str], side: str
) -> nn.Module:
    layer = modules[node.owner]
    if not isinstance(layer, (_ConvNd, nn.Linear)) or node.kind not in ("convolution", "linear"):
        raise Refusal(f"it comes {side} {node.operation}, which is not a layer")
    if flow.graph.calls.get(node.owner) != 1:
        raise Refusal(f"{node.owner} is called more than once")
    if isinstance(layer, nn.Linear) and len(node.shape) != 2:
        raise Refusal(f"its channels are not those of {node.owner}, a linear layer over tokens")
    weight = arguments(node).get("weight")
    name = f"{node.owner}.weight"
    stored = isinstance(weight, Ref) and flow.nodes[weight.index].name == name
    if not stored or name not in own:
        raise Refusal(f"the weight of {node.owner} is shared or computed")
    return layer


def _into_layer_before(layer: nn.Module, norm: _BatchNorm) -> None:
    assert isinstance(layer, (_ConvNd, nn.Linear))
    assert norm.running_mean is not None
    assert norm.running_var is not None
    values = (norm.running_mean, norm.running_var, norm.eps, norm.weight, norm.bias)
    trains = layer.weight.requires_grad
    if isinstance(layer, nn.Linear):
        weight, bias = fuse_linear_bn_weights(layer.weight, layer.bias, *values)
    else:
        transposed = isinstance(layer, _ConvTransposeNd)
        weight, bias = fuse_conv_bn_weights(layer.weight, layer.bias, *values, transposed)
    layer.weight = weight.requires_grad_(trains)
    layer.bias = bias.requires_grad_(trains)


def _into_layer_after(layer: nn.Module, norm: _BatchNorm) -> None:
    assert isinstance(layer, (_ConvNd, nn.Linear))
    assert norm.running_mean is not None
    assert norm.running_var is not None
    scale = (norm.running_var + norm.eps).rsqrt()
    scale = scale if norm.weight is None else scale * norm.weight
    shift = -norm.running_mean * scale
    shift = shift if norm.bias is None else shift + norm.bias
    groups = layer.groups if isinstance(layer, _ConvNd) else 1
    weight, trains = layer.weight, layer.weight.requires_grad
    by_group = weight.reshape(groups, weight.shape[0] // groups, weight.shape[1], -1)
    scales, shifts = (each.reshape(groups, 1, -1, 1) for each in (scale, shift))
    moved = (by_group * shifts).sum((2, 3)).reshape(-1)
    bias = moved if layer.bias is None else layer.bias + moved
    layer.weight = nn.Parameter((by_group * scales).reshape(weight.shape), trains)
    layer.bias = nn.Parameter(bias.detach().clone(), trains)
