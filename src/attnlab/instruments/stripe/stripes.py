"""Gates of one run over images, as pictures."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from attnlab.instruments.block_figures import natural_order
from attnlab.instruments.stripe.figures import stripe_figure
from attnlab.page.parts import Figure
from attnlab.results import StoredRun

_SHOWN_BLOCKS = 3


def run_stripes(run: StoredRun) -> list[Figure]:
    """The gates of some blocks over the images that were kept; none where they were not."""
    tensors = run.gates
    names = [key.removesuffix(".sample") for key in tensors if key.endswith(".sample")]
    return [_stripe(name, tensors[f"{name}.sample"]) for name in spaced(names)]


def _stripe(name: str, values: np.ndarray) -> Figure:
    description = (
        f"Gate {name} of {values.shape[0]} images × {values.shape[1]} channels, from "
        f"{values.min():.3g} to {values.max():.3g}; spread across images "
        f"{values.std(0).mean():.2g}, across channels {values.mean(0).std():.2g}"
    )
    return Figure(stripe_figure(values, name, description))


def spaced(names: Sequence[str]) -> list[str]:
    """A few of `names`, from the first to the last."""
    names = sorted(names, key=natural_order)
    if len(names) <= _SHOWN_BLOCKS:
        return list(names)
    return [names[round(i * (len(names) - 1) / (_SHOWN_BLOCKS - 1))] for i in range(_SHOWN_BLOCKS)]
