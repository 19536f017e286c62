"""`attnlab report`, the smaller pages, and what they refuse."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.lab.pages.simulated import CLASSIFICATION, REGRESSION, make_table, simulate

import attnlab
from attnlab._errors import AttnlabError
from attnlab.cli import main
from attnlab.cli.report_page import report_page
from attnlab.instruments.stiffness.page import stiffness_page
from attnlab.lab.pages.write import write_file_page
from attnlab.page.rendering import render
from attnlab.results import StoredRun
from attnlab.results.record import find_study, read_record
from attnlab.results.table import StudyRow
from attnlab.surgery.folding import FoldReceipt


@pytest.fixture
def small(tmp_path):
    runs = tmp_path / "runs"
    simulate(runs, name="one", data=("cifar10",), gains={"se": 0.4}, seeds=2, epochs=4)
    return runs


def test_study(small, tmp_path, capsys):
    page = tmp_path / "out" / "page.html"
    main(["report", str(small), "-o", str(page)])
    printed = capsys.readouterr().out
    assert f"wrote {page.with_suffix('.csv')} and {page.with_suffix('.tex')}" in printed
    assert f"  attnlab.report({str(small)!r}, {str(page)!r})" in printed
    assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert sorted(file.name for file in page.parent.iterdir()) == [
        "page.csv",
        "page.html",
        "page.tex",
    ]


@pytest.mark.parametrize(
    ("suffix", "start"), [("svg", b"<svg"), ("png", b"\x89PNG"), ("pdf", b"%PDF")]
)
def test_the_differences_for_a_talk(small, tmp_path, capsys, suffix, start):
    chart = tmp_path / f"chart.{suffix}"
    main(["report", str(small), "-o", str(tmp_path / "page.html"), "--chart", str(chart)])
    assert f"wrote {chart}" in capsys.readouterr().out
    assert chart.read_bytes().startswith(start)
    if suffix == "svg":
        difference = read_record(*find_study(small)).table.groups[0].rows[1].comparison.difference
        text = f"{difference.mean:+.2f} [{difference.low:+.2f}, {difference.high:+.2f}]"
        assert text.replace("-", "−") in chart.read_text(encoding="utf-8")


def test_a_chart_is_refused_before_anything_is_written(small, tmp_path):
    page = tmp_path / "page.html"
    for given, said in (
        ([str(small), "--chart", "chart.jpeg"], r"\.svg, \.png or \.pdf"),
        ([str(next(small.glob("*/result.json")).parent), "--chart", "c.svg"], "is for a study"),
    ):
        with pytest.raises(AttnlabError, match=said):
            report_page(tuple(map(Path, given[:1])), page, chart=Path(given[2]))
        assert not page.exists()


def test_the_study_room_says_what_the_runs_say(tmp_path):
    """Its table against that of the simulation: scipy's t-test, and Holm's procedure by hand."""
    from attnlab.lab.study import Store, refresh

    changed = False
    for task, data in ((CLASSIFICATION, "cifar10"), (REGRESSION, "faces")):
        out = tmp_path / data
        study = simulate(out, task=task, data=(data,), blocks=("1.0", "1.1"))
        found, expected = refresh(Store(out), study.name), make_table(out, study)
        assert (found.metrics, found.finished) == (expected.metrics, expected.finished)
        (group,), (known,) = found.groups, expected.groups
        for row, other in zip(group.rows, known.rows, strict=True):
            pairs = zip(_figures(row), _figures(other), strict=True)
            for own, right in pairs:
                assert own == (pytest.approx(right, rel=1e-6) if type(right) is float else right)
        verdicts = {row.comparison.verdict for row in group.rows if row.comparison}
        assert verdicts >= {"better", "no difference shown"}
        compared = [(row.best_verdict, row.comparison) for row in group.rows if row.comparison]
        changed |= any(best != comparison.verdict for best, comparison in compared)
        assert read_record(out, study.name).is_current
    assert changed  # else the verdicts of the best epoch show nothing


def _figures(row: StudyRow) -> list[object]:
    """Of a row, all but what the simulation makes up: the anytime interval."""
    compared = row.comparison
    found = [row.label, row.seeds, row.parameters, row.best_verdict]
    for summary in (*row.values.values(), row.best, row.tns, row.folded):
        found += [None] if summary is None else [summary.mean, summary.std]
    found += [row.inference_speed, row.train_speed, row.fold_error]
    if compared is not None:
        difference = compared.difference
        found += [difference.mean, difference.low, difference.high, difference.p_value]
        found += [compared.adjusted_p, compared.verdict]
    return found


def test_opens_the_page(small, tmp_path, monkeypatch):
    opened = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    main(["report", str(small), "-o", str(tmp_path / "page.html"), "--open"])
    assert opened == [(tmp_path / "page.html").resolve().as_uri()]


def test_folder_of_one_study(small, monkeypatch):
    assert find_study(small / "studies" / "one") == (small, "one")
    monkeypatch.chdir(small / "studies" / "one")
    assert find_study(".") == (small, "one")
    with pytest.raises(AttnlabError) as error:
        find_study(small / "studies" / "one", "two")
    assert str(error.value) == "Unknown study 'two'. Expected one of: one."


def test_several_studies_need_a_name(small):
    simulate(small, name="two", data=("stl10",), gains={"se": 0.4}, seeds=2, epochs=4)
    with pytest.raises(AttnlabError) as error:
        find_study(small)
    assert str(error.value) == (
        f"{str(small)!r} holds 2 studies: one, two. Choose one with --study NAME."
    )
    assert read_record(*find_study(small, "two")).table.study == "two"
    with pytest.raises(AttnlabError) as error:
        find_study(small, "twoo")
    assert str(error.value) == (
        "Unknown study 'twoo'. Did you mean 'two'? Expected one of: one, two."
    )


EXPECTED = (
    "Expected the folder of the runs of a study (attnlab study run --out) or of one run, a "
    "stiffness.json (attnlab stiffness --out) or several, a stripe.json (attnlab stripe --out), a "
    "maps.json (attnlab maps --out), a noise.json (attnlab noise --out), a place.json (attnlab "
    "place --out), a shorten.json (attnlab shorten --out), a NAME.fold.json (attnlab fold -o "
    "NAME.safetensors), or a NAME.json (attnlab compare -o NAME.html)."
)


def test_refusals(tmp_path, capsys):
    folder, other, text = tmp_path / "folder", tmp_path / "other.json", tmp_path / "p.safetensors"
    single = folder / "stiffness.json"
    folder.mkdir()
    single.write_text("{}")
    other.write_text(json.dumps({"format": "else"}))
    text.write_bytes(b"\xff\x00")
    missing = tmp_path / "none"
    cases = {
        str(missing): f"There is no {str(missing)!r}. {EXPECTED}",
        str(tmp_path): f"There is no study in {str(tmp_path)!r}: it has no "
        f"studies/NAME/study.json. {EXPECTED}",
        str(folder): f"There is no study in {str(folder)!r}: it has no studies/NAME/study.json. "
        f"Did you mean {str(single)!r}? {EXPECTED}",
        str(other): f"{str(other)!r} is not a result that has a page. {EXPECTED}",
        str(text): f"{str(text)!r} is not JSON. {EXPECTED}",
    }
    for given, message in cases.items():
        with pytest.raises(SystemExit) as ended:
            main(["report", given, "-o", str(tmp_path / "page.html")])
        assert ended.value.code == 2
        assert capsys.readouterr().err == f"attnlab: {message}\n"
    assert not (tmp_path / "page.html").exists()


def test_a_file_has_no_study_to_choose(tmp_path, capsys):
    file = tmp_path / "stripe.json"
    file.write_text("{}")
    with pytest.raises(SystemExit):
        main(["report", str(file), "--study", "demo"])
    assert capsys.readouterr().err == (
        f"attnlab: --study chooses in a folder of runs, and {str(file)!r} is a file.\n"
    )


def test_file_of_another_version_and_damaged_file(tmp_path):
    file = tmp_path / "p.fold.json"
    for content, message in {
        '{"format": "attnlab fold 2"}': f"{str(file)!r} has the format 'attnlab fold 2', expected "
        f"'attnlab fold 1': another version of attnlab wrote it.",
        '{"format": "attnlab fold 1"}': f"{str(file)!r} is not as attnlab wrote it. Expected "
        f"a file of the format 'attnlab fold 1' but in this one action: Field required.",
    }.items():
        file.write_text(content)
        with pytest.raises(AttnlabError) as error:
            write_file_page(file, tmp_path / "page.html")
        assert str(error.value) == message
    assert not (tmp_path / "page.html").exists()


def test_fold_command_leaves_its_receipt_and_page(tmp_path, capsys):
    from attnlab.networks.checkpoint import Description, save

    torch.manual_seed(0)
    description = Description("resnet20", num_classes=5, gate="asr:se")
    network = description.build().eval()
    save(network, tmp_path / "asr.safetensors", description)
    main(["fold", str(tmp_path / "asr.safetensors"), "-o", str(tmp_path / "plain.safetensors")])
    receipt = FoldReceipt.load(tmp_path / "plain.fold.json")
    _, expected = attnlab.fold(network)
    assert receipt.rows == expected.rows
    assert receipt.sites == expected.sites
    assert receipt.parameters_added == expected.parameters_added < 0
    page = tmp_path / "again.html"
    capsys.readouterr()
    main(["report", str(tmp_path / "plain.fold.json"), "-o", str(page)])
    printed = capsys.readouterr().out
    assert f"  attnlab.report({str(tmp_path / 'plain.fold.json')!r}, {str(page)!r})" in printed
    assert page.read_text() == (tmp_path / "plain.fold.html").read_text()


def test_stripe_command_and_its_page(tmp_path, capsys):
    out = tmp_path / "stripe"
    command = "stripe resnet20 --gate se --data digits --limit 12"
    main([*command.split(), "--out", str(out)])
    printed = capsys.readouterr().out
    assert "layer3.2.attnlab" in printed
    assert "The weights are random: this is the untrained control" in printed
    assert "attnlab.stripe(attnlab.open('resnet20', data='digits', gate='se', limit=12))" in printed
    assert "Gates over images" in (out / "stripe.html").read_text(encoding="utf-8")
    main(["report", str(out / "stripe.json"), "-o", str(tmp_path / "again.html")])
    again = (tmp_path / "again.html").read_text(encoding="utf-8")
    assert again == (out / "stripe.html").read_text(encoding="utf-8")


def test_stripe_of_a_run(tmp_path, capsys):
    from attnlab.instruments.measurement import MeasureConfig
    from attnlab.lab.measures import measure_run
    from attnlab.lab.measures.epoch import EpochMeasure
    from attnlab.lab.training import RunConfig, load_network, train

    config = RunConfig(
        data={"name": "fake", "train_subset": 32, "test_subset": 16},
        backbone="resnet20",
        attention="se",
        recipe={"name": "digits", "epochs": 2},
    )
    measure = MeasureConfig(images=8, inference_images=0)
    train(config, tmp_path, progress=lambda _: None, each_epoch=EpochMeasure(measure))
    measure_run(tmp_path, measure)
    main(["stripe", str(tmp_path), "--limit", "16"])
    printed = capsys.readouterr().out
    assert "16 images" in printed
    assert f"attnlab.stripe(attnlab.open({str(tmp_path)!r}, limit=16))" in printed
    # What a run leaves for its study's page.
    from attnlab.instruments.stiffness import StiffnessResult
    from attnlab.instruments.stripe import GateHistory, StripeResult

    stored = StoredRun(tmp_path)
    history = GateHistory.of_records(stored.history)
    assert history.epochs == [1, 2]
    assert history.difference("layer3.2.attnlab").shape == (1, 64)
    alone = GateHistory.of_records(stored.history, image=True)
    seen = attnlab.instruments.stripe.gate_values(
        load_network(tmp_path), attnlab.open(tmp_path).inputs(1)
    )
    assert alone.epochs == [1, 2]
    for name, values in seen.items():
        np.testing.assert_allclose(alone.means[name][-1], values[0], rtol=1e-3)
    assert alone.means != history.means
    steps = stored.measured_result(StiffnessResult).nsi
    gates = stored.measured_result(StripeResult)
    assert gates.images == 8
    assert gates.sites == attnlab.stripe(attnlab.open(tmp_path, limit=8)).sites
    assert len(gates.sites[0].sample) == 8
    assert [site.label for site in gates.sites] == [step.label for step in steps]
    assert len(steps) == 9
    main(["report", str(tmp_path), "-o", str(tmp_path / "run.html")])
    page = (tmp_path / "run.html").read_text(encoding="utf-8")
    assert "Are its gates constant?" in page
    assert "block 1.0, ratio" in page


def test_iebn_of_a_run_is_seen_as_the_command_sees_it(tmp_path):
    from attnlab.instruments.measurement import MeasureConfig
    from attnlab.instruments.stripe import StripeResult
    from attnlab.lab.measures import measure_run
    from attnlab.lab.training import RunConfig, train

    config = RunConfig(
        data={"name": "fake", "train_subset": 32, "test_subset": 16},
        backbone="resnet20",
        attention="iebn",
        recipe={"name": "digits", "epochs": 1, "warmup_epochs": 0},
    )
    train(config, tmp_path, progress=lambda _: None)
    measure_run(tmp_path, MeasureConfig(images=8, inference_images=0), ["stripe"])
    found = StoredRun(tmp_path).measured_result(StripeResult)
    assert {site.kind for site in found.sites} == {"norm"}
    assert found.sites == attnlab.stripe(attnlab.open(tmp_path, limit=8)).sites


def test_stiffness_page():
    torch.manual_seed(0)
    result = attnlab.stiffness(attnlab.create("resnet20", 10), [torch.randn(4, 3, 32, 32)])
    text = render(stiffness_page(result))
    assert f"TNS <strong>{result.tns:.4g}</strong> over 4 inputs." in text
    assert len(re.findall("<tr><th scope=row", text)) == 9
    assert text.count("<image ") == 2


def test_fold_page():
    torch.manual_seed(0)
    network, _ = attnlab.insert(attnlab.create("resnet20", 10), "asr:se")
    _, receipt = attnlab.fold(network)
    text = render(receipt.page())
    assert "<strong>9 of 9</strong> gates are folded away; the output changes by" in text
    assert f"{receipt.parameters_before:,} → {receipt.parameters_after:,}" in text
    assert ">exact<" in text
    first = receipt.rows[0]
    assert f"{first.site}: gate {first.smallest:.3g} to {first.largest:.3g}" in text


def test_page_of_an_approximate_fold_says_so():
    torch.manual_seed(0)
    network, _ = attnlab.insert(attnlab.create("resnet20", 10).eval(), "se")
    _, receipt = attnlab.fold_constants(
        network, [torch.randn(4, 3, 32, 32) for _ in range(2)], tolerance=0.5
    )
    assert receipt.relative_change > 1e-6
    text = render(receipt.page())
    assert ">approximate<" in text
    assert "replaced by their mean over data" in text
    assert f"<strong>{receipt.relative_change:.1e}</strong>" in text


def test_page_of_a_fold_under_a_budget_has_the_curve():
    torch.manual_seed(0)
    network, _ = attnlab.insert(attnlab.create("resnet20", 10).eval(), "se")
    data = [(torch.randn(32, 3, 32, 32), torch.arange(32) % 10)]
    _, receipt = attnlab.fold_budget(network, data, "all")
    text = render(receipt.page())
    assert "replaced by constants from data" in text
    assert f"on images held out is <strong>{receipt.measured:.4f}</strong>" in text
    assert "The budget was <strong>all</strong>, and 9 of 9 gates went" in text
    assert f"{receipt.accuracy_before:.2%} before" in text
    for number, point in enumerate(receipt.curve.points, 1):
        assert f"{number} gates, predicted: {point.predicted:.4f}" in text
        assert f"{number} gates, measured, held out: {point.measured:.4f}" in text
        assert f">{point.bound:.4f}<" in text


def test_page_of_a_partial_fold_and_of_none(tmp_path):
    torch.manual_seed(0)
    network, _ = attnlab.insert(attnlab.create("resnet20", 10).eval(), "asr:se+se")
    _, receipt = attnlab.fold(network, partial=True)
    text = render(receipt.page())
    assert ">9 kept<" in text
    assert f"{receipt.rows[0].site} keeps a gate." in text
    without = replace(receipt, rows=(), max_change=None, float64_change=None)
    assert "There was no gate to fold" in render(without.page())
    assert FoldReceipt.load(receipt.save(tmp_path / "a.fold.json")) == receipt
