"""`attnlab.report`: the page of a study, of a run, or of a measurement."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def report(
    result: str | Path | Sequence[str | Path],
    out: str | Path = "report.html",
    study: str | None = None,
) -> Path:
    """Write the page of a study, with its CSV and LaTeX tables beside it, of one run or of one
    measurement, or of the stiffness of several networks; return the page's path.

    Args:
        result: the folder of the runs, that of one study or of one run in it; or a JSON file that
            `attnlab stiffness`, `attnlab stripe`, `attnlab noise`, `attnlab shorten`, `attnlab
            fold` or `attnlab compare` wrote; or several of `attnlab stiffness`.
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
    from attnlab.results.record import find_study

    if not isinstance(result, str | Path):
        if len(result) != 1:
            return write_comparison_page(result, Path(out))
        (result,) = result
    if Path(result).is_file():
        return write_file_page(result, Path(out))
    if is_run(Path(result)):
        return write_run_page(Path(result), Path(out))
    from attnlab.lab.study import Store, up_to_date

    folder, name = find_study(result, study)
    made = up_to_date(Store(folder), name)  # of what is on disk now; it is not planned again
    return write_study_page(folder, name, Path(out), made)
