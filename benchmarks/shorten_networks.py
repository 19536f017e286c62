"""The trained networks of `benchmarks/shorten.py`: two public ones, and five trained here.

    python benchmarks/shorten_networks.py runs/shorten --cifar10 data/cifar10.npz

trains what is missing into the folder (a quarter of an hour on one core), through
`attnlab.lab.training`.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from attnlab.lab.training import RunConfig, train

_CIFAR10 = {
    "name": "resnet_cifar",
    "epochs": 5,
    "batch_size": 64,
    "test_batch_size": 250,
    "schedule": "cosine",
    "milestones": [],
    "warmup_epochs": 1,
    "channels_last": True,
}

TRAINED: dict[str, dict[str, Any]] = {
    "digits-resnet32": {"backbone": "resnet32", "seed": 0, "recipe": "digits"},
    "digits-resnet32-asr": {
        "backbone": "resnet32",
        "attention": "asr:se",
        "seed": 1,
        "recipe": "digits",
    },
    "digits-resnet44-se": {
        "backbone": "resnet44",
        "attention": "se",
        "seed": 2,
        "recipe": "digits",
    },
    "cifar10-resnet20": {"backbone": "resnet20", "seed": 0, "recipe": _CIFAR10},
    "cifar10-resnet20-se": {
        "backbone": "resnet20",
        "attention": "se",
        "seed": 1,
        "recipe": _CIFAR10,
    },
}


def settings(name: str, cifar10: Path) -> RunConfig:
    """How the network of this name is trained."""
    images: dict[str, Any] = {"name": "digits"}
    if name.startswith("cifar10"):
        images = {"name": "npz", "root": str(cifar10), "train_subset": 8000, "test_subset": 2000}
    return RunConfig.model_validate({"data": images, **TRAINED[name]})


def train_missing(folder: Path, cifar10: Path) -> None:
    """Train the networks that are not yet in `folder`."""
    for name in TRAINED:
        if not (folder / name / "result.json").is_file():
            train(settings(name, cifar10), folder / name, threads=1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--cifar10", type=Path, default=Path("data/cifar10.npz"))
    given = parser.parse_args()
    train_missing(given.folder, given.cifar10)
