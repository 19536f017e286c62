"""`attnlab compare`: a verdict for results that others made."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from attnlab.cli._show import check_drawing, console, print_python, rich_table

if TYPE_CHECKING:
    from attnlab.lab.comparison import ComparisonResult


def compare_logs(
    files: Annotated[tuple[Path, ...], tyro.conf.Positional],
    metric: str | None = None,
    by: str = "name",
    seed_from: str | None = None,
    seed_pattern: str | None = None,
    baseline: str | None = None,
    higher: bool = False,
    lower: bool = False,
    at: Literal["last", "best"] = "last",
    looked: bool = False,
    preset: Literal[
        "auto", "ultralytics", "lightning", "huggingface", "mlflow", "csv", "wandb", "json"
    ] = "auto",
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None,
) -> None:
    """Is the gain real? Logs of any training in, paired differences with intervals and a verdict
    out: Ultralytics, Lightning, Hugging Face, mmengine, MLflow, W&B, plain CSV, TSV, JSON lines.

    Examples:
      attnlab compare runs/*/results.csv --by model --baseline yolo11n.yaml
      attnlab compare logs/*/version_0/metrics.csv --metric val_acc --baseline plain
      attnlab compare out/*/trainer_state.json --metric eval_accuracy -o compare.html
      attnlab compare results.csv --metric top1 --by model --baseline resnet50
      attnlab compare results.tsv --metric val_bpb

    Args:
        files: the logs: one file per run, or one with a row per run or epoch.
        metric: the column that is compared.
        by: what names a row: a setting beside the log, a column, or the run's name without its
            seed.
        seed_from: what holds the seed: seed where that is known, else name.
        seed_pattern: a regular expression whose group is the seed: '-(\\d+)$' for cbam-3.
        baseline: the row that the others are compared with.
        higher: higher values are better. Names like accuracy or loss say it themselves.
        lower: lower values are better.
        at: the last value of every run, or the best, which is optimistic.
        looked: seeds were added after results had been seen.
        preset: what wrote the files.
        out: a page; its JSON goes beside it.
    """
    import attnlab
    from attnlab._errors import OptionError

    check_drawing(out)
    if higher and lower:
        raise OptionError("Expected one of --higher and --lower but got both.")
    given = {
        "seed_from": seed_from,
        "seed_pattern": seed_pattern,
        "baseline": baseline,
        "better": "higher" if higher else "lower" if lower else None,
        "at": None if at == "last" else at,
        "looked": looked or None,
        "preset": None if preset == "auto" else preset,
    }
    options = {name: value for name, value in given.items() if value is not None}
    found = attnlab.compare(files, metric, by, **options)  # type: ignore[arg-type]
    _show(found)
    shown = "".join(f", {name}={value!r}" for name, value in options.items())
    listed = [str(file) for file in files]
    lines = ["import attnlab", f"found = attnlab.compare({listed}, {metric!r}, {by!r}{shown})"]
    if out is None:
        lines += ["from attnlab.lab.comparison import to_text", "print(to_text(found))"]
    else:
        beside = _write(found, out)
        lines.append(f"found.save({str(beside)!r})")
        lines.append(f"attnlab.report({str(beside)!r}, {str(out)!r})")
    print()
    print_python(*lines)


def _show(found: ComparisonResult) -> None:
    from attnlab.lab.comparison.columns import text_table
    from attnlab.lab.comparison.show import comparison_footnotes

    screen = console()
    screen.print(rich_table(text_table(found)))
    for note in comparison_footnotes(found):
        screen.print(f"* {note}" if not note.startswith("*") else note)


def _write(found: ComparisonResult, out: Path) -> Path:
    """The page, and the JSON that it was made from beside it, whose path is returned."""
    import attnlab

    beside = out.with_suffix(".json")
    stored = replace(found, command=shlex.join(["attnlab", *sys.argv[1:]]))
    print(f"wrote {stored.save(beside)}")
    print(f"wrote {attnlab.report(beside, out)}")
    return beside
