"""The images that the commands run a network on: by name or from a folder, or those of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.utils.data import DataLoader


def images_for(
    network: nn.Module,
    data: str = "fake",
    *,
    limit: int | None = None,
    batch: int = 64,
    root: str | Path = "data",
    size: int | Sequence[int] | None = None,
) -> DataLoader[Any]:
    """Batches of images and labels as `network` takes them.

    Args:
        network: says its own size; timm's say mean and standard deviation as well.
        data: a folder of images, or digits, cifar10, fake.
        limit: this many images, evenly spread; all when None.
        batch: images per batch.
        root: where cifar10 is.
        size: side of the images, or channels, height and width, if not what the network says.
    """
    from attnlab.cli import _image_sources as sources
    from attnlab.record.example import example_input

    channels, height, width = example_input(network).shape[1:]
    if isinstance(size, int):
        height = width = size
    elif size is not None:
        channels, height, width = size
    configuration = getattr(network, "pretrained_cfg", {})  # timm
    known = configuration if isinstance(configuration, Mapping) else {}
    preprocessing = sources.Preprocessing(
        (channels, height, width),
        tuple(known.get("mean") or sources.IMAGENET_MEAN),
        tuple(known.get("std") or sources.IMAGENET_STD),
    )
    return sources.load(data, preprocessing, root=Path(root), batch=batch, limit=limit)


def images_of_run(
    folder: str | Path, *, limit: int | None = None, batch: int = 64
) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches of a run's own test images and labels, `limit` of them, evenly spread; once."""
    import torch

    from attnlab._errors import InputError
    from attnlab.train import RunConfig
    from attnlab.train.sources import load_data

    settings = Path(folder) / "config.json"
    if not settings.is_file():
        raise InputError(
            f"There is no {str(settings)!r}, so {str(folder)!r} is not a run's folder."
        )
    config = RunConfig.from_json(settings.read_text(encoding="utf-8"))
    images = load_data(config.data, config.recipe)
    number = images.facts.test if limit is None else min(limit, images.facts.test)
    chosen = torch.linspace(0, images.facts.test - 1, number).round().long()
    return images.testing(list(chosen.split(batch)), torch.device("cpu"))
