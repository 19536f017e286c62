"""`attnlab modules`: every gate, its paper, cost and ranks, whether it folds, its first value."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

from attnlab.cli._show import Justify, console, print_python, table

if TYPE_CHECKING:
    from rich.table import Table
    from torch import Tensor, nn

    from attnlab.gates import GateInfo

SIZES: tuple[tuple[int, int], ...] = ((64, 32), (128, 16), (256, 8))
"""Channels and side of the map in the three stages of a CIFAR ResNet with bottleneck blocks."""


@dataclass(frozen=True)
class ModuleRow:
    """What `attnlab modules` says about one gate."""

    name: str
    title: str
    paper: str
    form: str
    ranks: tuple[int, ...]
    """How many spatial axes its maps may have: 1 sequences and tokens, 2 images, 3 volumes."""
    parameters: tuple[int, ...]
    """Added at each of `SIZES`; for the form `stage`, once per stage."""
    macs: tuple[int, ...]
    """Of convolutions and matrix products, per image and block, at each of `SIZES`."""
    initial_gate: float
    """Mean first value on standard normal features, C = 64, seed 0."""
    initial_gate_deviation: float
    """Its standard deviation over images, channels and pixels."""
    folds: bool
    """Whether it can be folded to nothing: as it is, or as "asr:name", the same module on a learned
    vector."""
    folds_as: str
    """Its name in the form that folds; empty if there is none."""
    why_not: str


def rows(match: str = "") -> list[ModuleRow]:
    """The gates of the registry, built and run once at each of `SIZES`.

    With `match`, those with this text in their name, title or paper, in capitals or not.
    """
    from attnlab._errors import UnknownNameError, nearest
    from attnlab.gates import GATES

    wanted = match.strip().lower()
    chosen = [
        info
        for info in GATES.values()
        if any(wanted in text.lower() for text in (info.name, info.title, info.paper))
    ]
    if not chosen:
        raise UnknownNameError(
            f"No gate has {match!r} in its name, title or paper.{nearest(match, GATES)} "
            "`attnlab modules` lists all."
        )
    return [_row(info) for info in chosen]


def modules(match: str = "", json: bool = False) -> None:
    """List every gate: paper, form, ranks, parameters, MACs, whether it folds, its first value.

    Examples:
      attnlab modules
      attnlab modules --match excitation
      attnlab modules --json > gates.json

    Args:
        match: only gates with this text in their name, title or paper.
        json: print JSON instead of a table.
    """
    found = rows(match)
    if json:
        print(_as_json(found))
        return
    sizes = ", ".join(f"{channels}×{side}×{side}" for channels, side in SIZES)
    console().print(_table(found, f"Per gate, for maps of {sizes}"))
    _print_notes(found)
    print()
    print_python("from attnlab.cli.modules import rows", f"rows({match!r})" if match else "rows()")


def _table(found: list[ModuleRow], title: str) -> Table:
    columns: tuple[tuple[str, Justify], ...] = (
        ("name", "left"),
        ("paper", "left"),
        ("form", "left"),
        ("ranks", "left"),
        ("parameters", "right"),
        ("MACs", "right"),
        ("folds as", "left"),
        ("first gate", "left"),
    )
    cells = [
        (
            row.name,
            row.paper,
            row.form,
            " ".join(map(str, row.ranks)),
            " ".join(f"{count:,}" for count in row.parameters),
            " ".join(f"{n:,}" if n < 1e6 else f"{n / 1e6:.1f}M" for n in row.macs),
            row.folds_as or "no",
            _gate(row),
        )
        for row in found
    ]
    return table(columns, cells, title=title)


def _print_notes(found: list[ModuleRow]) -> None:
    """What the columns mean, and why some gates have no form that folds."""
    print("form   branch reads f(x_t); step reads x_t and x_t + f(x_t); stage is one module per")
    print("       stage that hands a memory from block to block; norm replaces every BatchNorm2d.")
    print("ranks  spatial axes of its maps: 1 sequences and tokens, 2 images, 3 volumes and video.")
    print(
        "MACs   of convolutions and matrix products, per image; element-wise work is not counted."
    )
    print("asr:   the module on a learned vector: C more parameters per site while it trains, none")
    print("       after folding. 'asr:se*2' multiplies two of them, 'asr:se+se' is both kinds.")
    reasons: dict[str, list[str]] = {}
    for row in found:
        reasons.setdefault(row.why_not, []).append(f"asr:{row.name}")
    for reason, names in reasons.items():
        if reason:
            print(f"no {', '.join(names)}: {reason}.")


def _gate(row: ModuleRow) -> str:
    if row.initial_gate_deviation < 1e-6:
        return f"{row.initial_gate:.3f}"
    return f"{row.initial_gate:.3f} ± {row.initial_gate_deviation:.3f}"


def _as_json(found: list[ModuleRow]) -> str:
    import json

    sizes = [{"channels": channels, "side": side} for channels, side in SIZES]
    document = {"sizes": sizes, "gates": [dataclasses.asdict(row) for row in found]}
    return json.dumps(document, indent=2, ensure_ascii=False)


def _row(info: GateInfo) -> ModuleRow:
    counts = [_count(info, channels, side) for channels, side in SIZES]
    mean, deviation = _first_value(info)
    folds_as = f"asr:{info.name}" if info.on_vector else info.name if info.constant else ""
    return ModuleRow(
        name=info.name,
        title=info.title,
        paper=info.paper,
        form=info.form,
        ranks=_ranks(info),
        parameters=tuple(parameters for parameters, _ in counts),
        macs=tuple(macs for _, macs in counts),
        initial_gate=mean,
        initial_gate_deviation=deviation,
        folds=bool(folds_as),
        folds_as=folds_as,
        why_not=info.not_on_vector,
    )


def _ranks(info: GateInfo) -> tuple[int, ...]:
    """Return the ranks of the gate with its default options; a norm is torch's own, of images."""
    from attnlab.gates import Gate

    gate = info.build(SIZES[0][0])
    return gate.ranks if isinstance(gate, Gate) else (2,)


def _build(info: GateInfo, channels: int) -> nn.Module:
    """The gate itself; of a norm, the gate inside it."""
    from attnlab.gates import InstanceEnhancementBatchNorm

    module = info.build(channels).eval()
    return module.gate if isinstance(module, InstanceEnhancementBatchNorm) else module


def _value(gate: nn.Module, features: Tensor) -> Tensor:
    import torch

    from attnlab.gates import StageGate, StepGate

    if isinstance(gate, StepGate):
        return gate(torch.roll(features, 1, dims=0), features)
    if isinstance(gate, StageGate):
        return gate(features, None)[0]
    return gate(features)


def _count(info: GateInfo, channels: int, side: int) -> tuple[int, int]:
    import torch

    from attnlab.residuals.example import MacCounter

    gate = _build(info, channels)
    with torch.no_grad(), MacCounter() as counter:
        _value(gate, torch.zeros(1, channels, side, side))
    return sum(parameter.numel() for parameter in gate.parameters()), counter.macs


def _first_value(info: GateInfo) -> tuple[float, float]:
    import torch

    channels, side = SIZES[0]
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        gate = _build(info, channels)
        value = _value(gate, torch.randn(16, channels, side, side)).double()
    return float(value.mean()), float(value.std(correction=0))
