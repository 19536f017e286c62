"""The same few inputs, measured again and again while somebody's loop trains a network."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from attnlab._errors import InputError, OptionError

Inputs = Tensor | Mapping[str, object]
"""A batch of images, or the keyword inputs of a network."""
EVERY = 100
"""Steps from one measurement to the next."""


class Probe(ABC):
    """Measures a network on `inputs` before training, then every `every` steps; keeps what it
    found. The training does not notice: eval mode and gradients are put back, and the state of the
    random numbers too.

    Args:
        inputs: a batch: a tensor, or a dictionary of keyword inputs. The same ones each time, so
            that figures of different steps can be compared.
        every: steps from one measurement to the next.
        of: the name of the part of the module that is measured; empty for the module itself.
    """

    def __init__(self, inputs: Inputs, every: int = EVERY, of: str = "") -> None:
        if not isinstance(every, int) or isinstance(every, bool) or every < 1:
            raise OptionError(
                f"Expected every to be a number of steps, at least 1, but got {every!r}."
            )
        if not isinstance(inputs, Tensor | Mapping):
            raise InputError(
                f"Expected inputs to be a tensor or a dictionary of inputs but got "
                f"{type(inputs).__name__}. A batch of a loader is next(iter(loader))[0]."
            )
        self.inputs, self.every, self.of = inputs, every, of
        self.history: list[dict[str, float]] = []
        """One record per measurement: `step`, and the figures by name."""

    @abstractmethod
    def figures(self, network: nn.Module, inputs: Inputs) -> dict[str, float]:
        """Measure the network; return the figures by name."""

    def at(self, module: nn.Module, step: int) -> dict[str, float]:
        """Return the figures of this step; empty if no measurement is due."""
        if step % self.every or (self.history and self.history[-1]["step"] == step):
            return {}
        network = part_of(module, self.of)
        device = next((p.device for p in network.parameters()), torch.device("cpu"))
        devices = [device] if device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices):
            found = self.figures(network, _on(self.inputs, device))
        self.history.append({"step": step, **found})
        return found


class StiffnessProbe(Probe):
    """TNS, and NSI of every step: the numbers of `attnlab.stiffness`."""

    def figures(self, network: nn.Module, inputs: Inputs) -> dict[str, float]:
        from attnlab.instruments.stiffness.measure import stiffness

        found = stiffness(network, [inputs], progress=False)
        steps = {f"nsi/{step.label}": step.mean for step in found.nsi}
        return {"tns": found.tns, **steps}


class StripeProbe(Probe):
    """How much every gate differs between inputs and between channels: the numbers of
    `attnlab.stripe`."""

    def figures(self, network: nn.Module, inputs: Inputs) -> dict[str, float]:
        from attnlab.instruments.stripe.measure import stripe

        found: dict[str, float] = {}
        for site in stripe(network, [inputs]).sites:
            found[f"gate/{site.label}/mean"] = site.mean
            found[f"gate/{site.label}/image_spread"] = site.image_spread
            found[f"gate/{site.label}/channel_spread"] = site.channel_spread
        return found


def part_of(module: nn.Module, name: str) -> nn.Module:
    """Return the part `name` of a network, or the network itself, out of what wraps it (compiled,
    distributed)."""
    unwrapped = module
    while True:
        inner = getattr(unwrapped, "_orig_mod", None)
        if inner is None and type(unwrapped).__name__ in (
            "DistributedDataParallel",
            "DataParallel",
        ):
            inner = unwrapped.module
        if not isinstance(inner, nn.Module):
            break
        unwrapped = inner
    if type(unwrapped).__name__ == "FullyShardedDataParallel":
        raise InputError(
            "The network is sharded (FSDP): no process holds its features whole, so nothing is "
            "measured of it while it trains. Measure a checkpoint of it instead."
        )
    if not name:
        return unwrapped
    try:
        found = unwrapped.get_submodule(name)
    except AttributeError:
        children = ", ".join(each for each, _ in unwrapped.named_children())
        raise OptionError(
            f"{type(unwrapped).__name__} has no part {name!r}. It has: {children}."
        ) from None
    return part_of(found, "")


def _on(inputs: Inputs, device: torch.device) -> Inputs:
    if isinstance(inputs, Tensor):
        return inputs.to(device)
    return {key: v.to(device) if isinstance(v, Tensor) else v for key, v in inputs.items()}
