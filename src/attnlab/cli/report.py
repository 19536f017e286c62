"""`attnlab report`: a study, or one measurement, as one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import tyro

from attnlab.cli._show import print_python


def report(
    runs: Annotated[Path, tyro.conf.Positional],
    out: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("report.html"),
    study: str | None = None,
    open: bool = False,  # noqa: A002 (the name on the command line)
) -> None:
    """One self-contained page: does it help, what does it cost, what does it do to the features,
    is it constant, where; all numbers, alerts, and how to reproduce. CSV and LaTeX beside it.

    Examples:
      attnlab report runs -o report.html --open
      attnlab report runs --study demo
      attnlab report stripe/stripe.json -o stripe.html
      attnlab report stiff/stiffness.json -o stiffness.html

    Args:
        runs: the folder given to attnlab study run --out, finished or not; or a stiffness.json or
            stripe.json that those commands wrote.
        out: the page.
        study: which study, where the folder holds several.
        open: show the page in the browser.
    """
    if runs.is_file():
        written, python = _small(runs, out)
    else:
        from attnlab.report import report as write_report

        written = write_report(runs, out, study)
        print(f"wrote {written.with_suffix('.csv')} and {written.with_suffix('.tex')}")
        chosen = "" if study is None else f", study={study!r}"
        python = f"attnlab.report({str(runs)!r}, {str(out)!r}{chosen})"
    print(f"wrote {written} ({written.stat().st_size / 1e6:.2f} MB)")
    print_python(python)
    if open:
        import webbrowser

        webbrowser.open(written.resolve().as_uri())


def _small(file: Path, out: Path) -> tuple[Path, str]:
    import json

    from attnlab._errors import InputError
    from attnlab.report.render import write_text
    from attnlab.report.small import stiffness_page, stripe_page
    from attnlab.stripe import StripeResult
    from attnlab.trajectory import StiffnessResult

    text = file.read_text(encoding="utf-8")
    try:
        found = json.loads(text)
        kind = found.get("format") if isinstance(found, dict) else None
    except ValueError:
        kind = None
    if kind is not None and str(kind).startswith("attnlab stiffness"):
        written = write_text(out, stiffness_page(StiffnessResult.from_json(text)))
        return written, "from attnlab.report.small import stiffness_page"
    if kind is not None and str(kind).startswith("attnlab stripe"):
        written = write_text(out, stripe_page(StripeResult.from_json(text)))
        return written, "from attnlab.report.small import stripe_page"
    raise InputError(
        f"{str(file)!r} is no result of attnlab stiffness or attnlab stripe. Expected such a file, "
        f"or the folder of the runs of a study."
    )
