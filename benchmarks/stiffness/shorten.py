"""Which ranking of residual steps tells best what can be removed from a trained network?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tyro
from torch import Tensor, nn

import attnlab
from attnlab.instruments.removal import RANKINGS, RemovalTrial, removal_order
from attnlab.instruments.removal.figures import accuracy_figure
from attnlab.instruments.removal.result import RemovalCurve, RemovalPoint
from attnlab.lab.training import RunConfig, train
from attnlab.page.plot import write_svg
from benchmarks._common import Table, read_json, settings, write_json
from benchmarks.stiffness.statistics import rank_correlations, with_interval

SETTINGS = settings("stiffness")["shorten"]
TRAINED: dict[str, dict[str, Any]] = SETTINGS["trained"]
BATCH: int = SETTINGS["batch"]
Found = dict[str, Any]


@dataclass(frozen=True)
class ShortenCase:
    """A trained network with images to rank on and others to judge on."""

    name: str
    network: nn.Module
    images: list[Any]
    test: list[Any]


def _config(name: str, cifar10: Path) -> RunConfig:
    """Describe how the network of this name is trained."""
    kind = name.partition("-")[0]
    images = dict(SETTINGS["data"][kind])
    if kind == "cifar10":
        images["root"] = str(cifar10)
    about = {"data": images, "recipe": SETTINGS["recipes"][kind], **TRAINED[name]}
    return RunConfig.model_validate(about)


def _cases(
    folder: Path, cifar10: Path, weights: Path | None, names: tuple[str, ...]
) -> Iterator[ShortenCase]:
    """Yield the public networks, and those trained here; what is missing is trained."""
    ranked, judged = SETTINGS["ranked"], SETTINGS["judged"]
    for name in SETTINGS["public"] if weights is not None else ():
        assert weights is not None
        file = weights / f"cifar10_{name}_basic_optionA.pth"
        network = attnlab.create(name, weights=file, shortcut="zero_pad").eval()
        parts = [_public_images(cifar10, *each) for each in (("train", ranked), ("test", judged))]
        yield ShortenCase(f"public-{name}", network, *parts)
    for name in names:
        if not (folder / name / "result.json").is_file():
            train(_config(name, cifar10), folder / name, threads=1)
        subject = attnlab.open(folder / name, batch=BATCH)
        images = list(subject.batches(ranked, "train"))
        yield ShortenCase(name, subject.network, images, list(subject.batches(judged)))


def _public_images(cifar10: Path, part: str, number: int) -> list[tuple[Tensor, Tensor]]:
    with np.load(cifar10) as data:
        chosen = np.linspace(0, len(data[f"{part}_y"]) - 1, number).round().astype(int)
        pixels = torch.from_numpy(data[f"{part}_x"][chosen]).permute(0, 3, 1, 2).float() / 255
        labels = torch.from_numpy(data[f"{part}_y"][chosen]).long()
    mean, std = (torch.tensor(SETTINGS[key])[:, None, None] for key in ("mean", "std"))
    return list(zip(((pixels - mean) / std).split(BATCH), labels.split(BATCH), strict=True))


def _measured(case: ShortenCase) -> Found:
    """Return scores, what each step matters alone, and hits per image and depth, by ranking."""
    ranked, judged = (RemovalTrial(case.network, each) for each in (case.images, case.test))
    labels = judged.labels
    assert labels is not None
    known: dict[frozenset[Any], list[int]] = {}

    def hits(left_out: frozenset[Any]) -> list[int]:
        if left_out not in known:
            answers = judged.answers(left_out) if left_out else judged.before
            known[left_out] = (answers.argmax(1) == labels).int().tolist()
        return known[left_out]

    steps = ranked.candidates
    found: Found = {
        "network": case.name,
        "steps": [step.label for step in steps],
        "hits": hits(frozenset()),
        "alone": [hits(frozenset([step.key])) for step in steps],
        "rankings": {},
    }
    for name, ranking in RANKINGS.items():
        scores = ranking.scores(ranked, ())
        order = removal_order(ranked, ranking, len(steps))
        gone = [each.step.key for each in order]
        found["rankings"][name] = {
            "scores": [scores[step.key] for step in steps],
            "order": [each.step.label for each in order],
            "hits": [hits(frozenset(gone[:n])) for n in range(1, len(gone) + 1)],
        }
        print(f"{case.name}: {name} done", flush=True)
    return found


def _once(case: ShortenCase, folder: Path) -> Found:
    """Keep what is measured in the folder, so that the command goes on where it was stopped."""
    file = folder / f"{case.name}.json"
    if not file.is_file():
        write_json(file, _measured(case))
    return read_json(file)


def _lost(each: Found) -> np.ndarray:
    """Return the accuracy that goes with each step alone, in points."""
    return 100 * (np.mean(each["hits"]) - np.mean(each["alone"], axis=1))


def _correlation(found: list[Found], name: str, random: np.random.Generator) -> Found:
    """Return Spearman of a ranking's scores with the accuracy that is lost, by network and mean."""
    rows, draws, number = {}, [], SETTINGS["draws"]
    for each in found:
        scores, lost = np.array(each["rankings"][name]["scores"]), _lost(each)
        chosen = random.integers(0, len(lost), (number, len(lost)))
        draws.append(rank_correlations(scores[chosen], lost[chosen]))
        (middle,) = rank_correlations(scores[None], lost[None])
        rows[each["network"]] = with_interval(middle, draws[-1])
    networks = random.integers(0, len(found), (number, len(found)))
    means = np.stack(draws)[networks, np.arange(number)[:, None]].mean(1)
    rows["mean"] = with_interval(float(np.mean([row[0] for row in rows.values()])), means)
    return rows


