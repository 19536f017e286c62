"""A page as one HTML file: nothing is fetched, and all is there without JavaScript."""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from functools import cache
from importlib.resources import files
from itertools import count

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

import attnlab
from attnlab.page.parts import Page
from attnlab.page.plot import Spec, to_svg
from attnlab.page.tables import minus

# What is read is kept as it is; only places are rounded.
_NUMBER = re.compile(r'(aria-label="[^"]*"|>[^<]*<)|(-?\d+\.\d{3,})')
_NAMESPACE = re.compile(r' (?:xmlns(?::xlink)?|version)="[^"]*"')
_ID = re.compile(r'\bid="([^"]+)"')
_SELF = re.compile(r'\b(id="|url\(#|href="#)([^")]+)')
_ROLE = re.compile(r' aria-roledescription="[^"]*"')
_BOLD = re.compile(r"\*\*(.+?)\*\*")
_CODE = re.compile(r"`([^`]+)`")
_NARROW = 235
"""Width of a figure's inside that fits a telephone, with its axis beside it."""


def render(page: Page) -> str:
    """Render the page as HTML text."""
    numbers = count()
    template = _environment().get_template("page.html.j2")
    script = _resource("page.js")
    return template.render(
        page=page,
        policy=content_policy(f"\n{script}\n"),
        version=attnlab.__version__,
        style=_resource("page.css"),
        script=script,
        svg=lambda spec: Markup(inline_svg(spec, f"f{next(numbers)}-")),
        bold=bold,
        minus=minus,
        uri=data_uri,
        narrow=narrow,
    )


def content_policy(script: str) -> str:
    """Return what a browser lets the page do: run `script`, which is named by its hash, and show
    what is inside the page. Nothing is fetched or sent, whatever a study's texts contain."""
    digest = b64encode(hashlib.sha256(script.encode()).digest()).decode()
    # Vega writes styles into its figures, and the links that save tables are data.
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        f"img-src data:; base-uri 'none'; form-action 'none'"
    )


def inline_svg(spec: Spec, prefix: str) -> str:
    """The figure for use inside a page: see-through, its ids unique, places no longer than seen."""
    svg = to_svg({**spec, "background": "transparent"})
    head, _, body = svg.partition(">")
    svg = f"{_NAMESPACE.sub('', head)}>{body}"
    # Vega counts ids on and on; numbered anew, the same data give the same page.
    numbers = {name: f"{prefix}{n}" for n, name in enumerate(dict.fromkeys(_ID.findall(svg)))}
    svg = _SELF.sub(lambda match: match[1] + numbers.get(match[2], match[2]), svg)
    svg = _ROLE.sub("", svg)
    return _NUMBER.sub(lambda match: match[1] or f"{float(match[2]):.2f}", svg)


def narrow(spec: Spec) -> Spec | None:
    """The figure as a telephone shows it, with letters as large as before; None where it fits."""
    width = spec.get("width")
    if not isinstance(width, int) or width <= _NARROW:
        return None
    return {**spec, "width": _NARROW}


def bold(text: str) -> Markup:
    """`**word**` is strong, what stands between backticks is code, everything else is escaped."""
    strong = _BOLD.sub(r"<strong>\1</strong>", str(escape(minus(text))))
    return Markup(_CODE.sub(r"<code>\1</code>", strong))


def data_uri(text: str) -> str:
    """Text as a link that saves it."""
    return f"data:text/plain;charset=utf-8;base64,{b64encode(text.encode()).decode()}"


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("attnlab.page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _resource(name: str) -> Markup:
    path = files("attnlab.page").joinpath("templates", name)
    return Markup(path.read_text(encoding="utf-8"))
