"""`attnlab.report`: the page of a study or of one measurement."""

from __future__ import annotations

from pathlib import Path


def report(result: str | Path, out: str | Path = "report.html", study: str | None = None) -> Path:
    """Write the page of a study, with its CSV and LaTeX tables beside it, or of one measurement;
    return the page's path.

    Args:
        result: the folder of the runs, or that of one study in it; or a JSON file that
            `attnlab stiffness`, `attnlab stripe`, `attnlab noise` or `attnlab fold` wrote.
        out: where the page goes.
        study: which one, where the folder holds several.
    """
    from attnlab.report.read import find_study
    from attnlab.report.write import write_file_page, write_study_page

    if Path(result).is_file():
        return write_file_page(result, Path(out))
    from attnlab.study import Store, up_to_date

    folder, name = find_study(result, study)
    made = up_to_date(Store(folder), name)  # of what is on disk now; it is not planned again
    return write_study_page(folder, name, Path(out), made)
