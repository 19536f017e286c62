"""The part of a page about classes: how well each is known, and which are taken for which."""

from __future__ import annotations

from collections.abc import Mapping

from attnlab.instruments.classes.figures import confusion_figure
from attnlab.instruments.classes.result import (
    SHOWN,
    ClassesResult,
    WrongImage,
    all_seeds,
    share_cell,
)
from attnlab.page.parts import (
    Cell,
    Figure,
    Folded,
    Heading,
    Part,
    Section,
    Table,
    Text,
    Thumbnail,
    ThumbnailGrid,
)
from attnlab.results.record import StudyRecord

_TITLE = "Which classes does it know?"
_TO_DO = "Look at images of the classes that are mixed up most before changing the network."
_PAIRS = 10
_THUMBNAIL = 72
"""Pixels of the page to a side of a wrong image."""
_SHOWN_ROWS = 6
"""Modules whose confusion is drawn: one more is 30 kB and a tenth of a second."""


def classes_section(record: StudyRecord) -> list[Section]:
    """One section where runs have stored their confusion; none elsewhere."""
    parts: list[Part | Folded] = []
    answer = ""
    for group in record.table.groups:
        by_row = {
            row.label: all_seeds(found)
            for row in group.rows
            if (found := record.measured(group, row.label, ClassesResult))
        }
        if not by_row:
            continue
        if len(record.table.groups) > 1:
            parts.append(Heading(record.name_of(group)))
        label, first = next(iter(by_row.items()))
        answer = answer or first.in_words(label)
        parts += [class_table(by_row), *confusion_parts(first, label)]
        parts += [
            Folded(f"Confusion of {other}", confusion_parts(found, other))
            for other, found in list(by_row.items())[1:_SHOWN_ROWS]
        ]
        if len(by_row) > _SHOWN_ROWS:
            text = f"Confusion of the first {_SHOWN_ROWS} of {len(by_row)} modules."
            parts.append(Text(text, quiet=True))
    if not parts:
        return []
    lead = "Share of the test images of each class that is predicted right, all seeds together."
    return [Section(_TITLE, lead, parts, answer, _TO_DO)]


def run_classes_section(found: ClassesResult | None) -> list[Section]:
    """The section on the classes of one run."""
    if found is None:
        return []
    parts: list[Part | Folded] = [class_table({"this run": found})]
    parts += confusion_parts(found, "this run")
    return [Section(_TITLE, "", parts, found.in_words("the network"), _TO_DO)]


def class_table(by_row: Mapping[str, ClassesResult]) -> Table:
    """A row per class, a column per module."""
    first = next(iter(by_row.values()))
    alike = {row: f.shares() for row, f in by_row.items() if f.classes == first.classes}
    lines = [
        [
            Cell(name),
            Cell(str(number), order=number),
            *(share_cell(shares[n]) for shares in alike.values()),
        ]
        for n, (name, number) in enumerate(zip(first.classes, first.images(), strict=True))
    ]
    return Table(["class", "images", *(f"{row} %" for row in alike)], lines)


def confusion_parts(found: ClassesResult, label: str) -> list[Part]:
    """The matrix as a picture, or the worst pairs if there are too many classes."""
    if len(found.classes) <= SHOWN:
        caption = f"{label}: true class (row) × predicted class (column), share of the row."
        figure = Figure(confusion_figure(found.classes, found.confusion), caption, wide=True)
        return [figure, *_wrong_parts(found, label)]
    lines = [
        [
            Cell(pair.true),
            Cell(pair.predicted),
            Cell(f"{100 * pair.share:.1f} %", order=pair.share),
            Cell(str(pair.images)),
        ]
        for pair in found.mixed_up()[:_PAIRS]
    ]
    table = Table(["true", "predicted", "share", "images"], lines, label, names=2)
    return [table, *_wrong_parts(found, label)]


def _wrong_parts(found: ClassesResult, label: str) -> list[Part]:
    """The images that the network was surest about and wrong; of several seeds, the first's."""
    if not found.wrong:
        return []
    names = found.classes
    heads = [
        f"{names[each.true]} taken for {names[each.predicted]}, {100 * each.probability:.0f} %"
        for each in found.wrong
    ]
    shown = [
        Thumbnail(
            f"data:image/png;base64,{each.png}",
            f"test image {each.number}: {head}",
            *_sides(each),
        )
        for each, head in zip(found.wrong, heads, strict=True)
    ]
    text = (
        f"{label}, first seed: wrong images of which it was surest, and the probability that it "
        f"gave. Each is stretched from black to white."
    )
    return [Text(text, quiet=True), ThumbnailGrid(heads, [shown])]


def _sides(image: WrongImage) -> tuple[int, int]:
    """Small ones are shown larger, in whole multiples so that pixels stay square."""
    zoom = max(1, _THUMBNAIL // max(image.width, image.height))
    return zoom * image.width, zoom * image.height
