"""The page as a file: what is in it, how large it is, what it does not do."""

from __future__ import annotations

import base64
import csv
import hashlib
import html
import io
import re
import shutil
import subprocess
from html.parser import HTMLParser

import pytest
from tests.lab.pages.simulated import simulate, write_failure

from attnlab.lab.pages.help import forest_rows
from attnlab.lab.pages.write import write_study_page
from attnlab.page.rendering import bold, inline_svg, minus
from attnlab.results.record import find_study, read_record

TITLES = [
    "Does it help?",
    "What does it cost?",
    "What does it do to the features?",
    "Is it constant?",
    "Where?",
    "All numbers",
    "Alerts",
    "Reproduce",
]
_EMPTY = {"meta", "link", "input", "br", "img"}


class _Outline(HTMLParser):
    """Checks that tags close in order; collects references and ids."""

    def __init__(self) -> None:
        super().__init__()
        self.stack: list[str] = []
        self.references: list[str] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag, attrs):
        if tag not in _EMPTY:
            self.stack.append(tag)
        for name, value in attrs:
            if name in ("src", "href", "xlink:href", "srcset", "action", "data"):
                self.references.append(value or "")
            if name == "id":
                self.ids.append(value or "")

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in _EMPTY:
            self.stack.pop()

    def handle_endtag(self, tag):
        assert self.stack.pop() == tag


def _page(out, **settings) -> str:
    """The text of the page of a simulated study."""
    study = simulate(out, **settings)
    page = write_study_page(out, study.name, out / "page.html")
    return html.unescape(page.read_text(encoding="utf-8"))


def _outline(text: str) -> _Outline:
    outline = _Outline()
    outline.feed(text)
    return outline


def test_150_runs_make_a_page_of_two_megabytes_at_most(whole):
    assert whole.page.stat().st_size <= 2_000_000


def test_questions_in_their_order(whole):
    text = whole.page.read_text(encoding="utf-8")
    found = [html.unescape(t) for t in re.findall(r"<h2>\d · (.*?)</h2>", text)]
    assert found == TITLES


def test_well_formed_and_refers_to_nothing_outside(whole):
    text = whole.page.read_text(encoding="utf-8")
    outline = _outline(text)
    assert outline.stack == []
    assert len(set(outline.ids)) == len(outline.ids)
    assert outline.references
    assert all(reference.startswith(("data:", "#")) for reference in outline.references)
    assert not re.search(r"@import|url\((?!#)|https?://", text)
    assert "secret-host" not in text


