"""How far an epoch is: what a checkpoint in the middle of one needs to go on to the bit.

Which images a step takes depends on its number alone, and each image draws its augmentation from a
stream of its own. So what is left is what the epoch has summed up so far, and the random numbers
that the network itself draws, of every process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from attnlab.lab.training.evaluate import summed_over_processes
from attnlab.tasks.task import Loss

if TYPE_CHECKING:
    from lightning_fabric import Fabric

Saved = dict[str, Any]
"""As a checkpoint holds it: tensors, numbers and text by name."""


class LossSums:
    """The sums of losses over images, as one tensor, so that a step waits for no number."""

    def __init__(self, saved: Saved | None = None, device: torch.device | None = None) -> None:
        found = saved or {}
        sums = found.get("sums")
        self.sums: Tensor | None = None if sums is None else sums.to(device)
        self.names: list[str] = found.get("names", [])
        self.parts: list[str] = found.get("parts", [])
        self.seen: int = found.get("seen", 0)

    def saved(self) -> Saved:
        """Return what a new one is made from."""
        sums = None if self.sums is None else self.sums.cpu()
        return {"sums": sums, "names": self.names, "parts": self.parts, "seen": self.seen}

    def add(self, loss: Loss, images: int) -> None:
        self.names, self.parts = list(loss.figures), list(loss.parts)
        others = (*loss.figures.values(), *loss.parts.values())
        means = torch.stack([loss.mean.detach().double(), *others])
        self.sums = images * means if self.sums is None else self.sums + images * means
        self.seen += images

    def means(self, fabric: Fabric) -> tuple[float, dict[str, float], dict[str, float], float]:
        """The loss, the figures, its parts and the number of images, over all processes."""
        assert self.sums is not None
        sums = torch.cat([self.sums, self.sums.new_tensor([self.seen])])
        *totals, everyone = summed_over_processes(fabric, sums)
        mean, *found = (total / everyone for total in totals)
        by_name = dict(zip((*self.names, *self.parts), found, strict=True))
        figures = {name: by_name[name] for name in self.names}
        return mean, figures, {name: by_name[name] for name in self.parts}, everyone


@dataclass(frozen=True)
class Midway:
    """The part of an epoch that is done."""

    step: int
    """How many steps are."""
    steps: int
    """How many it has."""
    seconds: float
    waited: float
    """How many of the seconds were spent on waiting for data."""
    own: Saved
    """This process's sums and random numbers."""

    @property
    def reached(self) -> tuple[int, float, float]:
        """Steps, seconds of waiting, seconds."""
        return self.step, self.waited, self.seconds

    def saved(self, processes: Sequence[Saved]) -> Saved:
        """Return what a checkpoint holds, with the part of each of the processes."""
        return {
            "step": self.step,
            "steps": self.steps,
            "seconds": self.seconds,
            "waited": self.waited,
            "processes": list(processes),
        }

    @classmethod
    def read(cls, saved: Mapping[str, Any], rank: int) -> Midway:
        """Return what `saved` returned, for one of the processes, of which there are as many as
        before: their number is part of what a run is."""
        part = dict(saved)
        everyones: list[Saved] = part.pop("processes")
        return cls(own=everyones[rank], **part)

    def restore_random(self, device: torch.device) -> None:
        """Go on with the random numbers where they were."""
        torch.set_rng_state(self.own["random"])
        if device.type == "cuda" and self.own["device_random"] is not None:
            torch.cuda.set_rng_state(self.own["device_random"], device)


def random_state(device: torch.device) -> Saved:
    """The random numbers of this process, on the CPU and on the device."""
    return {
        "random": torch.get_rng_state(),
        "device_random": torch.cuda.get_rng_state(device) if device.type == "cuda" else None,
    }
