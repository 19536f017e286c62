"""The tables of docs/se-out.md, from what `run`, `torchao` and `times` measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.stats import spearmanr, t

from benchmarks._common import Table, ratio_text, settings

Runs = list[dict[str, Any]]
ByNetwork = dict[str, Runs]

NAMES: dict[str, str] = settings("se_out")["names"]
DONE = "ls, norms moved in batches"
"""What `attnlab.fold` does, among the ablations."""


def by_network(found: dict[str, dict[str, Any]]) -> ByNetwork:
    """Return the runs of each network, by seed; known ones in the order of the page."""
    of_network: ByNetwork = {name: [] for name in NAMES.values()}
    for run in sorted(found.values(), key=lambda run: run["seed"]):
        of_network.setdefault(NAMES.get(run["backbone"], run["backbone"]), []).append(run)
    return {name: runs for name, runs in of_network.items() if runs}


def show(found: dict[str, dict[str, Any]], only: str = "") -> None:
    """Print all tables, each with its heading, or the one with this heading."""
    networks = by_network(found)
    if not networks:
        print("No run is measured yet.")
        return
    counts = ", ".join(f"{len(runs)} of {name}" for name, runs in networks.items())
    by_name = [f"{name}: {_prediction(runs)}" for name, runs in networks.items()]
    parts = {
        f"Runs: {counts}": "",
        "Curve": _curve(networks),
        "All gates": _final(networks),
        "Over runs": _over_runs(networks),
        "Prediction": _prediction([run for runs in networks.values() for run in runs]),
        "Prediction, by network": "\n".join(by_name),
        "Ablation": _ablation(networks),
        "int8": _int8(networks, "int8"),
        "int8 by torchao": _int8(networks, "torchao"),
        "Times": _times(networks),
    }
    for title, text in parts.items():
        if only in ("", title):
            print(f"## {title}\n\n{text}".strip(), end="\n\n")


def _interval(gained: Sequence[float], errors: Sequence[float]) -> str:
    """Show the mean over runs with its 95 % interval over images."""
    half = 1.96 * float(np.sqrt(np.square(errors).sum())) / len(errors)
    mean = float(np.mean(gained))
    return _signed(f"{mean:+.2f} [{mean - half:+.2f}, {mean + half:+.2f}]")


def _curve(networks: ByNetwork) -> str:
    """Show what it costs, gate after gate."""
    columns = ["gates constant"]
    for name in networks:
        columns += [f"{name}: predicted", "measured", "Δ"]
    gates = max(len(runs[0]["curve"]["points"]) for runs in networks.values())
    rows = []
    for number in range(gates):
        row = [str(number + 1)]
        for runs in networks.values():
            points = [run["curve"]["points"][number] for run in runs]
            row += [f"{_mean(points, each):.3f}" for each in ("predicted", "measured")]
            gained = [
                100 * (point["accuracy"] - run["curve"]["accuracy"])
                for point, run in zip(points, runs, strict=True)
            ]
            row.append(_interval(gained, [100 * point["accuracy_error"] for point in points]))
        rows.append(row)
    return Table("", columns, rows).markdown()


def _final(networks: ByNetwork) -> str:
    """Show networks with SE, without, and repaired."""
    columns = ["network", "", "parameters", "MACs", "accuracy", "Δ", "by run", "other answers, %"]
    rows = []
    for name, runs in networks.items():
        for number, form in enumerate(runs[0]["float"]):
            each = [run["float"][form] for run in runs]
            size, macs = (runs[0][key][min(number, 1)] for key in ("parameters", "macs"))
            row = ["" if number else name, form, f"{size:,}", f"{macs:,}"]
            row.append(f"{_mean(each, 'accuracy'):.2f}")
            row += _gained(each) if number else ["", ""]
            rows.append([*row, f"{_mean(each, 'answers'):.1f}" if number else ""])
    return Table("", columns, rows).markdown()


def _over_runs(networks: ByNetwork) -> str:
    """Show Student's interval of the mean difference over runs, which needs two of them."""
    lines = []
    for name, runs in networks.items():
        for form in list(runs[0]["float"])[1:]:
            gained = np.array([run["float"][form]["gained"] for run in runs])
            if len(gained) > 1:
                half = t.ppf(0.975, len(gained) - 1) * gained.std(ddof=1) / len(gained) ** 0.5
                low, high = gained.mean() - half, gained.mean() + half
                said = _signed(f"{gained.mean():+.2f} [{low:+.2f}, {high:+.2f}]")
                lines.append(f"{name}, {form}: {said} over {len(gained)} runs")
    return "\n".join(lines)


