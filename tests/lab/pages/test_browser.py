"""A real browser opens the pages: wide and narrow, light and dark."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from tests.lab.pages.browser import browsing

import attnlab
from attnlab.lab.pages.write import write_file_page

VIEWS = [(1180, False), (1180, True), (390, False), (390, True)]

_EMPTY_FIGURES = """[...document.querySelectorAll('.frame svg')].filter(svg => {
  if (!svg.checkVisibility()) return false;
  const box = svg.getBoundingClientRect();
  return box.width < 100 || box.height < 40 ||
    !svg.querySelector('[aria-label]:not(.role-axis):not(.role-legend)');
}).length"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with browsing(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


def _check(browser, page: Path, width: int, dark: bool) -> None:
    browser.complaints.clear()
    browser.requests.clear()
    browser.open(page, width, dark=dark)
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    assert browser.evaluate("document.querySelectorAll('.frame svg').length") > 2
    assert browser.evaluate(_EMPTY_FIGURES) == 0
    ground = browser.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == ("rgb(20, 23, 29)" if dark else "rgb(255, 255, 255)")
    assert browser.complaints == []
    outside = [url for url in browser.requests if not url.startswith(("file:", "data:"))]
    assert outside == []
    folder = os.environ.get("ATTNLAB_SCREENSHOTS")
    if folder:
        name = f"{page.stem}-{width}-{'dark' if dark else 'light'}.png"
        browser.screenshot(Path(folder) / name)


@pytest.mark.parametrize(("width", "dark"), VIEWS)
def test_study_page(browser, whole, width, dark):
    _check(browser, whole.page, width, dark)


@pytest.mark.parametrize(("width", "dark"), [VIEWS[0], VIEWS[3]])
def test_stripe_page(browser, tmp_path, width, dark):
    torch.manual_seed(0)
    network, _ = attnlab.insert(attnlab.create("resnet20", 10), "cbam")
    found = attnlab.stripe(network, [torch.randn(8, 3, 32, 32)])
    page = write_file_page(found.save(tmp_path / "stripe.json"), tmp_path / "stripe.html")
    _check(browser, page, width, dark)


def test_tables_sort_and_filter(browser, whole):
    browser.open(whole.page, 1180, dark=False)
    column = "[...document.querySelectorAll('table')[0].tBodies[0].rows].map(r => r.cells[1])"
    values = f"{column}.map(c => Number(c.dataset.order))"
    head = "document.querySelectorAll('table')[0].tHead.rows[0].cells[1].click()"
    browser.evaluate(head)
    falling = browser.evaluate(values)
    assert falling == sorted(falling, reverse=True)
    browser.evaluate(head)
    assert browser.evaluate(values) == sorted(falling)
    browser.evaluate(
        "const f = document.querySelector('input.filter'); f.value = 'asr';"
        "f.dispatchEvent(new Event('input'))"
    )
    assert browser.evaluate(f"{column}.filter(c => !c.parentElement.hidden).length") == 1


def test_complete_without_javascript(browser, whole):
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(whole.page, 1180, dark=False)
        text = browser.call("DOM.getDocument", depth=1)["root"]
        found = browser.call("DOM.querySelectorAll", nodeId=text["nodeId"], selector=".frame svg")
        assert len(found["nodeIds"]) > 20
        rows = browser.call("DOM.querySelectorAll", nodeId=text["nodeId"], selector="tbody tr")
        assert len(rows["nodeIds"]) == 10 + 10 + 30
    finally:
        browser.call("Emulation.setScriptExecutionDisabled", value=False)
