"""`attnlab report`: a study, or one measurement, as one HTML page."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated

import tyro

from attnlab.cli._show import print_python


def report(
    result: Annotated[tuple[Path, ...], tyro.conf.Positional],
    out: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("report.html"),
    study: str | None = None,
    open: bool = False,  # noqa: A002 (the name on the command line)
    serve: bool = False,
    port: int = 8760,
) -> None:
    """One self-contained page: does it help, what does it cost, what does it do to the features,
    is it constant, where; all numbers, alerts, and how to reproduce. CSV and LaTeX beside it.

    Examples:
      attnlab report runs -o report.html --open
      attnlab report runs --study demo
      attnlab report runs --serve
      attnlab report runs/0a1b2c3d4e5f -o run.html
      attnlab report stiff/stiffness.json -o stiffness.html
      attnlab report plain/stiffness.json se/stiffness.json -o both.html
      attnlab report stripe/stripe.json -o stripe.html
      attnlab report plain.fold.json -o fold.html

    Args:
        result: the folder given to attnlab study run --out, finished or not, or of one run in it;
            or a stiffness.json (several are compared), stripe.json or NAME.fold.json that those
            commands wrote.
        out: the page.
        study: which study, where the folder holds several.
        open: show the page in the browser.
        serve: show it at an address of this machine only, made anew each time it is asked for; the
            page of a study that runs refreshes itself. Ctrl-C ends it.
        port: of that address; 0 is any that is free.
    """
    from attnlab._errors import OptionError
    from attnlab.lab.pages.report import report as write_report
    from attnlab.lab.pages.run_page import is_run
    from attnlab.results.record import RENDERED

    if not result:
        raise OptionError(f"Expected something to make a page of: {RENDERED}.")
    first = result[0]
    if first.is_file() and study is not None:
        raise OptionError(f"--study chooses in a folder of runs, and {str(first)!r} is a file.")
    written = write_report(result, out, study)
    if first.is_dir() and not is_run(first):
        print(f"wrote {written.with_suffix('.csv')} and {written.with_suffix('.tex')}")
    print(f"wrote {written} ({written.stat().st_size / 1e6:.2f} MB)")
    chosen = "" if study is None else f", study={study!r}"
    print()
    given = [str(each) for each in result] if len(result) > 1 else str(first)
    print_python("import attnlab", f"attnlab.report({given!r}, {str(out)!r}{chosen})")
    address = written.resolve().as_uri()
    if serve:
        from attnlab.cli._serve import ADDRESS, server

        serving = server(lambda: write_report(result, out, study), port)
        address = f"http://{ADDRESS}:{serving.server_port}/"
        print(f"serving {address} to this machine; Ctrl-C ends it", flush=True)
    if open:
        import webbrowser

        webbrowser.open(address)
    if serve:
        with serving, contextlib.suppress(KeyboardInterrupt):
            serving.serve_forever()
