"""Each gate and the multiplication, alone and in whole networks, against what a user would
otherwise take: timm's, or the formula as it is usually written."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import timm
import torch
import tyro
from torch import Tensor, nn

import attnlab
from attnlab import latency
from attnlab.gates import StageGate, StepGate, build_gate
from attnlab.timing import Latency
from benchmarks._common import (
    Table,
    forward_or_both,
    keep_memory,
    paragraph,
    ratio_text,
    read_json,
    renew_section,
    settings,
    write_json,
)
from benchmarks.speed.peers import PEERS

SETTINGS = settings("speed")["gates"]
SHAPES: dict[str, tuple[int, ...]] = {k: tuple(v) for k, v in SETTINGS["shapes"].items()}
FORMATS = {"NCHW": torch.contiguous_format, "NHWC": torch.channels_last}
HEADING = "## Gates: `python -m benchmarks.speed gates`"
Cells = dict[tuple[str, str, str, bool], dict[str, Any]]
"""By gate, shape, memory format, and whether there is a backward pass."""


def _gated(module: nn.Module) -> Callable[[Tensor, Tensor], Tensor]:
    """Return the gated branch as a function of shortcut and branch. As in an inserted gate, the
    kind of the gate is found out once."""
    if isinstance(module, StepGate):
        return lambda shortcut, branch: branch * module(shortcut, branch)
    if isinstance(module, StageGate):
        return lambda _, branch: branch * module(branch, None)[0]
    if isinstance(module, nn.BatchNorm2d):
        return lambda _, branch: module(branch)
    return lambda _, branch: branch * module(branch)


def _passes(
    function: Callable[[Tensor, Tensor], Tensor], inputs: list[Tensor], backward: bool
) -> Callable[[], object]:
    given = [each.clone().requires_grad_(backward) for each in inputs]

    def clear() -> None:
        for each in given:
            each.grad = None

    # The slope is made here: in the timed part it would pull every ratio towards 1.
    return forward_or_both(lambda: function(*given), backward, torch.ones_like(given[1]), clear)


def _measured(name: str, shape: tuple[int, ...], order: str, back: bool, seconds: float) -> Latency:
    """Time ours and its peer on one case; the ratio is how much longer the peer takes."""
    torch.manual_seed(0)
    ours = _gated(build_gate(name, shape[1], **SETTINGS["options"].get(name, {})))
    peer = PEERS[name][1](shape[1])
    theirs = peer if name == "step" else lambda _, branch: peer(branch)
    inputs = [torch.randn(shape).contiguous(memory_format=FORMATS[order]) for _ in range(2)]
    return latency(_passes(ours, inputs, back), _passes(theirs, inputs, back), (), seconds=seconds)


def _case(found: Latency, **about: object) -> dict[str, Any]:
    return {
        **about,
        "ours_ms": found.before * 1e3,
        "peer_ms": found.after * 1e3,
        "ratio": found.ratio,
        "interval": (found.low, found.high),
    }


def _shown(case: dict[str, Any]) -> list[str]:
    times = f"{case['ours_ms']:.2f} / {case['peer_ms']:.2f}"
    return [
        "fwd+bwd" if case["backward"] else "fwd",
        times,
        ratio_text(case["ratio"], *case["interval"]),
    ]


def gates(
    gates: tuple[str, ...] = tuple(PEERS),
    shapes: tuple[str, ...] = tuple(SHAPES),
    seconds: float = 5.0,
    json: Path = Path("out/speed-gates.json"),
) -> None:
    """Time each gate and the multiplication against its peer; half an hour on one core.

    A ratio above 1 means that attnlab's gate is faster. `gate-tables` takes the median of several
    runs.

    Args:
        gates: which gates.
        shapes: which shapes of features.
        seconds: how long each case is timed, interleaved, at most.
        json: where the numbers are written.
    """
    keep_memory()
    cases = [
        _case(
            _measured(name, SHAPES[shape], order, backward, seconds),
            gate=name,
            peer=PEERS[name][0],
            shape=SHAPES[shape],
            order=order,
            backward=backward,
        )
        for name in gates
        for shape in shapes
        for order in FORMATS
        for backward in (False, True)
    ]
    names = ["gate", "peer", "shape", "order", "pass", "ours / peer, ms", "peer / ours"]
    rows = [[c["gate"], c["peer"], _sizes(c), c["order"], *_shown(c)] for c in cases]
    Table("Gate and multiplication", names, rows).print()
    geometric = math.exp(statistics.mean(math.log(case["ratio"]) for case in cases))
    print(f"Total time, peer / ours: {_total(cases):.2f}   geometric mean: {geometric:.2f}")
    slower = sum(case["ratio"] < SETTINGS["least"] for case in cases)
    print(f"Goal for the total: {SETTINGS['goal']}. Cases below {SETTINGS['least']}: {slower}")
    summary = {"total_ratio": _total(cases), "geometric_mean": geometric}
    write_json(json, {"summary": summary, "cases": cases})


def networks(
    model: str = "resnet50",
    gates: tuple[str, ...] = ("se", "eca", "cbam", "ese", "gc", "coord"),
    size: int = 128,
    batch: int = 8,
    seconds: float = 10.0,
    json: Path = Path("out/speed-networks.json"),
) -> None:
    """Time gates that `insert` put into timm's ResNet against timm's own; six minutes.

    Both have the same convolutions and the same attention after the last norm of each block.

    Args:
        model: which network of timm.
        gates: which gates, by the names that timm has for them as well.
        size: of an image, pixels.
        batch: images per run.
        seconds: how long each case is timed, interleaved, at most.
        json: where the numbers are written.
    """
    cases = []
    for gate in gates:
        options = SETTINGS["options"].get(gate, {})
        ours, _ = attnlab.insert(timm.create_model(model), gate, **options)
        peer = timm.create_model(model, block_args={"attn_layer": gate})
        for order, memory_format in FORMATS.items():
            images = torch.randn(batch, 3, size, size).contiguous(memory_format=memory_format)
            for backward in (False, True):
                runs = [
                    forward_or_both(partial(n, images), backward)
                    for n in (each.to(memory_format=memory_format) for each in (ours, peer))
                ]
                ours.train(backward)
                peer.train(backward)
                found = latency(*runs, (), seconds=seconds)
                cases.append(_case(found, gate=gate, order=order, backward=backward))
    columns = ["network", "order", "pass", "ours / timm, ms", "timm / ours"]
    rows = [[f"{model} + {case['gate']}", case["order"], *_shown(case)] for case in cases]
    Table(f"Networks, batch {batch}, {size} px", columns, rows).print()
    write_json(json, {"model": model, "cases": cases})


def gate_tables(
    files: tyro.conf.Positional[tuple[Path, ...]],
    write_docs: Path | None = None,
    json: Path = Path("out/speed-gate-tables.json"),
) -> None:
    """Take the median of several runs of `gates`, cell by cell.

    Args:
        files: what the runs wrote.
        write_docs: renew the section of this page.
        json: where the medians are written.
    """
    cells = _medians(files)
    columns = ["gate", "peer", "forward", "forward + backward", "lowest cell"]
    table = Table(f"Peer / ours, median of {len(files)} runs", columns, _by_gate(cells))
    table.print()
    summary = _summary(cells)
    print(summary)
    write_json(json, {"summary": summary, "cells": [[*key, cells[key]] for key in cells]})
    if write_docs is not None:
        of = read_json(files[0])["machine"]
        runs = "One run" if len(files) == 1 else f"Median of {len(files)} runs"
        about = (
            "Gate and multiplication, against timm's module where there is one and the formula as "
            "usually written elsewhere. Time of the peer divided by ours, over four shapes "
            "(128×64×32×32, 128×256×8×8, 8×256×56×56, 8×2048×7×7) and both memory formats; above "
            f"1 ours is faster. {runs}, {of['threads']} thread, "
            f"{of['processor']}, torch {of['torch']}, {of['date']}."
        )
        text = f"{paragraph(about)}\n\n{table.markdown()}\n\n{paragraph(summary)}"
        renew_section(write_docs, HEADING, text)


def _medians(files: tuple[Path, ...]) -> Cells:
    """Return the median ratio and times of each cell over the files, which must have the same."""
    found: defaultdict[tuple[str, str, str, bool], list[dict[str, Any]]] = defaultdict(list)
    for file in files:
        for case in read_json(file)["cases"]:
            found[case["gate"], _sizes(case), case["order"], case["backward"]].append(case)
    odd = [key for key, cases in found.items() if len(cases) != len(files)]
    if odd:
        raise SystemExit(f"{len(odd)} cells are not in every file, the first is {odd[0]}.")
    numbers = ("ratio", "ours_ms", "peer_ms")
    return {
        key: {
            "peer": cases[0]["peer"],
            **{name: statistics.median(case[name] for case in cases) for name in numbers},
        }
        for key, cases in found.items()
    }


def _by_gate(cells: Cells) -> list[list[str]]:
    """Return the rows: time of the peer by ours, forward and with backward, and the lowest cell."""
    rows = []
    for gate in dict.fromkeys(key[0] for key in cells):
        mine = {key: cell for key, cell in cells.items() if key[0] == gate}
        lowest = min(mine, key=lambda key: mine[key]["ratio"])
        peer = mine[lowest]["peer"]
        both = [_total(cell for key, cell in mine.items() if key[3] == b) for b in (False, True)]
        rows.append(
            [
                f"`{gate}`",
                "formula" if peer == "plain" else peer,
                *(f"{ratio:.2f}" for ratio in both),
                f"{mine[lowest]['ratio']:.2f} ({_named(lowest)})",
            ]
        )
    return rows


def _summary(cells: Cells) -> str:
    least, listed = SETTINGS["least"], SETTINGS["listed"]
    below = {key: cell["ratio"] for key, cell in cells.items() if cell["ratio"] < least}
    gates = {key[0] for key in cells}
    text = f"All {len(gates)} gates together {_total(cells.values()):.2f}"
    if len(gates) > 1 and "gam" in gates:
        others = _total(cell for key, cell in cells.items() if key[0] != "gam")
        text += (
            f", most of which is the time of `gam`'s large convolutions; without `gam` {others:.2f}"
        )
    text += f". Of {len(cells)} cells {len(below)} are below {least}"
    names = "; ".join(
        f"`{key[0]}` {_named(key)} {ratio:.2f}"
        for key, ratio in sorted(below.items(), key=lambda entry: entry[1])
        if ratio < listed
    )
    return text + (f", and below {listed}: {names}." if names else ".")


def _total(cells: Iterable[dict[str, Any]]) -> float:
    """Divide the time of all peers by that of all of ours."""
    times = [(cell["peer_ms"], cell["ours_ms"]) for cell in cells]
    return sum(peer for peer, _ in times) / sum(ours for _, ours in times)


def _sizes(case: dict[str, Any]) -> str:
    return "×".join(map(str, case["shape"]))


def _named(key: tuple[str, str, str, bool]) -> str:
    _, shape, order, backward = key
    return f"{shape}, {order}, {'with backward' if backward else 'forward'}"
