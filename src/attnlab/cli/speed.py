"""`attnlab speed`: ASR's Table 1 on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from attnlab.cli._show import console, numbers_table, print_python

if TYPE_CHECKING:
    from attnlab.instruments.speed.table import Images, SpeedRow

_SETS = {(32, 100): "CIFAR100", (96, 10): "STL10"}


def speed(
    gates: Annotated[tuple[str, ...], tyro.conf.Positional] = (),
    network: str = "resnet164",
    sizes: tuple[int, ...] = (32, 96),
    classes: tuple[int, ...] = (100, 10),
    batches: tuple[int, ...] = (1, 16, 100),
    seconds: float = 4.0,
    threads: int | None = None,
    device: str | None = None,
    out: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("speed.json"),
) -> None:
    """Time networks with attention against the plain one, in turns: images per second, and time
    relative to plain with its 95 % interval; constant gates as trained, folded and fused. After a
    stop, the same command goes on where it was.

    Examples:
      attnlab speed --out speed.json
      attnlab speed se asr:se --sizes 32 --classes 100 --batches 16
      attnlab speed se asr:se --network resnet20 --sizes 32 --classes 10 --batches 1 --seconds 1

    Args:
        gates: which, beside plain against a copy (the noise); ASR's Table 1 when not given.
        network: a name as for attnlab.create.
        sizes: of the images.
        classes: one number for each size.
        batches: images at a time.
        seconds: for one row at most; at least ten rounds are timed.
        threads: of torch on the CPU; as they are when not given.
        device: cpu or cuda; a GPU where there is one.
        out: JSON, written after every row; what it has is not timed again.
    """
    import torch

    from attnlab._errors import OptionError
    from attnlab.instruments.speed.table import GATES, Images, speed_table

    if len(sizes) != len(classes):
        raise OptionError(
            f"Expected as many --classes as --sizes but got {len(classes)} and {len(sizes)}."
        )
    for name, values in (("sizes", sizes), ("classes", classes), ("batches", batches)):
        if not values or min(values) < 1:
            raise OptionError(f"Expected --{name} of at least 1 but got {list(values)}.")
    if threads is not None:
        if threads < 1:
            raise OptionError(f"Expected --threads to be at least 1 but got {threads}.")
        torch.set_num_threads(threads)
    chosen = tuple(dict.fromkeys(("none", *gates))) if gates else GATES
    images = [
        Images(size, number, batch)
        for size, number in zip(sizes, classes, strict=True)
        for batch in batches
    ]
    options = {"network": network, "seconds": seconds, "device": device, "file": str(out)}
    rows = speed_table(
        images, chosen, network, seconds=seconds, device=device, file=out, report=_report
    )
    for each in images:
        _print(each, [row for row in rows if row.images == each], network)
    print(f"wrote {out}\n")
    given = ", ".join(f"{name}={value!r}" for name, value in options.items())
    print_python(
        "import torch",
        "from attnlab.instruments.speed.table import Images, speed_table",
        f"torch.set_num_threads({torch.get_num_threads()})",
        f"images = {images}",
        f"rows = speed_table(images, {chosen}, {given})",
    )


def _report(row: SpeedRow) -> None:
    print(
        f"{row.images.size} px, batch {row.images.batch}, {row.gate} {row.form}: {row.ratio:.3f} "
        f"[{row.low:.3f}, {row.high:.3f}], {row.rounds} rounds",
        flush=True,
    )


def _print(images: Images, rows: list[SpeedRow], network: str) -> None:
    from attnlab.instruments.speed.table import PAPER

    column = _SETS.get((images.size, images.classes)) if network == "resnet164" else None
    shown = []
    for row in rows:
        of = PAPER.get(row.gate, {})
        printed = [_printed(of, which) for which in ((column, "public page") if column else ())]
        # The paper's ASR rows are folded, and it has no fused ones.
        folds = row.gate.startswith("asr:")
        if row.form != ("folded" if folds else "as trained"):
            printed = ["" for _ in printed]
        shown.append(
            [
                f"{'plain' if row.gate == 'none' else row.gate}, {row.form}",
                f"{row.parameters:,}",
                f"{row.images_per_second:.1f}",
                f"{row.ratio:.3f}",
                f"{row.low:.3f} to {row.high:.3f}",
                str(row.rounds),
                *printed,
            ]
        )
    heads = ["network", "parameters", "images/s", "time / plain", "95 % interval", "rounds"]
    heads += [f"paper ({column})", "authors' page"] if column else []
    title = f"{network}, {images.size} px, {images.classes} classes, batch {images.batch}"
    console().print(numbers_table(heads, shown, title=title))


def _printed(figures: dict[str, int], which: str | None) -> str:
    """`1469/s 1.32`: images per second, and time relative to plain."""
    from attnlab.instruments.speed.table import PAPER

    if which is None or which not in figures:
        return ""
    return f"{figures[which]}/s {PAPER['none'][which] / figures[which]:.2f}"
