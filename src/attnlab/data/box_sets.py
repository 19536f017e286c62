"""Images with boxes from files, whatever the format."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnlab._checksums import files_checksum
from attnlab._spread import evenly_spread
from attnlab.data.box_checks import FoundImage


@dataclass(frozen=True)
class FoundSets:
    """What the files of a data set say, before it is checked."""

    train: list[FoundImage]
    test: list[FoundImage]
    labels: dict[Any, int]
    """From 1, by what the files call a category."""
    categories: tuple[str, ...]
    """Their names, in the order of the labels."""
    files: tuple[Path, ...]
    """Of annotations."""

    def checksum(self, root: Path) -> str:
        """Of the names and contents of annotations and images."""
        images = {image.path: None for image in (*self.train, *self.test)}
        return files_checksum(root, [*self.files, *images])


def some(images: list[FoundImage], number: int | None) -> list[FoundImage]:
    """`number` of them, evenly spread; all when None or when there are no more."""
    return [images[i] for i in evenly_spread(len(images), number).tolist()]
