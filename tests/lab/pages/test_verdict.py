"""The first sentence, the chips and the alerts, for gain, noise and loss."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.lab.pages.simulated import simulate

from attnlab.instruments.stripe import StripeResult
from attnlab.instruments.stripe.section import _answer, gates_section, stripe_figures
from attnlab.lab.pages.alerts import alerts
from attnlab.lab.pages.verdict import _deviation_chips, baseline_gap, study_chips, study_verdict
from attnlab.results import Metric
from attnlab.results.record import StudyRecord, find_study, read_record
from attnlab.results.table import Group, PaperFigure, StudyRow, Summary
from attnlab.results.verdict import verdict_sentence

GAIN, LOSS, NONE, UNKNOWN = "better", "worse", "no difference shown", "cannot tell"


def _record(out, **settings) -> StudyRecord:
    return read_record(out, simulate(out, **settings).name)


@pytest.mark.parametrize(
    ("verdicts", "sentence"),
    [
        (
            {"se": {"c10": GAIN, "c100": GAIN}, "eca": {"c10": NONE, "c100": NONE}},
            "**se** beats the plain net on both data sets by more than seed noise. 1 of 2 modules "
            "shows no gain anywhere.",
        ),
        (
            {
                "se": {"a": GAIN, "b": GAIN, "c": GAIN},
                "step": {"a": GAIN, "b": GAIN, "c": GAIN},
                "eca": {"a": GAIN, "b": NONE, "c": NONE},
                "ie": {"a": NONE, "b": LOSS, "c": NONE},
            },
            "**se, step** beat the plain net on all three data sets by more than seed noise. "
            "**eca** does so on a only. **ie** is worse than the plain net on b by more than seed "
            "noise. 1 of 4 modules shows no gain anywhere.",
        ),
        (
            {"se": {"a": GAIN, "b": NONE}},
            "**se** beats the plain net by more than seed noise on a only.",
        ),
        (
            {"se": {"c10": NONE}, "eca": {"c10": NONE}},
            "**No module** differs from the plain net by more than seed noise (5 seeds).",
        ),
        (
            {"se": {"c10": LOSS}, "eca": {"c10": NONE}},
            "**se** is worse than the plain net by more than seed noise. No module beats it.",
        ),
        ({"se": {"c10": GAIN}}, "**se** beats the plain net on c10 by more than seed noise."),
        (
            {"se": {"c10": UNKNOWN}},
            "No interval yet, so no module can be said to help or harm the plain net.",
        ),
    ],
)
def test_sentence(verdicts, sentence):
    assert verdict_sentence(verdicts, "the plain net", 5) == sentence


def test_chips_of_a_whole_study(whole):
    chips = [(chip.text, chip.tone) for chip in study_chips(read_record(*find_study(whole.runs)))]
    assert chips[:4] == [
        ("150 / 150 runs", "good"),
        ("5 seeds", "neutral"),
        ("recipe digits", "neutral"),
        (
            "2 deviations from the recipe: epochs 12 → 164, batch_size 64 → 256",
            "warn",
        ),
    ]
    assert chips[-2:] == [("13.3 h of training on GPU", "neutral"), ("a1b2c3d · clean", "neutral")]
    assert sum(text.startswith("baseline ") for text, _ in chips) == 3


POINTS = {"name": "top1", "label": "top-1", "unit": "%", "scale": 100, "digits": 2}
METRES = {"name": "mae", "label": "error", "unit": "m", "better": "lower", "digits": 3}


@pytest.mark.parametrize(
    ("metric", "own", "paper", "found"),
    [
        (POINTS, (93.0, 0.1), (94.5, None), ("1.5 pt under", True)),
        (POINTS, (95.0, 0.1), (94.5, 0.1), ("0.5 pt over", False)),
        (POINTS, (94.5, 0.1), (94.52, 0.1), ("at", False)),
        (POINTS, (94.25, 0.1), (94.5, None), ("0.2 pt under", False)),  # 0.3 are allowed
        (POINTS, (94.0, 0.1), (94.5, 0.75), ("0.5 pt under", False)),  # the paper's own spread
        (POINTS, (93.5, 0.1), (94.5, 0.75), ("1.0 pt under", True)),
        (METRES, (0.5, 0.0625), (0.25, None), ("0.25 m over", True)),  # less is better
        (METRES, (0.25, 0.0625), (0.5, None), ("0.25 m under", False)),
        (METRES, (0.3125, 0.0625), (0.25, None), ("0.06 m over", False)),  # the seeds' spread
        (METRES, (0.5, None), (0.25, None), ("0.25 m over", None)),
    ],
)
def test_a_baseline_is_weak_if_it_is_worse_by_more_than_spread(metric, own, paper, found):
    kind = Metric(**metric)
    values, printed = {kind.name: Summary(*own, 3)}, {kind.name: PaperFigure(*paper)}
    plain = StudyRow("plain", True, (0, 1, 2), (), values=values, paper=printed)
    assert baseline_gap(Group("g", "d", "b", (plain,)), kind) == found
    for without in (replace(plain, paper={}), replace(plain, values={})):
        assert baseline_gap(Group("g", "d", "b", (without,)), kind) is None


def test_a_weak_baseline_is_said_at_the_top(tmp_path):
    record = _record(tmp_path, data=("cifar10",), gains={"se": 0.5}, seeds=2)
    (group,) = record.table.groups
    own = group.plain.values["top1"]
    for more, tone in ((1.0, "warn"), (0.0, "good")):
        plain = replace(group.plain, paper={"top1": PaperFigure(own.mean + more, None)})
        rows = tuple(plain if row.plain else row for row in group.rows)
        table = replace(record.table, groups=(replace(group, rows=rows),))
        changed = replace(record, table=table)
        chips = {chip.text: chip.tone for chip in study_chips(changed)}
        side = "1.0 pt under" if more else "at"
        assert chips[f"baseline cifar10 {side} reference"] == tone
        texts = [chip.text for chip in alerts(changed)]
        assert ("Weak baseline on cifar10: 1.0 pt under reference." in texts) == bool(more)


@pytest.mark.parametrize(
    ("found", "text", "detail"),
    [
        ([], "no deviation from the recipe", ""),
        ([("epochs", 12, 164)], "1 deviation from the recipe: epochs 12 → 164", ""),
        # Of 60 characters, and of 61.
        ([(54 * "x", 1, 2)], f"1 deviation from the recipe: {54 * 'x'} 1 → 2", ""),
        ([(55 * "x", 1, 2)], "1 deviation from the recipe, listed below", f"{55 * 'x'} 1 → 2"),
        (
            [("epochs", 12, 164), ("augmentations", "nothing", "crop, flip, colours and mixup")],
            "2 deviations from the recipe, listed below",
            "epochs 12 → 164, augmentations nothing → crop, flip, colours and mixup",
        ),
    ],
)
def test_deviations_are_listed_if_they_are_short(found, text, detail):
    (chip,) = _deviation_chips(found)
    assert (chip.text, chip.detail) == (text, detail)
    assert chip.tone == ("warn" if found else "good")


def test_gain_and_loss_of_simulated_runs(tmp_path):
    gains = {"se": 0.8, "eca": -0.8}
    record = _record(tmp_path, data=("cifar10",), gains=gains, noise=0.05, epochs=4)
    assert study_verdict(record) == (
        "**se** beats the plain resnet20 on cifar10 by more than seed noise. **eca** is worse than "
        "the plain resnet20 by more than seed noise. 1 of 2 modules shows no gain."
    )


def test_noise_of_simulated_runs(tmp_path):
    gains = {"se": 0.0, "eca": 0.0}
    record = _record(tmp_path, data=("cifar10",), gains=gains, noise=0.5, epochs=4)
    assert study_verdict(record) == (
        "**No module** differs from the plain resnet20 by more than seed noise (5 seeds)."
    )


def test_one_seed_is_no_evidence(tmp_path):
    gains = {"se": 3.0}
    record = _record(tmp_path, data=("cifar10",), gains=gains, seeds=1, epochs=4, paper=False)
    assert study_verdict(record) == (
        "One seed has no interval, so no module can be said to help or harm the plain resnet20."
    )
    chips = [(chip.text, chip.tone) for chip in study_chips(record)]
    assert ("1 seed", "warn") in chips
    assert ("no reference figures", "neutral") in chips
    texts = [f"{chip.text} {chip.detail}" for chip in alerts(record)]
    assert "One seed: no interval, so nothing can be said to be better. " in texts


def test_alerts_name_best_epoch_and_convention(whole):
    texts = [f"{chip.text} {chip.detail}" for chip in alerts(read_record(*find_study(whole.runs)))]
    assert any(
        t.startswith("Results are of the last epoch. Choosing the best epoch") for t in texts
    )
    assert any(t.startswith("In 135 of 150 runs: The network has gates; convention") for t in texts)
    assert not any("wide intervals" in text for text in texts)


@pytest.mark.parametrize(
    ("constant", "alike", "vary", "said"),
    [
        (["bam"], [], [], "The gates of bam are the same for every image."),
        (
            [],
            ["se (0.5)", "eca (0.9)"],
            [],
            "The gates of se (0.5), eca (0.9) differ more between channels than between images.",
        ),
        ([], [], ["srm (2.0)"], "The gates of srm (2.0) depend on the image as much or more."),
        (
            ["bam"],
            ["se (0.5)"],
            ["srm (2.0)"],
            "The gates of bam are the same for every image. Those of se (0.5) differ more between "
            "channels than between images. Those of srm (2.0) depend on the image as much or more.",
        ),
    ],
)
def test_gates_that_are_constant_alike_or_vary_are_told_apart(constant, alike, vary, said):
    assert _answer(constant, alike, vary) == said


def test_the_gates_of_three_blocks_are_shown(tmp_path):
    record = _record(tmp_path, data=("cifar10",), gains={"se": 0.5}, seeds=2)
    (group,) = record.table.groups
    found = record.of(group, "se")[0].stored.measured_result(StripeResult)
    twelve = replace(found, sites=(found.sites * 12)[:12])
    assert len(stripe_figures(twelve)) == 3
    assert len(stripe_figures(replace(found, sites=found.sites[:2]))) == 2


def test_alerts_begin_with_the_worst(tmp_path):
    settings = {"gains": {"se": 0.5}, "finished": 0.9, "failed": "It is lost.\nAt line 3."}
    found = alerts(_record(tmp_path, data=("cifar10",), **settings))
    assert (found[0].tone, found[0].detail) == ("bad", "It is lost.")
    order = ["bad", "warn", "neutral", "good"]
    places = [order.index(chip.tone) for chip in found]
    assert places == sorted(places)
    assert len(set(places)) >= 3


def test_constant_gates_are_said_to_fold_only_where_a_run_was_folded(tmp_path):
    """`lambda` is the same for every input, and folds only where it left the state as it is."""
    record = _record(tmp_path, data=("cifar10",), seeds=2)
    said = gates_section(record).to_do
    assert said.startswith("The gates of ")
    assert "fold away, so they cost nothing" in said
    (group,) = record.table.groups
    rows = tuple(replace(row, fold_error=None) for row in group.rows)
    table = replace(record.table, groups=(replace(group, rows=rows),))
    said = gates_section(replace(record, table=table)).to_do
    assert "are constant, and no run of them was folded" in said
