"""`attnlab speed`: ASR's Table 1 on this machine."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import tyro

from attnlab.cli._show import check_drawing, print_python
from attnlab.cli.driver import Output, Process, show, write

if TYPE_CHECKING:
    from attnlab.instruments.speed.result import SpeedRow, TimedImages


@dataclass(frozen=True)
class SpeedOptions:
    """What is timed."""

    network: str = "resnet164"
    """A name as for attnlab.create."""
    sizes: tuple[int, ...] = (32, 96)
    """Sides of the images."""
    classes: tuple[int, ...] = (100, 10)
    """One number for each size."""
    batches: tuple[int, ...] = (1, 16, 100)
    """Images at a time."""
    seconds: float = 4.0
    """For one row at most; at least ten rounds are timed."""
    device: str | None = None
    """cpu or cuda; a GPU if there is one."""


_Chosen = Annotated[SpeedOptions, tyro.conf.OmitArgPrefixes]
_Output = Annotated[Output, tyro.conf.OmitArgPrefixes]
_Process = Annotated[Process, tyro.conf.OmitArgPrefixes]


def speed(
    chosen: _Chosen,
    output: _Output,
    process: _Process,
    gates: Annotated[tuple[str, ...], tyro.conf.Positional] = (),
) -> None:
    """Time networks with attention against the plain one, interleaved: images per second, and time
    relative to plain with its 95 % interval; constant gates as trained, folded and fused. Every row
    is stored at once, if --out is given: after a stop, the same command goes on where it was.

    Examples:
      attnlab speed --out speed
      attnlab speed se asr:se --sizes 32 --classes 100 --batches 16
      attnlab speed se asr:se --network resnet20 --sizes 32 --classes 10 --batches 1 --seconds 1

    Args:
        chosen: what is timed.
        output: what is printed and written.
        process: where the command runs.
        gates: which, beside plain against a copy (the noise); ASR's Table 1 when not given.
    """
    from attnlab.instruments.speed.measure import GATES, speed_table

    check_drawing(output.out)
    images = _images(chosen.sizes, chosen.classes, chosen.batches)
    process.prepare()
    names = tuple(dict.fromkeys(("none", *gates))) if gates else GATES
    file = None if output.out is None else str(output.out / "speed.json")
    where = sys.stderr if output.json else sys.stdout
    found = speed_table(
        images,
        names,
        chosen.network,
        seconds=chosen.seconds,
        device=chosen.device,
        file=file,
        report=lambda row: print(_line(row), file=where, flush=True),
    )
    show(found, output)
    write(found, output, "")
    if not output.json:
        print()
        print_python(*_python(chosen, images, names, file))


def _python(
    chosen: SpeedOptions, images: list[TimedImages], names: tuple[str, ...], file: str | None
) -> list[str]:
    import torch

    options = {"network": chosen.network, "seconds": chosen.seconds, "device": chosen.device}
    words = ", ".join(f"{name}={value!r}" for name, value in {**options, "file": file}.items())
    return [
        "import torch",
        "from attnlab.instruments.speed import TimedImages, speed_table",
        f"torch.set_num_threads({torch.get_num_threads()})",
        f"images = {images}",
        f"result = speed_table(images, {names}, {words})",
    ]


def _images(
    sizes: tuple[int, ...], classes: tuple[int, ...], batches: tuple[int, ...]
) -> list[TimedImages]:
    from attnlab._errors import OptionError
    from attnlab.instruments.speed.result import TimedImages

    if len(sizes) != len(classes):
        raise OptionError(
            f"Expected as many --classes as --sizes but got {len(classes)} and {len(sizes)}."
        )
    for name, values in (("sizes", sizes), ("classes", classes), ("batches", batches)):
        if not values or min(values) < 1:
            raise OptionError(f"Expected --{name} of at least 1 but got {list(values)}.")
    return [
        TimedImages(size, number, batch)
        for size, number in zip(sizes, classes, strict=True)
        for batch in batches
    ]


def _line(row: SpeedRow) -> str:
    return (
        f"{row.images.size} px, batch {row.images.batch}, {row.label}: {row.ratio:.3f} "
        f"[{row.low:.3f}, {row.high:.3f}], {row.rounds} rounds"
    )
