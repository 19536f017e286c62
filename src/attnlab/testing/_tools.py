"""What people do to a network after gates went in: lists of tools, for the law in `_law`."""

from __future__ import annotations

import copy
import io
import itertools
import pickle
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

Network = Callable[[Tensor], Any]


@dataclass(frozen=True)
class Tool:
    """Something that makes a network into another one that should answer the same."""

    name: str
    use: Callable[[nn.Module, Tensor], Network]
    """Gets a network in eval mode, which it may change, and images; returns what runs instead."""
    tolerance: float = 1e-4
    """How far its own networks are off, as a part of the largest output."""

    def __str__(self) -> str:
        return self.name


def exchanging_tools() -> list[Tool]:
    """Tools that exchange modules of a network. They take milliseconds."""
    import timm.layers
    import timm.utils
    from torch.fx import symbolic_trace
    from torch.fx.experimental.optimization import fuse
    from torch.optim.swa_utils import AveragedModel

    return [
        Tool("copy.deepcopy", lambda network, _: copy.deepcopy(network)),
        Tool("pickle", lambda network, _: pickle.loads(pickle.dumps(network))),
        Tool("AveragedModel", lambda network, _: AveragedModel(network)),
        Tool("SyncBatchNorm", lambda n, _: nn.SyncBatchNorm.convert_sync_batchnorm(n)),
        Tool("timm convert_sync_batchnorm", lambda n, _: timm.layers.convert_sync_batchnorm(n)),
        Tool("timm freeze", _timm_freeze),
        Tool("timm freeze_batch_norm_2d", lambda n, _: timm.layers.freeze_batch_norm_2d(n)),
        Tool("timm reparameterize_model", lambda n, _: timm.utils.reparameterize_model(n)),
        Tool("torch.fx symbolic_trace", lambda network, _: symbolic_trace(network)),
        Tool("torch.fx fuse", lambda network, _: fuse(network)),
        Tool("torch.ao fuse_modules", _fuse_modules),
        Tool("create_feature_extractor", _feature_extractor),
        Tool("all forward hooks cleared", _clear_hooks),
    ]


def compiling_tools() -> list[Tool]:
    """Tools that make a graph or another format of a network. They take seconds."""
    return [
        Tool("torch.ao quantize_fx", _quantize_fx, tolerance=0.05),
        Tool("torch.compile", _compile),
        Tool("torch.export", lambda n, x: _export(n, x, strict=False)),
        Tool("torch.export strict", lambda n, x: _export(n, x, strict=True)),
        Tool("torch.jit.trace", lambda network, images: torch.jit.trace(network, images)),
        Tool("torch.jit.script", lambda network, _: torch.jit.script(network)),
        Tool("torch.save", _saved_whole),
    ]


def _timm_freeze(network: nn.Module, images: Tensor) -> nn.Module:
    import timm.utils

    del images
    timm.utils.freeze(network)
    return network


def _fuse_modules(network: nn.Module, images: Tensor) -> nn.Module:
    """Fuse all pairs of a convolution and the norm that is the next child."""
    from torch.ao.quantization import fuse_modules

    del images
    pairs = []
    for name, module in network.named_modules():
        children = list(module.named_children())
        for (first, conv), (second, norm) in itertools.pairwise(children):
            if type(conv) is nn.Conv2d and type(norm) is nn.BatchNorm2d:
                pairs.append([f"{name}.{each}".strip(".") for each in (first, second)])
    fused: nn.Module = fuse_modules(network, pairs) if pairs else network
    return fused


def _feature_extractor(network: nn.Module, images: Tensor) -> Network:
    """Extract the network's last node as the one feature."""
    from torchvision.models.feature_extraction import (
        create_feature_extractor,
        get_graph_node_names,
    )

    del images
    last = get_graph_node_names(network)[1][-1]
    extractor = create_feature_extractor(network, {last: "output"})
    return lambda images: extractor(images)["output"]


def _clear_hooks(network: nn.Module, images: Tensor) -> nn.Module:
    del images
    for module in network.modules():
        module._forward_hooks.clear()
    return network


def _quantize_fx(network: nn.Module, images: Tensor) -> nn.Module:
    from torch.ao.quantization import get_default_qconfig_mapping
    from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

    prepared = prepare_fx(network, get_default_qconfig_mapping("x86"), (images,))
    prepared(images)
    quantised: nn.Module = convert_fx(prepared)
    return quantised


def _compile(network: nn.Module, images: Tensor) -> Network:
    """Compile into one graph; the backend aot_eager needs no C compiler."""
    del images
    torch.compiler.reset()
    compiled: Network = torch.compile(network, fullgraph=True, backend="aot_eager")
    return compiled


def _export(network: nn.Module, images: Tensor, strict: bool) -> nn.Module:
    return torch.export.export(network, (images,), strict=strict).module()


def _saved_whole(network: nn.Module, images: Tensor) -> nn.Module:
    del images
    file = io.BytesIO()
    torch.save(network, file)
    file.seek(0)
    loaded: nn.Module = torch.load(file, weights_only=False)  # written a line above
    return loaded


def use_quietly(tool: Tool, network: nn.Module, images: Tensor) -> Network:
    """Use a tool without its own deprecations and warnings, which are not the gates' business."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return tool.use(network, images)
