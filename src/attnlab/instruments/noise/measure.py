"""How a finished network answers under noise in its norms, in test: its result against strength."""

from __future__ import annotations

import math
from collections.abc import Sequence
from time import perf_counter
from typing import get_args

import numpy as np
import torch
from torch import Tensor

from attnlab._checked import check_whole
from attnlab._errors import InputError, OptionError, unknown_name
from attnlab._extras import needs
from attnlab._seeds import derive
from attnlab.instruments.noise.result import Kind, NoiseCurve, NoisePoint, NoiseResult
from attnlab.residuals.example import evaluating
from attnlab.subject import Source, Subject, subject_of
from attnlab.surgery.noise import Noise, batch, constant, noisy, random
from attnlab.surgery.noise.kinds import BatchNoise, Per

LEVEL = 0.95
"""The level of the intervals."""
STRENGTHS: dict[Kind, tuple[float | str, ...]] = {
    "random": (0.05, 0.1, 0.2, 0.3),
    # IEBN's strengths, as far as they are known.
    "constant": ("0.8:0.8", "0.8:0.5", "0.5:0.5", "0.5:0.2"),
    "batch": (2, 4, 8, 16, 64),
}
"""What is measured of a kind of noise where no strengths are given."""


def noise_response(
    network: Source,
    *,
    kind: Kind = "random",
    strengths: tuple[float | str, ...] = (),
    per: Per = "channel",
    draws: int = 10,
    seed: int = 0,
) -> NoiseResult:
    """The result of a network, in eval mode, under noise in its norms: each norm is disturbed
    between normalisation and affine. Several networks see the same images and the same draws.

    Examples:
      attnlab noise runs/0a1b2c3d4e5f --strengths 0.05 0.1 0.2 --out noise
      attnlab noise runs/PLAIN runs/ASR --kind batch --strengths 2 8 64

    Args:
        network: any network with norms and labelled images, as for `attnlab.open`.
        kind: random: x^ <- (1 + s e1) x^ + s e2; constant: x^ <- a x^ + b; batch: statistics of n.
        strengths: of random noise s, of constant noise a:b, of batch noise n; some if left out.
        per: what has a draw of random noise of its own.
        draws: passes over the images, each with other noise; constant noise needs only one.
        seed: where the draws start.
    """
    began = perf_counter()
    check_whole("draws", draws, 1)
    noises = noises_of(kind, strengths, per)
    subject = subject_of(network)
    number = 1 if kind == "constant" else draws
    curve = _curve(subject, noises, number, seed)
    found = NoiseResult(
        kind=kind,
        metric=subject.learned().metrics[0],
        images=len(subject.chosen()),
        draws=number,
        seed=seed,
        networks=(curve,),
        seconds=perf_counter() - began,
    )
    return subject.sign(found)


def noises_of(kind: Kind, strengths: Sequence[float | str], per: Per) -> list[Noise]:
    """The noises of a kind, weakest first as they were given, or those of `STRENGTHS`."""
    if kind not in get_args(Kind):
        raise unknown_name("kind of noise", kind, get_args(Kind))
    return [_noise(kind, each, per) for each in strengths or STRENGTHS[kind]]


def _noise(kind: Kind, strength: float | str, per: Per) -> Noise:
    try:
        if kind == "random":
            return random(float(strength), per)
        if kind == "batch":
            return batch(_whole(strength))
        a, b = str(strength).split(":")
        return constant(float(a), float(b))
    except ValueError as error:
        if isinstance(error, OptionError):
            raise
        usual = " ".join(str(each) for each in STRENGTHS[kind])
        raise OptionError(
            f"Expected strengths of {kind} noise as in {usual} but got {strength!r}."
        ) from None


def _whole(strength: float | str) -> int:
    """A number of images; from a command it comes as a float."""
    number = float(strength)
    if not number.is_integer():
        raise ValueError(strength)
    return int(number)


def _curve(subject: Subject, noises: Sequence[Noise], draws: int, seed: int) -> NoiseCurve:
    images = subject.chosen()
    norms, points = 0, []
    with evaluating(subject.network):
        clean = score(subject, images.split(subject.batch_size))
        for noise in noises:
            values = []
            with noisy(subject.network, noise, "test") as receipt:
                norms = len(receipt.norms)
                for draw in range(draws):
                    with torch.random.fork_rng():
                        torch.manual_seed(derive(seed, "noise", draw))
                        values.append(score(subject, _chunks(noise, images, subject.batch_size)))
            points.append(_point(noise, values))
    return NoiseCurve(subject.name, clean, norms, tuple(points))


def score(subject: Subject, chunks: Sequence[Tensor]) -> float:
    """The task's result on the images of `chunks`, in its metric's unit."""
    metric = subject.learned().metrics[0]
    meters = subject.learned().meters(subject.device)
    with torch.inference_mode():
        for batch in subject.read(chunks):
            meters.update(subject.learned().predict(subject.network, batch), batch.targets)
    value = meters.compute()[metric.name]
    if value is None or not math.isfinite(value):
        raise InputError(
            f"{metric.label} is {value} under this noise: the network's outputs are not finite. "
            f"Use a smaller strength."
        )
    return metric.shown(value)


def _chunks(noise: Noise, images: Tensor, batch_size: int) -> Sequence[Tensor]:
    if not isinstance(noise, BatchNoise):
        return images.split(batch_size)
    if noise.n > len(images):
        raise InputError(
            f"Batch noise takes the statistics of {noise.n} images, but there are {len(images)} "
            f"test images. Use a smaller n."
        )
    order = images[torch.randperm(len(images))]
    # Whole groups of n in every chunk; what is left over goes into the last one, so that no image
    # is left out.
    whole = max(1, batch_size // noise.n) * noise.n
    ends = list(range(whole, len(order) - noise.n + 1, whole))
    return order.tensor_split(ends)


def _point(noise: Noise, values: Sequence[float]) -> NoisePoint:
    low, high = mean_interval(values)
    mean = float(np.mean(values))
    return NoisePoint(noise.label, noise.strength, tuple(values), mean, low, high)


def mean_interval(values: Sequence[float]) -> tuple[float | None, float | None]:
    """Student's t interval of the mean; none for one value, a point for equal ones."""
    with needs("study"):
        from scipy import stats  # takes a second

    if len(values) < 2:
        return None, None
    mean, error = float(np.mean(values)), float(np.std(values, ddof=1)) / math.sqrt(len(values))
    around = float(stats.t.ppf((1 + LEVEL) / 2, len(values) - 1)) * error
    return mean - around, mean + around
