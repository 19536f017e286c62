"""Which ranking of residual steps tells best what small language models can do without?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import tyro

import attnlab
from attnlab.instruments.removal import RANKINGS, ShortenResult, removal_curves
from attnlab.lab.training import RunConfig, train
from attnlab.results.metric import perplexity_of
from benchmarks._common import Table, settings, write_json
from benchmarks.stiffness.statistics import rank_correlations, with_interval

SETTINGS = settings("stiffness")["shorten-text"]
TRAINED: dict[str, dict[str, Any]] = SETTINGS["trained"]


def _config(name: str) -> RunConfig:
    """Describe how the network of this name is trained."""
    shared = {key: SETTINGS[key] for key in ("task", "data", "recipe")}
    return RunConfig.model_validate({**shared, **TRAINED[name]})


def _measured(folder: Path, name: str) -> ShortenResult:
    """Train what is missing and measure it, once: the command goes on where it was stopped."""
    run, file = folder / name, folder / f"{name}.json"
    if not (run / "result.json").is_file():
        train(_config(name), run, threads=1)
    if not file.is_file():
        subject = attnlab.open(run, limit=SETTINGS["windows"], batch=SETTINGS["batch"])
        found = removal_curves(subject, rankings=tuple(RANKINGS), most=SETTINGS["most"])
        found.save(file)
        print(f"{name}: {found.verdict}", flush=True)
    return ShortenResult.load(file)


def _correlations(found: dict[str, ShortenResult]) -> dict[str, dict[str, list[float]]]:
    """Spearman of each ranking's scores with the rise of the loss, by ranking and network."""
    random, number = np.random.default_rng(0), SETTINGS["draws"]
    table: dict[str, dict[str, list[float]]] = {}
    for ranking in RANKINGS:
        rows, draws = {}, []
        for name, result in found.items():
            steps = [step for step in result.steps if not step.reason]
            scores = np.array([step.scores[ranking] for step in steps])
            lost = np.array([step.loss for step in steps]) - np.float64(result.loss or 0.0)
            chosen = random.integers(0, len(steps), (number, len(steps)))
            draws.append(rank_correlations(scores[chosen], lost[chosen]))
            (middle,) = rank_correlations(scores[None], lost[None])
            rows[name] = with_interval(middle, draws[-1])
        networks = random.integers(0, len(found), (number, len(found)))
        means = np.stack(draws)[networks, np.arange(number)[:, None]].mean(1)
        rows["mean"] = with_interval(float(np.mean([row[0] for row in rows.values()])), means)
        table[ranking] = rows
    return table


def _tables(
    found: dict[str, ShortenResult], spearman: dict[str, dict[str, list[float]]]
) -> list[Table]:
    """The tables of docs/shorten.md."""

    def shown(cell: list[float]) -> str:
        value, low, high = cell
        return f"{value:.2f} [{low:.2f}, {high:.2f}]"

    names = [f"`{name}`" for name in RANKINGS]
    rows = [[name, *(shown(spearman[r][name]) for r in RANKINGS)] for name in (*found, "mean")]
    title = "Spearman with the rise of the loss when a step is left out alone"
    tables = [Table(title, ["network", *names], rows)]
    for name, result in found.items():
        by_ranking = {curve.ranking: curve.points for curve in result.curves}
        depths = range(1, SETTINGS["most"] + 1)
        rows = [
            [str(n), *(f"{perplexity_of(by_ranking[r][n].loss or 0.0):.2f}" for r in RANKINGS)]
            for n in depths
        ]
        whole = f"{perplexity_of(result.loss or 0.0):.2f}"
        title = f"{name}: perplexity without so many of {len(result.steps)} steps, {whole} with all"
        tables.append(Table(title, ["steps gone", *names], rows))
    return tables


def shorten_text(
    folder: tyro.conf.Positional[Path],
    networks: tuple[str, ...] = tuple(TRAINED),
    json: Path = Path("out/stiffness-shorten-text.json"),
) -> None:
    """Compare rankings of the residual steps of small language models, trained here on Python's own
    library: some two minutes of a core each, and a few more to measure.

    Steps are ranked on windows of the training text and judged on windows of files that were not
    trained on. Spearman's rank correlation of a ranking's scores with the rise of the loss when a
    step is left out alone has a 95 % interval by bootstrap over steps, that of the mean over
    networks and steps.

    Args:
        folder: where the networks are; what is missing is trained.
        networks: which of those of benchmarks/data/stiffness.toml.
        json: where the numbers are written.
    """
    found = {name: _measured(folder, name) for name in networks}
    spearman = _correlations(found)
    for table in _tables(found, spearman):
        print(f"\n{table.title}\n\n{table.markdown()}")
    losses = {
        name: {
            "loss": result.loss,
            "steps": {step.label: step.loss for step in result.steps if not step.reason},
            "curves": {c.ranking: [point.loss for point in c.points] for c in result.curves},
        }
        for name, result in found.items()
    }
    write_json(json, {"spearman": spearman, "networks": losses})
