"""Figures and pages. Figures are pure functions from data to a Vega-Lite specification."""

from __future__ import annotations

from pathlib import Path


def report(result: str | Path, out: str | Path = "report.html", study: str | None = None) -> Path:
    """Write the page of a study, with its CSV and LaTeX tables beside it, or of one measurement;
    return the page's path.

    Args:
        result: the folder of the runs, or that of one study in it; or a JSON file that
            `attnlab stiffness`, `attnlab stripe` or `attnlab fold` wrote.
        out: where the page goes.
        study: which one, where the folder holds several.
    """
    from attnlab._files import write_whole
    from attnlab.report.page import render
    from attnlab.report.read import read_study
    from attnlab.report.result_file import result_page
    from attnlab.report.study_page import study_page, write_tables

    page = Path(out)
    if Path(result).is_file():
        return write_whole(page, result_page(result))
    record = read_study(result, study)
    write_whole(page, render(study_page(record, page.stem)))
    write_tables(record, page)
    return page