def _curves(each: Found, random: np.random.Generator) -> Found:
    """Return the accuracy as steps go one after the other, by ranking."""
    hits = {name: np.array(ranking["hits"]) for name, ranking in each["rankings"].items()}
    images = len(each["hits"])
    chosen = random.integers(0, images, (SETTINGS["draws"], images))
    # By image, the mean over depths but the last, at which all steps are gone by every ranking.
    depths = {name: 100 * values[:-1].mean(0) for name, values in hits.items()}
    gained = {name: values - depths["influence"] for name, values in depths.items()}
    return {
        name: {
            "mean": float(values.mean()),
            "minus_influence": with_interval(gained[name].mean(), gained[name][chosen].mean(1)),
            "accuracy": [100 * np.mean(each["hits"]), *(100 * hits[name].mean(1)).tolist()],
        }
        for name, values in depths.items()
    }


def _show(spearman: Found, curves: Found) -> None:
    """Print the tables of docs/shorten.md."""

    def shown(cell: list[float], form: str) -> str:
        value, low, high = cell
        return f"{value:{form}} [{low:{form}}, {high:{form}}]"

    rows = [
        [name, *(shown(spearman[ranking][name], ".2f") for ranking in RANKINGS)]
        for name in (*curves, "mean")
    ]
    title = "Spearman with the accuracy lost by leaving a step out alone"
    Table(title, ["network", *RANKINGS], rows).print()
    rows = []
    for name, by_ranking in curves.items():
        cells = [by_ranking[ranking] for ranking in RANKINGS]
        texts = [f"{c['mean']:.1f} ({shown(c['minus_influence'], '+.1f')})" for c in cells]
        rows.append([name, *texts])
    title = "Mean accuracy over depths, %, and minus that of block influence"
    Table(title, ["network", *RANKINGS], rows).print()


def _figure(curves: Found) -> Found:
    """Draw accuracy against removed steps, one small picture per network."""
    panels = []
    for network, by_ranking in curves.items():
        drawn = [
            RemovalCurve(
                name,
                RANKINGS[name].says,
                tuple(
                    RemovalPoint(number, "", "", None, None, 0.0, value)
                    for number, value in enumerate(row["accuracy"])
                ),
            )
            for name, row in by_ranking.items()
        ]
        figure = accuracy_figure(drawn, title=network)
        panels.append({**figure, "width": 250, "height": 170})
    return {"concat": panels, "columns": 2}


def _short(each: Found) -> Found:
    """Leave out the hits of single images."""
    rankings = {
        name: {key: ranking[key] for key in ("scores", "order")}
        for name, ranking in each["rankings"].items()
    }
    lost = [round(float(value), 3) for value in _lost(each)]
    return {**{k: each[k] for k in ("network", "steps")}, "lost": lost, "rankings": rankings}


def shorten(
    folder: tyro.conf.Positional[Path],
    cifar10: Path = Path("data/cifar10.npz"),
    weights: Path | None = None,
    networks: tuple[str, ...] = tuple(TRAINED),
    figure: Path | None = None,
    json: Path = Path("out/stiffness-shorten.json"),
) -> None:
    """Compare rankings of the residual steps of trained networks; a few minutes after training.

    Steps are ranked on 100 training images and judged on up to 500 test images. Two questions, each
    with 95 % intervals: Spearman's rank correlation of a ranking's scores with the accuracy that is
    lost when a step is left out alone (bootstrap over steps, and for the mean over networks and
    steps); and accuracy as steps go one after the other, all but the last: its mean over depths,
    minus that of block influence (bootstrap over test images, paired).

    Args:
        folder: where the networks are; what is missing is trained, a quarter of an hour.
        cifar10: an archive with train_x, train_y, test_x and test_y.
        weights: a folder with the public weights; without it, the public networks are left out.
        networks: which of the networks that are trained here.
        figure: draw the curves here.
        json: where the numbers are written.
    """
    every = _cases(folder, cifar10, weights, networks)
    found = [_once(case, folder / "measured") for case in every]
    random = np.random.default_rng(0)
    spearman = {name: _correlation(found, name, random) for name in RANKINGS}
    curves = {each["network"]: _curves(each, random) for each in found}
    _show(spearman, curves)
    short = [_short(each) for each in found]
    write_json(json, {"spearman": spearman, "curves": curves, "networks": short})
    if figure is not None:
        write_svg(_figure(curves), figure)
