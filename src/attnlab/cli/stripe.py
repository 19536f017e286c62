"""`attnlab stripe`: how much the gates of a network depend on the image."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from attnlab.cli._networks import Asked, images_line
from attnlab.cli._show import Justify, check_drawing, console, print_python, table
from attnlab.cli._study_progress import duration

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import nn

    from attnlab.instruments.maps import MapsResult
    from attnlab.instruments.stripe import StripeResult

Prepared = tuple["nn.Module", "Iterable[Any]", list[str]]
"""A network, its images, and the Python that makes both."""
_WATCHED, _MAPPED = 256, 32
"""Images, when none are asked for."""
_SILENT = 5.0
"""Seconds."""


def stripe(
    network: Annotated[str, tyro.conf.Positional],
    data: str | None = None,
    weights: str | None = None,
    attention: str | None = None,
    limit: int | None = None,
    batch: int = 64,
    root: Path = Path("data"),
    size: int | None = None,
    maps: bool = False,
    out: Path | None = None,
) -> None:
    """Watch the gates of a network over images: do they differ between images, or only between
    channels? Vertical stripes in the pictures mean that a gate hardly depends on the image.

    Examples:
      attnlab stripe runs/0a1b2c3d4e5f --out stripe
      attnlab stripe timm:seresnet50 --data photos --weights pretrained --out stripe
      attnlab stripe resnet20 --attention se --data digits
      attnlab stripe timm:vit_tiny_patch16_224 --data photos --maps --limit 32 --out maps

    Args:
        network: the folder of a finished run, or a name as for attnlab.create: timm:NAME, ...
        data: folder of images, or digits, cifar10, fake; a run's own test images when not given.
        weights: of a named network: a file, timm's "pretrained" or torchvision's "DEFAULT".
        attention: of a named network: insert this gate first, e.g. se.
        limit: use this many images, evenly spread; 256 when not given, and 32 with --maps, which
            goes over them once for every head.
        batch: images per batch.
        root: where cifar10 is.
        size: side of the images; what the network asks for when not given.
        maps: of a transformer, its attention maps instead: does each head's depend on the image,
            and what does its mean do to the output?
        out: folder for stripe.html, stripe.json and SVG figures; with --maps maps.html, maps.json.
    """
    from attnlab.cli._provenance import of_name, of_run
    from attnlab.instruments.maps import attention_maps
    from attnlab.instruments.stripe.measure import stripe as watch_gates

    check_drawing(out)
    folder = Path(network)
    if limit is None:
        limit = _MAPPED if maps else _WATCHED
    if folder.is_dir():
        given = {"--data": data, "--weights": weights, "--attention": attention, "--size": size}
        model, loader, lines = _of_run(folder, given, limit, batch)
    else:
        asked = Asked(attention, size=size)
        options = {"limit": limit, "batch": batch, "root": str(root), "size": size}
        model, loader, lines = _of_name(network, weights, asked, data or "fake", options)
    name = folder.name if folder.is_dir() else network
    source = (
        of_run(folder)
        if folder.is_dir()
        else of_name(network, attention, weights, data or "fake", root)
    )
    trained = folder.is_dir() or weights is not None
    last = ["result = attnlab.stripe(network, loader)"]
    found: StripeResult | MapsResult
    if maps:
        measured = attention_maps(model, loader, name=name, progress=_Patience())
        found = replace(measured, provenance=source)
        _print_maps(found, trained)
        last = [
            "from attnlab.instruments.maps import attention_maps",
            "result = attention_maps(network, loader)",
        ]
    else:
        found = replace(watch_gates(model, loader, name=name), provenance=source)
        _print(found, trained)
    if out is not None:
        _save(found, out / ("maps.json" if maps else "stripe.json"))
    print()
    print_python("import attnlab", *lines, *last)


class _Patience:
    """Tells on standard error how far a long measurement is."""

    def __init__(self) -> None:
        self.began = self.told = perf_counter()

    def __call__(self, done: int, total: int) -> None:
        now = perf_counter()
        if now - self.told < _SILENT or done == total:
            return
        self.told = now
        left = duration((now - self.began) / done * (total - done))
        print(f"pass {done} of {total} over the images; about {left} left", file=sys.stderr)


def _of_run(folder: Path, given: dict[str, Any], limit: int, batch: int) -> Prepared:
    from attnlab._errors import OptionError
    from attnlab.networks.checkpoint import describe, load
    from attnlab.subject import open_run

    for option in (name for name, value in given.items() if value is not None):
        raise OptionError(
            f"{option} does not go with the folder of a run, whose data, weights and gate are "
            f"known. Leave it out, or give the name of a network instead of {str(folder)!r}."
        )
    # A run's folder is trusted as its settings are, which name the classes that it trained.
    model = load(folder, trust=True)
    described = describe(folder)
    trust = ", trust=True" if described is not None and described.own_classes else ""
    lines = [
        f"network = attnlab.load({str(folder)!r}{trust})",
        f"loader = attnlab.open({str(folder)!r}, limit={limit}, batch={batch}).batches()",
    ]
    opened = replace(open_run(folder, trust=True), limit=limit, batch_size=batch)
    return model, opened.batches(), lines


def _of_name(
    name: str, weights: str | None, asked: Asked, data: str, options: dict[str, Any]
) -> Prepared:
    from attnlab.data import images_for

    model = asked.build(name, weights)
    lines = [
        "import torch",
        "from attnlab.data import images_for",
        *asked.python(repr(name), None if weights is None else repr(weights)),
        images_line(data, **options),
    ]
    return model, images_for(model, data, **options), lines


def _print(result: StripeResult, trained: bool) -> None:
    from attnlab.results.provenance import UNTRAINED

    def ratio(value: float | None) -> str:
        return "" if value is None else f"{value:.3f}"

    rows = [
        (
            site.label,
            site.name,
            str(site.channels),
            f"{site.mean:.3f}",
            f"{site.image_spread:.4f}",
            f"{site.channel_spread:.4f}",
            "constant" if site.constant else ratio(site.ratio),
        )
        for site in result.sites
    ]
    console().print(
        table(
            [
                ("block", "left"),
                ("gate", "left"),
                ("channels", "right"),
                ("mean", "right"),
                ("spread over images", "right"),
                ("over channels", "right"),
                ("ratio", "right"),
            ],
            rows,
            title=f"{result.network}, {result.images} images",
        )
    )
    print(result.verdict)
    if not trained:
        print(UNTRAINED)
    for note in result.notes:
        print(f"note: {note}")


def _print_maps(result: MapsResult, trained: bool) -> None:
    from attnlab.results.provenance import UNTRAINED

    rows = [
        (
            row["layer"],
            str(row["head"] + 1),
            f"{row['spread']:.3f}",
            f"{row['structure']:.3f}",
            f"{row['change']:.4f}",
        )
        for row in result.rows()
    ]
    columns: list[tuple[str, Justify]] = [
        ("attention", "left"),
        ("head", "right"),
        ("spread over inputs", "right"),
        ("mean map, from uniform", "right"),
        ("change of output", "right"),
    ]
    console().print(table(columns, rows, title=f"{result.network}, {result.inputs} images"))
    print(result.verdict)
    if not trained:
        print(UNTRAINED)
    for note in result.notes:
        print(f"note: {note}")


def _save(result: StripeResult | MapsResult, file: Path) -> None:
    from attnlab.lab.pages.write import write_file_page
    from attnlab.page.plot import write_svg

    for name, spec in result.figures().items():
        write_svg(spec, file.parent / f"{name.replace(' ', '-')}.svg")
    print(f"wrote {len(result.figures())} figures to {file.parent}")
    saved = result.save(file)
    print(f"wrote {saved}\nwrote {write_file_page(saved, saved.with_suffix('.html'))}")
