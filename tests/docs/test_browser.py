"""The site in a browser, opened from disk: it fetches nothing, fits a phone and can be searched."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.lab.pages.browser import Browser, browsing

# The search field and its results live in a shadow root.
SEARCH = """(() => {
  const roots = [...document.querySelectorAll("*")].map((one) => one.shadowRoot).filter(Boolean)
  return roots.find((root) => root.querySelector("input[role=combobox]"))
})()"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browsing(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("name", ["index", "start", "reference/commands", "reference/train"])
def test_page_fits_and_fetches_nothing(site: Path, browser: Browser, name: str, width: int) -> None:
    browser.open(site / f"{name}.html", width, dark=width == 390)
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    assert browser.complaints == []
    assert [url for url in browser.requests if not url.startswith(("file:", "data:"))] == []


def wait_for(browser: Browser, expression: str) -> object:
    """The value of an expression as soon as it is true."""
    end = time.monotonic() + 30
    while not (value := browser.evaluate(expression)) and time.monotonic() < end:
        time.sleep(0.1)
    assert value, f"{expression} did not become true within 30 s."
    return value


def search(site: Path, browser: Browser, question: str) -> list[str]:
    """The pages that the site's own search finds, best first, each once."""
    # The page is opened anew: a second question in one dialog narrows the first one's results.
    browser.open(site / "index.html", 1280, dark=False)
    browser.evaluate("document.querySelector('.md-search__button').click()")
    wait_for(browser, f"!!{SEARCH}")
    browser.evaluate(
        f"""(() => {{
          const field = {SEARCH}.querySelector("input[role=combobox]")
          field.value = {json.dumps(question)}
          field.dispatchEvent(new Event("input", {{ bubbles: true }}))
        }})()"""
    )
    found = wait_for(browser, f"[...{SEARCH}.querySelectorAll('a')].map((a) => a.href).join(' ')")
    pages = (re.split(r"[?#]", each)[0] for each in str(found).split())
    folder = site.resolve().as_uri() + "/"
    return list(dict.fromkeys(page.removeprefix(folder) for page in pages))


@pytest.mark.parametrize(
    ("question", "page"),
    [
        ("attention sink", "transformers"),
        ("gated residual", "transformers"),
        ("layer pruning", "shorten"),
        ("re-parameterisation", "fuse"),
        ("reparameterization", "fuse"),
        ("is my gain real", "how-to/compare"),
        ("statistical significance", "how-to/compare"),
        ("SE for int8", "se-out"),
        ("yolo attention", "how-to/ultralytics"),
        ("fine-tune pretrained", "how-to/fine-tune"),
        ("own attention module", "how-to/add-a-gate"),
        ("export onnx", "how-to/deploy"),
        ("style transfer", "style"),
        ("how many seeds", "studies"),
        ("stiffness", "stiffness"),
    ],
)
def test_the_sites_search_finds_the_page(
    site: Path, browser: Browser, question: str, page: str
) -> None:
    first = search(site, browser, question)[:3]
    assert f"{page}.html" in first, f"{question!r} finds {', '.join(first)}"
