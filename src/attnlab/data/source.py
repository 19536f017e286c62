"""What is known of data without their images: what tells them from others, names of classes."""

from __future__ import annotations

from pathlib import Path

from attnlab._checksums import file_checksum, files_checksum
from attnlab.data.config import DataConfig
from attnlab.data.folder import find_files
from attnlab.data.load import data_checksum
from attnlab.data.pictures import SUFFIXES


def images_checksum(data: str, root: str | Path = "data") -> str:
    """SHA-256 of what `images_for(network, data, root=root)` reads: of a folder the names and
    contents of its images; empty for `fake`, which is made from a seed."""
    if data == "fake":
        return ""
    if data == "cifar10":
        archives = sorted(Path(root).glob("cifar10*.npz"))
        return file_checksum(archives[0]) if archives else data_checksum(DataConfig(name=data))
    if Path(data).is_dir():
        images = [p for p in Path(data).rglob("*") if p.suffix.lower() in SUFFIXES]
        return files_checksum(data, images)
    return data_checksum(DataConfig(name=data))


def class_names(config: DataConfig, number: int) -> tuple[str, ...]:
    """What the classes are called, as far as the data say it; else their numbers."""
    if config.name == "folder":
        return tuple(find_files(config).classes)
    return tuple(str(each) for each in range(number))
