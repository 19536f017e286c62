"""The tasks' metrics against scikit-learn and numpy, batch by batch and over processes."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import (
    average_precision_score,
    mean_absolute_error,
    r2_score,
    root_mean_squared_error,
    top_k_accuracy_score,
)
from tests.tasks import processes

from attnlab._errors import InputError, OptionError, UnknownNameError
from attnlab.data import Facts
from attnlab.data.batches import Batch
from attnlab.results.metric import perplexity_of
from attnlab.tasks import Metric, Task, TaskConfig, build_task, list_tasks
from attnlab.tasks.registry import task_class

CPU = torch.device("cpu")


def facts(targets: str, outputs: int) -> Facts:
    return Facts("made", targets, outputs, (3, 8, 8), 10, 10, (0.0,) * 3, (1.0,) * 3, "")  # type: ignore[arg-type]


def measured(task: Task, predictions: torch.Tensor, targets: torch.Tensor) -> dict:
    """In batches of unequal size."""
    meters = task.meters(CPU)
    for part, known in zip(predictions.split(7), targets.split(7), strict=True):
        meters.update(part, known)
    return meters.compute()


def test_classification() -> None:
    numbers = torch.Generator().manual_seed(0)
    logits = torch.randn(53, 9, generator=numbers)
    classes = torch.randint(9, (53,), generator=numbers)
    found = measured(build_task(TaskConfig(), facts("class", 9)), logits, classes)
    scores, known = logits.double().numpy(), classes.numpy()
    for name, k in (("top1", 1), ("top5", 5)):
        expected = top_k_accuracy_score(known, scores, k=k, labels=np.arange(9))
        assert found[name] == pytest.approx(expected, abs=1e-12)
    log = scores - np.log(np.exp(scores).sum(1, keepdims=True))
    assert found["loss"] == pytest.approx(-log[np.arange(53), known].mean(), rel=1e-6)


def test_five_guesses_of_five_classes_mean_nothing() -> None:
    logits, classes = torch.eye(5), torch.arange(5)
    found = measured(build_task(TaskConfig(), facts("class", 5)), logits, classes)
    assert (found["top1"], found["top5"]) == (1.0, None)


def test_multilabel() -> None:
    numbers = torch.Generator().manual_seed(1)
    logits = torch.randn(61, 6, generator=numbers)
    labels = (torch.rand(61, 6, generator=numbers) < 0.3).long()
    labels[:, 4] = 0  # a label that no image has is left out
    task = build_task(TaskConfig(name="multilabel"), facts("labels", 6))
    found = measured(task, logits, labels)
    each = [average_precision_score(labels[:, n], logits[:, n]) for n in (0, 1, 2, 3, 5)]
    assert found["map"] == pytest.approx(np.mean(each), abs=1e-6)
    exact = ((logits.numpy() > 0) == (labels.numpy() > 0)).all(1).mean()
    assert found["exact"] == pytest.approx(exact, abs=1e-12)


def test_top_5_needs_a_sixth_class() -> None:
    """The first five of six classes are guessed for every image, the sixth never."""
    logits = torch.tensor([[5.0, 4.0, 3.0, 2.0, 1.0, 0.0]]).expand(4, 6)
    found = measured(
        build_task(TaskConfig(), facts("class", 6)), logits, torch.tensor([0, 4, 5, 5])
    )
    assert (found["top1"], found["top5"]) == (0.25, 0.5)


def test_what_training_shows_of_classes() -> None:
    """Smoothed by hand: a tenth of the target is spread over all four classes. Of an image that
    was mixed, the class with the largest share counts."""
    logits = torch.tensor([[2.0, 0.0, 0.0, 0.0], [0.0, 0.0, 3.0, 0.0]], dtype=torch.float64)
    task = build_task(TaskConfig(options={"label_smoothing": 0.1}), facts("class", 4))
    logs = logits.log_softmax(1)
    target = torch.full((2, 4), 0.025, dtype=torch.float64)
    target[0, 0] = target[1, 1] = 0.925
    found = task.loss(torch.nn.Identity(), Batch(logits, torch.tensor([0, 1])))
    assert float(found.mean) == pytest.approx(-float((target * logs).sum()) / 2, rel=1e-12)
    assert float(found.figures["top1"]) == 0.5
    plain = build_task(TaskConfig(), facts("class", 4))
    found = plain.loss(torch.nn.Identity(), Batch(logits, torch.tensor([0, 1])))
    assert float(found.mean) == pytest.approx(-float(logs[0, 0] + logs[1, 1]) / 2, rel=1e-12)
    mixed = torch.tensor([[0.7, 0.3, 0.0, 0.0], [0.0, 0.6, 0.4, 0.0]], dtype=torch.float64)
    found = plain.loss(torch.nn.Identity(), Batch(logits, mixed))
    assert float(found.figures["top1"]) == 0.5
    assert float(found.mean) == pytest.approx(-float((mixed * logs).sum()) / 2, rel=1e-12)


def test_what_training_shows_of_labels() -> None:
    """By hand: log(1 + e^-x) of a label that an image has, log(1 + e^x) of another. A logit of 0
    gives no label; an image counts if all its labels are right."""
    logits = torch.tensor([[1.0, -2.0], [0.0, 3.0], [2.0, 1.0]], dtype=torch.float64)
    labels = torch.tensor([[1, 0], [0, 1], [1, 0]])
    task = build_task(TaskConfig(name="multilabel"), facts("labels", 2))
    found = task.loss(torch.nn.Identity(), Batch(logits, labels))
    terms = [math.log1p(math.exp(x)) for x in (-1.0, -2.0, 0.0, -3.0, -2.0, 1.0)]
    assert float(found.mean) == pytest.approx(sum(terms) / 6, rel=1e-12)
    assert float(found.figures["exact"]) == pytest.approx(2 / 3)
    shown = measured(task, logits, labels)
    assert shown["exact"] == pytest.approx(2 / 3)
    assert shown["loss"] == pytest.approx(sum(terms) / 6, rel=1e-12)


def test_labels_that_no_image_has_have_no_precision() -> None:
    task = build_task(TaskConfig(name="multilabel"), facts("labels", 2))
    found = measured(task, torch.randn(5, 2), torch.zeros(5, 2, dtype=torch.long))
    assert found["map"] is None


def test_errors_that_are_not_a_number_are_not_left_out() -> None:
    task = build_task(TaskConfig(name="regression"), facts("values", 1))
    lost = measured(task, torch.tensor([[1.0], [math.nan]]), torch.tensor([[1.0], [2.0]]))
    assert math.isnan(lost["mae"])
    assert math.isnan(lost["r2"])


def test_regression() -> None:
    numbers = torch.Generator().manual_seed(2)
    values = torch.randn(40, 2, generator=numbers)
    guesses = values + 0.3 * torch.randn(40, 2, generator=numbers)
    task = build_task(TaskConfig(name="regression"), facts("values", 2))
    found = measured(task, guesses, values)
    known, made = values.double().numpy(), guesses.double().numpy()
    assert found["mae"] == pytest.approx(mean_absolute_error(known, made), rel=1e-12)
    flat = known.ravel(), made.ravel()
    assert found["rmse"] == pytest.approx(root_mean_squared_error(*flat), rel=1e-12)
    assert found["r2"] == pytest.approx(r2_score(known, made), rel=1e-9)


@pytest.mark.parametrize("unit", [1e-4, 1.0, 1e6])
def test_what_is_explained_does_not_depend_on_the_unit(unit: float) -> None:
    numbers = torch.Generator().manual_seed(2)
    values = unit * (5 + torch.randn(40, 1, generator=numbers).double())
    guesses = values + unit * 0.7 * torch.randn(40, 1, generator=numbers)
    task = build_task(TaskConfig(name="regression"), facts("values", 1))
    expected = r2_score(values.numpy(), guesses.numpy())
    assert measured(task, guesses, values)["r2"] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("value", [0.0, 0.1])
def test_values_that_are_all_the_same_have_nothing_to_be_explained(value: float) -> None:
    task = build_task(TaskConfig(name="regression"), facts("values", 1))
    for guesses in (torch.randn(7, 1), torch.full((7, 1), value)):
        found = measured(task, guesses, torch.full((7, 1), value))
        assert found["r2"] is None
        assert found["mae"] == pytest.approx(float((guesses - value).abs().double().mean()))


def test_what_training_shows_of_a_regression_is_the_mean_error() -> None:
    task = build_task(TaskConfig(name="regression"), facts("values", 1))
    batch = Batch(torch.tensor([[1.0], [2.0]]), torch.tensor([[4.0], [1.0]]))
    found = task.loss(torch.nn.Identity(), batch)
    assert float(found.mean) == pytest.approx((9 + 1) / 2)
    assert float(found.figures["mae"]) == pytest.approx((3 + 1) / 2)


def test_a_task_refuses_data_of_another_kind() -> None:
    with pytest.raises(InputError) as caught:
        build_task(TaskConfig(), facts("values", 1))
    assert str(caught.value) == (
        "Task Classification learns classes, but data 'made' has values. Set another task or other "
        "data."
    )


def test_unknown_tasks_and_options() -> None:
    with pytest.raises(OptionError) as caught:
        TaskConfig(name="regresion")
    assert str(caught.value).startswith("Unknown task 'regresion'. Did you mean 'regression'")
    assert str(caught.value).endswith(f"? Expected one of: {', '.join(list_tasks())}.")
    with pytest.raises(OptionError) as wrong:
        build_task(TaskConfig(options={"smoothing": 0.1}), facts("class", 3))
    assert str(wrong.value) == (
        "Task 'classification' has no option 'smoothing'. Did you mean 'label_smoothing'? It "
        "takes: label_smoothing."
    )
    with pytest.raises(OptionError, match="at least 0 and below 1 but got 1"):
        build_task(TaskConfig(options={"label_smoothing": 1}), facts("class", 3))
    with pytest.raises(UnknownNameError, match="There is no module 'no_such'"):
        build_task(TaskConfig(name="no_such.Task"), facts("class", 3))


def test_how_a_metric_is_shown() -> None:
    accuracy = Metric(name="top1", label="top-1", unit="%", scale=100)
    assert (accuracy.title, accuracy.text(0.96423), accuracy.difference_unit) == (
        "top-1 %",
        "96.42 %",
        "pt",
    )
    assert accuracy.best([0.2, 0.9, 0.9, 0.1]) == 1
    error = Metric(name="mae", label="mean |error|", unit="°", better="lower", digits=1)
    assert (error.text(3.14), error.difference_unit) == ("3.1 °", "°")
    assert error.best([3.0, 1.0, 2.0, 1.0]) == 1


def test_the_values_that_a_metric_can_have() -> None:
    share = Metric(name="top1", label="top-1", least=0, most=1)
    share.check_value(0.0)
    share.check_value(1.0)
    for value, said in ((-0.1, "at least 0"), (1.5, "at most 1")):
        with pytest.raises(ValueError, match=f"top1 is {value:g}, expected {said}"):
            share.check_value(value)
    Metric(name="mae", label="mae").check_value(-9.0)
    window = Metric(name="loss", label="loss", better="lower", sample="window")
    assert (window.samples, window.direction) == ("windows", "lower is better")
    assert (Metric(name="a", label="a").samples, Metric(name="a", label="a").direction) == (
        "images",
        "",
    )
    percent = Metric(name="top1", label="top-1", unit="%", scale=100)
    assert (percent.signed(0.4), percent.difference_text(-0.4)) == ("+0.40", "-0.40 pt")
    assert percent.interval_text(-0.2, 0.6) == "[-0.20, +0.60]"


BOUNDS = {
    "classification": {"top1": (0, 1), "top5": (0, 1), "loss": (0, None)},
    "multilabel": {"map": (0, 1), "exact": (0, 1), "loss": (0, None)},
    "regression": {"mae": (0, None), "rmse": (0, None), "r2": (None, 1)},
    "language": {
        "loss": (0, None),
        "bits_per_byte": (0, None),
        "perplexity": (1, None),
        "top1": (0, 1),
    },
    "masked": {"loss": (0, None), "perplexity": (1, None), "top1": (0, 1)},
    "segmentation": {
        "miou": (0, 1),
        "pixel_accuracy": (0, 1),
        "border_f": (0, 1),
        "loss": (0, None),
    },
    "detection": dict.fromkeys(
        ("ap", "ap50", "ap75", "ap_small", "ap_medium", "ap_large", "ar"), (0, 1)
    ),
}
"""What a value of each metric can be, by its definition."""


@pytest.mark.parametrize("name", BOUNDS)
def test_what_the_metrics_of_a_task_can_be(name: str) -> None:
    """Shares are shown in per cent; what has no upper end is an error, which is better lower."""
    task = task_class(TaskConfig(name=name))
    assert {each.name: (each.least, each.most) for each in task.metrics} == BOUNDS[name]
    for each in task.metrics:
        share = (each.least, each.most) == (0, 1)
        assert (each.scale, each.unit) == ((100, "%") if share else (1, each.unit))
        assert each.better == ("lower" if each.most is None else "higher")


def test_perplexity_overflows_to_infinity() -> None:
    assert perplexity_of(2.0) == pytest.approx(7.38905609893065)
    assert perplexity_of(699.0) == pytest.approx(math.exp(699))
    assert perplexity_of(1000.0) == math.inf


def test_two_processes_measure_as_one(tmp_path: Path) -> None:
    script = [sys.executable, "-m", "tests.tasks.processes", str(tmp_path)]
    subprocess.run(script, check=True, cwd=Path(__file__).parents[2])
    alone = processes.measured(0, 1)
    for rank in (0, 1):
        together = json.loads((tmp_path / f"{rank}.json").read_text())
        for task, values in alone.items():
            assert together[task] == pytest.approx(values, rel=1e-6), task
