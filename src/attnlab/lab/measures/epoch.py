"""What is measured after every epoch, where that is asked for."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import nn

from attnlab._errors import StepsNotFoundError
from attnlab.data import Data
from attnlab.instruments.config import MeasureConfig
from attnlab.instruments.stiffness import StiffnessWarning
from attnlab.instruments.stiffness.measure import stiffness
from attnlab.instruments.stripe import SiteStripe
from attnlab.instruments.stripe.measure import stripe
from attnlab.residuals.gates import has_gates
from attnlab.subject import Subject
from attnlab.tasks import Task

_BATCH = 256


def epoch_record(
    config: MeasureConfig, network: nn.Module, task: Task, data: Data, device: torch.device
) -> dict[str, Any]:
    """TNS and the mean gates of a network that trains."""
    subject = Subject("", network, data, task=task, batch_size=_BATCH, device=device)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", StiffnessWarning)
            tns: float | None = stiffness(
                network, subject.inputs(config.images), progress=False
            ).tns
    except StepsNotFoundError:
        tns = None
    if not has_gates(network):
        return {"tns": tns}
    try:
        found = stripe(network, subject.inputs(config.images), sample=1)
    except StepsNotFoundError:
        return {"tns": tns}
    return {"tns": tns, "gates": {site.name: _rounded(site) for site in found.sites}}


def _rounded(site: SiteStripe) -> list[float]:
    """The means of some channels with four digits: the metrics of a long run stay readable."""
    return [float(f"{site.channel_means[place]:.4g}") for place in site.sampled_channels]
