"""How a finished network answers under noise in its norms, in test: its result against strength."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnlab._errors import InputError, OptionError
from attnlab._extras import needs
from attnlab._files import write_whole
from attnlab._seeds import derive
from attnlab._spread import evenly_spread
from attnlab.instruments.measurement import same_result
from attnlab.results.metric import Metric
from attnlab.subject import Subject
from attnlab.surgery.noise import Noise, noisy
from attnlab.surgery.noise.kinds import Batch, Constant, Random

FORMAT = "attnlab noise 1"
LEVEL = 0.95
"""Of the intervals."""


@dataclass(frozen=True)
class NoisePoint:
    """One network under one noise; values in the metric's unit."""

    label: str
    strength: tuple[float, ...]
    """σ; a and b; or n."""
    values: tuple[float, ...]
    """One per draw. Constant noise has nothing to draw."""
    mean: float
    low: float | None
    """Of Student's t interval of the mean over draws, on these test images; None with one."""
    high: float | None


@dataclass(frozen=True)
class NoiseCurve:
    """One network under all noises."""

    network: str
    clean: float
    norms: int
    """How many carried the noise."""
    points: tuple[NoisePoint, ...]


@dataclass(frozen=True)
class NoiseResult:
    """What `noise_response` found."""

    kind: str
    metric: Metric
    images: int
    draws: int
    seed: int
    networks: tuple[NoiseCurve, ...]
    seconds: float

    def to_json(self) -> str:
        """What a noise.json holds."""
        content: dict[str, Any] = {"format": FORMAT, **asdict(self)}
        content["metric"] = self.metric.model_dump(mode="json")
        return json.dumps(content, indent=1, ensure_ascii=False) + "\n"

    def save(self, path: str | Path) -> Path:
        """Write it as JSON; `attnlab.report` makes a page of it."""
        return write_whole(Path(path), self.to_json())


def noise_response(
    subjects: Mapping[str, Subject],
    noises: Sequence[Noise],
    *,
    draws: int = 10,
    limit: int | None = None,
    seed: int = 0,
) -> NoiseResult:
    """The result of every network, in eval mode, under each of `noises`, with the mean and its
    interval over draws. All networks see the same images, and the same seeds of draws.

    A draw of random noise is one pass over the images, in which every batch has its own numbers; a
    draw of batch noise is a random order, so that other images share a batch.

    Args:
        subjects: networks with their test images, by name: see `subject_of`.
        noises: of one kind, as of `attnlab.surgery.noise.random`.
        draws: how many.
        limit: on how many test images, evenly spread; all when None.
        seed: of the draws.
    """
    began = perf_counter()
    if draws < 1:
        raise OptionError(f"Expected draws to be at least 1 but got {draws}.")
    kinds = {type(each).__name__.lower() for each in noises}
    if len(kinds) != 1:
        raise OptionError(
            f"Expected noises of one kind but got {', '.join(sorted(kinds)) or 'none'}."
        )
    same_result(dict(subjects))
    curves = tuple(
        _curve(name, subject, noises, draws, limit, seed) for name, subject in subjects.items()
    )
    first = next(iter(subjects.values()))
    return NoiseResult(
        kind=kinds.pop(),
        metric=first.learned().metrics[0],
        images=len(evenly_spread(first.images().facts.test, limit)),
        draws=1 if isinstance(noises[0], Constant) else draws,
        seed=seed,
        networks=curves,
        seconds=perf_counter() - began,
    )


def _curve(
    name: str,
    subject: Subject,
    noises: Sequence[Noise],
    draws: int,
    limit: int | None,
    seed: int,
) -> NoiseCurve:
    images = evenly_spread(subject.images().facts.test, limit)
    clean = score(subject, images.split(subject.batch_size))
    norms, points = 0, []
    for noise in noises:
        values = []
        with noisy(subject.network, noise, "test") as receipt:
            norms = len(receipt.norms)
            for draw in range(1 if isinstance(noise, Constant) else draws):
                with torch.random.fork_rng():
                    torch.manual_seed(derive(seed, "noise", draw))
                    values.append(score(subject, _chunks(noise, images, subject.batch_size)))
        points.append(_point(noise, values))
    return NoiseCurve(name, clean, norms, tuple(points))


def score(subject: Subject, chunks: Sequence[Tensor]) -> float:
    """The task's result on the test images of `chunks`, in its metric's unit."""
    metric = subject.learned().metrics[0]
    meters = subject.learned().meters(subject.device)
    with torch.inference_mode():
        for batch in subject.images().testing(chunks, subject.device):
            meters.update(subject.learned().predict(subject.network, batch), batch.targets)
    value = meters.compute()[metric.name]
    if value is None or not math.isfinite(value):
        raise InputError(
            f"{metric.label} is {value} under this noise: the network's outputs are not finite. "
            f"Use a smaller strength."
        )
    return metric.shown(value)


def _chunks(noise: Noise, images: Tensor, batch_size: int) -> Sequence[Tensor]:
    if not isinstance(noise, Batch):
        return images.split(batch_size)
    if noise.n > len(images):
        raise InputError(
            f"Batch noise takes the statistics of {noise.n} images, but there are {len(images)} "
            f"test images. Use a smaller n."
        )
    order = images[torch.randperm(len(images))]
    whole = max(1, batch_size // noise.n) * noise.n
    ends = list(range(whole, len(order) - noise.n + 1, whole))
    return order.tensor_split(ends)


def _point(noise: Noise, values: Sequence[float]) -> NoisePoint:
    strength: tuple[float, ...]
    if isinstance(noise, Constant):
        strength = (noise.a, noise.b)
    else:
        strength = (noise.sigma,) if isinstance(noise, Random) else (noise.n,)  # type: ignore[attr-defined]
    low, high = mean_interval(values)
    return NoisePoint(noise.label, strength, tuple(values), float(np.mean(values)), low, high)


def mean_interval(values: Sequence[float]) -> tuple[float | None, float | None]:
    """Student's t interval of the mean; none for one value, a point for equal ones."""
    with needs("study"):
        from scipy import stats  # takes a second

    if len(values) < 2:
        return None, None
    mean, error = float(np.mean(values)), float(np.std(values, ddof=1)) / math.sqrt(len(values))
    around = float(stats.t.ppf((1 + LEVEL) / 2, len(values) - 1)) * error
    return mean - around, mean + around
