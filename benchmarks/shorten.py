"""Which ranking of residual steps tells best what can be removed from a trained network?

    python benchmarks/shorten.py runs/shorten --cifar10 data/cifar10.npz --weights weights/ \
        --json benchmarks/shorten.json --figure docs/shorten/curves.svg

Seven networks: five of `benchmarks/shorten_networks.py`, which trains them, and where there are
files `cifar10_resnet20_basic_optionA.pth` and `cifar10_resnet32_basic_optionA.pth` in the folder
`--weights`, two public ones. Steps are ranked on 100 training images and judged on up to 500 test
images. Two questions, each with 95 % intervals:

* Spearman's rank correlation of a ranking's scores with the accuracy that is lost when a step is
  left out alone: bootstrap over steps, and for the mean over networks and steps;
* accuracy as steps go one after the other, all but the last: its mean over depths, minus that of
  block influence, bootstrap over test images (paired).

A few minutes on one core, after the training. What is measured of a network is kept in the folder,
so that the command goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import rankdata
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parent))
from shorten_networks import TRAINED, train_missing

import attnlab
from attnlab.instruments.removal import RANKINGS, RemovalTrial, removal_order
from attnlab.instruments.removal.figures import accuracy_figure
from attnlab.instruments.removal.result import RemovalCurve, RemovalPoint
from attnlab.lab.measures import subject_of
from attnlab.page.plot import write_svg
from attnlab.surgery.answer import right_answers

RANKED, JUDGED, BATCH = 100, 500, 100
DRAWS = 2000
PUBLIC = ("resnet20", "resnet32")
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


@dataclass(frozen=True)
class Case:
    """A trained network with images to rank on and others to judge on."""

    name: str
    network: nn.Module
    images: list[Any]
    test: list[Any]


def cases(folder: Path, cifar10: Path, weights: Path | None) -> Iterator[Case]:
    """All networks."""
    for name in PUBLIC if weights is not None else ():
        assert weights is not None
        file = weights / f"cifar10_{name}_basic_optionA.pth"
        network = attnlab.create(name, weights=file, shortcut="zero_pad").eval()
        images = _public_images(cifar10, "train", RANKED)
        yield Case(f"public-{name}", network, images, _public_images(cifar10, "test", JUDGED))
    for name in TRAINED:
        subject = subject_of(folder / name)
        images = list(subject.training(RANKED, BATCH))
        yield Case(name, subject.network, images, list(subject.batches(JUDGED, BATCH)))


def _public_images(cifar10: Path, part: str, number: int) -> list[tuple[Tensor, Tensor]]:
    with np.load(cifar10) as data:
        chosen = np.linspace(0, len(data[f"{part}_y"]) - 1, number).round().astype(int)
        pixels = torch.from_numpy(data[f"{part}_x"][chosen]).permute(0, 3, 1, 2).float() / 255
        labels = torch.from_numpy(data[f"{part}_y"][chosen]).long()
    mean, std = (torch.tensor(values)[:, None, None] for values in IMAGENET)
    return list(zip(((pixels - mean) / std).split(BATCH), labels.split(BATCH), strict=True))


def measured(case: Case) -> dict[str, Any]:
    """Scores, what each step matters alone, and hits per image and depth, by ranking."""
    ranked, judged = RemovalTrial(case.network, case.images), RemovalTrial(case.network, case.test)
    labels = judged.labels
    assert labels is not None
    known: dict[frozenset[Any], list[int]] = {}

    def hits(left_out: frozenset[Any]) -> list[int]:
        if left_out not in known:
            answers = judged.answers(left_out) if left_out else judged.before
            known[left_out] = right_answers(answers, labels).int().tolist()
        return known[left_out]

    steps = ranked.candidates
    found: dict[str, Any] = {
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


def summary(found: list[dict[str, Any]]) -> dict[str, Any]:
    """The two tables."""
    random = np.random.default_rng(0)
    return {
        "spearman": {name: _correlation(found, name, random) for name in RANKINGS},
        "curves": {each["network"]: _curves(each, random) for each in found},
    }


def _lost(each: dict[str, Any]) -> np.ndarray:
    """Accuracy that goes with each step alone, in points."""
    whole = 100 * np.mean(each["hits"])
    return whole - 100 * np.mean(each["alone"], axis=1)


def rank_correlations(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Spearman of every row; 0 where all values of a row are the same, which rank nothing."""
    a, b = (rankdata(values, axis=1) for values in (one, other))
    a, b = (ranks - ranks.mean(1, keepdims=True) for ranks in (a, b))
    size = np.sqrt((a**2).sum(1) * (b**2).sum(1))
    return np.divide((a * b).sum(1), size, out=np.zeros_like(size), where=size > 0)


