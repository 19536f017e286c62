"""`attnlab style`: photographs in the style of a picture."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from attnlab.cli._show import Justify, console, print_python, table

if TYPE_CHECKING:
    from attnlab.results import RunResult

_PICTURES = 8


@dataclass(frozen=True)
class Train:
    """Learn the style of one picture, in a folder that the same command takes up again.

    Examples:
      attnlab style train strokes --losses filters --out runs/strokes
      attnlab style train painting.jpg --photos photos --weights vgg16.pth --out runs/painting
      attnlab style train strokes --norm batch --attention asr:se --losses filters --out runs/asr
    """

    style: Annotated[str, tyro.conf.Positional]
    """The picture whose style is learned, or one of attnlab's own: strokes, glass."""
    out: Annotated[Path, tyro.conf.arg(aliases=["-o"])]
    """The run's folder."""
    photos: Path | None = None
    """Folder of photographs, of which every fifth is held out; scikit-learn's two if left out."""
    losses: Literal["vgg16", "filters"] = "vgg16"
    """What judges: the trained VGG16, or random filters, which need no file."""
    weights: str | None = None
    """File of VGG16's weights; torchvision's cache if left out. Nothing is fetched."""
    maps: int = 4
    """How many of VGG16's four maps, from the first; fewer take less time."""
    norm: Literal["instance", "batch"] = "instance"
    """The norms of the network."""
    attention: str = "none"
    """A gate after every norm, e.g. asr:se."""
    width: int = 16
    """The width of the network; 32 is usual."""
    blocks: int = 3
    """Residual blocks of the network; 5 are usual."""
    size: int = 96
    """Side of the parts of photographs that the network sees."""
    content_weight: float = 1.0
    """Weight of the content loss."""
    style_weight: float | None = None
    """Weight of the style loss; 20000 for VGG16 and 8000 for filters if left out."""
    epochs: int = 10
    """Over the photographs."""
    batch: int = 4
    """Photographs per step."""
    seed: int = 0
    """Decides the first weights and the order of the photographs."""


@dataclass(frozen=True)
class Apply:
    """Pictures in the style that a run has learned; where gates are constant, also by the folded
    network.

    Examples:
      attnlab style apply runs/strokes cat.jpg dog.jpg --out styled
      attnlab style apply runs/asr cat.jpg --size 256 --out styled
    """

    run: Annotated[Path, tyro.conf.Positional]
    """The folder of a run of style transfer."""
    pictures: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Image files."""
    out: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("styled")
    """Folder to write to."""
    size: int | None = None
    """What the short side of each is scaled to; as it is if left out."""


def style(action: tyro.conf.OmitSubcommandPrefixes[Train | Apply]) -> None:
    """Photographs in the style of a picture: train a network on a style, apply it to pictures.

    Examples:
      attnlab style train strokes --losses filters --out runs/strokes
      attnlab style apply runs/strokes cat.jpg --out styled
    """
    if isinstance(action, Train):
        _train(action)
    else:
        _apply(action)


def _train(action: Train) -> None:
    from attnlab._errors import OptionError
    from attnlab.instruments.measurement import MeasureConfig
    from attnlab.lab.measures import measure_run
    from attnlab.lab.training import RunConfig, train

    if action.losses == "filters" and (action.weights is not None or action.maps != 4):
        raise OptionError("--weights and --maps belong to VGG16, and --losses filters was given.")
    settings = _settings(action)
    result = train(RunConfig(**settings), action.out)
    measure: dict[str, Any] = {"images": 0, "inference_images": 0, "pictures": _PICTURES}
    measure_run(action.out, MeasureConfig(**measure))
    _print_result(result)
    _print_pictures(action.out)
    print()
    print_python(
        "from attnlab.instruments.measurement import MeasureConfig",
        "from attnlab.lab.measures import measure_run",
        "from attnlab.lab.training import RunConfig, train",
        f"result = train(RunConfig(**{settings}), {str(action.out)!r})",
        f"measure_run({str(action.out)!r}, MeasureConfig(**{measure}))",
    )


def _settings(action: Train) -> dict[str, Any]:
    options: dict[str, object] = {"style": action.style, "content_weight": action.content_weight}
    if action.style_weight is not None:
        options["style_weight"] = action.style_weight
    name = "style-filters"
    if action.losses == "vgg16":
        name = "style"
        options["maps"] = action.maps
        if action.weights is not None:
            options["weights"] = action.weights
    data: dict[str, object] = {"name": "photos", "size": action.size}
    if action.photos is not None:
        data["root"] = str(action.photos)
    network = {"width": action.width, "blocks": action.blocks, "norm": action.norm}
    return {
        "task": {"name": name, "options": options},
        "data": data,
        "backbone": "fast_style",
        "backbone_options": network,
        "attention": action.attention,
        "seed": action.seed,
        "recipe": {
            "name": "style",
            "epochs": action.epochs,
            "batch_size": action.batch,
            "warmup_epochs": min(1, action.epochs - 1),
        },
    }


def _print_result(result: RunResult) -> None:
    rows = [
        (metric.label, metric.text(value))
        for metric in result.metrics
        if (value := result.values[metric.name]) is not None
    ]
    heads: list[tuple[str, Justify]] = [
        ("on held-out photographs", "left"),
        ("lower is better", "right"),
    ]
    console().print(table(heads, rows, title=result.label))


def _print_pictures(folder: Path) -> None:
    from attnlab.instruments.pictures import PicturesResult
    from attnlab.results import StoredRun

    found = StoredRun(folder).measured_result(PicturesResult)
    assert found is not None
    print(f"wrote {len(found.pictures)} pictures to {folder / 'pictures'}")
    if found.folded_change is not None:
        print(f"by the folded network: max |Δ| {found.folded_change:.1e} of 1")


def _apply(action: Apply) -> None:
    from attnlab.lab.measures import apply_run

    for done in apply_run(action.run, action.pictures, action.out, size=action.size):
        print(f"wrote {done.written}")
        if done.folded is not None:
            print(f"wrote {done.folded}: max |Δ| {done.folded_change:.1e} of 1")
    given = ", ".join(repr(str(picture)) for picture in action.pictures)
    size = "" if action.size is None else f", size={action.size}"
    print()
    print_python(
        "from attnlab.lab.measures import apply_run",
        f"apply_run({str(action.run)!r}, [{given}], {str(action.out)!r}{size})",
    )
