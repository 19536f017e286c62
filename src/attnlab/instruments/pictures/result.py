"""Pictures that a network made of test images: files of a folder, named here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from attnlab.page.tables import Cell, Table
from attnlab.results.base import Result


@dataclass(frozen=True)
class KeptPicture:
    """What a network made of one test image; PNG files, relative to the folder."""

    input: str
    output: str
    folded: str | None = None
    """The picture that the folded network makes, whose constant gates are in its layers."""

    def files(self) -> tuple[str, ...]:
        """The names of all files."""
        return tuple(name for name in (self.input, self.output, self.folded) if name is not None)


@dataclass(frozen=True)
class PicturesResult(Result):
    """All pictures of a network; where gates are constant, also by the folded network."""

    FORMAT: ClassVar[str] = "attnlab pictures 1"

    pictures: tuple[KeptPicture, ...]
    folded_change: float | None
    """The largest difference of a pixel, 0 to 1, that folding made, before rounding."""

    def __post_init__(self) -> None:
        if any((each.folded is None) != (self.folded_change is None) for each in self.pictures):
            raise ValueError("expected folded pictures of all images, or of none")

    @property
    def verdict(self) -> str:
        """How many there are, and what folding changes."""
        change = self.folded_change
        folded = "" if change is None else f" By the folded network: max |Δ| {change:.1e} of 1."
        return f"{len(self.pictures)} pictures.{folded}"

    def files(self) -> tuple[str, ...]:
        return tuple(name for each in self.pictures for name in each.files())

    def table(self) -> Table:
        """The files, a row for each test image."""
        rows = [
            [Cell(each.input), Cell(each.output), Cell(each.folded or "—")]
            for each in self.pictures
        ]
        return Table(["image", "made of it", "without gates"], rows, "Pictures", names=3)
