"""Files that attnlab 0.1 wrote, in the form of today's. It knew one task: classification."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from attnlab.results.damage import read_object
from attnlab.results.measured import Measured
from attnlab.results.metric import Metric

METRICS = (
    Metric(name="top1", label="top-1", unit="%", scale=100),
    Metric(name="top5", label="top-5", unit="%", scale=100),
    Metric(name="loss", label="test loss", better="lower", digits=3),
)
_KEPT = (
    "run_id",
    "label",
    "epochs",
    "best_epoch",
    "train_loss",
    "parameters",
    "macs",
    "train_images_per_second",
    "data_share",
    "seconds",
)
MEASUREMENTS = ("stiffness", "gates", "fold", "speed")
"""What was measured, as part of the result."""
_AUGMENTATION = ("crop", "crop_padding", "flip")


def is_result(found: dict[str, Any]) -> bool:
    return "format" not in found and "best_top1" in found


def result(found: dict[str, Any]) -> dict[str, Any]:
    """result.json."""
    return {
        **{name: found[name] for name in _KEPT},
        "metrics": METRICS,
        "values": {"top1": found["top1"], "top5": found["top5"], "loss": found["test_loss"]},
        "best_value": found["best_top1"],
    }


def is_record(found: dict[str, Any]) -> bool:
    return "test" not in found


def record(found: dict[str, Any]) -> dict[str, Any]:
    """A line of metrics.jsonl."""
    moved = ("top1", "top5", "test_loss", "train_top1")
    return {
        **{name: value for name, value in found.items() if name not in moved},
        "train": {"top1": found["train_top1"]},
        "test": {"top1": found["top1"], "top5": found["top5"], "loss": found["test_loss"]},
    }


def is_config(found: dict[str, Any]) -> bool:
    return "task" not in found


def config(found: dict[str, Any]) -> dict[str, Any]:
    """config.json: what is measured is no longer a setting of a run, and two of the recipe's
    settings have moved."""
    recipe = dict(found["recipe"])
    smoothing = recipe.pop("label_smoothing")
    augmentation = {name: recipe.pop(name) for name in _AUGMENTATION}
    return {
        **{name: value for name, value in found.items() if name != "measure"},
        "task": {
            "name": "classification",
            "options": {"label_smoothing": smoothing} if smoothing else {},
        },
        "data": {**found["data"], "augmentation": augmentation},
        "recipe": recipe,
    }


def is_facts(found: dict[str, Any]) -> bool:
    return "classes" in found


def facts(found: dict[str, Any]) -> dict[str, Any]:
    """data.json."""
    others = {name: value for name, value in found.items() if name != "classes"}
    return {**others, "targets": "class", "outputs": found["classes"]}


def measured(name: str, found: dict[str, Any], directory: Path) -> Measured | None:
    """A measurement, which was part of the result."""
    notes = tuple(found["notes"]) if name == "stiffness" else ()
    if name == "stiffness":
        content = _stiffness(found, directory)
    elif name == "gates":
        content = {"gates": found["gates"]} if found["gates"] else None
    elif name == "fold":
        content = _fold(found)
    elif name == "speed" and found["inference_images_per_second"] is not None:
        content = {"images_per_second": found["inference_images_per_second"]}
    else:
        return None
    return Measured(measurement=name, found=content, notes=notes)


def _stiffness(found: dict[str, Any], directory: Path) -> dict[str, Any] | None:
    if found["tns"] is None:
        return None
    file = directory / "stiffness.json"
    if file.is_file():
        return read_object(file, "Remove it; the run's TNS is in result.json.")
    return {"tns": found["tns"], "tns_spread": found["tns_spread"], "nsi": found["nsi"]}


def _fold(found: dict[str, Any]) -> dict[str, Any] | None:
    if found["fold_error"] is None:
        return None
    return {
        "error": found["fold_error"],
        "parameters": found["folded_parameters"],
        "values": {"top1": found["folded_top1"]},
    }


def study(found: dict[str, Any]) -> dict[str, Any]:
    """The definition of a study: settings of its recipes that are the data's or the task's now."""
    moved = dict(found)
    recipe, augmentation, task = _split(found["recipe"])
    moved["recipe"] = recipe
    if task:
        moved["task"] = {"name": "classification", "options": task}
    data = []
    for entry in found["data"]:
        own, more, smoothing = _split(entry.get("recipe", {}))
        settings = {**entry, "recipe": own, "task_options": smoothing}
        if augmentation or more:
            settings["augmentation"] = {**augmentation, **more}
        data.append(settings)
    moved["data"] = data
    return moved


def _split(recipe: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    augmentation = {name: recipe[name] for name in _AUGMENTATION if name in recipe}
    task = {name: recipe[name] for name in ("label_smoothing",) if name in recipe}
    others = {k: v for k, v in recipe.items() if k not in augmentation and k not in task}
    return others, augmentation, task