def _prediction(runs: Runs) -> str:
    """Compare predicted and measured change, over all budgets."""
    points = [point for run in runs for point in run["curve"]["points"]]
    predicted, bound, measured = (
        np.array([point[name] for point in points]) for name in ("predicted", "bound", "measured")
    )
    ratio = measured / predicted
    return (
        f"{len(points)} budgets of {len(runs)} runs: Spearman "
        f"{spearmanr(predicted, measured).statistic:.3f}; measured within the bound "
        f"{(measured <= bound).mean():.0%}; measured over predicted "
        f"{np.exp(np.log(ratio).mean()):.2f} (geometric mean), {ratio.max():.2f} at most."
    )


def _ablation(networks: ByNetwork) -> str:
    """Show other constants and other norms."""
    measured = {n: [run for run in runs if run["ablation"]] for n, runs in networks.items()}
    measured = {name: runs for name, runs in measured.items() if runs}
    if not measured:
        return "not measured"
    columns = ["constants"]
    for name in measured:
        columns += [f"{name}: change", "other answers, %", "Δ"]
    rows = []
    for label in next(iter(measured.values()))[0]["ablation"]:
        row = [f"**{label}**" if label == DONE else label]
        for runs in measured.values():
            each = [run["ablation"][label] for run in runs]
            row += [f"{_mean(each, 'change'):.3f}", f"{_mean(each, 'answers'):.1f}"]
            row.append(_signed(f"{_mean(each, 'gained'):+.2f}"))
        rows.append(row)
    return Table("", columns, rows).markdown()


def _int8(networks: ByNetwork, key: str) -> str:
    """Show what int8 costs the runs that have `key`, and what stays in float."""
    columns = ["network", "", "float", "int8", "int8 − float", "by run", "other answers, %"]
    columns += ["operators in int8", "in float"]
    rows = []
    for name, all_runs in networks.items():
        runs = [run for run in all_runs if key in run]
        for number, form in enumerate(runs[0][key] if runs else ()):
            each = [run[key][form] for run in runs]
            floats = _mean([run["float"][form] for run in runs], "accuracy")
            row = ["" if number else name, form, f"{floats:.2f}", f"{_mean(each, 'accuracy'):.2f}"]
            row += [*_gained(each), f"{_mean(each, 'answers'):.1f}"]
            rows.append([*row, str(each[0]["in_int8"]), str(each[0]["in_float"])])
    kinds = [
        f"{name}, seed {run['seed']}, {form}: {found['float_operators']}"
        for name, runs in networks.items()
        for run in runs
        for form, found in run.get(key, {}).items()
    ]
    if not rows:
        return "not measured"
    return "\n".join([Table("", columns, rows).markdown(), "", "In float:", *kinds])


def _times(networks: ByNetwork) -> str:
    """Show times with SE and without, interleaved; of the first run that was timed."""
    columns = ["network", "", "batch", "with SE, ms", "SE out, ms", "ratio"]
    rows = []
    for name, runs in networks.items():
        timed = [run["times"] for run in runs if "times" in run]
        for number, found in enumerate(timed[0]["rows"] if timed else ()):
            ratio = ratio_text(found["ratio"], found["low"], found["high"])
            milliseconds = [f"{1e3 * found[each]:.2f}" for each in ("before", "after")]
            first = ["" if number else name, found["runtime"], str(found["batch"])]
            rows.append([*first, *milliseconds, ratio if found["narrow"] else f"{ratio} (busy)"])
    return Table("", columns, rows).markdown() if rows else "not measured"


def _mean(rows: Sequence[dict[str, Any]], name: str) -> float:
    return float(np.mean([row[name] for row in rows]))


def _gained(rows: Sequence[dict[str, Any]]) -> list[str]:
    """The mean difference with its interval, and that of every run."""
    gained = [row["gained"] for row in rows]
    each = ", ".join(_signed(f"{value:+.2f}") for value in gained)
    return [_interval(gained, [row["error"] for row in rows]), each]


def _signed(text: str) -> str:
    return text.replace("-", "−")
