"""How long networks with attention take, relative to the plain one, beside the paper's figures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from attnlab.instruments.speed.figures import speed_figure
from attnlab.page.plot import Spec
from attnlab.page.tables import Cell, Table, number_cell
from attnlab.results.base import Result

Form = Literal["as trained", "folded", "fused"]
PAPER_NETWORK = "resnet164"
# Images per second: ResNet164 on CIFAR100 (32 pixels, 100 classes) and STL10 (96 pixels, 10
# classes) in Table 1, and on CIFAR100 on the authors' public page. Device and batch are not said.
PAPER: dict[str, dict[str, int]] = {
    "none": {"CIFAR100": 1944, "STL10": 255, "public page": 438},
    "ie": {"CIFAR100": 1505, "STL10": 170},
    "se": {"CIFAR100": 1469, "STL10": 173, "public page": 286},
    "srm": {"CIFAR100": 1387, "STL10": 162},
    "dia": {"CIFAR100": 1092, "STL10": 154},
    "spa": {"CIFAR100": 1080, "STL10": 180},
    "cbam": {"CIFAR100": 793, "STL10": 127},
    "asr:se": {"CIFAR100": 1942, "STL10": 255, "public page": 442},
    "asr:spa": {"CIFAR100": 1946, "STL10": 253},
    "asr:se+se": {"public page": 289},
}
_SETS = {(32, 100): "CIFAR100", (96, 10): "STL10"}
"""The data set of the paper with images of this size and this number of classes."""


@dataclass(frozen=True)
class TimedImages:
    """What a network is timed on."""

    size: int
    classes: int
    batch: int

    def __str__(self) -> str:
        return f"{self.size} px, {self.classes} classes, batch {self.batch}"


@dataclass(frozen=True)
class SpeedRow:
    """One network on one kind of images, interleaved with the plain network."""

    images: TimedImages
    gate: str
    form: Form
    parameters: int
    images_per_second: float
    plain_images_per_second: float
    """Images per second of the plain network in the same rounds."""
    ratio: float
    """Time relative to the plain network's; of a copy of the plain network it shows the noise."""
    low: float
    """The lower end of the 95 % interval of the ratio."""
    high: float
    rounds: int

    @property
    def label(self) -> str:
        """The gate and its form in words: `asr:se, folded`."""
        return f"{'plain' if self.gate == 'none' else self.gate}, {self.form}"

    def printed_by(self, source: str | None) -> str:
        """`1469/s 1.32`: what the paper's table or the authors' page says of it, images per second
        and time relative to plain; empty where that says nothing of this row."""
        # The paper's ASR rows are folded, and it has no fused ones.
        form = "folded" if self.gate.startswith("asr:") else "as trained"
        figure = PAPER.get(self.gate, {}).get(source or "")
        if figure is None or source is None or self.form != form:
            return ""
        return f"{figure}/s {PAPER['none'][source] / figure:.2f}"


@dataclass(frozen=True)
class SpeedMachine:
    """The machine on which the rows were timed."""

    name: str
    torch: str
    python: str


@dataclass(frozen=True)
class SpeedTable(Result):
    """What attention costs at inference, as trained, folded and fused."""

    FORMAT: ClassVar[str] = "attnlab speed 1"

    network: str
    device: str
    threads: int
    machine: SpeedMachine
    rows: tuple[SpeedRow, ...]

    @property
    def verdict(self) -> str:
        """The slowest and the fastest row, and what a copy of the plain network reads."""
        others = [row for row in self.rows if row.gate != "none"]
        copies = [row.ratio for row in self.rows if (row.gate, row.form) == ("none", "as trained")]
        said = []
        if others:
            slow, fast = (pick(others, key=lambda row: row.ratio) for pick in (max, min))
            said.append(f"Relative to plain, {_in_words(slow)} takes the most time")
            if fast is not slow:
                said[-1] += f" and {_in_words(fast)} the least"
        if copies:
            said.append(
                f"A copy of the plain network reads {min(copies):.3f} to {max(copies):.3f}, which "
                f"is the noise"
            )
        return ". ".join(said) + "."

    def table(self) -> Table:
        """A row per network and kind of images; beside ASR's own figures, where it has some."""
        known = {_set_of(row.images) for row in self.rows} - {None}
        printed = bool(known) and self.network == PAPER_NETWORK
        columns = ["images", "network", "parameters", "images/s", "time / plain", "95 % interval"]
        columns += ["rounds", *(("paper", "authors' page") if printed else ())]
        rows = [[*_cells(row), *(_printed(row) if printed else ())] for row in self.rows]
        where = f"{self.device}, {self.threads} threads, {self.machine.name}"
        return Table(columns, rows, f"{self.network} on {where}", names=2)

    def figures(self) -> dict[str, Spec]:
        """`speed`: time relative to the plain network, with its interval."""
        return {"speed": speed_figure(self.rows)}


def _in_words(row: SpeedRow) -> str:
    return f"{row.label} ({row.ratio:.3f} times, {row.images})"


def _set_of(images: TimedImages) -> str | None:
    return _SETS.get((images.size, images.classes))


def _cells(row: SpeedRow) -> list[Cell]:
    return [
        Cell(str(row.images)),
        Cell(row.label),
        number_cell(row.parameters, "{:,}"),
        number_cell(row.images_per_second, "{:.1f}"),
        number_cell(row.ratio, "{:.3f}"),
        Cell(f"{row.low:.3f} to {row.high:.3f}", order=row.low),
        number_cell(row.rounds, "{}"),
    ]


def _printed(row: SpeedRow) -> list[Cell]:
    found = _set_of(row.images)
    page = "public page" if found else None
    return [Cell(row.printed_by(source)) for source in (found, page)]
