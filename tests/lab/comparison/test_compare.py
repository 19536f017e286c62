"""Verdicts on logs of others."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from tests.lab.comparison import logs

import attnlab
from attnlab import AttnlabError
from attnlab.lab.comparison import Log, to_text
from attnlab.lab.comparison.columns import page_table
from attnlab.lab.comparison.direction import direction
from attnlab.lab.comparison.log import numbers, run_name
from attnlab.lab.comparison.seeds import place_log


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


def test_the_seeds_needed_are_those_of_the_noncentral_t(tmp_path: Path) -> None:
    """Of the paired test at 95 %, with a power of 80 %, at the effect that was found."""
    found = attnlab.compare(logs.study(tmp_path), by="model", baseline="plain.yaml")
    differences = np.subtract(logs.CBAM, logs.PLAIN)
    effect = abs(differences.mean()) / differences.std(ddof=1)

    def power(seeds: int) -> float:
        limit = stats.t.ppf(0.975, seeds - 1)
        law = stats.nct(seeds - 1, effect * math.sqrt(seeds))
        return float(law.sf(limit) + law.cdf(-limit))

    least = next(seeds for seeds in range(2, 1000) if power(seeds) >= 0.8)
    assert found.seeds_needed == {"cbam.yaml": least}


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
    plain, se = [70.0, 71.0, 70.5, 70.2, 70.9], [72.0, 71.8, 72.4, 71.0]
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
    assert "lower is better, by the name 'val/loss': --higher if not" in found.notes
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
        "list.json": (b"[1]", "holds no records: expected a JSON object per line or a log_history"),
        "none.json": (b'{"log_history": []}', "has an empty log_history"),
        "torn.json": (b'{"log_hist', "is not JSON in line 1"),
        "torn.jsonl": (b'{"a": 1}\n{"a"', "is not JSON in line 2"),
        "deep.json": (b"[" * 100_000, "is not JSON in line 1"),
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
    assert "13 of 25 logs are left out" in found.notes
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
    last = page_table(attnlab.compare(files, "val_acc"))
    result, best = (last.columns.index(each) for each in ("val_acc", "best"))
    shown = {str(cells[0]): (str(cells[result]), str(cells[best])) for cells in last.rows}
    assert {label: means[1] for label, means in shown.items()} == {"plain": "74.50", "se": "72.50"}
    assert shown["plain"][0].startswith("70.50")


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
    placed = place_log(Log(Path("x"), name, {"a": [1.0]}), "name", None)
    assert (placed.row, placed.seed) == (row_name, seed)


def test_seeds_by_pattern() -> None:
    placed = place_log(Log(Path("x"), "cbam-3", {"a": [1.0]}), "name", "name", r"-(\d+)$")
    assert (placed.row, placed.seed) == ("cbam", 3)


def test_in_text(tmp_path: Path) -> None:
    text = to_text(attnlab.compare(logs.study(tmp_path), by="model", baseline="plain.yaml"))
    assert "| plain.yaml | 6 | 0.5127 ± 0.0043 |" in text
    assert (
        "| cbam.yaml | 6 | 0.5148 ± 0.0041 | 0.5148 ± 0.0041 | +0.0022 [+0.0009, +0.0034]" in text
    )


def test_a_difference_of_one_seed_has_no_interval_in_text(tmp_path: Path) -> None:
    file = table(tmp_path / "all.csv", "model seed top1", {"plain": (70.0,), "se": (72.0,)})
    text = to_text(attnlab.compare([file], "top1", by="model"))
    assert "| +2.00 [–] | [–] |" in text


REFUSED = {
    "metric": (
        {"metric": "metrics/mAP50"},
        "Unknown metric 'metrics/mAP50'. Did you mean 'metrics/mAP50-95(B)'? Columns of numbers: "
        "epoch, train/box_loss, metrics/mAP50-95(B) in {a} and 11 more.",
    ),
    "preset": (
        {"preset": "lightnin"},
        "Unknown preset 'lightnin'. Did you mean 'lightning'? Expected one of: auto, "
        "ultralytics, lightning, huggingface, mlflow, csv, wandb, json.",
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
        "after 'seed', 'run', 'rep', 'trial' or 's', such as 'cbam-seed3'. --seed-pattern "
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


def table(file: Path, head: str, rows: dict[str, tuple[float, ...]], mark: str = ",") -> Path:
    """A file with a row per run: the model, the seed, a value."""
    lines = [mark.join(head.split())]
    lines += [mark.join([m, str(s), str(v)]) for m, own in rows.items() for s, v in enumerate(own)]
    file.write_text("\n".join(lines))
    return file


VALUES = {"plain": (0.71, 0.72, 0.705), "se": (0.61, 0.625, 0.6)}
"""Those of se are lower, seed by seed."""


@pytest.mark.parametrize(
    ("metric", "verdict"),
    [
        *((name, "worse") for name in ("accuracy", "val_acc", "top1", "acc@1", "top-1", "mAP50")),
        *((name, "worse") for name in ("metrics/mAP50-95(B)", "test/f1", "AUC", "mIoU", "dice")),
        *((name, "worse") for name in ("coco/bbox_mAP", "psnr", "ms_ssim", "R2", "sacrebleu")),
        *(
            (name, "better")
            for name in ("loss", "val_loss", "train/box_loss", "logloss", "top1_err")
        ),
        *((name, "better") for name in ("error", "perplexity", "val_bpb", "nll", "cross_entropy")),
        *((name, "better") for name in ("brier", "ece", "EER", "wer", "rmse", "FID", "latency_ms")),
        *((name, "better") for name in ("step_time", "latency", "crossentropy", "forward_ms")),
    ],
)
def test_direction_by_the_name(tmp_path: Path, metric: str, verdict: str) -> None:
    file = table(tmp_path / "all.csv", f"model seed {metric}", VALUES)
    found = attnlab.compare([file], metric, by="model")
    assert row(found, "se").comparison.verdict == verdict
    kind, other = ("higher", "lower") if verdict == "worse" else ("lower", "higher")
    said = f"{kind} is better, by the name {metric!r}: --{other} if not"
    assert said in found.notes


@pytest.mark.parametrize("metric", ["score", "val/reward", "neg_mean_squared_error", "error_top1"])
def test_a_direction_that_the_name_does_not_say_is_asked_for(tmp_path: Path, metric: str) -> None:
    file = table(tmp_path / "all.csv", f"model seed {metric}", VALUES)
    with pytest.raises(AttnlabError) as caught:
        attnlab.compare([file], metric, by="model")
    assert str(caught.value) == (
        f"The name {metric!r} does not say whether higher or lower values are better. Say it with "
        f"better='higher' or better='lower', --higher or --lower on the command line."
    )
    found = attnlab.compare([file], metric, by="model", better="lower")
    assert row(found, "se").comparison.verdict == "better"
    assert not any("by the name" in note for note in found.notes)


@pytest.mark.parametrize(
    ("rows", "digits"),
    [
        ({"plain": (0.5, 0.4), "se": (0.3, 70.0)}, 2),
        ({"plain": (0.5, 0.4), "se": (0.3, -70.0)}, 2),
        ({"plain": (0.5, 2.0), "se": (0.3, 0.2)}, 4),
    ],
)
def test_digits_are_those_of_the_largest_value(
    tmp_path: Path, rows: dict[str, tuple[float, ...]], digits: int
) -> None:
    file = table(tmp_path / "all.csv", "model seed loss", rows)
    assert attnlab.compare([file], "loss", by="model").judged.metric.digits == digits


def test_shares_and_per_cent_are_refused(tmp_path: Path) -> None:
    rows = {"plain": (0.71, 0.72, 0.705), "se": (71.3, 72.5, 71.0)}
    for metric, better in (("top1", None), ("score", "higher")):
        file = table(tmp_path / "all.csv", f"model seed {metric}", rows)
        with pytest.raises(AttnlabError) as caught:
            attnlab.compare([file], metric, by="model", better=better)
        assert str(caught.value) == (
            f"{metric!r} seems to be a share in some runs and per cent in others: 0.705 to 0.72 in "
            f"3 runs (such as plain), 71 to 72.5 in 3 (such as se). Write all of them in one unit; "
            f"leave out runs that failed."
        )


@pytest.mark.parametrize(
    ("metric", "rows"),
    [
        ("wer", {"plain": (0.9, 0.95, 0.8), "se": (1.1, 1.3, 1.2)}),  # per cent on both sides of 1
        ("loss", {"plain": (0.02, 0.021, 0.03), "se": (2.3, 2.2, 2.4)}),  # has no per cent
        ("top1", {"plain": (0.0, 71.0, 70.0), "se": (72.0, 71.5, 71.0)}),  # nothing is nothing
        ("top1", {"plain": (0.9, 1.0, 0.95), "se": (0.2, 0.3, 0.25)}),
    ],
)
def test_values_that_may_well_be_of_one_unit_are_taken(
    tmp_path: Path, metric: str, rows: dict[str, tuple[float, ...]]
) -> None:
    file = table(tmp_path / "all.csv", f"model seed {metric}", rows)
    assert attnlab.compare([file], metric, by="model").runs


def test_two_unpaired_runs_have_no_verdict_and_the_reason(tmp_path: Path) -> None:
    file = tmp_path / "all.csv"
    plain = [69.6, 69.9, 70.3, 70.1, 69.7, 70.2, 69.5, 70.4, 69.9, 70.0]
    lines = ["model,top1", *(f"plain,{v}" for v in plain), "new,71.00", "new,71.02"]
    file.write_text("\n".join(lines))
    found = attnlab.compare([file], "top1", by="model")
    assert row(found, "new").comparison.verdict == "cannot tell"
    assert "no verdict: 2 and 10 runs without shared seeds: Welch's interval is right" in (
        to_text(found)
    )


def test_tab_separated_rows_of_runs(tmp_path: Path) -> None:
    """As research agents write them; the name of a row is in one of several columns."""
    file = tmp_path / "results.tsv"
    file.write_text(
        "commit\tval_bpb\tmemory_gb\tstatus\tdescription\n"
        "a1b2c3d\t0.997900\t44.0\tkeep\tbaseline\n"
        "b2c3d4e\t0.993200\t44.2\tkeep\tincrease LR, to 0.04\n"
        "c3d4e5f\t1.005000\t44.0\tdiscard\tswitch to GeLU\n"
    )
    found = attnlab.compare([file], "val_bpb")
    rows = {each.label: each.values["val_bpb"].mean for each in found.judged.groups[0].rows}
    assert rows == {"baseline": 0.9979, "increase LR, to 0.04": 0.9932, "switch to GeLU": 1.005}
    assert row(found, "switch to GeLU").comparison.verdict == "cannot tell"


@pytest.mark.parametrize(("name", "mark"), [("a.tsv", "\t"), ("a.csv", "\t"), ("a.csv", ";")])
def test_other_separators(tmp_path: Path, name: str, mark: str) -> None:
    file = table(tmp_path / name, "model seed top1", VALUES, mark)
    found = attnlab.compare([file], "top1")
    assert row(found, "se").by_seed == dict(enumerate(VALUES["se"]))
    assert row(found, "plain").plain


def test_semicolons_with_decimal_commas(tmp_path: Path) -> None:
    file = tmp_path / "excel.csv"
    file.write_text(table(file, "model seed top1", VALUES, ";").read_text().replace(".", ","))
    found = attnlab.compare([file], "top1", by="model")
    assert row(found, "se").by_seed == dict(enumerate(VALUES["se"]))


def test_json_lines_of_one_run_each(tmp_path: Path) -> None:
    files = []
    for name, values in VALUES.items():
        for seed, value in enumerate(values):
            file = tmp_path / f"{name}-seed{seed}" / "log.jsonl"
            file.parent.mkdir()
            records = [{"args": {"lr": 0.1}}, {"step": 1, "val": {"acc": 0.3}}]
            records.append({"step": 2, "val": {"acc": value}, "images": ["a.png"]})
            file.write_text("\n".join(map(json.dumps, records)) + "\n")
            files.append(file)
    found = attnlab.compare(files, "val.acc")
    assert row(found, "se").by_seed == dict(enumerate(VALUES["se"]))
    assert found.runs[0].values == (0.3, 0.71)


def test_json_lines_of_many_runs(tmp_path: Path) -> None:
    file = tmp_path / "all.jsonl"
    records = [
        {"model": name, "seed": seed, "acc": value}
        for name, values in VALUES.items()
        for seed, value in enumerate(values)
    ]
    file.write_text("\n".join(map(json.dumps, records)))
    found = attnlab.compare([file], "acc")
    assert row(found, "se").by_seed == dict(enumerate(VALUES["se"]))
    file.with_suffix(".json").write_text(json.dumps(records))
    assert attnlab.compare([file.with_suffix(".json")], "acc").judged == found.judged


@pytest.mark.parametrize("mode", [False, True])
def test_mmengine(tmp_path: Path, mode: bool) -> None:
    """Records of training and of validation, mixed; what both have is told apart."""
    files = []
    for name, values in VALUES.items():
        for seed, value in enumerate(values):
            folder = tmp_path / f"{name}-seed{seed}" / "20260101_120000" / "vis_data"
            folder.mkdir(parents=True)
            records = []
            for epoch in (1, 2):
                train = {"lr": 0.1, "loss": 2.0, "time": 0.3, "epoch": epoch, "iter": epoch * 9}
                test = {"coco/bbox_mAP": value * epoch / 2, "time": 0.05, "step": epoch}
                if mode:
                    train["mode"], test["mode"] = "train", "val"
                records += [train | {"step": epoch * 9}, test]
            (folder / "scalars.json").write_text("\n".join(map(json.dumps, records)) + "\n")
            files.append(folder / "scalars.json")
    found = attnlab.compare(files, "coco/bbox_mAP")
    assert row(found, "se").by_seed == dict(enumerate(VALUES["se"]))
    slow = attnlab.compare(files, "val/time")
    assert {each.values for each in slow.runs} == {(0.05, 0.05)}


def test_wide_export_of_weights_and_biases(tmp_path: Path) -> None:
    file = tmp_path / "wandb_export.csv"
    runs = [f"{name}-seed{seed}" for name, own in VALUES.items() for seed in range(len(own))]
    last = [value for own in VALUES.values() for value in own]
    heads = ["Step"]
    for run in runs:
        heads += [f"{run} - val/acc", f"{run} - val/acc__MIN", f"{run} - val/acc__MAX"]
    lines = [",".join(f'"{head}"' for head in heads)]
    for step, values in ((1, [0.1] * 6), (2, last)):
        cells = [cell for value in values for cell in (f'"{value}"', '"0"', '"1"')]
        lines.append(",".join([f'"{step}"', *cells]))
    lines.append(",".join(['"3"', *['""'] * 18]))  # blanks, where another run went on
    file.write_text("\n".join(lines))
    found = attnlab.compare([file], "val/acc")
    assert row(found, "se").by_seed == dict(enumerate(VALUES["se"]))
    assert found.runs[0].values == (0.1, 0.71)


def test_an_unknown_metric_is_answered_with_what_each_file_has(tmp_path: Path) -> None:
    first = table(tmp_path / "a.csv", "model seed top1", VALUES)
    second = table(tmp_path / "b.tsv", "model seed f1", VALUES, "\t")
    words = tmp_path / "c.csv"
    words.write_text("model,state\nse,done\nplain,failed\n")
    with pytest.raises(AttnlabError) as caught:
        attnlab.compare([first, second, words], "top5")
    assert str(caught.value) == (
        f"Unknown metric 'top5'. Did you mean 'top1'? Columns of numbers: seed, top1 in "
        f"{str(first)!r}; seed, f1 in {str(second)!r}; none in {str(words)!r}."
    )


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


def test_numbers_at_the_end_of_names_are_told(tmp_path: Path) -> None:
    """They are not taken for seeds, and the message says how to make them seeds."""
    file = tmp_path / "wide.csv"
    names = [f"{row}-{seed}" for row in ("plain", "se") for seed in range(3)]
    values = ",".join(str(70 + number) for number in range(6))
    file.write_text("Step," + ",".join(f"{name} - val_acc" for name in names) + f"\n1,{values}\n")
    with pytest.raises(AttnlabError, match=r"--seed-pattern '\[-_\.\]\(\\d\+\)\$'"):
        attnlab.compare([file], "val_acc", baseline="plain")
    found = attnlab.compare([file], "val_acc", baseline="plain", seed_pattern=r"[-_.](\d+)$")
    assert [row.label for row in found.judged.groups[0].rows] == ["plain", "se"]


def grouped(folder: Path, rows: list[tuple[str, object, float]], head: str = "top1") -> Path:
    """A file with a row per run: its row, its seed (blank if it has none), and its value."""
    file = folder / "all.csv"
    lines = [f"{name},{seed},{value}" for name, seed, value in rows]
    file.write_text("\n".join([f"model,seed,{head}", *lines]))
    return file


def test_which_rows_are_paired_over_which_seeds(tmp_path: Path) -> None:
    """`plain` has two seeds; the others have more of them, one of them, other ones, and none."""
    seeds = {"plain": (0, 1), "more": (0, 1, 2), "one": (1, 5), "other": (7, 8), "both": (1, 0)}
    rows = [(m, s, 70 + n + s / 10) for n, m in enumerate(seeds) for s in seeds[m]]
    found = attnlab.compare([grouped(tmp_path, rows)], "top1", by="model")
    pairing = [note for note in found.notes if "paired" in note]
    assert pairing == [
        "more is paired with plain over the 2 seeds that both have",
        "one is not paired with plain (1 seeds are shared): Welch's interval, wider",
        "other is not paired with plain (0 seeds are shared): Welch's interval, wider",
    ]
    assert row(found, "both").comparison.difference.seeds == (0, 1)
    assert row(found, "both").by_seed == {0: 74.0, 1: 74.1}


def test_one_run_of_each_with_the_same_seed_is_a_pair(tmp_path: Path) -> None:
    file = grouped(tmp_path, [("plain", 3, 70.0), ("se", 3, 71.5), ("eca", 4, 71.5)])
    found = attnlab.compare([file], "top1", by="model")
    assert row(found, "se").comparison.difference.seeds == (3,)
    assert row(found, "se").comparison.difference.mean == 1.5
    assert row(found, "eca").comparison.difference.seeds == ()
    assert found.seeds_needed == {}


def test_runs_without_a_seed_are_numbered(tmp_path: Path) -> None:
    file = grouped(tmp_path, [("plain", "", 70.0), ("plain", "", 71.0), ("se", "", 72.0)])
    found = attnlab.compare([file], "top1", by="model")
    assert row(found, "plain").seeds == (0, 1)
    assert row(found, "plain").by_seed == {0: 70.0, 1: 71.0}
    assert row(found, "plain").best_by_seed == {0: 70.0, 1: 71.0}


def test_the_seeds_needed_are_those_of_holms_first_step(tmp_path: Path) -> None:
    """Of two rows the first needs a p-value below 2.5 %."""
    values = {"plain": (70, 71, 69, 70), "a": (71, 72.4, 69.2, 70.9), "b": (70.3, 72, 69.9, 70)}
    rows = [(m, s, v) for m, own in values.items() for s, v in enumerate(own)]
    found = attnlab.compare([grouped(tmp_path, rows)], "top1", by="model")

    def power(effect: float, seeds: int) -> float:
        limit = stats.t.ppf(1 - 0.025 / 2, seeds - 1)
        law = stats.nct(seeds - 1, effect * math.sqrt(seeds))
        return float(law.sf(limit) + law.cdf(-limit))

    expected = {}
    for name in "ab":
        differences = np.subtract(values[name], values["plain"])
        effect = abs(differences.mean()) / differences.std(ddof=1)
        expected[name] = next(n for n in range(2, 1000) if power(effect, n) >= 0.8)
    assert found.seeds_needed == expected


@pytest.mark.parametrize("name", ["plain", "Baseline", "NONE", "base"])
def test_rows_that_are_taken_for_the_baseline(tmp_path: Path, name: str) -> None:
    file = grouped(tmp_path, [("se", 0, 70.0), (name, 0, 71.0), ("eca", 0, 72.0)])
    found = attnlab.compare([file], "top1", by="model")
    assert [each.label for each in found.judged.groups[0].rows] == [name, "se", "eca"]


def test_two_baselines_are_none_and_one_row_is_nothing_to_compare(tmp_path: Path) -> None:
    file = grouped(tmp_path, [("plain", 0, 70.0), ("none", 0, 71.0)])
    with pytest.raises(AttnlabError) as caught:
        attnlab.compare([file], "top1", by="model")
    assert str(caught.value) == (
        "Choose the row that the others are compared with: baseline=…, --baseline on the command "
        "line. The rows are: plain, none."
    )
    file = grouped(tmp_path, [("plain", 0, 70.0), ("plain", 1, 71.0)])
    with pytest.raises(AttnlabError) as caught:
        attnlab.compare([file], "top1", by="model")
    assert str(caught.value) == (
        "All runs are of one row, 'plain', so there is nothing to compare. A --by other than "
        "'model' tells them apart."
    )


def test_a_metric_that_nobody_names(tmp_path: Path) -> None:
    file = grouped(tmp_path, [("plain", 0, 70.0), ("se", 0, 71.0)])
    with pytest.raises(AttnlabError) as caught:
        attnlab.compare([file], by="model")
    assert str(caught.value) == (
        "Choose what is compared with metric=…, --metric on the command line. Columns of numbers: "
        f"seed, top1 in {str(file)!r}."
    )
    named = attnlab.compare([file], "metrics.top1", by="model")
    assert named.judged.metric.label == "top1"


def test_names_of_metrics_in_files_begin_with_a_letter(tmp_path: Path) -> None:
    for head, name in (("1-shot acc", "m_1_shot_acc"), ("Val/Acc", "val_acc")):
        file = grouped(tmp_path, [("plain", 0, 70.0), ("se", 0, 71.0)], head)
        metric = attnlab.compare([file], head, by="model").judged.metric
        assert (metric.name, metric.label) == (name, head)


@pytest.mark.parametrize(("least", "refused"), [(9.0, True), (8.9, False)])
def test_how_far_shares_and_per_cent_are_apart(tmp_path: Path, least: float, refused: bool) -> None:
    """A factor of ten, from the largest share to the least that would be per cent."""
    file = grouped(tmp_path, [("plain", 0, 0.5), ("plain", 1, 0.9), ("se", 0, least)])
    if refused:
        with pytest.raises(AttnlabError, match="a share in some runs and per cent in others"):
            attnlab.compare([file], "top1", by="model")
    else:
        assert attnlab.compare([file], "top1", by="model").runs


@pytest.mark.parametrize(("largest", "refused"), [(100.0, True), (101.0, False)])
def test_more_than_a_hundred_is_not_per_cent(tmp_path: Path, largest: float, refused: bool) -> None:
    file = grouped(tmp_path, [("plain", 0, 0.5), ("plain", 1, 1.0), ("se", 0, largest)], "score")
    if refused:
        with pytest.raises(AttnlabError, match=r"0\.5 to 1 in 2 runs \(such as plain\), 100 to"):
            attnlab.compare([file], "score", by="model", better="higher")
    else:
        assert attnlab.compare([file], "score", by="model", better="higher").runs


@pytest.mark.parametrize(
    ("metric", "better"),
    [
        ("top1_error", "lower"),
        ("dice_loss", "lower"),
        ("loss_top1", None),
        ("negative_loss", None),
        ("minus accuracy", None),
        ("negation_acc", "higher"),
        ("ms_ssim", "higher"),
        ("latency_ms", "lower"),
        ("ms", "lower"),
        ("ms_of_it", None),
        ("acc@5", "higher"),
        ("cross-entropy", "lower"),
        ("", None),
    ],
)
def test_directions_of_names(metric: str, better: str | None) -> None:
    assert direction(metric) == better


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("mine/version_0", "mine"),
        ("mine/checkpoint-30", "mine"),
        ("mine/20260101_120000/vis_data", "mine"),
        ("mine/version", "version"),
        ("mine/2026_12", "2026_12"),
    ],
)
def test_the_name_of_a_run_is_its_folders(tmp_path: Path, folder: str, name: str) -> None:
    assert run_name(tmp_path / folder / "metrics.csv") == name


def test_cells_that_are_numbers() -> None:
    assert numbers([1, "2.5", None, " ", "-1e3"]) == [1.0, 2.5, -1000.0]
    assert numbers([]) == []
    for word in ("a", True, [1], "1,5"):
        assert numbers([1, word]) is None


@pytest.mark.parametrize(
    ("seed", "found"), [("3", 3), ("3.0", 3), ("3.5", None), ("s12", 12), ("seed", None)]
)
def test_seeds_of_a_field(seed: str, found: int | None) -> None:
    log = Log(Path("x"), "mine", {"a": [1.0]}, {"seed": seed})
    assert place_log(log, "name", None).seed == found


def test_a_row_that_is_its_seed_keeps_its_name() -> None:
    log = Log(Path("x"), "seed3", {"a": [1.0]})
    assert place_log(log, "name", None).row == "seed3"
    between = Log(Path("x"), "se-seed3-wide", {"a": [1.0]})
    assert place_log(between, "name", None).row == "se-wide"
    other = Log(Path("x"), "se-seed3", {"a": [1.0]}, {"seed": "4"})
    assert (place_log(other, "name", None).row, place_log(other, "name", None).seed) == (
        "se-seed3",
        4,
    )
