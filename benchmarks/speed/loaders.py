"""How many photographs a second a core prepares for training: attnlab's loader against timm's and
torchvision's, each as its library's own training program uses it."""

from __future__ import annotations

import io
import os
import resource
import statistics
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader
from torchvision import datasets
from torchvision.transforms import v2

from attnlab.data import Data, DataConfig, load_data
from attnlab.data.batches import training_chunks
from attnlab.lab.training import Recipe
from attnlab.networks.preprocessing import IMAGENET
from benchmarks._common import Table, interleave, write_json

SIZE = 224
BATCH = 64
Epoch = Callable[[], Iterator[Tensor]]


def make_photographs(root: Path, images: int, width: int, height: int, per_shard: int) -> None:
    """Write noise of a photograph's spectrum as JPEGs in folders and, the same ones, in shards:
    about 110 kB each at 500×375, as ImageNet's are."""
    numbers = np.random.default_rng(0)
    different = [_photograph(numbers, width, height) for _ in range(min(images, 64))]
    for part, count in (("train", images), ("val", 2 * BATCH)):
        for index in range(count):
            file = root / "folder" / part / f"n{index % 10:02d}" / f"{index:07d}.jpg"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(different[index % len(different)])
        for first in range(0, count, per_shard):
            _write_shard(root, part, range(first, min(first + per_shard, count)), different)


def _write_shard(root: Path, part: str, indices: range, different: list[bytes]) -> None:
    (root / "shards").mkdir(exist_ok=True)
    with tarfile.open(root / "shards" / f"{part}-{indices.start:07d}.tar", "w") as archive:
        for index in indices:
            label = str(index % 10).encode()
            for ending, content in (("jpg", different[index % len(different)]), ("cls", label)):
                member = tarfile.TarInfo(f"{index:07d}.{ending}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))


def _photograph(numbers: np.random.Generator, width: int, height: int) -> bytes:
    squares = np.fft.fftfreq(height)[:, None] ** 2 + np.fft.rfftfreq(width)[None] ** 2
    squares[0, 0] = 1
    phases = numbers.random((4, *squares.shape))
    waves = np.fft.irfft2(np.exp(2j * np.pi * phases) / squares**0.55, s=(height, width))
    channels = waves[:1] + 0.3 * waves[1:]
    channels /= channels.std((1, 2), keepdims=True)
    pixels = np.clip(128 + 50 * channels, 0, 255).astype(np.uint8).transpose(1, 2, 0)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "JPEG", quality=int(numbers.choice([75, 92, 96])))
    return buffer.getvalue()


def _ours(root: Path, name: str) -> tuple[Data, Epoch]:
    augmentation = {"crop": "resized"}
    config = DataConfig(name=name, root=str(root / name), size=SIZE, augmentation=augmentation)
    data = load_data(config)
    recipe = Recipe(epochs=1, batch_size=BATCH, lr=0.1, drop_last=True)
    epochs = iter(range(10**9))

    def epoch() -> Iterator[Tensor]:
        number = next(epochs)
        chunks = training_chunks(data.order(0, number), recipe)
        for batch in data.training(chunks, 0, number, torch.device("cpu")):
            yield batch.inputs

    return data, epoch


def _torchvision(root: Path, workers: int) -> Epoch:
    """As in torchvision's references/classification, its presets for training."""
    transform = v2.Compose(
        [
            v2.RandomResizedCrop(SIZE, antialias=True),
            v2.RandomHorizontalFlip(),
            v2.PILToTensor(),
            v2.ToDtype(torch.float, scale=True),
            v2.Normalize(*IMAGENET),
            v2.ToPureTensor(),
        ]
    )
    items = datasets.ImageFolder(str(root / "folder" / "train"), transform)
    loader = DataLoader(
        items,
        BATCH,
        shuffle=True,
        drop_last=True,
        num_workers=workers,
        persistent_workers=workers > 0,
    )
    return lambda: (images for images, _ in loader)


def _timm(root: Path, workers: int) -> Epoch:
    """As in timm's train.py, without its colour jitter, which the others do not do either."""
    from timm.data import create_dataset, create_loader

    items = create_dataset("", root=str(root / "folder"), split="train", is_training=True)
    loader = create_loader(
        items,
        input_size=(3, SIZE, SIZE),
        batch_size=BATCH,
        is_training=True,
        color_jitter=0.0,
        interpolation="bilinear",
        num_workers=workers,
        persistent_workers=workers > 0,
        pin_memory=False,
        device=torch.device("cpu"),
    )
    return lambda: (images for images, _ in loader)


