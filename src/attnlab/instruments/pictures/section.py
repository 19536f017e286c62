"""The part of a study's page with pictures: what the networks make of the same test images."""

from __future__ import annotations

import io
from base64 import b64encode
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import numpy as np
from PIL import Image

from attnlab.instruments.pictures.result import PicturesResult
from attnlab.page.parts import Cell, Folded, Heading, Part, Section, Table, Thumbnail, ThumbnailGrid
from attnlab.results.record import StudyRecord
from attnlab.results.table import Group

_QUALITY = 90
"""Quality of the JPEGs, so that a page stays small; distances are taken from the files
themselves."""

_SHOWN = 128
"""The least number of pixels of a picture's side on the page."""


class _RunPictures(NamedTuple):
    """The pictures of a run, and where its files are."""

    directory: Path
    found: PicturesResult

    @property
    def outputs(self) -> list[Path]:
        return [self.directory / each.output for each in self.found.pictures]


_BySeed = dict[int, _RunPictures]


def pictures_section(record: StudyRecord) -> Section | None:
    """Return the section, or None if no run has pictures."""
    parts: list[Part | Folded] = []
    for group in record.table.groups:
        found = _found(record, group)
        if found:
            parts += [Heading(record.name_of(group)), _grid(found), _distances(found)]
    if not parts:
        return None
    lead = (
        "Every row is one test image, every column what one network makes of it, in eval mode, one "
        "image at a time. A folded network has no gates left; max |Δ| is the largest difference of "
        "a pixel (0 to 1) that folding made. Below: how far the pictures of two rows are apart "
        "(root mean square over pixels 0 to 1, mean over images; mean ± standard deviation over "
        "seeds), and on the diagonal how far those of two seeds of the same row are."
    )
    return Section("How do they look?", lead, parts)


def _found(record: StudyRecord, group: Group) -> dict[str, _BySeed]:
    """By row and seed; of runs with as many pictures as there are at most, since those of fewer
    images are not of the same ones."""
    found = {
        row.label: {
            run.entry.seed: _RunPictures(run.stored.directory, pictures)
            for run in record.of(group, row.label)
            if (pictures := run.measured(PicturesResult)) is not None
        }
        for row in group.rows
    }
    numbers = [len(run.outputs) for by_seed in found.values() for run in by_seed.values()]
    most = max(numbers, default=0)
    kept = {
        label: {seed: run for seed, run in by_seed.items() if len(run.outputs) == most}
        for label, by_seed in found.items()
    }
    return {label: by_seed for label, by_seed in kept.items() if by_seed}


def _grid(found: Mapping[str, _BySeed]) -> ThumbnailGrid:
    # The first seed that all rows have, else the first of each.
    common = set.intersection(*(set(by_seed) for by_seed in found.values()))
    columns: list[str] = ["image"]
    shown: list[list[Thumbnail]] = []
    for place, (label, by_seed) in enumerate(found.items()):
        seed = min(common or by_seed)
        run = by_seed[seed]
        if place == 0:
            files = [run.directory / each.input for each in run.found.pictures]
            shown.append([_thumbnail(file, "test image", n) for n, file in enumerate(files)])
        columns.append(f"{label}, seed {seed}")
        shown.append([_thumbnail(file, label, n) for n, file in enumerate(run.outputs)])
        if run.found.folded_change is not None:
            columns.append(f"{label} folded, max |Δ| {run.found.folded_change:.1g}")
            folded = [run.directory / each.folded for each in run.found.pictures if each.folded]
            shown.append([_thumbnail(f, f"{label} folded", n) for n, f in enumerate(folded)])
    return ThumbnailGrid(columns, list(zip(*shown, strict=True)))


def _thumbnail(file: Path, label: str, number: int) -> Thumbnail:
    with Image.open(file) as picture:
        buffer = io.BytesIO()
        picture.convert("RGB").save(buffer, "JPEG", quality=_QUALITY)
        # Small pictures are shown larger; the browser smooths them.
        factor = max(1.0, _SHOWN / min(picture.size))
        width, height = (round(factor * side) for side in picture.size)
    uri = f"data:image/jpeg;base64,{b64encode(buffer.getvalue()).decode()}"
    return Thumbnail(uri, f"{label}, image {number + 1}", width, height)


def _distances(found: Mapping[str, _BySeed]) -> Table:
    rows = []
    for label, own in found.items():
        cells = [Cell(label)]
        for other, others in found.items():
            pairs = (
                [(own[a], own[b]) for a, b in product(own, own) if a < b]
                if label == other
                else [(own[seed], others[seed]) for seed in own if seed in others]
            )
            cells.append(_cell([_distance(a, b) for a, b in pairs]))
        rows.append(cells)
    return Table(["pictures of", *found], rows, caption="Distance of pictures")


def _cell(values: Sequence[float]) -> Cell:
    if not values:
        return Cell("—")
    spread = f"± {np.std(values, ddof=1):.3f}" if len(values) > 1 else ""
    return Cell(f"{fmean(values):.3f}", small=spread, order=fmean(values))


def _distance(one: _RunPictures, other: _RunPictures) -> float:
    files = zip(one.outputs, other.outputs, strict=True)
    return fmean(float(np.sqrt(((_pixels(a) - _pixels(b)) ** 2).mean())) for a, b in files)


def _pixels(file: Path) -> np.ndarray:
    with Image.open(file) as picture:
        return np.asarray(picture.convert("RGB"), dtype=np.float64) / 255