def _correlation(found: list[dict[str, Any]], name: str, random: Any) -> dict[str, Any]:
    pairs = [(np.array(each["rankings"][name]["scores"]), _lost(each)) for each in found]
    rows, draws = {}, []
    for each, (scores, lost) in zip(found, pairs, strict=True):
        chosen = random.integers(0, len(lost), (DRAWS, len(lost)))
        drawn = rank_correlations(scores[chosen], lost[chosen])
        draws.append(drawn)
        (middle,) = rank_correlations(scores[None], lost[None])
        rows[each["network"]] = [float(middle), *_interval(drawn)]
    networks = random.integers(0, len(found), (DRAWS, len(found)))
    table = np.stack(draws)
    means = [np.mean([table[n, d] for n in row]) for d, row in enumerate(networks)]
    rows["mean"] = [float(np.mean([row[0] for row in rows.values()])), *_interval(means)]
    return rows


def _curves(each: dict[str, Any], random: Any) -> dict[str, Any]:
    hits = {name: np.array(ranking["hits"]) for name, ranking in each["rankings"].items()}
    images = len(each["hits"])
    chosen = random.integers(0, images, (DRAWS, images))
    # By image, the mean over depths but the last, at which all steps are gone by every ranking.
    depths = {name: 100 * values[:-1].mean(0) for name, values in hits.items()}
    base = depths["influence"]
    return {
        name: {
            "mean": float(values.mean()),
            "minus_influence": [
                float((values - base).mean()),
                *_interval((values - base)[chosen].mean(1)),
            ],
            "accuracy": [100 * np.mean(each["hits"]), *(100 * hits[name].mean(1)).tolist()],
        }
        for name, values in depths.items()
    }


def _interval(values: Any) -> list[float]:
    return [float(q) for q in np.quantile(values, (0.025, 0.975))]


def print_tables(tables: dict[str, Any]) -> None:
    """As in docs/shorten.md."""
    names = list(tables["curves"])
    print("\nSpearman with the accuracy lost by leaving a step out alone")
    print(f"| network | {' | '.join(RANKINGS)} |\n|---|{'---|' * len(RANKINGS)}")
    for row in [*names, "mean"]:
        cells = [tables["spearman"][ranking][row] for ranking in RANKINGS]
        print(f"| {row} | {' | '.join(_shown(cell, '.2f') for cell in cells)} |")
    print("\nMean accuracy over depths, %, and minus that of block influence")
    print(f"| network | {' | '.join(RANKINGS)} |\n|---|{'---|' * len(RANKINGS)}")
    for row in names:
        cells = [tables["curves"][row][ranking] for ranking in RANKINGS]
        texts = [f"{c['mean']:.1f} ({_shown(c['minus_influence'], '+.1f')})" for c in cells]
        print(f"| {row} | {' | '.join(texts)} |")


def _shown(cell: list[float], form: str) -> str:
    value, low, high = cell
    return f"{value:{form}} [{low:{form}}, {high:{form}}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--cifar10", type=Path, default=Path("data/cifar10.npz"))
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--json", type=Path, default=Path("shorten.json"))
    parser.add_argument("--figure", type=Path)
    given = parser.parse_args()
    train_missing(given.folder, given.cifar10)
    every = cases(given.folder, given.cifar10, given.weights)
    found = [_once(case, given.folder / "measured") for case in every]
    tables = summary(found)
    given.json.write_text(json.dumps({**tables, "networks": [_short(f) for f in found]}) + "\n")
    print_tables(tables)
    if given.figure is not None:
        write_svg(curves_figure(tables["curves"]), given.figure)


def curves_figure(curves: dict[str, Any]) -> dict[str, Any]:
    """Accuracy against removed steps, one small picture per network."""
    panels = []
    for network, by_ranking in curves.items():
        lines = [
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
        panels.append({**accuracy_figure(lines, network), "width": 250, "height": 170})
    return {"concat": panels, "columns": 2}


def _once(case: Case, folder: Path) -> dict[str, Any]:
    file = folder / f"{case.name}.json"
    if not file.is_file():
        folder.mkdir(exist_ok=True)
        file.write_text(json.dumps(measured(case)))
    kept: dict[str, Any] = json.loads(file.read_text())
    return kept


def _short(each: dict[str, Any]) -> dict[str, Any]:
    """Without hits of single images."""
    rankings = {
        name: {key: ranking[key] for key in ("scores", "order")}
        for name, ranking in each["rankings"].items()
    }
    lost = [round(float(value), 3) for value in _lost(each)]
    return {**{k: each[k] for k in ("network", "steps")}, "lost": lost, "rankings": rankings}


if __name__ == "__main__":
    main()
