"""How large a gate begins: the questions pair the right rows, and the page has their answers."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from scipy import stats

from attnlab.lab.study import SharedTable
from attnlab.lab.study.shared import SharedRow, SharedRun

ROOT = Path(__file__).parents[3]
TABLES = ROOT / "docs" / "tables"


@pytest.fixture(name="example", scope="module")
def fixture_example() -> ModuleType:
    file = ROOT / "examples" / "starts_of_gates.py"
    spec = importlib.util.spec_from_file_location("starts_of_gates", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def table(**values: list[float]) -> SharedTable:
    """Rows of three seeds in percent; `_` is a space."""
    published = SharedTable.load(TABLES / "gates-digits-resnet20.json")
    rows = tuple(
        SharedRow(
            label.replace("_", " "),
            label == "plain",
            {},
            {},
            tuple(
                SharedRun(seed, f"{label}{seed}", each / 100, 1, 1, None, None)
                for seed, each in enumerate(found)
            ),
        )
        for label, found in values.items()
    )
    return replace(published, seeds=(0, 1, 2), rows=rows)


PLAIN = [60.0, 62.0, 61.0]


def test_every_question_takes_the_rows_that_it_names(example: ModuleType) -> None:
    gates = table(plain=PLAIN, se=[50.0, 53.0, 51.0], eca=[1.0, 2.0, 3.0])
    starts = table(plain=PLAIN, constant_2=[61.0, 64.0, 60.0])
    ours = {"se, identity start": [60.0, 64.0, 63.0], "se, frozen": [49.0, 53.0, 50.0]}
    starts = replace(starts, rows=(*starts.rows, *table(**ours).rows))
    found = example.questions(starts, gates)
    means = {
        asked: {row: each.difference.mean for row, each in rows.items()}
        for asked, rows in found.items()
    }
    assert means == {
        "a constant − plain": {"constant 2": pytest.approx((1 + 2 - 1) / 3)},
        "begun at 1 − begun as in the paper": {"se": pytest.approx((10 + 11 + 12) / 3)},
        "begun at 1 − plain": {"se": pytest.approx((0 + 2 + 2) / 3)},
        "never trained − plain": {"se": pytest.approx((-11 - 9 - 11) / 3)},
        "trained − never trained": {"se": pytest.approx((1 + 0 + 1) / 3)},
    }


def test_a_wider_network_is_compared_with_the_gates_of_its_size(example: ModuleType) -> None:
    gates = table(plain=PLAIN, se=[64.0, 64.0, 64.0], eca=[1.0, 2.0, 3.0])
    starts = table(plain=PLAIN, as_many_as_se=[61.0, 64.0, 65.0])
    se, eca = (
        replace(row, runs=tuple(replace(run, parameters=size) for run in row.runs))
        for row, size in zip(gates.rows[1:], (1000, 1021), strict=True)
    )
    wide = replace(
        starts.rows[1], runs=tuple(replace(run, parameters=1010) for run in starts.rows[1].runs)
    )
    found = example.questions(
        replace(starts, rows=(starts.rows[0], wide)),
        replace(gates, rows=(gates.rows[0], se, eca)),
    )
    means = {
        asked: {row: each.difference.mean for row, each in rows.items()}
        for asked, rows in found.items()
    }
    assert means == {
        "as many parameters, no gate − plain": {"as many as se": pytest.approx((1 + 2 + 4) / 3)},
        "the gate − as many parameters": {"se": pytest.approx((3 + 0 - 1) / 3)},
    }


def test_branches_that_begin_at_1_are_compared_with_those_that_begin_at_0(
    example: ModuleType,
) -> None:
    """Each difference is to the plain network of its own table."""
    gates = table(plain=PLAIN, se=[50.0, 53.0, 51.0])
    starts = table(plain=PLAIN, constant_2=[61.0, 64.0, 60.0])
    branches = table(plain=[80.0, 82.0, 84.0], constant_2=[80.0, 81.0, 83.0], se=[79.0, 81.0, 82.0])
    own, both = example.where_branches_begin_at_1(branches, starts, gates).values()
    assert own["constant 2"].difference.mean == pytest.approx(-2 / 3)
    assert own["se"].difference.mean == pytest.approx(-4 / 3)
    assert both["constant 2"].difference.mean == pytest.approx((0 - 1 + -1 - 2 + -1 + 1) / 3)
    by_seed = [-1 + 10, -1 + 9, -2 + 10]
    assert both["se"].difference.mean == pytest.approx(np.mean(by_seed))
    assert both["se"].difference.p_value == pytest.approx(stats.ttest_1samp(by_seed, 0).pvalue)


def test_the_mean_over_gates_takes_shared_networks_from_the_other_table(
    example: ModuleType,
) -> None:
    """SRM and GC begin at the constant 0.5 and GCT is plain; others have a row of their own."""
    usual = {"srm": [50.0, 51.0, 52.0], "gc": [55.0, 55.0, 56.0], "gct": [60.0, 62.0, 64.0]}
    gates = table(plain=PLAIN, se=[50.0, 53.0, 51.0], bam=[70.0, 70.0, 71.0], **usual)
    half = {"plain": PLAIN, "constant 0.5": [52.0, 52.0, 52.0], "se, frozen": [49.0, 53.0, 50.0]}
    found = example.mean_by_learning(
        table(**{"plain": PLAIN, "bam, frozen": [71.0, 70.0, 74.0]}), table(**half), gates
    )
    by_seed = [(1 - 1 - 2 + 3 + 0) / 5, (0 + 0 - 1 + 3 + 0) / 5, (1 - 3 + 0 + 4 + 3) / 5]
    assert found["mean of 5 gates"].difference.mean == pytest.approx(np.mean(by_seed))
    assert found["mean of 5 gates"].difference.std == pytest.approx(np.std(by_seed, ddof=1))


def test_tables_with_another_plain_network_are_refused(example: ModuleType) -> None:
    other = table(plain=[60.0, 62.0, 61.5])
    with pytest.raises(SystemExit, match="Expected the same plain network in both tables"):
        example.questions(table(plain=PLAIN), other)


def test_the_page_has_the_answers_of_the_published_tables(example: ModuleType) -> None:
    """Every line of the script is on the page, and p follows from SciPy's t-test and Holm."""
    starts, gates = (
        SharedTable.load(TABLES / f"{name}.json")
        for name in ("gate-starts-cifar10", "gates-cifar10-regnetx200mf")
    )
    page = (ROOT / "docs" / "papers-small.md").read_text(encoding="utf-8").replace("−", "-")
    found = example.questions(starts, gates)
    branches, wider = (
        SharedTable.load(TABLES / f"{name}.json")
        for name in ("gate-starts-branches", "gates-cifar10-regnetx200mf-wider")
    )
    elsewhere = example.where_branches_begin_at_1(branches, starts, gates)
    alone, beside = example.questions(wider, gates).values()
    answers = [*found.values(), *elsewhere.values(), beside]
    assert [len(rows) for rows in answers] == [3, 5, 5, 5, 5, 2, 2, 8]
    for rows in answers:
        for label, each in rows.items():
            assert example.line(label, each) in page
    assert {each.verdict for each in alone.values()} == {"no difference shown"}
    constants = found["a constant − plain"]
    differences = {
        label: np.subtract(
            *(list(starts.row(name).by_seed(starts.metric).values()) for name in (label, "plain"))
        )
        for label in constants
    }
    p_values = {label: stats.ttest_1samp(each, 0).pvalue for label, each in differences.items()}
    order = sorted(p_values, key=lambda label: p_values[label])
    steps = [p_values[label] * (len(order) - place) for place, label in enumerate(order)]
    for label, adjusted in zip(order, np.maximum.accumulate(steps), strict=True):
        assert constants[label].adjusted_p == pytest.approx(min(1, adjusted))


