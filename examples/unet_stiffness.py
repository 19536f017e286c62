"""Where is a U-Net stiff: in its encoder or in its decoder, before and after training?

    python examples/unet_stiffness.py
    python examples/unet_stiffness.py --seeds 5 --epochs 12 --out runs/unet

Small U-Nets are trained on shapes that are made in code. Encoder and decoder have a stage for each
size of the map; the skip connections are concatenations, so they are no steps, and the first step
of every stage, which takes them in, is not counted. Differences are paired by seed.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

import attnlab
from attnlab.instruments.stiffness import StiffnessResult
from attnlab.lab.statistics import paired_difference, summarize
from attnlab.lab.training import RunConfig, train
from attnlab.subject.run import open_run, untrained_network

PARTS = ("encoder", "decoder")
Means = dict[tuple[str, bool], dict[int, float]]
"""NSI of a part of the network, trained or not, by seed."""


def config(seed: int, epochs: int, images: int) -> RunConfig:
    """A small U-Net: three levels, three blocks each."""
    return RunConfig(
        task="segmentation",
        data={"name": "shape-masks", "size": 32, "train_subset": images, "test_subset": 40},
        backbone="unet",
        backbone_options={"width": 8, "levels": 2, "blocks": 3},
        recipe={"name": "shape_masks", "epochs": epochs},
        seed=seed,
    )


def of_part(found: StiffnessResult, part: str) -> float:
    """The mean NSI of the counted steps of a part."""
    return fmean(step.mean for step in found.nsi if step.kept and step.name.startswith(part))


def measure(folder: Path, seed: int, means: Means) -> StiffnessResult:
    """A run as it was trained and as it began, on its own test images."""
    subject = open_run(folder)
    images = list(subject.inputs(40))
    trained = attnlab.stiffness(subject.network, images, progress=False)
    began = attnlab.stiffness(untrained_network(folder), images, progress=False)
    for part in PARTS:
        for found, is_trained in ((trained, True), (began, False)):
            means.setdefault((part, is_trained), {})[seed] = of_part(found, part)
    return trained


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--images", type=int, default=160)
    parser.add_argument("--out", type=Path, default=None, help="folder of the runs")
    asked = parser.parse_args(arguments)
    means: Means = {}
    with tempfile.TemporaryDirectory() as scratch:
        for seed in range(asked.seeds):
            folder = (asked.out or Path(scratch)) / f"seed{seed}"
            result = train(config(seed, asked.epochs, asked.images), folder, threads=1)
            found = measure(folder, seed, means)
            print(f"seed {seed}: mIoU {100 * result.values['miou']:.1f} %, {found.verdict}")
    print("\n| NSI of counted steps | encoder | decoder | decoder − encoder |\n|---|---|---|---|")
    for is_trained in (False, True):
        encoder, decoder = (means[part, is_trained] for part in PARTS)
        far = paired_difference(decoder, encoder)
        texts = [summarize(list(each.values())).text(3) for each in (encoder, decoder)]
        limits = "" if far.low is None else f" [{far.low:+.3f}, {far.high:+.3f}]"
        what = "trained" if is_trained else "untrained"
        print(f"| {what} | {texts[0]} | {texts[1]} | {far.mean:+.3f}{limits} |")


if __name__ == "__main__":
    main()
