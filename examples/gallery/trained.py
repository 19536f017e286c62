"""Pictures of trained networks: the study of gallery.toml, and one longer run with SE."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import torch
from torch import nn

import attnlab
from attnlab.data import load_data
from attnlab.instruments.block_figures import heat_figure
from attnlab.instruments.measurement import MeasureConfig
from attnlab.instruments.stiffness import regular_grid
from attnlab.instruments.stiffness.section import nsi_cells
from attnlab.instruments.stripe import GateHistory
from attnlab.instruments.stripe.figures import gates_figure
from attnlab.instruments.stripe.result import StripeResult
from attnlab.lab.measures.epoch import EpochMeasure
from attnlab.lab.pages.cost import CostPoint, cost_figure
from attnlab.lab.pages.figures import forest_figure
from attnlab.lab.pages.help import forest_rows
from attnlab.lab.study import LocalExecutor, load_study, run_study
from attnlab.lab.training import RunConfig, identify, load_network, train
from attnlab.page.plot import BLUE, GREY, ORANGE, Spec
from attnlab.page.raster import raster_figure
from attnlab.results.record import StudyRecord, read_record
from attnlab.timing import latencies

HERE = Path(__file__).parent
LONG = RunConfig(
    data="digits",
    backbone="resnet20",
    attention="se",
    recipe={"name": "digits", "epochs": 20},
)


def make_runs(out: Path) -> None:
    """Train what is not trained yet; the same again does nothing."""
    study = load_study(HERE / "gallery.toml")
    run_study(study, out, LocalExecutor(slots=2), report=print)
    train(LONG, long_run(out), each_epoch=EpochMeasure(MeasureConfig()))


def long_run(out: Path) -> Path:
    return out / identify(LONG).run_id


def pictures(out: Path) -> dict[str, Spec]:
    record = read_record(out, "gallery")
    first = {run.entry.cell.row: run for run in record.runs if run.entry.seed == 0}
    networks = {row: load_network(run.stored.directory) for row, run in first.items()}
    gates = {
        row: attnlab.stripe(networks[row], test_images()) for row in networks if row != "plain"
    }
    long = attnlab.stripe(load_network(long_run(out)), test_images())
    return {
        **study_pictures(record),
        "cost": latency_figure(record, networks),
        "surface": surface_figure(networks["plain"]),
        "conventions": conventions_figure(record),
        "step-sizes": step_size_figure(gates),
        "stripes": stripes_figure(long),
        "difference": difference_figure(long_run(out)),
        "fold": fold_figure(networks["ASR(SE)"]),
    }


def test_images() -> Iterable[Any]:
    """The 359 test digits, normalised as in training."""
    data = load_data(LONG.data)
    chunks = torch.arange(data.facts.test).split(64)
    return list(data.testing(list(chunks), torch.device("cpu")))


def study_pictures(record: StudyRecord) -> dict[str, Spec]:
    (group,) = record.table.groups
    return {
        "forest": forest_figure(forest_rows(group), record.metric, "Digits, ResNet-20, four seeds"),
        "nsi": heat_figure(nsi_cells(record, group), legend="NSI", title="NSI, mean of four seeds"),
    }


def latency_figure(record: StudyRecord, networks: dict[str, nn.Module]) -> Spec:
    """Accuracy of the study against time; the networks run in turns."""
    (group,) = record.table.groups
    accuracy = {row.label: row.values["top1"].mean for row in group.rows}
    folded, _ = attnlab.fold(networks["ASR(SE)"])
    images, _ = next(iter(test_images()))
    taken = latencies([*networks.values(), folded], images, threads=1, seconds=60)
    unit = 1000 * taken[0].after / len(images)  # of the plain network, which is the first
    points = []
    for name, time in zip([*networks, "folded"], taken, strict=True):
        kind = {"plain": "plain", "ASR(SE)": "folds", "folded": "folded"}.get(name, "gated")
        module = "ASR(SE)" if kind == "folded" else name
        interval = (None, None) if kind == "plain" else (unit * time.low, unit * time.high)
        points.append(CostPoint(module, unit * time.ratio, accuracy[module], kind, *interval))
    return cost_figure(points, record.metric, "Digits, ResNet-20")


def surface_figure(network: nn.Module) -> Spec:
    """δ(M) and p̂(M) side by side."""
    grid = regular_grid(0.5, 1.2, 81)
    found = attnlab.stiffness(network, test_images(), grid=grid, progress=False)
    surfaces = [
        raster_figure(
            np.array(values).T,
            description=f"{name}: {values[0][0]:.3g} at M = 0, TNS {found.tns:.4g}",
            x=("M₁, above the stage's mean", 0.0, 0.5),
            y=("M₂, NSI at least", 0.0, 1.2),
            legend=name,
            low=0.0,
            title=title,
            size=(170, 170),
            y_from_bottom=True,
        )
        for name, title, values in (
            ("δ(M)", f"share of images, TNS {found.tns:.3g}", found.surface),
            ("p̂(M)", "share of blocks", found.proportion),
        )
    ]
    return {"hconcat": surfaces, "resolve": {"scale": {"color": "independent"}}}


def conventions_figure(record: StudyRecord) -> Spec:
    """NSI of the same networks in the three conventions; prints TNS, mean ± std over seeds."""
    cells = []
    images = test_images()
    (group,) = record.table.groups
    for row in (row.label for row in group.rows):
        networks = [load_network(run.stored.directory) for run in record.of(group, row)]
        for convention in ("state", "branch", "paper"):
            found = [
                attnlab.stiffness(network, images, convention=convention, progress=False)
                for network in networks
            ]
            total = [each.tns for each in found]
            print(f"  TNS {row}, {convention}: {fmean(total):.3f} ± {stdev(total):.3f}")
            for steps in zip(*(each.nsi for each in found), strict=True):
                if steps[0].kept:
                    mean = fmean(step.mean for step in steps)
                    cells.append((f"{row}, {convention}", steps[0].label, mean))
    return heat_figure(cells, legend="NSI", title="NSI in three conventions, mean of four seeds")


def step_size_figure(gates: dict[str, StripeResult]) -> Spec:
    """The gates as step sizes: mean of every block, and 5–95 % of its channels."""
    rows = []
    for name, result in gates.items():
        for site in result.sites:
            low, high = np.quantile(site.channel_means, [0.05, 0.95])
            spread = f"5–95 % of channels {low:.3f}–{high:.3f}"
            text = f"{name}, block {site.label}: {site.mean:.3f}, {spread}"
            rows.append(
                {"gate": name, "block": site.label, "mean": site.mean, "low": low, "high": high}
                | {"text": text}
            )
    y = {"type": "quantitative", "title": "step size", "scale": {"domain": [0, 1]}}
    names = list(gates)
    return {
        "title": {
            "text": "Step sizes that training chose",
            "subtitle": "Mean gate of each block over images; bars: 5–95 % of its channels.",
        },
        "width": {"step": 13},
        "height": 220,
        "data": {"values": rows},
        "encoding": {
            "x": {
                "field": "block",
                "type": "nominal",
                "sort": sorted({row["block"] for row in rows}),
                "title": "residual block (stage.block)",
                "axis": {"labelAngle": 0},
            },
            "xOffset": {"field": "gate", "sort": names},
            "color": {
                "field": "gate",
                "type": "nominal",
                "title": None,
                "sort": names,
                "scale": {"domain": names, "range": [BLUE, ORANGE, GREY]},
                "legend": {"orient": "top", "symbolType": "circle", "symbolOpacity": 1},
            },
        },
        "layer": [
            {
                "mark": {"type": "rule", "strokeWidth": 2, "aria": False},
                "encoding": {"y": {**y, "field": "low"}, "y2": {"field": "high"}},
            },
            {
                "mark": {"type": "point", "size": 45, "opacity": 1},
                "encoding": {"y": {**y, "field": "mean"}, "description": {"field": "text"}},
            },
        ],
    }


def stripes_figure(found: StripeResult) -> Spec:
    shown = [found.sites[place] for place in (1, 4, 7)]
    figures = [gates_figure(site) for site in shown]
    return {"hconcat": figures, "resolve": {"scale": {"color": "independent"}}}


def difference_figure(directory: Path) -> Spec:
    history = GateHistory.of_records(StoredRun(directory).history)
    moved = np.concatenate([history.difference(name) for name in history.means], axis=1)
    for epoch in (2, 11, 20):
        print(
            f"  |Δ gate| of epoch {epoch}, median over all gates: {np.median(moved[epoch - 2]):.4f}"
        )
    names = [list(history.means)[place] for place in (1, 4, 7)]
    figures = [history.figure(name) for name in names]
    return {"hconcat": figures, "resolve": {"scale": {"color": "independent"}}}


def fold_figure(network: nn.Module) -> Spec:
    """The scales of one BatchNorm before and after it took its constant gate."""
    plain, receipt = attnlab.fold(network)
    site = receipt.rows[7]
    name = next(name for name in site.into if name.endswith("weight"))
    before, after = (net.state_dict()[name].tolist() for net in (network, plain))
    rows = [
        {
            "channel": channel,
            "before": b,
            "after": a,
            "text": f"channel {channel}: {b:.3f} → {a:.3f}",
        }
        for channel, (b, a) in enumerate(zip(before, after, strict=True))
    ]
    x = {
        "field": "channel",
        "type": "quantitative",
        "axis": {"grid": False},
        "scale": {"domain": [-1, len(rows)], "nice": False},
    }
    y = {"type": "quantitative", "title": f"γ of {name.removesuffix('.weight')}"}
    grey, blue = ({"type": "point", "size": 26, "opacity": 1, "color": c} for c in (GREY, BLUE))
    return {
        "title": {
            "text": f"Folding: {receipt.parameters_before:,} parameters before, "
            f"{receipt.parameters_after:,} after",
            "subtitle": f"γ before (grey) and γ ⊗ gate after (blue); the output moves by "
            f"{receipt.float64_change:.0e}, relative, in float64.",
        },
        "width": 520,
        "height": 200,
        "data": {"values": rows},
        "encoding": {"x": x},
        "layer": [
            {
                "mark": {"type": "rule", "color": "#d5d9df", "aria": False},
                "encoding": {"y": {**y, "field": "before"}, "y2": {"field": "after"}},
            },
            {"mark": grey | {"aria": False}, "encoding": {"y": {**y, "field": "before"}}},
            {
                "mark": blue,
                "encoding": {"y": {**y, "field": "after"}, "description": {"field": "text"}},
            },
        ],
    }
