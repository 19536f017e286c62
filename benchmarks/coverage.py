"""Discovery and insertion on one small network of every timm family, against an independent truth.

    python benchmarks/coverage.py                          # all of them
    python benchmarks/coverage.py --family 'swin|vit'      # a pattern for family and model
    python benchmarks/coverage.py --json out.json          # also as data; a second run continues it
    python benchmarks/coverage.py --markdown docs/coverage.md

Per network: the expected steps (`coverage_truth.json`, made from timm's sources by
`coverage_truth.py`), the steps that `attnlab.steps` finds, and whether insertion of a gate
on all of them keeps the output (start="identity") and the original state-dict keys and values, runs
forward and backward in training mode, and gets a gradient to every gate. Weights are random and
nowhere exactly zero, and stochastic depth is off: both would keep gradients from a gate.
"partial" means that insertion everywhere is refused, with the reason, and works at the other sites.

Discovery is right when the number of steps, their order, the module that owns each, their kinds
and their stages are all as expected. "other" means: exactly one of the other readings that the
truth accepts, for a reason given there.
"""

from __future__ import annotations

import gc
import json
import os
import platform
import re
import time
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from datetime import date
from math import prod
from pathlib import Path
from typing import Annotated, Any

import timm
import torch
import tyro
from timm.layers import DropPath
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from attnlab._errors import AttnlabError, SiteError, StepsNotFoundError
from attnlab.residuals import Step
from attnlab.residuals.steps import steps
from attnlab.surgery.insertion import attachments
from attnlab.surgery.insertion.insert import insert

TRUTH = Path(__file__).with_name("coverage_truth.json")
BATCH = 2
SAME_OUTPUT = 1e-6
"""Largest relative difference of the output that identity insertion may make in float32."""


@dataclass
class Row:
    """What was expected of one network, and what happened."""

    family: str
    model: str
    expected: int
    found: int = 0
    discovery: str = "wrong"
    """right, other, or wrong."""
    insertion: str = "-"
    """ok; partial: refused, but works at the sites that were not; failed; refused; - where there is
    nothing to insert into."""
    output_change: float | None = None
    forward: bool = False
    backward: bool = False
    keys_kept: bool = False
    slots: int = 0
    additions: int = 0
    seconds: float = 0.0
    reason: str = ""
    """Why a network was refused, or what is wrong with the discovery or the insertion."""
    differences: list[str] = field(default_factory=list)


def build(network: dict[str, Any]) -> nn.Module:
    """The network with random weights, none of them zero: a branch that starts at zero (zero-init
    norms, tiny layer scales) would hand its gate no gradient, whatever the insertion does."""
    torch.manual_seed(0)
    model = timm.create_model(network["model"], pretrained=False, **network["options"])
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.02)
    return model.eval()


def described(found: list[Step], batch: int) -> dict[str, Any]:
    """The found steps in the terms of the truth."""
    stages: dict[int, int] = {}
    for step in found:
        stages[step.stage] = stages.get(step.stage, 0) + 1
    return {
        "sequence": [f"{s.owner} {s.kind} {prod(s.shape) // batch}" for s in found],
        "stages": list(stages.values()),
    }


def differences(expected: dict[str, Any], found: list[Step]) -> list[str]:
    """What is missing (-), what is too much (+), and stages that differ."""
    got = described(found, BATCH)
    missing, extra = list(expected["sequence"]), []
    for line, step in zip(got["sequence"], found, strict=True):
        if line in missing:
            missing.remove(line)
        else:
            extra.append(f"+ {line} ({step.source})")
    lines = [f"- {line}" for line in missing] + extra
    if not lines and got["sequence"] != expected["sequence"]:
        lines = ["the order of the steps differs"]
    if got["stages"] != expected["stages"]:
        lines.append(f"stages {got['stages']} instead of {expected['stages']}")
    return lines


def judge_discovery(row: Row, network: dict[str, Any], found: list[Step]) -> None:
    row.found = len(found)
    row.differences = differences(network, found)
    if not row.differences:
        row.discovery = "right"
        return
    for reading in network["accepted"]:
        if not differences(reading, found):
            row.discovery = "other"
            row.reason = "; ".join(reading["because"])
            return
    row.reason = f"{len(row.differences)} differences, first: {row.differences[0]}"


