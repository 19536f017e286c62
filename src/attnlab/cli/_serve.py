"""A page on this machine's own address that is made anew whenever it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from attnlab._errors import AttnlabError, OptionError

ADDRESS = "127.0.0.1"
"""Nobody but this machine's own programs can ask."""
_RUNNING = '<meta name="attnlab-study" content="running">'
_REFRESH = '<meta http-equiv="refresh" content="10">'


def server(make: Callable[[], Path], port: int) -> ThreadingHTTPServer:
    """Serves what `make` writes at `/`, and nothing else; port 0 is any that is free."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            # A page of the web that calls itself by another name must not read this one.
            host = self.headers.get("Host", "").rpartition(":")[0]
            if host not in (ADDRESS, "localhost"):
                self.send_error(403, "Only this machine may ask")
            elif self.path != "/":
                self.send_error(404, "There is one page, at /")
            else:
                self._send(*_answer(make))

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
            """Nothing: the terminal is for what matters."""

    try:
        return ThreadingHTTPServer((ADDRESS, port), Handler)
    except (OSError, OverflowError) as error:
        raise OptionError(
            f"Cannot serve at port {port}: {error}. Choose another with --port, or 0 for any that "
            f"is free."
        ) from None


def _answer(make: Callable[[], Path]) -> tuple[int, str]:
    try:
        text = make().read_text(encoding="utf-8")
    except AttnlabError as error:
        return 503, f"{_REFRESH}<pre>{_escaped(str(error))}</pre>"
    return 200, text.replace(_RUNNING, _REFRESH, 1)


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")
