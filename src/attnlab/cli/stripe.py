"""`attnlab stripe`: how much the gates of a network depend on the image."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from attnlab.cli._show import console, print_python, table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import nn

    from attnlab.stripe import StripeResult


def stripe(
    network: Annotated[str, tyro.conf.Positional],
    data: str | None = None,
    weights: str | None = None,
    attention: str | None = None,
    limit: int | None = 256,
    batch: int = 64,
    root: Path = Path("data"),
    size: int | None = None,
    out: Path | None = None,
) -> None:
    """Watch the gates of a network over images: do they differ between images, or only between
    channels? Vertical stripes in the pictures mean that a gate hardly depends on the image.

    Examples:
      attnlab stripe runs/0a1b2c3d4e5f --out stripe
      attnlab stripe timm:seresnet50 --data photos --weights pretrained --out stripe
      attnlab stripe resnet20 --attention se --data digits

    Args:
        network: the folder of a finished run, or a name as for attnlab.create: timm:NAME, ...
        data: folder of images, or digits, cifar10, fake; a run's own test images when not given.
        weights: of a named network: a file, timm's "pretrained" or torchvision's "DEFAULT".
        attention: of a named network: insert this gate first, e.g. se.
        limit: use this many images, evenly spread.
        batch: images per batch.
        root: where cifar10 is.
        size: side of the images; what the network asks for when not given.
        out: folder for stripe.html, stripe.json and SVG figures.
    """
    from attnlab.stripe import stripe as watch

    folder = Path(network)
    if folder.is_dir():
        model, loader = _of_run(folder, data, weights, attention, limit, batch)
        line = f"attnlab.stripe(attnlab.train.load_network({network!r}), loader)"
    else:
        model, loader = _of_name(network, data, weights, attention, limit, batch, root, size)
        line = "attnlab.stripe(attnlab.create(NAME, weights=...), loader)"
    result = watch(model, loader, name=folder.name if folder.is_dir() else network)
    _print(result, trained=folder.is_dir() or weights is not None)
    if out is not None:
        _save(result, out)
    print_python(line)


def _of_run(
    folder: Path,
    data: str | None,
    weights: str | None,
    attention: str | None,
    limit: int | None,
    batch: int,
) -> tuple[nn.Module, Iterable[Any]]:
    import torch

    from attnlab._errors import OptionError
    from attnlab.train import RunConfig, load_network
    from attnlab.train.sources import load_data

    given = {"--data": data, "--weights": weights, "--attention": attention}
    for option in (name for name, value in given.items() if value is not None):
        raise OptionError(
            f"{option} does not go with the folder of a run, whose data, weights and gate are "
            f"known. Leave it out, or give the name of a network instead of {str(folder)!r}."
        )
    model = load_network(folder)
    config = RunConfig.from_json((folder / "config.json").read_text(encoding="utf-8"))
    images = load_data(config.data, config.recipe)
    number = images.facts.test if limit is None else min(limit, images.facts.test)
    chosen = torch.linspace(0, images.facts.test - 1, number).round().long()
    return model, images.testing(list(chosen.split(batch)), torch.device("cpu"))


def _of_name(
    name: str,
    data: str | None,
    weights: str | None,
    attention: str | None,
    limit: int | None,
    batch: int,
    root: Path,
    size: int | None,
) -> tuple[nn.Module, Iterable[Any]]:
    from attnlab.cli.stiffness import _build, _preprocessing
    from attnlab.trajectory._images import load

    model = _build(name, weights, attention, None, size)
    prepared = _preprocessing(model, size)
    return model, load(data or "fake", prepared, root=root, batch=batch, limit=limit)


def _print(result: StripeResult, trained: bool) -> None:
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
        print("The weights are random: this is the untrained control, not a trained network.")
    for note in result.notes:
        print(f"note: {note}")


def _save(result: StripeResult, out: Path) -> None:
    from attnlab.plot.render import write_svg
    from attnlab.report.write import write_file_page

    for name, spec in result.figures().items():
        write_svg(spec, out / f"{name.replace(' ', '-')}.svg")
    print(f"wrote {len(result.figures())} figures to {out}")
    saved = result.save(out / "stripe.json")
    print(f"wrote {saved}\nwrote {write_file_page(saved, saved.with_suffix('.html'))}")
