"""Pages as files."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from attnlab._errors import InputError
from attnlab._files import write_whole
from attnlab.instruments.registry import result_kind
from attnlab.instruments.stiffness import StiffnessResult
from attnlab.instruments.stiffness.page import comparison_page
from attnlab.lab.comparison.result import (
    ComparisonResult as ComparisonResult,  # so that it is in FORMATS
)
from attnlab.lab.pages.figures import talk_figure
from attnlab.lab.pages.help import forest_rows
from attnlab.lab.pages.run_page import run_page
from attnlab.lab.pages.study_page import study_page
from attnlab.lab.pages.verdict import study_verdict
from attnlab.page.plot import check_figure_file, write_figure
from attnlab.page.rendering import render
from attnlab.results import StoredRun
from attnlab.results.base import FORMATS, Result
from attnlab.results.mirror import one_result
from attnlab.results.record import RENDERED, find_study, read_record
from attnlab.results.study import RunEntry, StoredStudy
from attnlab.results.table import StudyTable
from attnlab.surgery.folding import FoldReceipt as FoldReceipt  # so that it is in FORMATS


def write_study_page(
    folder: Path,
    name: str,
    out: Path,
    made: tuple[StoredStudy, StudyTable] | None = None,
    read: Callable[[RunEntry], StoredRun] | None = None,
) -> Path:
    """The page of a study of the runs in `folder`, from its stored table or the one that was
    `made` of runs as they were `read`, with CSV and LaTeX beside it."""
    record = read_record(folder, name, made, read)
    write_whole(out, render(study_page(record, out.stem)))
    write_whole(out.with_suffix(".csv"), record.columns.values().to_csv())
    write_whole(out.with_suffix(".tex"), record.columns.for_latex().to_latex())
    return out


def chart(result: str | Path, out: str | Path, study: str | None = None) -> Path:
    """Write the differences that the modules of a study make as one figure for a talk, and return
    its path.

    Args:
        result: the folder of the runs, or of the study in it.
        out: a name that ends in .svg, .png or .pdf.
        study: which one, where the folder holds several.
    """
    check_figure_file(Path(out))
    record = read_record(*find_study(one_result(result), study))
    groups = {
        record.name_of(group): rows for group in record.table.groups if (rows := forest_rows(group))
    }
    if not groups:
        raise InputError(
            f"The study {record.table.study!r} has no pair of finished runs: a module is compared "
            f"with the plain backbone of the same seed."
        )
    verdict = study_verdict(record).replace("**", "")
    title = record.study.title or record.table.study
    return write_figure(talk_figure(groups, record.metric, title, verdict), Path(out))


def write_run_page(folder: Path, out: Path) -> Path:
    """Write the page of one run."""
    return write_whole(out, render(run_page(folder)))


def write_comparison_page(files: Sequence[str | Path], out: Path) -> Path:
    """The page of two or more stiffness.json side by side."""
    found = []
    for file in files:
        try:
            found.append(StiffnessResult.load(file))
        except (ValueError, OSError):
            raise InputError(
                f"Expected several files to be stiffness.json (attnlab stiffness --out), which one "
                f"page compares, but {str(file)!r} is not one."
            ) from None
    return write_whole(out, render(comparison_page(found)))


def write_result_page(result: Result, out: Path) -> Path:
    """Write the page of a result."""
    return write_whole(out, render(result.page()))


def write_file_page(file: str | Path, out: Path) -> Path:
    """The page of the measurement in a JSON file, whichever it is."""
    path = Path(file)
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        raise InputError(f"{str(path)!r} is not JSON. Expected {RENDERED}.") from None
    kind = str(found.get("format", "")) if isinstance(found, dict) else ""
    result = result_kind(kind)
    if result is not None:
        content = {name: value for name, value in found.items() if name != "format"}
        try:
            made = result.from_content(content)
        except InputError as error:
            raise InputError(f"{str(path)!r} is not as attnlab wrote it. {error}") from None
        return write_result_page(made, out)
    # "attnlab fold 2": the number is the version.
    known = [name for name in FORMATS if name.rpartition(" ")[0] == kind.rpartition(" ")[0]]
    if known:
        raise InputError(
            f"{str(path)!r} has the format {kind!r}, expected {known[0]!r}: another version of "
            f"attnlab wrote it."
        )
    raise InputError(f"{str(path)!r} is not a result that has a page. Expected {RENDERED}.")


def report(
    result: str | Path | Sequence[str | Path],
    out: str | Path = "report.html",
    study: str | None = None,
) -> Path:
    """Write the page of a study, with its CSV and LaTeX tables beside it, of one run or of one
    measurement, or of the stiffness of several networks; return the page's path.

    Args:
        result: the folder or the address of the runs, that of one study or of one run in it; or a
            JSON file that `attnlab stiffness`, `attnlab stripe`, `attnlab noise`, `attnlab
            shorten`, `attnlab fold` or `attnlab compare` wrote; or several of `attnlab stiffness`.
        out: where the page goes.
        study: which one, where the folder holds several.
    """
    from attnlab.lab.pages.run_page import is_run
    from attnlab.lab.pages.write import (
        write_comparison_page,
        write_file_page,
        write_run_page,
        write_study_page,
    )

    if not isinstance(result, str | Path):
        if len(result) != 1:
            return write_comparison_page(result, Path(out))
        (result,) = result
    result = one_result(result)
    if result.is_file():
        return write_file_page(result, Path(out))
    if is_run(result):
        return write_run_page(result, Path(out))
    from attnlab.lab.study import Store, up_to_date

    folder, name = find_study(result, study)
    store = Store(folder)
    made = up_to_date(store, name)  # of what is on disk now; it is not planned again
    return write_study_page(folder, name, Path(out), made, store.run)
