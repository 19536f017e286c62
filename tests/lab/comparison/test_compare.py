"""Verdicts on logs of others."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from scipy import stats
from tests.lab.comparison import logs

import attnlab
from attnlab import AttnlabError
from attnlab.lab.comparison import Log, to_text
from attnlab.lab.comparison.seeds import place


def row(found, label):
    (group,) = found.judged.groups
    return next(row for row in group.rows if row.label == label)


def test_ultralytics_is_paired_by_seed(tmp_path: Path) -> None:
    found = attnlab.compare(logs.study(tmp_path), by="model", baseline="plain.yaml")
    assert found.judged.metric.label == logs.ULTRALYTICS
    assert row(found, "plain.yaml").by_seed == dict(enumerate(logs.PLAIN))
    difference = row(found, "cbam.yaml").comparison.difference
    expected = stats.ttest_rel(logs.CBAM, logs.PLAIN)
    interval = expected.confidence_interval(0.95)
    assert difference.p_value == pytest.approx(expected.pvalue, rel=1e-9)
    assert (difference.low, difference.high) == pytest.approx((interval.low, interval.high))
    assert difference.seeds == (0, 1, 2, 3, 4, 5)
    assert row(found, "cbam.yaml").comparison.verdict == "better"


def test_looked_takes_the_wider_interval(tmp_path: Path) -> None:
    files = logs.study(tmp_path)
    fixed, looked = (
        attnlab.compare(files, by="model", baseline="plain.yaml", looked=each)
        for each in (False, True)
    )
    narrow, wide = (row(found, "cbam.yaml").comparison for found in (fixed, looked))
    assert wide.low < narrow.low < narrow.high < wide.high
    assert looked.judged.sequential
    assert not fixed.judged.sequential


def test_lightning_by_the_name_without_its_seed(tmp_path: Path) -> None:
    files = [
        logs.lightning(tmp_path, f"{name}-seed{seed}", [10.0, value])
        for name, values in (("baseline", (70.0, 71.0)), ("se", (72.0, 74.0)))
        for seed, value in enumerate(values)
    ]
    found = attnlab.compare(files, "val_acc")
    assert row(found, "se").by_seed == {0: 72.0, 1: 74.0}
    assert row(found, "se").comparison.difference.mean == 2.5
    assert row(found, "baseline").plain


def test_a_seed_of_the_settings_goes_before_the_name(tmp_path: Path) -> None:
    files = [
        logs.lightning(tmp_path, f"{name}-seed{seed}", [value], seed=seed)
        for name, values in (("plain", (70.0, 71.0)), ("se", (72.0, 74.0)))
        for seed, value in enumerate(values)
    ]
    found = attnlab.compare(files, "val_acc")
    assert [each.label for each in found.judged.groups[0].rows] == ["plain", "se"]
    assert row(found, "se").seeds == (0, 1)


def test_hugging_face(tmp_path: Path) -> None:
    files = [
        logs.huggingface(tmp_path, f"{name}_s{seed}", [0.5, value])
        for name, values in (("plain", (0.7, 0.71)), ("eca", (0.69, 0.72)))
        for seed, value in enumerate(values)
    ]
    found = attnlab.compare(files, "eval_accuracy")
    assert row(found, "eca").by_seed == {0: 0.69, 1: 0.72}


def test_mlflow_export_has_a_row_per_run(tmp_path: Path) -> None:
    file = tmp_path / "export.csv"
    file.write_text(
        "run_id,metrics.acc,params.model,params.seed,params.epoch,tags.user\n"
        "a,0.7,plain,1,9,x\nb,0.75,se,1,9,x\nc,0.72,plain,2,9,x\nd,0.74,se,2,9,x\n"
    )
    found = attnlab.compare([file], "metrics.acc", by="model")
    assert row(found, "se").by_seed == {1: 0.75, 2: 0.74}


@pytest.mark.parametrize("epochs", [False, True])
def test_one_csv_of_many_runs(tmp_path: Path, epochs: bool) -> None:
    file = tmp_path / "all.csv"
    lines = ["model,seed,epoch,top1" if epochs else "model,seed,top1"]
    for model, values in (("plain", (70.0, 71.0)), ("se", (72.0, 71.5))):
        for seed, value in enumerate(values):
            # The epochs stand in any order.
            parts = [f"2,{value}", "1,50"] if epochs else [f"{value}"]
            lines += [f"{model},{seed},{part}" for part in parts]
    file.write_text("\n".join(lines))
    found = attnlab.compare([file], "top1", by="model")
    assert row(found, "se").by_seed == {0: 72.0, 1: 71.5}


def test_without_shared_seeds_there_is_welch_and_a_note(tmp_path: Path) -> None:
    file = tmp_path / "all.csv"
    plain, se = [70.0, 71.0, 70.5], [72.0, 71.8, 72.4, 71.0]
    lines = ["model,top1", *(f"plain,{v}" for v in plain), *(f"se,{v}" for v in se)]
    file.write_text("\n".join(lines))
    found = attnlab.compare([file], "top1", by="model")
    difference = row(found, "se").comparison.difference
    expected = stats.ttest_ind(se, plain, equal_var=False)
    interval = expected.confidence_interval(0.95)
    assert difference.p_value == pytest.approx(expected.pvalue)
    assert (difference.low, difference.high) == pytest.approx((interval.low, interval.high))
    assert difference.anytime_low is None
    assert "se is not paired with plain (no seeds are known): Welch's interval, wider" in (
        found.notes
    )


def test_seeds_that_both_have_are_paired_and_it_is_said(tmp_path: Path) -> None:
    file = tmp_path / "all.csv"
    rows = [("plain", 0, 70), ("plain", 1, 71), ("plain", 2, 69), ("se", 1, 72), ("se", 2, 71)]
    file.write_text("model,seed,top1\n" + "\n".join(f"{m},{s},{v}" for m, s, v in rows))
    found = attnlab.compare([file], "top1", by="model")
    assert row(found, "se").comparison.difference.seeds == (1, 2)
    assert "se is paired with plain over the 2 seeds that both have" in found.notes


def test_holm_over_the_rows(tmp_path: Path) -> None:
    file = tmp_path / "all.csv"
    values = {"plain": (70, 71, 69), "a": (71, 72.4, 70.2), "b": (70, 72, 70)}
    lines = [f"{m},{s},{v}" for m, own in values.items() for s, v in enumerate(own)]
    file.write_text("model,seed,top1\n" + "\n".join(lines))
    found = attnlab.compare([file], "top1", by="model")
    p = {m: stats.ttest_rel(values[m], values["plain"]).pvalue for m in "ab"}
    assert row(found, "a").comparison.adjusted_p == pytest.approx(2 * p["a"])
    assert row(found, "b").comparison.adjusted_p == pytest.approx(p["b"])


def test_a_loss_is_better_when_lower(tmp_path: Path) -> None:
    file = tmp_path / "all.csv"
    values = {"plain": (0.51, 0.52, 0.505), "se": (0.41, 0.425, 0.4)}
    lines = [f"{m},{s},{v}" for m, own in values.items() for s, v in enumerate(own)]
    file.write_text("model,seed,val/loss\n" + "\n".join(lines))
    found = attnlab.compare([file], "val/loss", by="model")
    assert row(found, "se").comparison.verdict == "better"
    assert "lower is better, by the name 'val/loss': --better higher if not" in found.notes
    higher = attnlab.compare([file], "val/loss", by="model", better="higher")
    assert row(higher, "se").comparison.verdict == "worse"


def test_a_run_that_diverged_is_not_left_out(tmp_path: Path) -> None:
    file = tmp_path / "all.csv"
    file.write_text("model,seed,acc\nplain,0,0.7\nplain,1,0.71\nse,0,0.8\nse,1,nan\n")
    found = attnlab.compare([file], "acc", by="model")
    comparison = row(found, "se").comparison
    assert comparison.verdict == "cannot tell"
    assert math.isnan(comparison.difference.mean)


def test_bad_files_are_named_and_counted(tmp_path: Path) -> None:
    files = logs.study(tmp_path)
    bad = {
        "empty.csv": (b"", "is empty"),
        "heads.csv": (b"a,b\n", "has no row below its headings"),
        "short.csv": (b"a,b\n1\n", "has 1 cells in line 2, expected 2"),
        "twice.csv": (b"a,a\n1,2\n", "has the column 'a' twice"),
        "binary.csv": (b"a\0b\n1\n", "holds binary data"),
        "latin.csv": (b"caf\xe9\n1\n", "is not UTF-8 text"),
        "list.json": (b"[1]", "has no log_history: expected a trainer_state.json"),
        "none.json": (b'{"log_history": []}', "has an empty log_history"),
        "torn.json": (b'{"log_hist', "is not JSON"),
        "other.csv": (b"a\n1\n", f"has no numbers in a column '{logs.ULTRALYTICS}' (bad)"),
    }
    folder = tmp_path / "bad"
    folder.mkdir()
    for name, (content, _) in bad.items():
        (folder / name).write_bytes(content)
    files += [folder / name for name in bad] + [folder / "gone.csv"]
    found = attnlab.compare(files, by="model", baseline="plain.yaml")
    why = {Path(file).name: reason for file, reason in found.left_out}
    expected = {name: reason for name, (_, reason) in bad.items()}
    assert why == {**expected, "gone.csv": "cannot be read: No such file or directory"}
    assert "11 of 23 logs are left out" in found.notes
    assert len(found.runs) == 12


def test_unfinished_runs_are_said(tmp_path: Path) -> None:
    files = [
        logs.lightning(tmp_path, f"{name}-seed{seed}", values)
        for name, seed, values in (
            ("plain", 0, [60.0, 70.0]),
            ("plain", 1, [60.0, 71.0]),
            ("se", 0, [60.0, 72.0]),
            ("se", 1, [61.0]),
        )
    ]
    found = attnlab.compare(files, "val_acc")
    assert (
        "1 runs have fewer values than the 2 of the longest, such as se-seed1 with 1: unfinished "
        "runs do not belong here"
    ) in found.notes


def test_the_best_value_is_said_to_be_optimistic(tmp_path: Path) -> None:
    files = [
        logs.lightning(tmp_path, f"{name}-seed{seed}", values)
        for name, seed, values in (
            ("plain", 0, [75.0, 70.0]),
            ("plain", 1, [74.0, 71.0]),
            ("se", 0, [60.0, 72.0]),
            ("se", 1, [61.0, 73.0]),
        )
    ]
    found = attnlab.compare(files, "val_acc", at="best")
    assert row(found, "plain").by_seed == {0: 75.0, 1: 74.0}
    assert "the best value of each run was chosen by looking: it is optimistic" in found.notes


@pytest.mark.parametrize(
    ("name", "row_name", "seed"),
    [
        ("cbam-seed3", "cbam", 3),
        ("cbam_seed=12", "cbam", 12),
        ("seed4_cbam_r16", "cbam_r16", 4),
        ("x-s2-y", "x-y", 2),
        ("run7", "run7", 7),
        ("resnet18", "resnet18", None),
        ("vit_b_16", "vit_b_16", None),
        ("yolo11s", "yolo11s", None),
        ("models2", "models2", None),
    ],
)
def test_seeds_in_names(name: str, row_name: str, seed: int | None) -> None:
    placed = place(Log(Path("x"), name, {"a": [1.0]}), "name", None)
    assert (placed.row, placed.seed) == (row_name, seed)


def test_seeds_by_pattern() -> None:
    placed = place(Log(Path("x"), "cbam-3", {"a": [1.0]}), "name", "name", r"-(\d+)$")
    assert (placed.row, placed.seed) == ("cbam", 3)


def test_in_text(tmp_path: Path) -> None:
    text = to_text(attnlab.compare(logs.study(tmp_path), by="model", baseline="plain.yaml"))
    assert "| plain.yaml | 6 | 0.5127 ± 0.0043 |" in text
    assert (
        "| cbam.yaml | 6 | 0.5148 ± 0.0041 | 0.5148 ± 0.0041 | +0.0022 [+0.0009, +0.0034]" in text
    )


REFUSED = {
    "metric": (
        {"metric": "metrics/mAP50"},
        "Unknown metric 'metrics/mAP50'. Did you mean 'metrics/mAP50-95(B)'? Expected one of: "
        "epoch, train/box_loss, metrics/mAP50-95(B).",
    ),
    "preset": (
        {"preset": "lightnin"},
        "Unknown preset 'lightnin'. Did you mean 'lightning'? Expected one of: auto, "
        "ultralytics, lightning, huggingface, mlflow, csv.",
    ),
    "baseline": (
        {"by": "model", "baseline": "plain"},
        "Unknown baseline 'plain'. Did you mean 'plain.yaml'? Expected one of: plain.yaml, "
        "cbam.yaml.",
    ),
    "no baseline": (
        {"by": "model"},
        "Choose the row that the others are compared with: baseline=…, --baseline on the "
        "command line. The rows are: plain.yaml, cbam.yaml.",
    ),
    "one row": (
        {"by": "task"},
        "{a} and {b} are both 'detect' with seed 0. Leave one of them out, or tell them apart "
        "with a --by other than 'task' or another --seed-from.",
    ),
    "better": (
        {"better": "high"},
        "Unknown direction 'high'. Did you mean 'higher'? Expected one of: higher, lower.",
    ),
    "at": (
        {"at": "first"},
        "Unknown value of a run 'first'. Expected one of: last, best.",
    ),
    "pattern": (
        {"seed_pattern": "(("},
        "--seed-pattern '((' is not a regular expression: missing ), unterminated subpattern at "
        "position 1.",
    ),
    "groups": (
        {"seed_pattern": r"\d+"},
        r"--seed-pattern '\\d+' has 0 groups, expected one, which is the seed: '-(\d+)$'.",
    ),
    "no seed": (
        {"by": "model", "seed_from": "model"},
        "There is no seed in model 'plain.yaml' of {a}. Expected a number, or a text with one "
        "behind 'seed', 'run', 'rep', 'trial' or 's', such as 'cbam-seed3'. --seed-pattern "
        r"gives another form: '-(\d+)$' for 'cbam-3'.",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(case: str, tmp_path: Path) -> None:
    files = logs.study(tmp_path)
    options, message = REFUSED[case]
    with pytest.raises(AttnlabError) as caught:
        attnlab.compare(files, **options)
    named = message.replace("{a}", repr(str(files[0]))).replace("{b}", repr(str(files[6])))
    assert str(caught.value) == named


def test_no_files_are_refused() -> None:
    with pytest.raises(AttnlabError) as caught:
        attnlab.compare([])
    assert str(caught.value) == "Expected log files to compare but got none."


def test_an_unknown_field_is_refused(tmp_path: Path) -> None:
    files = logs.study(tmp_path)
    with pytest.raises(AttnlabError) as caught:
        attnlab.compare(files, by="modl")
    assert str(caught.value) == (
        f"{str(files[0])!r} does not say 'modl'. Did you mean 'model' or 'mode'? It says: name, "
        "task, mode, model, seed. Choose one of these with --by."
    )
