"""Images to measure a network on, by what a command is given: a folder, or a name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset

from attnlab._checked import check_module, check_path, check_whole
from attnlab._errors import InputError, OptionError, unknown_name
from attnlab._spread import evenly_spread
from attnlab.data.config import DataConfig
from attnlab.data.known import SETS, read_archive
from attnlab.data.load import read_pixels
from attnlab.data.memory import Pixels, as_pixels, check_pixels
from attnlab.data.pictures import SUFFIXES, decoded
from attnlab.networks.preprocessing import IMAGENET
from attnlab.residuals.example import example_input

NAMES = ("digits", "cifar10", "fake")
Part = Literal["any", "train"]


class Preprocessing(NamedTuple):
    """How an image becomes an input of a network."""

    size: tuple[int, int, int]
    mean: tuple[float, ...] = IMAGENET[0]
    std: tuple[float, ...] = IMAGENET[1]


def images_for(
    network: nn.Module,
    data: str = "fake",
    *,
    limit: int | None = None,
    batch: int = 64,
    root: str | Path = "data",
    size: int | Sequence[int] | None = None,
    part: Part = "any",
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> DataLoader[Any]:
    """Batches of images and labels as `network` takes them.

    Args:
        network: says its own size; timm's say mean and standard deviation as well.
        data: a folder of images, or digits, cifar10, fake.
        limit: this many images, evenly spread; all when None.
        batch: images per batch.
        root: where cifar10 is.
        size: side of the images, or channels, height and width, if not what the network says.
        part: `train` for training images alone, on which a choice may be made that test images
            then judge; a folder is taken as it is. `any`: all digits, the test images of cifar10.
        mean: of each channel, pixels 0 to 1, with which the network was trained; what a network of
            timm says, ImageNet's for others, when None.
        std: likewise.
    """
    check_module(network, "the network")
    channels, height, width = example_input(network).shape[1:]
    if isinstance(size, Sequence) and not isinstance(size, str):
        if len(size) != 3:
            raise OptionError(
                f"Expected size to be one number or (channels, height, width) but got {size!r}."
            )
        for name, each in zip(("channels", "height", "width"), size, strict=True):
            check_whole(f"the {name} of size", each, 1)
        channels, height, width = size
    elif size is not None:
        check_whole("size", size, 1)
        height = width = size
    configuration = getattr(network, "pretrained_cfg", {})  # timm
    known = configuration if isinstance(configuration, Mapping) else {}
    preprocessing = Preprocessing(
        (channels, height, width),
        tuple(mean or known.get("mean") or IMAGENET[0]),
        tuple(std or known.get("std") or IMAGENET[1]),
    )
    return image_batches(data, preprocessing, root=Path(root), batch=batch, limit=limit, part=part)


def image_batches(
    data: str,
    preprocessing: Preprocessing,
    *,
    root: Path,
    batch: int,
    limit: int | None,
    part: Part = "any",
) -> DataLoader:
    """Batches (images, labels) of `data`: a folder or one of `NAMES`; `limit` images, evenly
    spread.

    `cifar10` is looked for in `root` and is never downloaded.
    """
    if part not in get_args(Part):
        raise unknown_name("part", part, get_args(Part))
    check_whole("batch", batch, 1)
    if limit is not None:
        check_whole("limit", limit, 1)
    check_path("data", data)
    if data == "digits":
        train, test, _ = read_pixels(DataConfig(name="digits"))
        if part == "any":
            images = torch.cat([train.images, test.images])
            train = Pixels(images, torch.cat([train.targets, test.targets]))
        dataset: Dataset = _prepared(train, preprocessing)
    elif data == "fake":
        generator = torch.Generator().manual_seed(0)
        noise = torch.randn(limit or 256, *preprocessing.size, generator=generator)
        dataset = TensorDataset(noise, torch.zeros(len(noise), dtype=torch.long))
    elif data == "cifar10":
        dataset = _prepared(_cifar10(root, part), preprocessing)
    elif Path(data).is_dir():
        dataset = _folder(Path(data), preprocessing)
    else:
        raise InputError(
            f"Expected the data to be a folder of images or one of {', '.join(NAMES)} but got "
            f"{data!r}, which is neither."
        )
    number = len(dataset)  # type: ignore[arg-type]
    if limit is not None and limit < number:
        # Evenly spread, because folders are sorted by class.
        dataset = Subset(dataset, evenly_spread(number, limit).tolist())
    return DataLoader(dataset, batch_size=batch)


def _prepared(pixels: Pixels, preprocessing: Preprocessing) -> TensorDataset:
    """Resized and scaled as the network wants it."""
    channels, height, width = preprocessing.size
    images = _with_channels(pixels.images, channels).float().div(255)
    if images.shape[2:] != (height, width):
        images = torch.nn.functional.interpolate(
            images, (height, width), mode="bilinear", antialias=True
        )
    mean = torch.tensor(preprocessing.mean[:channels]).view(-1, 1, 1)
    std = torch.tensor(preprocessing.std[:channels]).view(-1, 1, 1)
    return TensorDataset((images - mean) / std, pixels.targets)


def _with_channels(images: Tensor, channels: int) -> Tensor:
    """Grey images for a network of one channel; other numbers cannot be made up."""
    from torchvision.transforms.v2 import functional as F

    if images.shape[1] == channels:
        return images
    if (images.shape[1], channels) == (3, 1):
        grey: Tensor = F.rgb_to_grayscale(images)
        return grey
    raise _other_channels(channels, images.shape[1])


def _other_channels(wanted: int, got: int) -> InputError:
    return InputError(
        f"The network takes images of {wanted} channels, and these have {got}. Expected a network "
        f"of 1 or 3 channels; for others give batches of your own to the Python function."
    )


def _cifar10(root: Path, part: Part) -> Pixels:
    which = "train" if part == "train" else "test"
    archives = sorted(root.glob("cifar10*.npz"))
    if archives:
        images, labels = read_archive(archives[0], (f"{which}_x", f"{which}_y"))
        pixels = as_pixels(images, labels, f"{archives[0].name} ({which})")
        check_pixels(pixels, SETS["cifar10"].classes, f"{archives[0].name} ({which})")
        return pixels
    try:
        train, test, _ = read_pixels(DataConfig(name="cifar10", root=str(root)))
        return train if which == "train" else test
    except InputError:
        raise InputError(
            f"There is no CIFAR-10 in {str(root)!r}. Expected torchvision's folder "
            f"'cifar-10-batches-py' or a cifar10*.npz with {which}_x and {which}_y there, or "
            f"another root. Nothing is downloaded."
        ) from None


def _folder(folder: Path, preprocessing: Preprocessing) -> Dataset:
    paths = sorted(p for p in folder.rglob("*") if p.suffix.lower() in SUFFIXES)
    if not paths:
        raise InputError(
            f"There is no image in {str(folder)!r}. Expected files that end in "
            f"{', '.join(SUFFIXES)}, in the folder or in one folder per class."
        )
    return _ImageFiles(paths, preprocessing)


class _ImageFiles(Dataset):
    """Image files: the short side resized, the centre cut out. A label is its folder's number."""

    def __init__(self, paths: list[Path], preprocessing: Preprocessing) -> None:
        from torchvision.transforms import v2

        channels, height, width = preprocessing.size
        if channels not in (1, 3):
            raise _other_channels(channels, 3)
        self.paths = paths
        self.classes = sorted({path.parent.name for path in paths})
        self.mode = "L" if channels == 1 else "RGB"
        self.transform = v2.Compose(
            [
                v2.Resize(max(height, width), antialias=True),
                v2.CenterCrop((height, width)),
                v2.PILToTensor(),
                v2.ToDtype(torch.float32, scale=True),
                v2.Normalize(preprocessing.mean[:channels], preprocessing.std[:channels]),
            ]
        )

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        path = self.paths[index]
        pixels: Tensor = self.transform(decoded(path, self.mode))
        return pixels, self.classes.index(path.parent.name)