def _cost(epoch: Epoch) -> Callable[[], float]:
    """A contestant: milliseconds of processor time for each image, of all processes. Those of
    worker processes count while they live, which only Linux tells."""

    def run() -> float:
        began, images = _processor_seconds(), 0
        for batch in epoch():
            images += len(batch)
        return 1000 * (_processor_seconds() - began) / images

    return run


def _processor_seconds() -> float:
    """Of this process and of all that it started and that live, and of those that ended."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    own = os.getpid()
    living = Path(f"/proc/{own}/task/{own}/children").read_text().split()
    ticks = sum(sum(map(int, _stat(each)[11:13])) for each in living)
    return (
        time.process_time()
        + ended.ru_utime
        + ended.ru_stime
        + ticks / os.sysconf(os.sysconf_names["SC_CLK_TCK"])
    )


def _stat(process: str) -> list[str]:
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()


def loaders(
    images: int = 512,
    rounds: int = 7,
    width: int = 500,
    height: int = 375,
    json: Path = Path("build/loaders.json"),
) -> None:
    """Compare loaders on JPEGs that are made here: random resized crop to 224, mirror, normalise.

    Args:
        images: how many are made, and read by each loader in a round.
        rounds: how often.
        width: of the JPEGs.
        height: of the JPEGs.
        json: where the results are written.
    """
    torch.set_num_threads(1)
    workers = max(1, min(8, (os.cpu_count() or 2) - 1))
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        make_photographs(root, images, width, height, 256)
        ours, shards = _ours(root, "folder")[1], _ours(root, "shards")[1]
        contestants = {
            "attnlab, folder": _cost(ours),
            "attnlab, shards": _cost(shards),
            "torchvision": _cost(_torchvision(root, workers)),
            "timm": _cost(_timm(root, workers)),
        }
        found = interleave(contestants, rounds)
    reference = {name: found[name] for name in ("torchvision", "timm")}
    rows = []
    for name, costs in found.items():
        ratios = [
            f"{statistics.median(a / b for a, b in zip(other, costs, strict=True)):.2f}"
            for other in reference.values()
        ]
        low = min(costs)
        rows.append([name, f"{statistics.median(costs):.2f}", f"{1000 / low:.0f}", *ratios])
    Table(
        f"JPEGs of {width}×{height} to {SIZE}, {workers} worker(s); ratios above 1 are faster",
        ("loader", "ms of a core per image", "best, images/s and core", "× torchvision", "× timm"),
        rows,
    ).print()
    write_json(json, {"size": [width, height], "milliseconds": found})


def loader_memory(
    images: int = 4096,
    epochs: int = 25,
    json: Path = Path("build/loader-memory.json"),
) -> None:
    """Watch the memory of the loader and its workers over `images` × `epochs` small JPEGs in
    shards, and how long a later epoch takes to its first batch.

    Args:
        images: how many are made.
        epochs: how often they are read.
        json: where the results are written.
    """
    torch.set_num_threads(1)
    rows, measured = [], []
    with tempfile.TemporaryDirectory() as folder:
        make_photographs(Path(folder), images, 160, 120, 512)
        data, epoch = _ours(Path(folder), "shards")
        for number in range(epochs):
            began = time.perf_counter()
            batches = epoch()
            next(batches)
            first = time.perf_counter() - began
            for _ in batches:
                pass
            measured.append({"epoch": number, "megabytes": _megabytes(), "first batch": first})
            rows.append([str((number + 1) * images), f"{_megabytes():.0f}", f"{first:.2f}"])
        del data
    step = max(1, len(rows) // 10)
    Table(
        "Private memory of the loader and its workers",
        ("images so far", "MB", "seconds to the epoch's first batch"),
        [*rows[:-1:step], rows[-1]],
    ).print()
    write_json(json, {"epochs": measured})


def _megabytes() -> float:
    """What this process and those it started have for themselves; shared pages in parts."""
    own = os.getpid()
    living = Path(f"/proc/{own}/task/{own}/children").read_text().split()
    total = 0
    for process in (str(own), *living):
        for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
            total += int(line.split()[1]) if line.startswith("Pss:") else 0
    return total / 1024
