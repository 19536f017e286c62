"""Images with boxes as files have them, whatever the format, checked before anything is trained
on."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from PIL import Image

from attnlab._checksums import files_checksum
from attnlab._errors import InputError
from attnlab._spread import evenly_spread
from attnlab.data.batches import Points
from attnlab.data.boxes import BoxImage, as_target
from attnlab.data.orientation import Orientations
from attnlab.data.samples import read_first

_SHOWN = 5
"""Problems that a message spells out."""
_SLACK = 1.0
"""Pixels that a box may stick out of its image, as rounded boxes do; it is cut off there."""


class BoxNote(UserWarning):
    """Boxes were left out because `bad = "drop"` says so."""


@dataclass(frozen=True)
class FoundBox:
    """A box as a file has it."""

    place: str
    """`instances.json, annotation 3 (id 17)`: for messages."""
    category: Hashable
    edges: tuple[float, ...]
    """Left, top, right, bottom, in pixels."""
    crowd: bool = False
    area: float | None = None
    outline: tuple[float, ...] = ()
    """x and y of each corner, in pixels; empty if it is not known."""
    points: tuple[float, ...] = ()
    """x and y in pixels of each point, and its visibility if the data have it."""


@dataclass(frozen=True)
class FoundImage:
    """An image as a file has it."""

    path: Path
    width: int
    height: int
    boxes: tuple[FoundBox, ...]


@dataclass(frozen=True)
class CheckedImages:
    """Images that can be trained on."""

    images: list[BoxImage]
    notes: tuple[str, ...]
    """What a reader of the results should know of them."""


def checked_images(
    images: Sequence[FoundImage],
    labels: Mapping[Hashable, int],
    bad: str,
    what: str,
    points: Points | None = None,
) -> CheckedImages:
    """The images with their targets. `labels`: the label of every category. `bad`: whether boxes
    that cannot be used are an error or are dropped. `points` of every object, if there are any."""
    orientations = check_files(images, what)
    as_shown = orientations.as_shown(what)
    problems: list[str] = []
    shape = None if points is None else points.shape
    found = [_checked(image, labels, problems, as_shown, shape) for image in images]
    total = sum(len(image.boxes) for image in images)
    if not total:
        raise InputError(f"{what} has no box in {len(images)} images.")
    if problems and bad == "error":
        raise InputError(
            f"{what}: {len(problems)} of {total} boxes cannot be used:\n{spelled_out(problems)}\n"
            f'Repair them, or set data.options.bad = "drop" to leave them out.'
        )
    if problems:
        warnings.warn(
            f"{what}: {len(problems)} of {total} boxes are left out:\n{spelled_out(problems)}",
            BoxNote,
            stacklevel=2,
        )
    return CheckedImages(found, orientations.notes(what))


def spelled_out(problems: Sequence[str]) -> str:
    """Return the first problems as lines, and how many more there are."""
    lines = [f"  {problem}" for problem in problems[:_SHOWN]]
    more = len(problems) - _SHOWN
    return "\n".join([*lines, f"  and {more} more"] if more > 0 else lines)


def _checked(
    image: FoundImage,
    labels: Mapping[Hashable, int],
    problems: list[str],
    as_shown: bool,
    shape: tuple[int, int] | None,
) -> BoxImage:
    kept = []
    for box in image.boxes:
        reason = box_problem(box, image.width, image.height, labels)
        if reason:
            problems.append(f"{box.place} of {image.path.name!r} {reason}.")
        else:
            kept.append(box)
    size = torch.tensor([image.width, image.height] * 2)
    edges = torch.tensor([box.edges for box in kept], dtype=torch.float64).reshape(-1, 4)
    edges = edges.clamp_min(0).minimum(size)
    area = (edges[:, 2:] - edges[:, :2]).prod(1)
    for number, box in enumerate(kept):
        if box.area is not None:
            area[number] = box.area
    target = as_target(
        edges,
        torch.tensor([labels[box.category] for box in kept]),
        area,
        torch.tensor([box.crowd for box in kept]),
    )
    outlines = [torch.tensor(box.outline, dtype=torch.float64).reshape(-1, 2) for box in kept]
    points = torch.tensor([box.points for box in kept], dtype=torch.float64)
    return BoxImage(
        image.path,
        target,
        tuple(each for each in outlines if len(each)),
        points.reshape(len(kept), *shape) if shape else None,
        as_shown,
    )


def box_problem(box: FoundBox, width: int, height: int, labels: Mapping[Hashable, int]) -> str:
    """Why a box cannot be used; empty if it can."""
    if box.category not in labels:
        known = ", ".join(map(str, list(labels)[:8]))
        return f"has the category {box.category!r}, which is not one of {known}, …"
    if len(box.edges) != 4:
        return f"has {len(box.edges)} numbers, expected 4"
    if not all(map(math.isfinite, box.edges)):
        return f"is not finite: {_shown(box)}"
    if box.area is not None and not 0 <= box.area < math.inf:
        return f"has the area {box.area}"
    if not all(map(math.isfinite, (*box.outline, *box.points))):
        return "has an outline or points that are not finite"
    left, top, right, bottom = box.edges
    if right <= left or bottom <= top:
        return f"has no area: {_shown(box)}"
    outside = max(-left, -top, right - width, bottom - height)
    inside = min(right, width) > max(left, 0) and min(bottom, height) > max(top, 0)
    if outside > _SLACK or not inside:
        return f"is outside of the image, which is {width}×{height}: {_shown(box)}"
    return ""


def _shown(box: FoundBox) -> str:
    left, top, right, bottom = (f"{edge:g}" for edge in box.edges)
    return f"left {left}, top {top}, right {right}, bottom {bottom}"


def check_files(images: Sequence[FoundImage], what: str) -> Orientations:
    """Refuse images that are not there and, among those that are opened first, damaged ones; say
    how these are turned."""
    if not images:
        raise InputError(f"{what} has no image.")
    missing = [f"{str(image.path)!r}" for image in images if not image.path.is_file()]
    if missing:
        raise InputError(
            f"{what}: {len(missing)} of {len(images)} images are not there:\n{spelled_out(missing)}"
        )
    looked = read_first(images)
    orientations = Orientations()
    damaged = [reason for image in looked if (reason := _damage(image, orientations))]
    if damaged:
        raise InputError(
            f"{what}: {len(damaged)} of {len(looked)} images cannot be used:\n"
            f"{spelled_out(damaged)}"
        )
    return orientations


def _damage(image: FoundImage, orientations: Orientations) -> str:
    try:
        with Image.open(image.path) as opened:
            size = opened.size
            fits = orientations.fits(image.path, opened, (image.width, image.height))
            opened.verify()
    except Exception as error:  # on arbitrary bytes the readers fail with any type of error
        return f"{str(image.path)!r} is not a readable image ({error})."
    if not fits:
        return (
            f"{str(image.path)!r} is {size[0]}×{size[1]}, but its annotation says "
            f"{image.width}×{image.height}."
        )
    return ""


@dataclass(frozen=True)
class FoundSets:
    """What the files of a data set say, before it is checked."""

    train: list[FoundImage]
    test: list[FoundImage]
    labels: dict[Hashable, int]
    """The labels, counted from 1, by what the files call a category."""
    categories: tuple[str, ...]
    """The names of the categories, in the order of the labels."""
    files: tuple[Path, ...]
    """The files of annotations."""
    points: Points | None = None
    """What is known of the points of the objects; None if they have none."""
    notes: tuple[str, ...] = ()
    """What a reader of the results should know of where they are."""

    def checksum(self, root: Path) -> str:
        """Return a checksum of the names and contents of annotations and images. Names are relative
        to `root`, or, if files lie elsewhere, to the folder that holds all of them."""
        images = {image.path: None for image in (*self.train, *self.test)}
        files = [*self.files, *images]
        if not all(file.is_relative_to(root) for file in files):
            files = [Path(os.path.abspath(file)) for file in files]
            root = Path(os.path.commonpath([file.parent for file in files]))
        return files_checksum(root, files)


def some(images: list[FoundImage], number: int | None) -> list[FoundImage]:
    """Return `number` of the images, evenly spread; all when None or when there are no more."""
    return [images[i] for i in evenly_spread(len(images), number)]
