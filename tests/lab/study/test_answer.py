"""The lines that a study ends with, on tables whose figures are written here."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from attnlab._words import a, counted, listed
from attnlab.page.tables import Cell, Table, minus, number_cell
from attnlab.results import Metric
from attnlab.results.answer import points, table_answer
from attnlab.results.speed import GroupSpeed, TimedNetwork
from attnlab.results.study_cells import (
    delta_cell,
    delta_text,
    digits_cell,
    distinct_digits,
    equivalence_text,
    error_cell,
    gain_cell,
    p_cell,
    p_text,
    seeds_cell,
    seeds_text,
    summary_cell,
)
from attnlab.results.table import (
    Comparison,
    Equivalence,
    EquivalenceVerdict,
    Group,
    PairedDifference,
    PaperFigure,
    StudyRow,
    StudyTable,
    Summary,
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


def test_points_and_other_units():
    degrees = Metric(name="mae", label="mae", unit="°", better="lower")
    assert [points(TOP1, each) for each in ("1", "2", "0.5")] == [
        "1 point",
        "2 points",
        "0.5 points",
    ]
    assert points(degrees, "1") == "1 °"
    assert points(Metric(name="loss", label="loss"), "1") == "1"


def test_a_fold_without_a_time_and_one_that_is_faster():
    still = StudyRow("a", False, SEEDS, (), fold_error=2e-7)
    fast = StudyRow("b", False, SEEDS, (), fold_error=1e-16, folded_speed=timed(0.5))
    found = table_answer(table(group(still, fast)))
    assert found == [
        "a folds into the layers before it: its outputs change by at most 2e-07 (float64).",
        "b folds into the layers before it: its outputs change by at most 1e-16 (float64), and it "
        "takes 0.50 [0.46, 0.54] of the time of plain.",
    ]


def test_cells_of_what_is_not_known():
    nothing = StudyRow("se", False, (), (0, 1))
    assert delta_cell(nothing, TOP1).text == "missing"
    assert (seeds_text(nothing), str(seeds_cell(nothing))) == ("0 of 2", "0 / 2")
    assert (summary_cell(None, TOP1).text, error_cell(None).text) == ("—", "—")
    assert (delta_text(None, TOP1), p_text(None), p_cell(None).text, p_cell("").text) == (
        "",
        "",
        "—",
        "—",
    )
    alone = compared(0.5, None, None, "cannot tell")
    assert (delta_text(alone, TOP1), p_text(alone)) == ("+0.50 [–]", "")
    assert delta_text(compared(1.2, 0.4, 2.0, "better"), TOP1) == "+1.20 [+0.40, +2.00]"
    assert p_text(compared(1.2, 0.4, 2.0, "better")) == "0.500"
    assert p_cell(0.01234).text == "0.0123"
    unknown = replace(as_good(0.1, "not shown"), low=None)
    assert equivalence_text(unknown, TOP1) == "+0.10 [–]"
    assert equivalence_text(as_good(0.1, "equivalent"), TOP1) == "+0.10 [-1.00, +1.00]"


def test_cells_of_a_row():
    """Of the plain backbone its result; of another row the difference, in the colour of a gain."""
    value = {"top1": Summary(96.376, 0.794, 3)}
    plain = StudyRow("plain", True, SEEDS, (), values=value)
    assert (delta_cell(plain, TOP1).text, delta_cell(plain, TOP1).order) == ("96.38 %", 0.0)
    assert (gain_cell(plain, TOP1).text, gain_cell(plain, TOP1).order) == ("—", 0.0)
    alone = replace(plain, plain=False)
    assert (delta_cell(alone, TOP1).order, delta_cell(alone, TOP1).tone) == (None, "quiet")
    gain = replace(alone, comparison=compared(1.2, 0.4, 2.0, "better"))
    for cell in (delta_cell(gain, TOP1), gain_cell(gain, TOP1)):
        assert (cell.text, cell.small, cell.order, cell.tone) == (
            "+1.20",
            "[+0.40, +2.00]",
            1.2,
            "gain",
        )
    loss = replace(alone, comparison=compared(-1.2, -2.0, -0.4, "worse"))
    assert delta_cell(loss, TOP1).tone == "loss"
    unclear = replace(alone, comparison=compared(1.2, -0.4, 2.0, "no difference shown"))
    assert delta_cell(unclear, TOP1).tone == "quiet"
    mean = summary_cell(value["top1"], TOP1)
    assert (mean.text, mean.small, mean.order, mean.tone) == ("96.38", "± 0.79", 96.376, "")
    assert summary_cell(value["top1"], TOP1, quiet=True).tone == "quiet"


def test_seeds_that_are_missing_or_stale():
    assert (
        seeds_text(StudyRow("a", False, SEEDS, ())),
        str(seeds_cell(StudyRow("a", False, SEEDS, ()))),
    ) == (
        "3",
        "3 / 3",
    )
    row = StudyRow("a", False, SEEDS, (3,), stale=("2: other threads", "1: other data"))
    assert (seeds_text(row), str(seeds_cell(row))) == ("3 of 4, 3 stale", "3 / 4 3 stale")


def test_three_digits_are_seen():
    values = (0.0123, 0.5, 1.8, 41.0, 1230.0, 0.0, -0.0123, 10.0, 100.0)
    assert [digits_cell(value).text for value in values] == [
        "0.0123",
        "0.500",
        "1.80",
        "41.0",
        "1230",
        "0.00",
        "-0.0123",
        "10.0",
        "100",
    ]
    assert digits_cell(None).text == "—"
    assert [error_cell(each).text for each in (9e-7, 1e-6, 2e-3)] == [
        "9.0e-07 ✓",
        "1.0e-06",
        "2.0e-03",
    ]
    assert error_cell(9e-7).order == 9e-7


def test_digits_that_tell_values_apart():
    assert distinct_digits([1.0, 2.0]) == 3
    assert distinct_digits([1.0001, 1.0002]) == 4
    assert distinct_digits([1.00001, 1.00002]) == 5
    assert distinct_digits([1.0, 1.0]) == 3
    assert distinct_digits([1.0000001, 1.0000002]) == 6


@pytest.mark.parametrize(
    ("low", "high", "verdict", "standing"),
    [
        (None, None, "cannot tell", "no interval"),
        (0.1, None, "better", "no interval"),
        (None, 0.1, "better", "no interval"),
        (0.1, 0.9, "cannot tell", "cannot tell"),
        (0.1, 0.9, "better", "gain"),
        (-0.9, -0.1, "worse", "loss"),
        (-0.1, 0.9, "no difference shown", "within noise"),
        (0.0, 0.9, "no difference shown", "within noise"),
        (-0.9, 0.0, "no difference shown", "within noise"),
        (0.1, 0.9, "no difference shown", "before correction only"),
        (-0.9, -0.1, "no difference shown", "before correction only"),
    ],
)
def test_standing(low, high, verdict, standing):
    difference = PairedDifference(0.4, low, high, 0.1, SEEDS)
    assert Comparison(difference, 0.1, verdict).standing == standing


def test_a_comparison_has_the_figures_and_the_reason_of_its_kind():
    difference = PairedDifference(
        0.4,
        0.1,
        0.9,
        0.03,
        SEEDS,
        "fixed",
        anytime_low=-0.2,
        anytime_high=1.1,
        anytime_p=0.2,
        anytime_note="anytime",
    )
    fixed, anytime = (Comparison(difference, 0.1, "better", each) for each in (False, True))
    assert (fixed.low, fixed.high, fixed.p_value, fixed.note) == (0.1, 0.9, 0.03, "fixed")
    assert (anytime.low, anytime.high, anytime.p_value, anytime.note) == (-0.2, 1.1, 0.2, "anytime")
    why = replace(difference, cannot_tell="mixed data")
    assert [Comparison(why, None, "cannot tell", each).note for each in (False, True)] == (
        ["mixed data"] * 2
    )


def test_an_equivalence_is_judged_below_the_error_rate():
    asked = Equivalence("plain", 0.25, 0.0, -0.1, 0.1, 0.01, SEEDS)
    below, at = asked.judged(0.04, 0.05), asked.judged(0.05, 0.05)
    assert (below.verdict, below.text, below.adjusted_p) == (
        "equivalent",
        "equivalent within ±0.25",
        0.04,
    )
    assert (at.verdict, at.text, at.adjusted_p) == ("not shown", "not shown", 0.05)
    for unknown in (
        replace(asked, p_value=None),
        replace(asked, low=None),
        replace(asked, note="one seed"),
    ):
        assert unknown.judged(0.01, 0.05) is unknown
        assert unknown.text == "cannot tell"


def test_tables_for_spreadsheets_and_papers():
    """Formulas are marked as text and numbers are not; what is set off is bold in LaTeX."""
    made = Table(
        ["module", "Δ %", "p"],
        [
            [Cell("=se|x"), Cell("+0.5", "[-0.1, 1]", tone="gain"), number_cell(0.5, "{:.2f}")],
            [Cell("@a"), Cell("-1e-3", tone="loss"), number_cell(math.nan, "{:.2f}")],
            [Cell("b_c"), Cell("-", tone="quiet"), number_cell(None, "{:.2f}")],
        ],
        caption="one\ntwo",
    )
    assert made.to_csv() == (
        "module,Δ %,p\n'=se|x,\"'+0.5 [-0.1, 1]\",0.50\n'@a,-1e-3,—\nb_c,'-,—\n"
    )
    assert made.to_markdown() == (
        "| module | Δ % | p |\n| --- | ---: | ---: |\n| =se\\|x | +0.5 [-0.1, 1] | 0.50 |\n"
        "| @a | -1e-3 | — |\n| b_c | - | — |\n"
    )
    lines = made.to_latex().splitlines()
    assert lines[:4] == [
        "% one",
        "% two",
        r"% needs \usepackage{booktabs}",
        r"\begin{tabular}{lrr}",
    ]
    assert lines[5:10] == [
        r"module & $\Delta$ \% & p \\",
        r"\midrule",
        r"=se$|$x & \textbf{+0.5} [$-$0.1, 1] & 0.50 \\",
        r"@a & \textbf{$-$1e-3} & -- \\",
        r"b\_c & - & -- \\",
    ]
    assert replace(made, names=2).to_latex().splitlines()[3] == r"\begin{tabular}{llr}"
    assert replace(made, names=2).to_markdown().splitlines()[1] == "| --- | --- | ---: |"


def test_minus_signs_are_put_before_numbers_alone():
    for text, printed in (
        ("-0.5", "−0.5"),
        ("[-1, -2]", "[−1, −2]"),
        ("top-1", "top-1"),
        ("1e-3", "1e-3"),
        ("a/-1", "a/-1"),
        ("x.-1", "x.-1"),
        ("k:-1", "k:-1"),
        ("--1", "--1"),
        ("-x", "-x"),
    ):
        assert minus(text) == printed


def test_numbers_with_their_nouns():
    assert [counted(n, "run") for n in (0, 1, 2, 1.5)] == ["0 runs", "1 run", "2 runs", "1.5 runs"]
    assert [a(noun) for noun in ("image", "window", "epoch")] == [
        "an image",
        "a window",
        "an epoch",
    ]
    assert (listed([]), listed(range(4)), listed(range(5))) == (
        "",
        "0, 1, 2, 3",
        "0, 1, 2, 3 and 1 more",
    )
    assert listed(["a", "b", "c"], 1) == "a and 2 more"
