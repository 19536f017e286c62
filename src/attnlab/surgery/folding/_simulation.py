"""A network as it would be with some gates constant, without touching it for longer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from torch import Tensor, nn

from attnlab.surgery.folding._cost import Judge
from attnlab.surgery.folding._norms import Norms, Statistics, with_statistics
from attnlab.surgery.folding._places import PlaceKey
from attnlab.surgery.folding._taps import Tap


@dataclass(frozen=True)
class Simulation:
    """A network whose gates are watched, and constants that some of them can be held at."""

    model: nn.Module
    taps: Mapping[str, Tap]
    gates: Mapping[PlaceKey, Sequence[str]]
    """Of each place, by name."""
    constants: Mapping[str, Tensor]
    norms: Norms

    @property
    def images(self) -> int:
        """On which the constants were made."""
        return sum(part.images for part in self.norms.parts)

    @contextmanager
    def held(self, keys: Iterable[PlaceKey]) -> Iterator[None]:
        """The gates of these places are constant."""
        names = [name for key in keys for name in self.gates[key]]
        try:
            for name in names:
                self.taps[name].held_at = self.constants[name]
            yield
        finally:
            for name in names:
                self.taps[name].held_at = None

    @contextmanager
    def moved_norms(self) -> Iterator[Statistics]:
        """And the statistics of the norms follow; yields them."""
        moved = self.norms.moved(self.model)
        with with_statistics(self.model, moved):
            yield moved

    def joint_cost(self, judge: Judge, keys: Iterable[PlaceKey]) -> float:
        """Of these together. Of the change of an output its square, which adds up where changes
        have nothing to do with each other."""
        with self.held(keys):
            value = judge.judge(self.model).value
        return value**2 if judge.cost == "output" else value
