"""`attnlab report`: a study, or one measurement, as one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import tyro

from attnlab.cli._show import print_python


def report(
    result: Annotated[Path, tyro.conf.Positional],
    out: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("report.html"),
    study: str | None = None,
    open: bool = False,  # noqa: A002 (the name on the command line)
) -> None:
    """One self-contained page: does it help, what does it cost, what does it do to the features,
    is it constant, where; all numbers, alerts, and how to reproduce. CSV and LaTeX beside it.

    Examples:
      attnlab report runs -o report.html --open
      attnlab report runs --study demo
      attnlab report stiff/stiffness.json -o stiffness.html
      attnlab report stripe/stripe.json -o stripe.html
      attnlab report plain.fold.json -o fold.html

    Args:
        result: the folder given to attnlab study run --out, finished or not; or a stiffness.json,
            stripe.json or NAME.fold.json that those commands wrote.
        out: the page.
        study: which study, where the folder holds several.
        open: show the page in the browser.
    """
    from attnlab._errors import OptionError
    from attnlab.reporting import report as write_report

    if result.is_file() and study is not None:
        raise OptionError(f"--study chooses in a folder of runs, and {str(result)!r} is a file.")
    written = write_report(result, out, study)
    if result.is_dir():
        print(f"wrote {written.with_suffix('.csv')} and {written.with_suffix('.tex')}")
    print(f"wrote {written} ({written.stat().st_size / 1e6:.2f} MB)")
    chosen = "" if study is None else f", study={study!r}"
    print()
    print_python("import attnlab", f"attnlab.report({str(result)!r}, {str(out)!r}{chosen})")
    if open:
        import webbrowser

        webbrowser.open(written.resolve().as_uri())
