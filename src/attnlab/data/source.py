"""What tells the images that a command was given from others."""

from __future__ import annotations

from pathlib import Path

from attnlab._checksums import file_checksum, files_checksum
from attnlab.data.config import DataConfig
from attnlab.data.decode import SUFFIXES
from attnlab.data.load import data_checksum


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