def tensors(output: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(output) if isinstance(leaf, Tensor)]


def judge_insertion(row: Row, model: nn.Module, example: Tensor, gate: str) -> None:
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with torch.no_grad():
        plain = tensors(model(example))
    wrong = []
    try:
        gated, _ = insert(model, gate, example=example, start="identity")
        row.insertion = "ok"
    except SiteError as error:
        row.insertion = "partial"
        wrong += [line.strip() for line in str(error).splitlines()[:2]]
        gated, _ = insert(
            model, gate, where=lambda site: not site.refusal, example=example, start="identity"
        )
    attached = dict(attachments(gated))
    row.slots = sum(attachment.site.host == "output" for attachment in attached.values())
    row.additions = len(attached) - row.slots
    if row.insertion == "ok" and len(attached) != row.found:
        wrong.append(f"{len(attached)} gates for {row.found} steps")
    with torch.no_grad():
        same = tensors(gated(example))
    row.output_change = max(
        float((a - b).abs().max() / b.abs().max().clamp_min(1e-12))
        for a, b in zip(same, plain, strict=True)
    )
    if row.output_change > SAME_OUTPUT:
        wrong.append(f"output changed by {row.output_change:.1e}")
    after = gated.state_dict()
    row.keys_kept = all(
        name in after and torch.equal(after[name], value) for name, value in before.items()
    )
    if not row.keys_kept:
        wrong.append("keys or values of the state dict changed")
    gated.train()
    for module in gated.modules():
        if isinstance(module, DropPath):
            module.drop_prob = 0.0  # a branch dropped for the whole batch has no gradient
    outputs = [output.float() for output in tensors(gated(example))]
    row.forward = all(bool(output.isfinite().all()) for output in outputs)
    if not row.forward:
        wrong.append("output not finite")
    torch.stack([(output * torch.randn_like(output)).sum() for output in outputs]).sum().backward()
    unreached = [name for name, module in attached.items() if not gradient_reaches(module)]
    row.backward = not unreached
    if unreached:
        wrong.append(f"no gradient at {len(unreached)} of {len(attached)}, e.g. {unreached[0]}")
    if wrong:
        row.insertion = "failed" if row.insertion == "ok" else row.insertion
        row.reason = "; ".join([row.reason, *wrong] if row.reason else wrong)


def gradient_reaches(gate: nn.Module) -> bool:
    gradients = [p.grad for p in gate.parameters() if p.grad is not None]
    return any(bool(g.isfinite().all()) and float(g.abs().max()) > 0 for g in gradients)


def judge(network: dict[str, Any], gate: str) -> Row:
    row = Row(network["family"], network["model"], network["steps"])
    start = time.perf_counter()
    try:
        model = build(network)
        example = torch.randn(BATCH, *network["input"])
        try:
            found = steps(model, example)
        except StepsNotFoundError as error:
            judge_discovery(row, network, [])
            row.insertion = "-" if row.expected == 0 else "refused"
            row.reason = row.reason or str(error).split(". ")[0]
        else:
            judge_discovery(row, network, found)
            judge_insertion(row, model, example, gate)
    except AttnlabError as error:
        row.insertion, row.reason = "refused", str(error).splitlines()[0]
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        row.insertion = "failed"
        row.reason = (
            f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''} "
            f"({Path(place.filename).name}:{place.lineno})"
        )
    row.seconds = round(time.perf_counter() - start, 2)
    gc.collect()
    return row


COLUMNS = "family, network, steps, found, discovery, insertion, Δoutput, forward, backward, keys, "
COLUMNS += "slot, add, s, reason"


def cells(row: Row) -> list[str]:
    tried = row.insertion in ("ok", "partial", "failed")

    def flag(value: bool) -> str:
        return ("yes" if value else "no") if tried else "-"

    change = "-" if row.output_change is None else f"{row.output_change:.0e}"
    return [
        *(row.family, row.model, str(row.expected), str(row.found), row.discovery, row.insertion),
        *(change, flag(row.forward), flag(row.backward), flag(row.keys_kept)),
        *(str(row.slots), str(row.additions), f"{row.seconds:.1f}", row.reason),
    ]


