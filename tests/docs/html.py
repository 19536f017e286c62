"""What an HTML page refers to, and what it can be referred to by."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}


@dataclass
class Page(HTMLParser):
    """The names, the links and the loaded files of one page."""

    names: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value for name, value in attrs if value is not None}
        self.names |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag in _LOADED and _LOADED[tag] in given and given.get("rel") != "canonical":
            self.loaded.append(given[_LOADED[tag]])


@cache
def read_page(path: Path) -> Page:
    page = Page()
    page.feed(path.read_text(encoding="utf-8"))
    return page


def is_external(reference: str) -> bool:
    """Whether a browser would leave the site for it."""
    return bool(urlsplit(reference).netloc) or urlsplit(reference).scheme in ("http", "https")


def leads_nowhere(reference: str, page: Path) -> bool:
    """Whether a link within the site has no file, or no such place in the file."""
    parts = urlsplit(reference)
    if parts.scheme in ("mailto", "data") or is_external(reference):
        return False
    target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    if target.is_dir():
        target /= "index.html"
    if not target.is_file():
        return True
    place = unquote(parts.fragment)
    return bool(place) and target.suffix == ".html" and place not in read_page(target).names
