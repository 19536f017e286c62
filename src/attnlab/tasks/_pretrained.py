"""Trained values for a detector of other categories."""

from __future__ import annotations

import torch
from torch import nn


@torch.no_grad()
def transfer(trained: nn.Module, network: nn.Module) -> None:
    """Give `network` all values of `trained` whose shapes fit: all but those of its predictors.

    torchvision freezes the norms of trained detectors (`FrozenBatchNorm2d`, some with ε = 0);
    `network` has plain ones, so ε goes into their weight: the function stays the same.
    """
    modules = dict(trained.named_modules())
    for name, module in network.named_modules():
        source = modules[name]
        if isinstance(module, nn.BatchNorm2d) and not isinstance(source, nn.BatchNorm2d):
            variance = source.running_var.double()
            scale = ((variance + module.eps) / (variance + source.eps)).sqrt()
            module.weight.copy_(source.weight.double() * scale)
            for each in ("bias", "running_mean", "running_var"):
                getattr(module, each).copy_(getattr(source, each))
            continue
        own = {**module._parameters, **module._buffers}
        for each, tensor in own.items():
            value = getattr(source, each, None)
            if tensor is not None and value is not None and value.shape == tensor.shape:
                tensor.copy_(value)


class HeldBatchNorm2d(nn.BatchNorm2d):
    """A batch norm that stays in eval mode: its statistics are those that it came with, its weight
    and bias train. What mmdetection calls `norm_eval`."""

    def train(self, mode: bool = True) -> HeldBatchNorm2d:
        del mode
        super().train(False)
        return self


def hold_norms(network: nn.Module) -> int:
    """Exchange every batch norm for one that is held, its keys kept; return how many."""
    norms = [module for module in network.modules() if type(module) is nn.BatchNorm2d]
    for norm in norms:
        norm.__class__ = HeldBatchNorm2d
        norm.eval()
    return len(norms)


def freeze(body: nn.Module, stages: int) -> None:
    """Freeze what comes before the first stage, and `stages` stages."""
    for name, child in body.named_children():
        number = name.removeprefix("layer")
        if number.isdigit() and int(number) > stages:
            return
        child.requires_grad_(False)
