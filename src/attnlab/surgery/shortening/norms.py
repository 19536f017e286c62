"""Let BatchNorm learn the statistics that features have now that steps are gone."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from attnlab._errors import InputError
from attnlab.residuals.example import call, evaluating
from attnlab.residuals.inputs import Sample


def re_estimate_norms(network: nn.Module, samples: Sequence[Sample]) -> int:
    """Replace the running statistics of every BatchNorm of `network` itself by their mean over the
    batches of `samples`; return how many norms. Weights, and what else has modes, stay as they are.

    torch's `update_bn` would also switch dropout and stochastic depth on.
    """
    norms = [m for m in network.modules() if isinstance(m, _BatchNorm) and m.track_running_stats]
    if not norms:
        raise InputError(
            f"{type(network).__name__} has no BatchNorm with running statistics, so there is "
            f"nothing to estimate again. Leave repair out."
        )
    smallest = min(sample.number for sample in samples)
    if smallest < 2:
        raise InputError(
            f"Expected batches of at least 2 images to estimate the statistics of norms but got "
            f"one of {smallest}."
        )
    momenta = [norm.momentum for norm in norms]
    with evaluating(network):
        try:
            for norm in norms:
                norm.reset_running_stats()
                norm.momentum = None  # the mean over batches
                norm.train()
            for sample in samples:
                call(network, sample.inputs)
        finally:
            for norm, momentum in zip(norms, momenta, strict=True):
                norm.momentum = momentum
                norm.eval()
    return len(norms)
