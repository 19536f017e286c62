"""The lines that a study ends with, on tables whose figures are written here."""

from __future__ import annotations

from dataclasses import replace

from attnlab.results import Metric
from attnlab.results.answer import table_answer
from attnlab.results.speed import GroupSpeed, TimedNetwork
from attnlab.results.table import (
    Comparison,
    Equivalence,
    EquivalenceVerdict,
    Group,
    PairedDifference,
    PaperFigure,
    StudyRow,
    StudyTable,
    Verdict,
)

SEEDS = (0, 1, 2)
TOP1 = Metric(name="top1", label="top-1", unit="%", scale=100)


def compared(mean: float, low: float | None, high: float | None, verdict: Verdict) -> Comparison:
    note = "" if low is not None else "one seed"
    return Comparison(PairedDifference(mean, low, high, 0.5, SEEDS, note), 0.5, verdict)


def as_good(mean: float, verdict: EquivalenceVerdict) -> Equivalence:
    return Equivalence("plain", 2.0, mean, -1.0, 1.0, 0.01, SEEDS, verdict=verdict)


def timed(ratio: float) -> TimedNetwork:
    ends = {"low": ratio - 0.04, "high": ratio + 0.04}
    return TimedNetwork(folder="r", milliseconds=ratio, ratio=ratio, **ends)


def group(*rows: StudyRow, speed: bool = True, name: str = "digits resnet20") -> Group:
    plain = StudyRow("plain", True, SEEDS, (), speed=timed(1.0) if speed else None)
    measured = GroupSpeed(reference="plain") if speed else None
    return Group(name, "digits", "resnet20", (plain, *rows), timed=measured)


def table(*groups: Group) -> StudyTable:
    return StudyTable(
        study="s",
        title="t",
        level=0.95,
        metrics=(TOP1,),
        groups=groups,
        paper_source="",
        paper_note="",
    )


def test_what_a_network_is_given_has_its_name():
    from attnlab.tasks.language import Language

    rows = StudyRow("plain", True, SEEDS, ()), StudyRow("token", False, SEEDS, (), speed=timed(1.2))
    made = replace(table(group(*rows)), metrics=Language.metrics)
    assert "Time of a window, plain = 1: token 1.20 [1.16, 1.24]." in table_answer(made)


def test_a_gain_a_loss_what_is_not_shown_and_what_folds():
    step = StudyRow(
        "StepNet",
        False,
        SEEDS,
        (),
        comparison=compared(1.2, 0.4, 2.0, "better"),
        equivalence=as_good(1.2, "not shown"),
        speed=timed(1.25),
    )
    se = StudyRow("se", False, SEEDS, (), comparison=compared(-1.0, -1.5, -0.5, "worse"))
    asr = StudyRow(
        "ASR(SE)",
        False,
        SEEDS,
        (),
        comparison=compared(0.1, -0.3, 0.5, "no difference shown"),
        equivalence=as_good(0.1, "equivalent"),
        speed=timed(1.13),
        folded_speed=timed(0.99),
        fold_error=4e-16,
        folded_parameters=272_474,
    )
    assert table_answer(table(group(step, se, asr))) == [
        "Better than the plain network: StepNet (+1.20 points [+0.40, +2.00]).",
        "Worse than the plain network: se (-1.00 points [-1.50, -0.50]).",
        "Not shown to be better or worse: ASR(SE) (+0.10 points [-0.30, +0.50]).",
        "As good as plain, to within 2 points: ASR(SE).",
        "Not shown to be as good as plain, to within 2 points: StepNet.",
        "Time of an image, plain = 1: StepNet 1.25 [1.21, 1.29], ASR(SE) 1.13 [1.09, 1.17].",
        "ASR(SE) folds into the layers before it: its outputs change by at most 4e-16 (float64), "
        "272,474 parameters are left, and it takes 0.99 [0.95, 1.03] of the time of plain, no "
        "difference shown.",
    ]


def test_one_seed_is_no_answer_and_a_slow_fold_is_not_called_free():
    rows = (
        StudyRow("se", False, (0,), (), comparison=compared(0.5, None, None, "cannot tell")),
        StudyRow("asr:se", False, SEEDS, (), fold_error=1e-12, folded_speed=timed(1.2)),
    )
    found = table_answer(table(group(*rows)))
    assert found[:2] == [
        "Better than the plain network: none.",
        "Cannot be told: se (+0.50 points; one seed).",
    ]
    assert found[-1].endswith("it takes 1.20 [1.16, 1.24] of the time of plain.")


def test_lines_of_several_groups_say_which():
    row = StudyRow("se", False, SEEDS, (), comparison=compared(1.0, 0.5, 1.5, "better"))
    found = table_answer(table(group(row, speed=False), group(row, speed=False, name="c10 r20")))
    assert [line.split(":")[0] for line in found] == ["digits resnet20", "c10 r20"]


def test_a_table_without_a_plain_row_has_no_answer():
    alone = Group("g", "d", "b", (StudyRow("se", False, SEEDS, ()),))
    assert table_answer(table(alone)) == []


def test_a_papers_figure_is_its_mean_and_its_spread() -> None:
    assert str(PaperFigure(94.26, 0.14)) == "94.26 ± 0.14"
    assert PaperFigure(94.26).text(1) == "94.3"
