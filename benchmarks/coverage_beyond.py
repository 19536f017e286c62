"""Discovery and insertion on small networks of packages other than timm, against an independent
truth.

    python benchmarks/coverage_beyond.py                        # all whose package is installed
    python benchmarks/coverage_beyond.py --only 'detection|yolo'
    python benchmarks/coverage_beyond.py --json out.json        # a second run continues it
    python benchmarks/coverage_beyond.py --markdown docs/coverage-beyond.md

Per network: the expected steps (`coverage_beyond_truth.json`, made from the packages' sources by
`coverage_beyond_truth.py` before discovery was run), the steps that `attnlab.steps` finds,
and whether inserting a gate at all of them that take one keeps the output (start="identity") and
the original state-dict keys and values. "at k of n" means that the other sites are refused, for the
reason given.

Discovery is right when the number of steps, their order, the module that owns each, their kinds and
their stages are all as expected. "other" means: exactly one of the other readings that the truth
accepts, for a reason given there. A package that is not installed is skipped and named.

How far the figures go: the rules were written with these networks at hand and changed until they
fitted, so this is not a test on unseen networks. The truth was classified first, with one
exception: the row of EncodecModel was corrected after discovery had disagreed with it (3 steps
before, 6 now). Its codebooks start at zero, so that every signal had the same code and the
decoder's sums looked constant. By the truth as it was, discovery is right on one network fewer,
and the rules before these were right on 171. The output counts as kept up to 1e-5, relative; it
was 1e-6 until VQModel came out at 1.2e-6, where a gate changes the order in memory and a norm
sums in another order.
All runs have two images: for one, sums of other shapes can look alike. That gave every YOLO a false
step, which has been fixed since; the other networks were not judged on a single image.
"""

from __future__ import annotations

import gc
import importlib.util
import json
import re
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import torch
import tyro
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))
from coverage import differences, machine, tensors, write
from coverage_beyond_networks import Network, built, networks
from coverage_beyond_truth import call, version

from attnlab._errors import AttnlabError, SelectionError, StepsNotFoundError
from attnlab.residuals import Site, Step
from attnlab.residuals.steps import steps
from attnlab.surgery.insertion.insert import insert

TRUTH = Path(__file__).with_name("coverage_beyond_truth.json")
SAME_OUTPUT = 1e-5
"""Largest relative difference of the output that identity insertion may make in float32. Not zero:
a gate can change the order in memory, and with it the order in which a norm sums."""
WHY = {
    (
        "monai",
        "MedNeXt",
    ): "on the innermost level of this U-Net, which adds what it skipped, the sum "
    "is x + up(f(down(x))); only that the other levels do the same tells it from a residual step"
}
"""Why discovery goes wrong, where that is known."""


@dataclass
class Row:
    """What was expected of one network, and what happened."""

    package: str
    group: str
    network: str
    expected: int
    found: int = 0
    discovery: str = "wrong"
    """right, other, or wrong."""
    insertion: str = "-"
    output_change: float | None = None
    seconds: float = 0.0
    reason: str = ""
    differences: list[str] = field(default_factory=list)


def judge_discovery(row: Row, truth: dict[str, Any], found: list[Step]) -> None:
    row.found = len(found)
    row.differences = differences(truth, found)
    if not row.differences:
        row.discovery = "right"
        return
    for reading in truth["accepted"]:
        if not differences(reading, found):
            row.discovery, row.reason = "other", "; ".join(reading["because"])