def test_a_browser_runs_the_one_script_and_fetches_nothing(whole):
    text = whole.page.read_text(encoding="utf-8")
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert html.unescape(policy) == (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    assert text.index("Content-Security-Policy") < text.index("<title>")
    assert not re.search(r"<[^>]* on[a-z]+=", text)


def test_every_seed_and_interval_is_a_mark_with_its_values(whole):
    text = html.unescape(whole.page.read_text(encoding="utf-8"))
    record = read_record(*find_study(whole.runs))
    for group in record.table.groups:
        for row in forest_rows(group):
            values = f"{row.mean:+.2f} pt [{row.low:+.2f}, {row.high:+.2f}], n = 5, {row.standing}"
            assert f'aria-label="{row.module}: {values}"' in text
    # 3 data sets × 9 modules × 5 seeds
    seeds = re.findall(r'aria-label="[^"]+, seed \d: [+-]\d+\.\d\d pt"', text)
    assert len(seeds) == 2 * 135  # drawn for broad and for narrow screens
    # 3 data sets × 10 rows × 54 blocks
    assert len(re.findall(r'aria-label="[^"]+, block [^"]+: NSI [^"]+"', text)) == 1620
    for kind, number in (
        ("no gate", 3),
        ("before folding", 3),
        ("folded", 3),
        ("does not fold", 24),
    ):
        marks = re.findall(rf'aria-label="[^"]+, {kind}: [^"]+ per image"', text)
        assert len(marks) == 2 * number
    assert len(re.findall(r'aria-label="Gate [0-9.]+ \(layer', text)) == 9


def test_csv_has_the_numbers_of_the_runs(whole):
    rows = list(csv.DictReader(io.StringIO(whole.page.with_suffix(".csv").read_text())))
    assert len(rows) == 30
    record = read_record(*find_study(whole.runs))
    for row in rows:
        own, plain = (
            {
                run.entry.seed: 100 * run.result.values["top1"]
                for run in record.runs
                if (run.entry.cell.data, run.entry.cell.row) == (row["data"], name)
            }
            for name in (row["module"], "plain")
        )
        assert float(row["top1"]) == pytest.approx(sum(own.values()) / 5, rel=1e-12)
        if row["module"] != "plain":
            delta = sum(own[seed] - plain[seed] for seed in own) / 5
            assert float(row["delta"]) == pytest.approx(delta, rel=1e-9)
            middle = (float(row["delta_low"]) + float(row["delta_high"])) / 2
            assert middle == pytest.approx(delta, rel=1e-6)


def test_latex_compiles(whole, tmp_path):
    table = whole.page.with_suffix(".tex").read_text(encoding="utf-8")
    assert table.count(r"\\") == 1 + 10 * 3  # the heads, and ten modules on three data sets
    program = shutil.which("tectonic") or shutil.which("pdflatex")
    if program is None:
        pytest.skip("no TeX is installed: neither tectonic nor pdflatex was found")
    head = "\\documentclass{article}\n\\usepackage{booktabs}\n\\begin{document}\n"
    document = f"{head}{table}\n\\end{{document}}\n"
    (tmp_path / "table.tex").write_text(document, encoding="utf-8")
    done = subprocess.run([program, "table.tex"], cwd=tmp_path, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stdout.decode(errors="replace")


def test_unfinished_study_says_what_is_missing(tmp_path):
    text = _page(
        tmp_path,
        data=("cifar10",),
        gains={"se": 0.4, "asr:se": 0.3},
        seeds=3,
        epochs=10,
        finished=0.6,
        failed="The loss is nan in epoch 3.",
    )
    assert "5 / 9 runs" in text
    assert "5 of 9 runs are finished, so this may change." in text
    assert "cifar10: seeds are missing.</strong> plain 2; se 2; asr:se 1, 2." in text
    assert ">1 failed<" in text
    assert "failed.</strong> The loss is nan in epoch 3." in text


@pytest.mark.parametrize("finished", [0.0, 0.12])
def test_hardly_begun_study_renders(tmp_path, finished):
    text = _page(tmp_path, data=("cifar10",), gains={"se": 0.4}, seeds=4, finished=finished)
    assert _outline(text).stack == []
    found = [html.unescape(t) for t in re.findall(r"<h2>\d · (.*?)</h2>", text)]
    assert found == ["How far is it?", *TITLES]
    assert ("Nothing is finished yet: 0 of 8 runs." in text) == (finished == 0)
    # Runs that only wait are not in sight.
    waiting = 8 if finished == 0 else 7
    assert f"<summary>Waiting: {waiting}</summary>" in text


def test_study_of_failures_says_so_once(tmp_path):
    study = simulate(tmp_path, data=("cifar10",), gains={"se": 0.4}, seeds=3, finished=0.0)
    for entry in study.runs:
        write_failure(tmp_path, entry, "The loss is nan in epoch 1.")
    text = write_study_page(tmp_path, study.name, tmp_path / "page.html").read_text()
    assert "<strong>All 6 runs failed</strong>, so there is nothing to compare." in text
    assert text.count("The loss is nan in epoch 1.") == 1
    assert "cifar10 resnet20 se seed 1 and 2 more." in text
    assert ">6 failed<" in text


def test_one_seed_claims_no_interval(tmp_path):
    text = _page(tmp_path, data=("cifar10",), gains={"se": 0.4}, seeds=1, epochs=4)
    assert "There is no interval and no colour (one seed: no interval)." in text
    assert "Student-t interval of the paired mean" not in text


def test_numbers_have_a_minus_and_names_keep_their_hyphen():
    given = "τ = -0.96, [-0.02, +0.13], p = 3e-05, resnet-20, stages:-1, --limit 4, a -1"
    assert minus(given) == (
        "τ = −0.96, [−0.02, +0.13], p = 3e-05, resnet-20, stages:-1, --limit 4, a −1"
    )


def test_names_cannot_break_the_page():
    assert str(bold("**<b>** & </script>")) == ("<strong>&lt;b&gt;</strong> &amp; &lt;/script&gt;")


def test_inline_figures_do_not_share_ids_and_keep_what_is_read():
    spec = {
        "data": {"values": [{"a": 0.000123, "b": 1}, {"a": 2.0, "b": 2}]},
        "mark": "point",
        "encoding": {
            "x": {"field": "a", "type": "quantitative"},
            "color": {"field": "b", "type": "quantitative"},
        },
    }
    one, two = inline_svg(spec, "p-"), inline_svg(spec, "q-")
    ids = re.findall(r'id="([^"]+)"', one)
    assert ids
    assert all(name.startswith("p-") for name in ids)
    assert not set(ids) & set(re.findall(r'id="([^"]+)"', two))
    assert all(f"#{name}" in one for name in ids)
    assert "a: 0.000123" in one
    # Drawn a second time, for it says something that is not shown: Vega has counted on, the page
    # has not.
    assert inline_svg({**spec, "usermeta": {"drawn": "again"}}, "p-") == one


def test_with_one_data_set_related_figures_stand_side_by_side(tmp_path):
    for data, beside in (
        (("cifar10",), 2),
        (("cifar10", "stl10"), 2),
        (("cifar10", "cifar100", "stl10"), 3),
    ):
        out = tmp_path / str(len(data))
        page = _page(out, data=data, gains={"se": 0.3, "step": 0.5}, seeds=2, epochs=4)
        for number in (3,):  # NSI with TNS
            section = page.partition(f'<section id="s{number}">')[2].partition("</section>")[0]
            row = section.split('<div class="row">')[1].partition("<h3")[0]  # surfaces follow
            assert row.count("<figure") == beside
            headed = "TNS against top-1</h3>" in section
            assert headed == (number == 3 and len(data) > 1)
