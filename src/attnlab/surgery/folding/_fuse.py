"""Merge what inference does not need apart: re-parameterisable blocks, and norms behind layers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd
from torch.nn.utils.fusion import fuse_conv_bn_weights, fuse_linear_bn_weights

from attnlab.residuals.example import Example, run_once
from attnlab.residuals.graph import Node, Ref
from attnlab.surgery.double import exchange
from attnlab.surgery.folding._flow import Flow, arguments
from attnlab.surgery.folding._plan import foldable_parameters

_METHODS = ("fuse", "reparameterize", "switch_to_deploy")  # what timm looks for


def fuse(network: nn.Module, example: Example | None) -> tuple[int, int]:
    """Fuse `network` in place and put it in eval mode; return how many blocks and norms went.

    Blocks that know how to merge themselves (ours, timm's) do; then each BatchNorm goes into the
    convolution or linear layer whose only reader it is. The new parameters are computed in the
    precision of the network: call it on a float64 copy to round once only.
    """
    from timm.utils import reparameterize_model

    network.eval()
    blocks = sum(_knows_how(module) for module in network.modules())
    parameter = next((p for p in network.parameters() if p.is_floating_point()), torch.empty(0))
    with torch.no_grad(), _default_dtype(parameter.dtype):
        reparameterize_model(network, inplace=True)
        norms = _fuse_norms(network, Flow(run_once(network, example).graph))
    return blocks, norms


def _knows_how(module: nn.Module) -> bool:
    return any(callable(getattr(module, method, None)) for method in _METHODS)


@contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    # Several of timm's blocks build their merged layer without saying a dtype.
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype if dtype in (torch.float32, torch.float64) else before)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _fuse_norms(network: nn.Module, flow: Flow) -> int:
    modules = dict(network.named_modules())
    own = foldable_parameters(network)
    count = 0
    for node in flow.nodes:
        if node.operation != "batch_norm" or not node.data:
            continue
        norm = modules[node.owner]
        layer = _layer_before(flow, node, modules, own)
        if layer is None or not isinstance(norm, _BatchNorm) or norm.running_mean is None:
            continue
        if flow.graph.calls[node.owner] != 1 or _does_more(norm) is None:
            continue
        _merge(layer, norm)
        rest = _does_more(norm)
        assert rest is not None
        exchange(network, norm, rest)
        count += 1
    return count


def _layer_before(
    flow: Flow, norm: Node, modules: dict[str, nn.Module], own: frozenset[str]
) -> nn.Module | None:
    """The layer whose output only `norm` reads and whose weight is its own, as it is stored."""
    node = flow.nodes[norm.inputs[0]]
    layer = modules[node.owner]
    if flow.readers[node.index] != [norm.index] or flow.graph.calls.get(node.owner) != 1:
        return None
    if not isinstance(layer, (_ConvNd, nn.Linear)) or node.kind not in ("convolution", "linear"):
        return None
    if isinstance(layer, _ConvTransposeNd) and layer.groups > 1:
        return None
    if isinstance(layer, nn.Linear) and len(node.shape) != 2:
        return None
    weight = arguments(node).get("weight")
    name = f"{node.owner}.weight"
    stored = isinstance(weight, Ref) and flow.nodes[weight.index].name == name
    return layer if stored and name in own else None


def _does_more(norm: _BatchNorm) -> nn.Module | None:
    """What is left of a norm without its normalisation; None where that is not known."""
    from timm.layers.norm_act import BatchNormAct2d

    if type(norm) in (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d):
        return nn.Identity()
    if type(norm) is not BatchNormAct2d:
        return None
    drop, activation = norm.get_submodule("drop"), norm.get_submodule("act")
    return activation if isinstance(drop, nn.Identity) else nn.Sequential(drop, activation)


def _merge(layer: nn.Module, norm: _BatchNorm) -> None:
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