def judge_insertion(row: Row, model: nn.Module, example: Any, gate: str) -> None:
    before = {name: value.clone() for name, value in model.state_dict().items()}
    plain = outputs(model, example)
    refusals = []

    def takes_a_gate(site: Site) -> bool:
        if site.refusal:
            refusals.append(site.refusal)
        return not site.refusal

    try:
        gated, receipt = insert(model, gate, where=takes_a_gate, example=example, start="identity")
    except SelectionError:
        row.insertion, row.reason = f"at 0 of {row.found}", refusals[0]
        return
    row.insertion = f"at {len(receipt.sites)} of {row.found}" if refusals else "ok"
    wrong = []
    if len(receipt.sites) + len(refusals) != row.found:
        wrong.append(f"{len(receipt.sites)} gates for {row.found} steps")
    same, after = outputs(gated, example), gated.state_dict()
    if not plain or [each.shape for each in same] != [each.shape for each in plain]:
        wrong.append("nothing to compare in the output")
    else:
        row.output_change = max(map(change, same, plain))
        if not row.output_change <= SAME_OUTPUT:
            wrong.append(f"output changed by {row.output_change:.1e}")
    if not all(name in after and same_values(after[name], before[name]) for name in before):
        wrong.append("keys or values of the state dict changed")
    if wrong:
        row.insertion = "failed"
    row.reason = "; ".join(part for part in [row.reason, *refusals[:1], *wrong] if part)


def outputs(model: nn.Module, example: Any) -> list[torch.Tensor]:
    """The tensors of the output, drawn from the same random numbers each time."""
    torch.manual_seed(1)
    with torch.no_grad():
        return tensors(call(model, example))


def change(a: torch.Tensor, b: torch.Tensor) -> float:
    """The largest difference relative to the largest value; boxes of no object differ by nothing,
    and what is infinite or undefined must stay so."""
    if not a.is_floating_point() or not a.numel():
        return 0.0 if torch.equal(a, b) else float("inf")
    if not torch.equal(a.isfinite(), b.isfinite()):
        return float("inf")
    a, b = a[a.isfinite()], b[b.isfinite()]
    return float((a - b).abs().max() / b.abs().max().clamp_min(1e-12)) if a.numel() else 0.0


