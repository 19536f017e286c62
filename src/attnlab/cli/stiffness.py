"""`attnlab stiffness`: measure the trajectory of any network, or compare several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from attnlab.cli._networks import Asked, images_line
from attnlab.cli._show import Justify, check_drawing, console, numbers_table, print_python, table

if TYPE_CHECKING:
    from attnlab.instruments.stiffness.compare import Comparison
    from attnlab.instruments.stiffness.result import StiffnessResult


def stiffness(
    networks: Annotated[tuple[str, ...], tyro.conf.Positional],
    data: str = "fake",
    weights: tuple[str, ...] = (),
    attention: str | None = None,
    shortcut: Literal["projection", "zero_pad"] | None = None,
    convention: Literal["state", "normed", "branch", "paper"] = "state",
    granularity: Literal["step", "block"] = "step",
    tokens: Literal["all", "class", "patch"] = "all",
    si: int = 0,
    accuracy: str | None = None,
    limit: int | None = None,
    batch: int = 64,
    root: Path = Path("data"),
    size: int | None = None,
    out: Path | None = None,
) -> None:
    """NSI per step, TNS, δ(M), p̂(M) and the stiffest step of a network, exactly and in one pass.

    Examples:
      attnlab stiffness timm:resnet50 --data photos --weights pretrained --out stiff
      attnlab stiffness resnet20 --data digits
      attnlab stiffness timm:vit_tiny_patch16_224 --data fake --limit 64 --si 4
      attnlab stiffness resnet20 resnet32 resnet56 --data digits --accuracy 91.7,92.6,93.4

    Args:
        networks: names as for attnlab.create: resnet164, timm:NAME, torchvision:NAME.
        data: folder of images, or digits, cifar10, fake.
        weights: one per network: a file, timm's "pretrained", torchvision's "DEFAULT", or "none".
        attention: insert this gate into every network first, e.g. se.
        shortcut: of attnlab's CIFAR ResNets; zero_pad is what He et al. used.
        convention: of NSI. state: block outputs; normed: these after the norm of a post-norm
            network; branch: what is added; paper: before the gate.
        granularity: what one step is: an addition, or a block (attention and MLP together).
        tokens: which tokens of a transformer's states to count.
        si: on how many images to compute SI of every step as well (slow).
        accuracy: of the networks, separated by commas: ranks TNS, depth and size with it.
        limit: use this many images, evenly spread.
        batch: images per batch.
        root: where cifar10 is.
        size: side of the images; what the network asks for when not given.
        out: folder for stiffness.html, stiffness.json and SVG figures; of several networks one
            below it for each, and a stiffness.html that compares them.
    """
    from attnlab._errors import OptionError
    from attnlab.instruments.stiffness.compare import compare

    check_drawing(out)
    if not networks:
        raise OptionError("Expected at least one network, for example: attnlab stiffness resnet20.")
    if weights and len(weights) != len(networks):
        raise OptionError(
            f"Expected one of --weights per network but got {len(weights)} for {len(networks)} "
            f"networks; write none for a network without."
        )
    accuracies = _accuracies(accuracy, len(networks))
    given = [None if name == "none" else name for name in weights] or [None] * len(networks)

    asked = Asked(attention, shortcut, size)

    def measure(name: str, file: str | None, si: int) -> StiffnessResult:
        from attnlab.cli._provenance import of_name
        from attnlab.data import images_for
        from attnlab.instruments.stiffness.measure import stiffness as measure_stiffness

        model = asked.build(name, file)
        loader = images_for(model, data, limit=limit, batch=batch, root=root, size=size)
        found = measure_stiffness(
            model,
            loader,
            convention=convention,
            granularity=granularity,
            tokens=tokens,
            si=si,
            name=name,
        )
        return replace(found, provenance=of_name(name, attention, file, data, root))

    results, folders = [], _folders(networks)
    for name, file, folder in zip(networks, given, folders, strict=True):
        results.append(measure(name, file, si))
        _print_result(results[-1], trained=file is not None)
        _save(results[-1], out, folder)
    if out is not None and len(results) > 1:
        from attnlab.lab.pages.write import write_comparison_page

        files = [out / folder / "stiffness.json" for folder in folders]
        print(f"wrote {write_comparison_page(files, out / 'stiffness.html')}")
    if accuracies is not None:
        print("measuring untrained controls")
        untrained = [measure(name, None, 0) for name in networks]
        comparison = compare(results, accuracies, untrained)
        _print_comparison(comparison)
        if out is not None:
            from attnlab.instruments.stiffness.result_figures import comparison_figure
            from attnlab.page.plot import write_svg

            print(f"wrote {write_svg(comparison_figure(comparison), out / 'comparison.svg')}")
    loader = images_line(data, limit=limit, batch=batch, root=str(root), size=size)
    options = [f"convention={convention!r}"] if convention != "state" else []
    options += [f"granularity={granularity!r}"] if granularity != "step" else []
    options += [f"tokens={tokens!r}"] if tokens != "all" else []
    options += [f"si={si}"] if si else []
    print()
    print_python(*_python(networks, given, asked, loader, options, accuracies))


def _python(
    networks: Sequence[str],
    weights: Sequence[str | None],
    asked: Asked,
    loader: str,
    options: Sequence[str],
    accuracies: Sequence[float] | None,
) -> list[str]:
    first = ["import attnlab", "import torch", "from attnlab.data import images_for"]
    measured = ", ".join(["network", "loader", *options])
    if len(networks) == 1:
        file = None if weights[0] is None else repr(weights[0])
        built = asked.python(repr(networks[0]), file)
        return [*first, *built, loader, f"result = attnlab.stiffness({measured})"]
    inside = [*asked.python("name", "weights"), loader, f"return attnlab.stiffness({measured})"]
    lines = [*first, "def measure(name, weights=None):", *(f"    {line}" for line in inside)]
    files = ", ".join(f"measure({n!r}, {w!r})" for n, w in zip(networks, weights, strict=True))
    lines.append(f"results = [{files}]")
    if accuracies is not None:
        lines += [
            f"untrained = [{', '.join(f'measure({name!r})' for name in networks)}]",
            "from attnlab.instruments.stiffness.compare import compare",
            f"comparison = compare(results, {list(accuracies)}, untrained)",
        ]
    return lines


def _accuracies(text: str | None, number: int) -> list[float] | None:
    from attnlab._errors import OptionError

    if text is None:
        return None
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        found = []
    if len(found) != number:
        raise OptionError(
            f"Expected --accuracy to be {number} numbers separated by commas, one per network, but "
            f"got {text!r}."
        )
    return found


def _print_result(result: StiffnessResult, trained: bool) -> None:
    from attnlab.results.provenance import UNTRAINED

    has_si = any(step.si is not None for step in result.nsi)
    columns: list[tuple[str, Justify]] = [("step", "left"), ("module", "left")]
    numbers = ["NSI", "spread", "5 %", "median", "95 %", "stiffest of"]
    numbers += ["SI", "residual"] if has_si else []
    rows = []
    for step in result.nsi:
        values = (step.mean, step.spread, step.quantile_05, step.median, step.quantile_95)
        cells = [step.label, step.name, *(f"{value:.3f}" for value in values)]
        cells.append(f"{100 * step.stiffest_share:.0f} %" if step.kept else "not counted")
        if has_si:
            cells += ["", ""] if step.si is None else [f"{step.si:.3f}", f"{step.si_residual:.0e}"]
        rows.append(cells)
    columns += [(number, "right") for number in numbers]
    title = f"{result.network}, NSI by convention {result.convention!r}"
    title += f", {result.tokens} tokens" if result.tokens != "all" else ""
    console().print(table(columns, rows, title))
    error = result.tns_spread / max(result.inputs, 1) ** 0.5
    print(f"TNS {result.tns:.4f} ± {error:.4f} (standard error over {result.inputs} inputs)")
    if not trained:
        print(UNTRAINED)
    print(f"plan: {result.plan}; the first {result.granularity} of every stage is not counted")
    if result.stiffest is not None:
        share = result.stiffest_share_of_tns
        own = f"{100 * share:.0f} % of its TNS on its own"
        print(
            f"stiffest step {result.stiffest.label}, of {100 * result.stiffest.share:.0f} % of the "
            f"inputs; an input's stiffest step has "
            f"{own if isfinite(share) else 'no share of a TNS of 0'}"
        )
    print(f"∫p̂ {result.proportion_integral:.4f} (L counts kept steps)")
    if result.skipped:
        print(f"skipped {result.skipped} inputs with a norm that is zero or not finite")
    for note in result.notes:
        print(f"note: {note}")
    print(f"{result.seconds:.1f} s")


def _print_comparison(comparison: Comparison) -> None:
    rows = [
        (
            row.network,
            f"{row.accuracy:.2f}",
            f"{row.tns:.4f}",
            "" if row.untrained_tns is None else f"{row.untrained_tns:.4f}",
            str(row.depth),
            f"{row.parameters / 1e6:.2f}M",
        )
        for row in comparison.rows
    ]
    heads = ("network", "accuracy", "TNS", "untrained", "steps", "params")
    tests = [
        (
            test.predictor,
            f"{test.kendall:.2f}",
            f"{test.kendall_p:.3f}",
            f"{test.spearman:.2f}",
            f"{test.spearman_p:.3f}",
        )
        for test in comparison.tests
    ]
    test_heads = ("rank correlation with accuracy", "Kendall τ", "p", "Spearman ρ", "p")
    console().print(numbers_table(heads, rows))
    console().print(numbers_table(test_heads, tests))
    exact = all(test.exact for test in comparison.tests)
    print("p-values are exact" if exact else "p-values from 100,000 random orders", "(two-sided)")
    for warning in comparison.warnings:
        print(f"warning: {warning}")
    print(comparison.verdict)


def _folders(networks: Sequence[str]) -> list[str]:
    """One for each below the given one, which a single network has for itself; a network that is
    there twice, with other weights, has a number."""
    if len(networks) == 1:
        return [""]
    names = [name.replace(":", "-").replace("/", "-") for name in networks]
    return [
        name if names.count(name) == 1 else f"{name}-{names[: place + 1].count(name)}"
        for place, name in enumerate(names)
    ]


def _save(result: StiffnessResult, out: Path | None, below: str) -> None:
    from attnlab.lab.pages.write import write_file_page
    from attnlab.page.plot import write_svg

    if out is None:
        return
    folder = out / below
    for name, spec in result.figures().items():
        print(f"wrote {write_svg(spec, folder / f'{name}.svg')}")
    saved = result.save(folder / "stiffness.json")
    print(f"wrote {saved}\nwrote {write_file_page(saved, saved.with_suffix('.html'))}")
