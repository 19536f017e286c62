"""`attnlab report`: a study, or one measurement, as one HTML page."""

from __future__ import annotations

import contextlib
import threading
import webbrowser
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Annotated

import tyro

from attnlab._errors import AttnlabError, OptionError
from attnlab.cli._show import print_python


def report_page(
    result: Annotated[tuple[str, ...], tyro.conf.Positional],
    out: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("report.html"),
    study: str | None = None,
    chart: Path | None = None,
    open: bool = False,  # noqa: A002 (the name on the command line)
    serve: bool = False,
    port: int = 8760,
) -> None:
    """One self-contained page: does it help, what does it cost, what does it do to the features,
    is it constant, where; all numbers, alerts, and how to reproduce. CSV and LaTeX beside it.

    Examples:
      attnlab report runs -o report.html --open
      attnlab report runs --study demo
      attnlab report runs --chart differences.pdf
      attnlab report runs --serve
      attnlab report runs/0a1b2c3d4e5f -o run.html
      attnlab report stiff/stiffness.json -o stiffness.html
      attnlab report plain/stiffness.json se/stiffness.json -o both.html
      attnlab report stripe/stripe.json -o stripe.html
      attnlab report plain.fold.json -o fold.html

    Args:
        result: the folder or address given to attnlab study run --out, finished or not, or of one
            run in it; or a stiffness.json (several are compared), stripe.json or NAME.fold.json
            that those commands wrote.
        out: the page.
        study: which study, where the folder holds several.
        chart: also write the differences that the modules make as one figure for a talk; the name
            says how: .svg, .png or .pdf.
        open: show the page in the browser.
        serve: show it at an address of this machine only, made anew each time it is asked for; the
            page of a study that runs refreshes itself. Ctrl-C ends it.
        port: of that address; 0 is any that is free.
    """
    from attnlab.lab.pages.run_page import is_run
    from attnlab.lab.pages.write import chart as write_chart
    from attnlab.lab.pages.write import report as write_report
    from attnlab.results.mirror import one_result

    _check(result, study)
    first = one_result(result[0])
    if chart is not None:
        _check_chart(first, chart)
    written = write_report(result, out, study)
    if chart is not None:
        print(f"wrote {write_chart(first, chart, study)}")
    if first.is_dir() and not is_run(first):
        print(f"wrote {written.with_suffix('.csv')} and {written.with_suffix('.tex')}")
    print(f"wrote {written} ({written.stat().st_size / 1e6:.2f} MB)")
    chosen = "" if study is None else f", study={study!r}"
    print()
    given = list(result) if len(result) > 1 else result[0]
    lines = ["import attnlab", f"attnlab.report({given!r}, {str(out)!r}{chosen})"]
    if chart is not None:
        lines.append("from attnlab.lab.pages.write import chart")
        lines.append(f"chart({given!r}, {str(chart)!r}{chosen})")
    print_python(*lines)
    if serve:
        with server(lambda: write_report(result, out, study), port) as serving:
            _serve(serving, open)
    elif open:
        webbrowser.open(written.resolve().as_uri())


def _check(result: tuple[str, ...], study: str | None) -> None:
    from attnlab.results.record import RENDERED

    if not result:
        raise OptionError(f"Expected something to make a page of: {RENDERED}.")
    if Path(result[0]).is_file() and study is not None:
        raise OptionError(f"--study chooses in a folder of runs, and {result[0]!r} is a file.")


def _serve(serving: ThreadingHTTPServer, opened: bool) -> None:
    """Until Ctrl-C; opened in the browser first if asked for."""
    address = f"http://{ADDRESS}:{serving.server_port}/"
    print(f"serving {address} to this machine; Ctrl-C ends it", flush=True)
    if opened:
        webbrowser.open(address)
    with contextlib.suppress(KeyboardInterrupt):
        serving.serve_forever()


def _check_chart(result: Path, chart: Path) -> None:
    """Refuse before anything is written."""
    from attnlab.lab.pages.run_page import is_run
    from attnlab.page.plot import check_figure_file

    check_figure_file(chart)
    if result.is_file() or is_run(result):
        raise OptionError(f"--chart is for a study, and {str(result)!r} is not one.")


ADDRESS = "127.0.0.1"
"""Nobody but this machine's own programs can ask."""
_RUNNING = '<meta name="attnlab-study" content="running">'
_REFRESH = '<meta http-equiv="refresh" content="10">'


def server(make: Callable[[], Path], port: int) -> ThreadingHTTPServer:
    """Serves what `make` writes at `/`, and nothing else; port 0 is any that is free."""
    latest = _Latest(make)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            # A page of the web that calls itself by another name must not read this one.
            host = self.headers.get("Host", "").rpartition(":")[0]
            if host not in (ADDRESS, "localhost"):
                self.send_error(403, "Only this machine may ask")
            elif self.path != "/":
                self.send_error(404, "There is one page, at /")
            else:
                self._send(*latest.answer())

        def _send(self, status: int, text: str) -> None:
            content = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Cache-Control", "no-store")
            self.send_header("X-Content-Type-Options", "nosniff")
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the base's name)
            """Write nothing: the terminal is for what matters."""

    try:
        return ThreadingHTTPServer((ADDRESS, port), Handler)
    except (OSError, OverflowError) as error:
        raise OptionError(
            f"Cannot serve at port {port}: {error}. Choose another with --port, or 0 for any that "
            f"is free."
        ) from None


class _Latest:
    """The page, made for all who ask at one time together: to make it takes seconds of a core."""

    def __init__(self, make: Callable[[], Path]) -> None:
        self._make = make
        self._making = threading.Lock()
        self._number = 0
        self._found = 0, ""

    def answer(self) -> tuple[int, str]:
        """The status and the text of a page that was begun after this question."""
        asked = self._number
        with self._making:
            # The page that was being made when the question came was begun before it. The one
            # after that was not: whoever waited first makes it, for all others who waited.
            if self._number == asked:
                self._number += 1
                self._found = _answer(self._make)
            return self._found


def _answer(make: Callable[[], Path]) -> tuple[int, str]:
    try:
        text = make().read_text(encoding="utf-8")
    except AttnlabError as error:
        return 503, f"{_REFRESH}<pre>{_escaped(str(error))}</pre>"
    return 200, text.replace(_RUNNING, _REFRESH, 1)


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")
