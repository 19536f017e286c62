"""What is known of data without their images: the names of classes."""

from __future__ import annotations

from attnlab.data.config import DataConfig
from attnlab.data.folder import find_files


def class_names(config: DataConfig, number: int) -> tuple[str, ...]:
    """What the classes are called, as far as the data say it; else their numbers."""
    if config.name == "folder":
        return tuple(find_files(config).classes)
    return tuple(str(each) for each in range(number))