@pytest.mark.parametrize(
    "name", ["gates-cifar10-regnetx200mf-wider", "gates-digits-resnet20-wider"]
)
def test_the_page_has_the_networks_with_as_many_parameters(name: str) -> None:
    """A line per size: how many, the result, the difference to plain and its p."""
    found = SharedTable.load(TABLES / f"{name}.json")
    page = (ROOT / "docs" / "papers-small.md").read_text(encoding="utf-8").replace("−", "-")
    for cells in found.table().rows[1:]:
        label, top1, difference, p_value, *_ = map(str, cells)
        size = found.row(label).runs[0].parameters
        shown = [line for line in page.splitlines() if f"| {size:,} | {top1} | " in line]
        assert [difference.lstrip("+-") in line and f"| {p_value} |" in line for line in shown] == [
            True
        ]


def test_the_page_has_the_gates_never_trained(example: ModuleType) -> None:
    """Both families and the mean over gates, which is made here again from the tables."""
    frozen, gates, starts = (
        SharedTable.load(TABLES / f"{name}.json")
        for name in (
            "gates-cifar10-regnetx200mf-frozen",
            "gates-cifar10-regnetx200mf",
            "gate-starts-cifar10",
        )
    )
    page = (ROOT / "docs" / "papers-small.md").read_text(encoding="utf-8").replace("−", "-")
    shown = page.partition("### Never trained in a RegNetX-200MF\n")[2].partition("\n## ")[0]
    found = example.questions(frozen, gates)
    worse, learned = found["never trained − plain"], found["trained − never trained"]
    assert len(worse) == len(learned) == 14
    for gate in worse:
        cells = []
        for each in (worse[gate], learned[gate]):
            own = each.difference
            cells.append(
                f"{own.mean:+.2f} [{own.low:+.2f}, {own.high:+.2f}] | {each.adjusted_p:.3f}"
            )
        (line,) = (line for line in shown.splitlines() if line.startswith(f"| `{gate}` |"))
        assert " | ".join(cells) in line
    assert [each.verdict for each in worse.values()].count("worse") == 7
    assert {gate for gate, each in worse.items() if each.verdict == "better"} == {"bam"}
    assert {each.verdict for each in learned.values()} == {"no difference shown"}

    def values(table: SharedTable, label: str) -> np.ndarray:
        return np.array(list(table.row(label).by_seed(table.metric).values()))

    rows = {row.label.partition(",")[0]: values(frozen, row.label) for row in frozen.rows[1:]}
    rows |= {
        gate: values(starts, f"{gate}, frozen") for gate in ("se", "cbam", "sem", "step", "ie")
    }
    rows |= dict.fromkeys(("srm", "gc"), values(starts, "constant 0.5"))
    rows["gct"] = values(starts, "plain")
    mean = np.mean([values(gates, gate) - own for gate, own in rows.items()], axis=0)
    low, high = stats.t.interval(0.95, 4, loc=mean.mean(), scale=stats.sem(mean))
    assert f"{mean.mean():.2f} points by learning [{low:+.2f}, {high:+.2f}]" in shown
    (made,) = example.mean_by_learning(frozen, starts, gates).values()
    assert (made.difference.low, made.difference.high) == pytest.approx((low, high))
