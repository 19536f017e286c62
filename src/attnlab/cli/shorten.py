"""`attnlab shorten`: a trained network with fewer residual steps, and which of them matter."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from attnlab.cli._show import check_drawing, console, numbers_table, print_python
from attnlab.cli._trained import Given, given_network

if TYPE_CHECKING:
    from attnlab.instruments.removal import ShortenResult


def shorten(
    network: Annotated[str, tyro.conf.Positional],
    remove: tuple[str, ...],
    by: str = "output",
    data: str | None = None,
    plan: bool = False,
    most: int | None = None,
    repair: bool = False,
    latency: bool = False,
    weights: str | None = None,
    limit: int = 256,
    root: str | None = None,
    size: int | None = None,
    out: Path | None = None,
    output: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None,
) -> None:
    """Remove residual steps from a trained network: which go and why, what it costs, and the
    shorter network as a file. Steps are ranked on training images and judged on test images.

    Examples:
      attnlab shorten runs/0a1b2c3d4e5f --remove 3 -o shorter.safetensors
      attnlab shorten runs/0a1b2c3d4e5f --remove 3 --plan --out shorter
      attnlab shorten runs/0a1b2c3d4e5f --remove layer1.2 layer3.1 --repair
      attnlab shorten timm:resnet50 --weights pretrained --data PHOTOS --remove 2 --by influence

    Args:
        network: the folder of a finished run, a file of attnlab.save, or a name as for
            attnlab.create.
        remove: how many steps, or which: names of blocks (layer1.2) or labels (1.2).
        by: what decides: output, influence, nsi, tns, or with labels loss.
        data: for what is not a run: a data set with classes, such as digits; or a folder of
            images, without labels.
        plan: only say what would go, with what each ranking loses on the way.
        most: how many steps the curves of --plan and --out go; twice as many as removed when not
            given.
        repair: estimate the running statistics of BatchNorm again afterwards.
        latency: also time both networks in turns.
        weights: of a named network: a file, timm's "pretrained" or torchvision's "DEFAULT".
        limit: rank on this many images, and judge on as many.
        root: where the data are.
        size: side of the images.
        out: folder for shorten.html, shorten.json and SVG figures.
        output: the .safetensors file to write.
    """
    from attnlab._checked import check_whole
    from attnlab._errors import OptionError, unknown_name
    from attnlab.instruments.removal import RANKINGS, Trial, removal_curves
    from attnlab.instruments.removal.rankings.loss import require_labels
    from attnlab.instruments.removal.shorten import shorten as shorten_network
    from attnlab.networks.checkpoint import save

    check_drawing(out)
    for name, value in (("--limit", limit), ("--most", most), ("--size", size)):
        if value is not None:
            check_whole(name, value, 1)
    if output is not None and output.suffix != ".safetensors":
        raise OptionError(f"Expected -o to end in .safetensors but got {str(output)!r}.")
    if plan and output is not None:
        raise OptionError("--plan writes no network: leave -o or --plan out.")
    wanted = _wanted(remove)
    if by not in RANKINGS:
        raise unknown_name("ranking", by, RANKINGS)
    given = given_network(network, data, weights, root, size, limit)
    if isinstance(wanted, int) and RANKINGS[by].needs_labels:
        require_labels(Trial(given.network, given.images[:1]))
    lines = ["import attnlab", *given.lines]
    result = None
    if plan or out is not None:
        number = wanted if isinstance(wanted, int) else len(wanted)
        depth = _depth(given, number, most)
        result = removal_curves(
            given.network, given.images, test=given.test, most=depth, name=network
        )
        result = replace(result, provenance=given.provenance)
        _print_curves(result)
        lines += [
            "from attnlab.instruments.removal import removal_curves",
            f"result = removal_curves(network, images, test=test, most={depth}, name={network!r})",
        ]
        if out is not None:
            _save(result, out)
    if result is not None and plan:
        _print_plan(given, result, wanted, by)
    else:
        shorter, receipt = shorten_network(
            given.network,
            wanted,
            by,
            given.images,
            test=given.test,
            repair=repair,
            latency=latency,
        )
        print(receipt)
        words = [repr(wanted), *([f"by={by!r}"] if by != "output" else []), "images=images"]
        words += ["test=test", *(["repair=True"] if repair else [])]
        words += ["latency=True"] if latency else []
        lines.append(f"shorter, receipt = attnlab.shorten(network, {', '.join(words)})")
        if output is not None:
            described = given.description.after_shorten(shorter, receipt)
            print(f"wrote {save(shorter, output, described)}")
            lines += [
                given.described,
                f"attnlab.save(shorter, {str(output)!r}, "
                f"description.after_shorten(shorter, receipt))",
            ]
    if not given.trained:
        print("The weights are random here: give --weights of a trained network.")
    print()
    print_python(*lines)


def _wanted(remove: tuple[str, ...]) -> int | list[str]:
    from attnlab._errors import OptionError

    if len(remove) == 1 and remove[0].lstrip("-").isdigit():
        return int(remove[0])
    if not remove:
        raise OptionError("Expected --remove to be a number of steps or names of blocks.")
    return list(remove)


def _depth(given: Given, number: int, most: int | None) -> int:
    """How far curves go: as asked, else twice as far as needed where there are so many steps."""
    from attnlab.instruments.removal import Trial

    there = len(Trial(given.network, given.images[:1]).candidates)
    return max(number, min(there, 2 * number)) if most is None else most


def _print_plan(given: Given, result: ShortenResult, wanted: int | list[str], by: str) -> None:
    from attnlab.instruments.removal import RANKINGS, Trial
    from attnlab.instruments.removal.shorten import named_steps
    from attnlab.surgery.shortening import RemovedStep

    if isinstance(wanted, list):
        steps = Trial(given.network, given.images[:1]).found.steps
        rows = [RemovedStep(step.label, step.name) for step in named_steps(steps, wanted)]
    else:
        (curve,) = [curve for curve in result.curves if curve.ranking == by]
        points = curve.points[1 : wanted + 1]
        rows = [RemovedStep(each.label, each.name, each.score, each.next) for each in points]
    for row in rows:
        print(row.why(RANKINGS[by].says))


def _print_curves(result: ShortenResult) -> None:
    rankings = [curve.ranking for curve in result.curves]
    labelled = result.accuracy is not None
    what = "accuracy, %" if labelled else "relative change of the output"
    rows = []
    for points in zip(*(curve.points for curve in result.curves), strict=True):
        values = [point.accuracy if labelled else point.output_change for point in points]
        form = ".2f" if labelled else ".3f"
        rows.append((str(points[0].removed), *(f"{value:{form}}" for value in values)))
    title = f"{result.network}: {what} on {result.test_images} images, by ranking"
    console().print(numbers_table(["removed", *rankings], rows, title=title))


def _save(result: ShortenResult, out: Path) -> None:
    import json

    from attnlab.instruments.removal.figures import Measure, shorten_figure
    from attnlab.lab.pages.write import write_file_page
    from attnlab.page.plot import write_svg

    saved = result.save(out / "shorten.json")
    print(f"wrote {saved}")
    measures: list[Measure] = ["output_change"]
    if result.accuracy is not None:
        measures.append("accuracy")
    for measure in measures:
        figure = shorten_figure(json.loads(result.to_json()), measure)
        print(f"wrote {write_svg(figure, out / f'{measure}.svg')}")
    print(f"wrote {write_file_page(saved, out / 'shorten.html')}")