def same_values(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.shape == b.shape and torch.equal(a.nan_to_num(), b.nan_to_num())


def judge(network: Network, truth: dict[str, Any], gate: str) -> Row:
    row = Row(network.package, network.group, network.name, truth["steps"])
    start = time.perf_counter()
    try:
        model, example = built(network), network.example()
        try:
            found = steps(model, example)
        except StepsNotFoundError:
            found = []
        judge_discovery(row, truth, found)
        if found:
            judge_insertion(row, model, example, gate)
    except AttnlabError as error:
        row.insertion, row.reason = "refused", str(error).splitlines()[0]
    except Exception as error:
        text = str(error).splitlines() or [""]
        row.insertion, row.reason = "failed", f"{type(error).__name__}: {text[0]}"
    row.seconds = round(time.perf_counter() - start, 2)
    gc.collect()
    return row


def share(rows: list[Row], *kinds: str) -> str:
    right = sum(row.discovery in kinds for row in rows)
    return f"{right} ({100 * right / len(rows):.1f} %)"


def totals(rows: list[Row]) -> Iterator[str]:
    with_steps = [row for row in rows if row.expected]
    without = [row for row in rows if not row.expected]
    for what, some in (("networks", rows), ("of them with steps", with_steps)):
        if some:
            yield (
                f"{len(some)} {what}: discovery right on {share(some, 'right')}, "
                f"{share(some, 'right', 'other')} with the other accepted readings"
            )
    if without:
        yield f"{len(without)} without steps: right on {share(without, 'right')}"
    yield f"{sum(row.expected for row in rows)} steps expected, {sum(r.found for r in rows)} found"
    tried = [row for row in rows if row.found]
    partly = sum(row.insertion.startswith("at ") for row in tried)
    yield (
        f"{len(tried)} networks with found steps: insertion works at every step of "
        f"{sum(row.insertion == 'ok' for row in tried)}, at some of {partly}; "
        f"something is wrong with {sum(row.insertion == 'failed' for row in tried)}"
    )


def by_package(rows: list[Row], versions: dict[str, str]) -> Iterator[str]:
    yield "| package | networks | right | other accepted reading | wrong |"
    yield "|---|---|---|---|---|"
    for package in dict.fromkeys(row.package for row in rows):
        own = [row.discovery for row in rows if row.package == package]
        counts = " | ".join(str(own.count(kind)) for kind in ("right", "other", "wrong"))
        yield f"| {package} {versions[package]} | {len(own)} | {counts} |"


COLUMNS = "package, for, network, steps, found, discovery, insertion, Δoutput, s, note"
WIDTHS = (28, 14, 36, 4, 4, 6, 12, 6, 5, 0)


def cells(row: Row) -> list[str]:
    moved = "-" if row.output_change is None else f"{row.output_change:.0e}"
    return [
        *(row.package, row.group, row.network, str(row.expected), str(row.found), row.discovery),
        *(row.insertion, moved, f"{row.seconds:.1f}", row.reason),
    ]


def markdown(rows: list[Row], skipped: list[str], versions: dict[str, str], gate: str) -> str:
    wrong = [row for row in rows if row.discovery != "right"]
    header = COLUMNS.split(", ")
    lines = [
        "# Coverage beyond timm",
        "",
        "Per network" + __doc__.partition("Per network")[2].rstrip(),
        "",
        "[What a step is](explanation/steps.md) says by which rules.",
        "",
        f"Gate `{gate}`, random weights, small networks. Measured {machine()}.",
        "Made by `python benchmarks/coverage_beyond.py --markdown docs/coverage-beyond.md`.",
        "",
        *(f"- {line}" for line in totals(rows)),
        *(f"- skipped: {line}" for line in skipped),
        "",
        *by_package(rows, versions),
        "",
        "## Not as expected",
        "",
        "`-` is a step that was not found, `+` an addition that is taken for one.",
        "",
    ]
    for row in wrong:
        why = row.reason or WHY.get((row.package, row.network), "not known why")
        lines += [f"**{row.package} {row.network}** ({row.discovery}): {why}."]
        lines += ["", *(f"    {line}" for line in row.differences), ""]
    lines += ["## All networks", "", "| " + " | ".join(header) + " |", "|---" * len(header) + "|"]
    lines += ["| " + " | ".join(c.replace("|", "\\|") for c in cells(row)) + " |" for row in rows]
    return "\n".join([*lines, ""])


def main(
    only: str = "",
    gate: str = "se",
    json_path: Annotated[Path | None, tyro.conf.arg(name="json")] = None,
    markdown_path: Annotated[Path | None, tyro.conf.arg(name="markdown")] = None,
) -> None:
    """Print the table for the networks that match, and the totals.

    Args:
        only: regular expression on package, purpose and name
        gate: the gate to insert
        json_path: write the rows here after each network; rows that are there already are kept
        markdown_path: write the page here at the end
    """
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    stored = json.loads(TRUTH.read_text())
    truth = {(each["package"], each["network"]): each for each in stored["networks"]}
    missing = [p for p in stored["packages"] if importlib.util.find_spec(p) is None]
    skipped = [f"{package}, which is not installed" for package in missing]
    versions = {p: version(p) for p in stored["packages"] if p not in missing}
    for package, made_with in stored["packages"].items():
        if versions.get(package, made_with) != made_with:
            skipped.append(f"nothing, but the truth was made with {package} {made_with}")
    print(*skipped, sep="\n")
    done: dict[tuple[str, str], Row] = {}
    if json_path and json_path.exists():
        rows = [Row(**row) for row in json.loads(json_path.read_text())]
        done = {(row.package, row.network): row for row in rows}
    shown: list[Row] = []
    for network in networks():
        key = (network.package, network.name)
        name = f"{network.package} {network.group} {network.name}"
        if network.package in missing or not re.search(only, name):
            continue
        row = done[key] = done.get(key) or judge(network, truth[key], gate)
        shown.append(row)
        print("  ".join(f"{c:{w}}" for c, w in zip(cells(row), WIDTHS, strict=True)), flush=True)
        for line in row.differences if row.discovery == "wrong" else []:
            print("      ", line)
        if json_path:
            write(json_path, json.dumps([asdict(each) for each in done.values()], indent=1))
    print(*totals(shown), sep="\n")
    if markdown_path:
        write(markdown_path, markdown(shown, skipped, versions, gate))


if __name__ == "__main__":
    tyro.cli(main)