def totals(rows: list[Row]) -> Iterator[str]:
    """The summary, by network and by family (a family counts when all its networks do)."""
    with_steps = [row for row in rows if row.expected]
    for what, group in (("networks", None), ("families", "family")):
        names = {row.family if group else row.model for row in with_steps}

        def bad(condition: Any, group: str | None = group) -> set[str]:
            return {row.family if group else row.model for row in with_steps if not condition(row)}

        strict = len(names) - len(bad(lambda row: row.discovery == "right"))
        either = len(names) - len(bad(lambda row: row.discovery != "wrong"))
        ok = len(names) - len(bad(lambda row: row.insertion == "ok"))
        yield (
            f"{len(names)} {what} with steps: discovery right on {strict} "
            f"({either} with the other accepted readings), insertion works on {ok}"
        )
    without = [row for row in rows if not row.expected]
    refused = sum(row.found == 0 for row in without)
    yield f"{len(without)} networks without steps: {refused} refused with a reason"
    yield f"{sum(row.expected for row in rows)} steps expected, {sum(r.found for r in rows)} found"


def machine() -> str:
    names = re.findall(r"model name\s*:\s*(.*)", Path("/proc/cpuinfo").read_text()) or ["?"]
    return (
        f"{date.today()}, {names[0]} ({os.cpu_count()} cores, 1 thread used), "
        f"{platform.system()}, Python {platform.python_version()}, torch {torch.__version__}, "
        f"timm {timm.__version__}"
    )


def markdown(rows: list[Row], gate: str) -> str:
    header = COLUMNS.split(", ")
    lines = [
        "# Coverage of timm",
        "",
        "Per network" + __doc__.partition("Per network")[2].rstrip(),
        "",
        f"Gate `{gate}`, random weights, batch {BATCH}. Measured {machine()}.",
        "Made by `python benchmarks/coverage.py --markdown docs/coverage.md`.",
        "",
        *(f"- {line}" for line in totals(rows)),
        "",
        "| " + " | ".join(header) + " |",
        "|" + "---|" * len(header),
        *("| " + " | ".join(c.replace("|", "\\|") for c in cells(row)) + " |" for row in rows),
        "",
    ]
    return "\n".join(lines)


def write(path: Path, text: str) -> None:
    partial = path.with_name(path.name + ".partial")
    partial.write_text(text)
    partial.replace(path)


def main(
    family: str = "",
    gate: str = "se",
    json_path: Annotated[Path | None, tyro.conf.arg(name="json")] = None,
    markdown_path: Annotated[Path | None, tyro.conf.arg(name="markdown")] = None,
) -> None:
    """Print the table for the networks that match, and the totals.

    Args:
        family: regular expression on family and model name
        gate: the gate to insert
        json_path: write the rows here after each network; rows that are there already are kept
        markdown_path: write the page here at the end
    """
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    truth = json.loads(TRUTH.read_text())
    if truth["timm"] != timm.__version__:
        print(f"The truth was made with timm {truth['timm']}; this is timm {timm.__version__}.")
    done: dict[str, Row] = {}
    if json_path and json_path.exists():
        done = {row["model"]: Row(**row) for row in json.loads(json_path.read_text())["rows"]}
    rows = []
    for network in truth["networks"]:
        if not re.search(family, f"{network['family']} {network['model']}"):
            continue
        row = done.get(network["model"]) or judge(network, gate)
        rows.append(row)
        print("  ".join(f"{c:{w}}" for c, w in zip(cells(row), WIDTHS, strict=True)), flush=True)
        for line in row.differences if row.discovery == "wrong" else []:
            print("      ", line)
        if json_path:
            data = {"machine": machine(), "gate": gate, "rows": [asdict(row) for row in rows]}
            write(json_path, json.dumps(data, indent=1))
    print(*totals(rows), sep="\n")
    if markdown_path:
        write(markdown_path, markdown(rows, gate))


WIDTHS = (22, 32, 4, 4, 6, 8, 6, 3, 3, 3, 3, 3, 5, 0)

if __name__ == "__main__":
    tyro.cli(main)
