"""Small transformers, and their residual updates seen by hooks that are written by hand."""

from __future__ import annotations

from typing import NamedTuple

import timm
import torch
import transformers
from torch import Tensor, nn

WIDTH = 24


class Update(NamedTuple):
    """One residual addition, as the hooks saw it."""

    before: Tensor
    branch: Tensor
    after: Tensor
    """After the norm of a post-norm network."""


def bert(layers: int = 4) -> transformers.BertModel:
    torch.manual_seed(0)
    sizes = {"hidden_size": WIDTH, "num_attention_heads": 2, "intermediate_size": 48}
    config = transformers.BertConfig(vocab_size=50, num_hidden_layers=layers, **sizes)
    model = transformers.BertModel(config)
    for module in model.modules():  # norms that do more than normalise, steps that are unlike
        if isinstance(module, nn.LayerNorm):
            nn.init.uniform_(module.weight, 0.5, 2.0)
            nn.init.uniform_(module.bias, -0.5, 0.5)
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=0.3)
    return model.double().eval()


def bert_updates(model: nn.Module, **inputs: Tensor) -> list[Update]:
    """In the order of execution: attention and MLP of every layer."""
    seen: list[Update] = []

    def hook(module: nn.Module, given: tuple[Tensor, Tensor], output: Tensor) -> None:
        hidden, before = given
        seen.append(Update(before, module.dense(hidden), output))

    handles = []
    for layer in model.encoder.layer:
        handles.append(layer.attention.output.register_forward_hook(hook))
        handles.append(layer.output.register_forward_hook(hook))
    with torch.no_grad():
        model(**inputs)
    for handle in handles:
        handle.remove()
    return seen


def vit(**options: object) -> nn.Module:
    torch.manual_seed(0)
    sizes = {"embed_dim": WIDTH, "depth": 4, "num_heads": 2, "num_classes": 5}
    model = timm.create_model(
        "vit_tiny_patch16_224", img_size=32, patch_size=8, **{**sizes, **options}
    )
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    return model.double().eval()


def vit_updates(model: nn.Module, images: Tensor) -> list[Update]:
    """x, f, x + f of every addition of timm's blocks, from the outputs of their parts."""
    seen: list[Update] = []
    states: list[Tensor] = []
    handles = []
    for block in model.blocks:
        handles.append(block.register_forward_pre_hook(lambda _, given: states.append(given[0])))
        for part in (block.attn, block.mlp):

            def hook(module: nn.Module, given: tuple[Tensor], branch: Tensor) -> None:
                del module, given
                seen.append(Update(states[-1], branch, states[-1] + branch))
                states.append(states[-1] + branch)

            handles.append(part.register_forward_hook(hook))
    with torch.no_grad():
        model(images)
    for handle in handles:
        handle.remove()
    return seen


def tns_by_area(values: Tensor) -> float:
    """TNS of networks of one stage: mean over inputs of b (b / μ − 1), without the first step."""
    kept = values[:, 1:]
    peak = kept.amax(1)
    return (peak * (peak / kept.mean(1) - 1)).mean().item()
