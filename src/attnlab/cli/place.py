"""`attnlab place`: in which blocks gates belong, and why."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from attnlab.cli._networks import Asked, images_line
from attnlab.cli._show import Justify, check_drawing, console, print_python, table

if TYPE_CHECKING:
    from attnlab.instruments.place import Placement


def place(
    network: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="NAME")],
    budget: int | None = None,
    strategy: str = "stiffest",
    data: str | None = None,
    weights: str | None = None,
    shortcut: Literal["projection", "zero_pad"] | None = None,
    per_stage: bool = False,
    gate: str | None = None,
    limit: int | None = 512,
    batch: int = 64,
    root: Path = Path("data"),
    size: int | None = None,
    json: bool = False,
    out: Path | None = None,
) -> None:
    """Propose the blocks in which gates belong, with the reason and the margin of each choice.

    Strategies: stiffest, softest, tns and nsi-spread measure how far the steps move the features;
    spread warms a network with gates up and takes those that differ between images; effect is one
    backward pass. Blocks that need no measurement are written as --where of attnlab insert: all,
    every:3, code:1001, random:1@0, any:3@0.

    Examples:
      attnlab place resnet20 --budget 3 --data digits
      attnlab place resnet20 --budget 1 --per-stage --strategy effect --data digits
      attnlab place timm:resnet50 --weights pretrained --budget 4 --data PHOTOS --out where

    Args:
        network: a network of attnlab, 'timm:NAME' or 'torchvision:NAME'.
        budget: how many blocks get a gate.
        strategy: stiffest, softest, tns, nsi-spread, spread or effect.
        data: training images: a folder, or digits, cifar10, fake. Labels of a folder are its
            folders, in the order of their names.
        weights: a file, timm's "pretrained", torchvision's "DEFAULT"; random if left out.
        shortcut: of attnlab's CIFAR ResNets; zero_pad is what He et al. used.
        per_stage: this many blocks in every stage, so that every choice costs the same.
        gate: of the strategy spread; se if left out.
        limit: use this many images, evenly spread.
        batch: images per batch.
        root: where cifar10 is.
        size: side of the images; what the network asks for when not given.
        json: print the placement as JSON and nothing else.
        out: folder for place.html, place.json and place.svg.
    """
    from attnlab._errors import OptionError
    from attnlab.cli._provenance import of_name
    from attnlab.data import images_for
    from attnlab.instruments.place.measure import place as propose
    from attnlab.instruments.place.registry import strategy_named

    check_drawing(out)
    needs = strategy_named(strategy).needs
    if data is None:
        raise OptionError(
            f"Strategy {strategy!r} measures on images: pass training images, --data FOLDER or "
            f"--data digits."
        )
    if needs == "labels" and data == "fake":
        raise OptionError(
            f"Strategy {strategy!r} needs the labels of the images, and fake images have none. "
            f"Pass --data FOLDER with a folder per class, or --data digits."
        )
    asked = Asked(shortcut=shortcut, size=size)
    model = asked.build(network, weights)
    lines = asked.python(repr(network), None if weights is None else repr(weights))
    options: dict[str, Any] = {"limit": limit, "batch": batch, "root": str(root), "size": size}
    loader = images_for(model, data, part="train", **options)
    lines = [
        "from attnlab.data import images_for",
        *lines,
        images_line(data, **options, part="train"),
    ]
    found = propose(model, budget, strategy, loader, per_stage=per_stage, gate=gate, name=network)
    found = replace(found, provenance=of_name(network, None, weights, data, root))
    if json:
        print(found.to_json())
    else:
        _print(found, trained=weights is not None)
    if out is not None:
        _save(found, out, quiet=json)
    if json:
        return
    words = [str(budget)]
    words += [] if strategy == "stiffest" else [f"strategy={strategy!r}"]
    words += ["per_stage=True"] if per_stage else []
    words += [] if gate is None else [f"gate={gate!r}"]
    words += ["loader=loader"]
    print()
    print_python(
        "import attnlab",
        "import torch",
        *lines,
        f"placement = attnlab.place({', '.join(['network', *words])})",
        "gated, receipt = attnlab.insert(network, 'se', where=placement.where)",
    )


def _print(found: Placement, trained: bool) -> None:
    from attnlab.results.provenance import UNTRAINED

    columns: list[tuple[str, Justify]] = [("block", "left"), ("module", "left")]
    columns += [("", "left"), (found.quantity, "right")]
    rows = [
        (
            block.label,
            block.name,
            "chosen" if block.chosen else "",
            f"{block.score:.4g}" if block.score is not None else block.reason,
        )
        for block in found.blocks
    ]
    title = f"{found.network}: {found.strategy}, {found.what}, {found.images} images"
    console().print(table(columns, rows, title))
    for line in found.reasons():
        print(line)
    if not trained:
        print(UNTRAINED)
    for note in found.notes:
        print(f"note: {note}")
    print(f"where={found.where!r}")


def _save(found: Placement, out: Path, quiet: bool) -> None:
    import sys

    from attnlab.lab.pages.write import write_file_page
    from attnlab.page.plot import write_svg

    saved = found.save(out / "place.json")
    figure = write_svg(found.figure(), out / "place.svg")
    page = write_file_page(saved, saved.with_suffix(".html"))
    for file in (figure, saved, page):
        print(f"wrote {file}", file=sys.stderr if quiet else sys.stdout)
