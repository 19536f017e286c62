"""Whether gates act on exactly the branches, and at how many steps of real networks they fold."""

from __future__ import annotations

import gc
import re
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

import attnlab
from attnlab._errors import AttnlabError
from attnlab.surgery.insertion import attachments
from attnlab.surgery.insertion.insert import insert
from benchmarks._common import Table, read_json, write_json
from benchmarks.coverage.networks import Network, chosen, collection
from benchmarks.coverage.truth import Addition, listened

LIBRARIES = ("timm", "torchvision", "ultralytics", "transformers")
Library = Literal["timm", "torchvision", "ultralytics", "transformers"]


def _sums(model: nn.Module, example: Any) -> list[tuple[str, bool]]:
    """Return for each step in one run its owner and text, and whether the sum is an operand."""
    seen: list[tuple[str, bool]] = []

    def compare(addition: Addition, a: Tensor, b: Tensor, total: Tensor) -> None:
        unchanged = torch.equal(total, a) or torch.equal(total, b)
        seen.append((f"{addition.owner} ({addition.text})", unchanged))

    listened(model, example, compare)
    return seen


def _misplaced(network: Network, steps: int) -> list[str]:
    """Return the steps that still move with all step sizes zero, or that never moved."""
    model, example = network.stirred(), network.example()
    gated, _ = insert(
        model, "se", where=lambda site: not site.refusal, example=example, start="identity"
    )
    first = _sums(gated, example)
    if len(first) != steps:
        return [f"{len(first)} additions ran"]
    still = [name for name, unchanged in first if unchanged]
    refused = steps - len(list(attachments(gated)))
    for _, attachment in attachments(gated):
        assert attachment.scale is not None
        attachment.scale.zero_()
    moving = [name for name, unchanged in _sums(gated, example) if not unchanged]
    if len(moving) == refused:
        moving = []
    return [f"no branch at {name}" for name in still] + [f"not gated: {name}" for name in moving]


def placement(only: str = "", json: Path = Path("out/coverage-placement.json")) -> None:
    """Check that inserted gates act on exactly the branches of timm's networks.

    With all step sizes zero, every residual step must hand on its shortcut unchanged: at each
    addition that timm's sources say is a step, the sum must equal one operand bit for bit when the
    step sizes are zero, and must not when they are one.

    Args:
        only: a pattern for package, family and name.
        json: where the problems are written.
    """
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    found: dict[str, list[str]] = {}
    for network in chosen(collection("timm").networks, only):
        assert network.expected is not None
        if not network.expected.reading.steps:
            continue
        try:
            found[network.network] = _misplaced(network, network.expected.reading.steps)
        except AttnlabError as error:
            found[network.network] = [str(error).splitlines()[0]]
    wrong = {name: problems for name, problems in found.items() if problems}
    rows = [[name, str(len(problems)), str(problems[:3])] for name, problems in wrong.items()]
    title = f"Gates on exactly the branches of {len(found) - len(wrong)} networks, not on"
    Table(title, ["network", "steps", "the first"], rows).print()
    write_json(json, {"problems": found})


@dataclass
class FoldedShare:
    """What folded of one network."""

    library: str
    network: str
    steps: int = 0
    plainly: int = 0
    branch: int = 0
    auto: int = 0
    worst: float = 0.0
    """The largest error at a site, in float64."""
    reasons: dict[str, int] = field(default_factory=dict)
    """Why the others stay, by the default place."""


def _example(network: Network, model: nn.Module) -> tuple[Any, int]:
    """Return an input of one image, of 96 pixels if the network takes it and has the expected steps
    on it; and the number of steps."""
    if network.package == "timm" and network.expected is not None:
        channels, *_ = network.input["normal"]
        small = replace(network, input={"normal": [channels, 96, 96]}).example(batch=1)
        try:
            found = len(attnlab.steps(model, small))
        except AttnlabError:
            found = -1
        if found == network.expected.reading.steps:
            return small, found
    # Some of transformers normalise one pixel of a small image, which one image alone cannot.
    example = network.example(batch=2 if network.package == "transformers" else 1)
    return example, len(attnlab.steps(model, example))


def _fold_everywhere(row: FoldedShare, network: Network) -> None:
    model = network.stirred()
    example, row.steps = _example(network, model)
    for place in ("branch", "auto"):
        gated, _ = attnlab.insert(
            model, "asr:se", where=lambda site: not site.refusal, place=place, example=example
        )
        receipt = attnlab.fold(gated, partial=True, add_affine=True, example=example)[1]
        folded = [site for site in receipt.rows if site.into and not site.kept]
        row.worst = max([row.worst, *(site.error or 0.0 for site in folded)])
        if place == "branch":
            row.plainly = sum(not site.undone_by for site in folded)
            row.branch = len(folded)
            continue
        row.auto = len(folded)
        reasons = [re.sub(r"'[^']*'", "…", site.kept) for site in receipt.kept]
        missing = row.steps - len(receipt.rows)
        row.reasons = dict(Counter([*reasons, *["no gate can act there"] * missing]))


def _shares(rows: list[FoldedShare]) -> Iterator[list[str]]:
    """Yield one row per library."""
    for library in dict.fromkeys(row.library for row in rows):
        own = [row for row in rows if row.library == library]
        steps = sum(row.steps for row in own)
        counts = [sum(getattr(row, name) for row in own) for name in ("plainly", "branch", "auto")]
        shown = [f"{n} ({100 * n / steps:.1f} %)" if steps else "-" for n in counts]
        worst = f"{max(row.worst for row in own):.0e}"
        yield [library, str(len(own)), str(steps), *shown, worst]


def fold_share(
    only: str = "",
    libraries: tuple[Library, ...] = LIBRARIES,
    json: Path = Path("out/coverage-fold-share.json"),
    resume: bool = False,
) -> None:
    """Count at how many residual steps of real networks ASR(SE) folds; an hour.

    `asr:se` is inserted at every step and folded with `partial=True` and `add_affine=True`. A gate
    counts as folded only in a network that was handed out, so one that was checked at every site in
    float64. "plainly": gates at the end of the branch, and no layer that divides by the gate, as
    attnlab 0.1 folded. "branch": the same place, now. "auto": where `insert` puts them by default.

    Args:
        only: a pattern for package, group and name.
        libraries: whose networks; those of Ultralytics if it is installed.
        json: where the rows are written after each network.
        resume: keep the rows that are there already.
    """
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    stored = read_json(json)["rows"] if resume and json.exists() else []
    done = {(row["library"], row["network"]): FoldedShare(**row) for row in stored}
    networks = [*collection("timm").networks, *collection("beyond").networks]
    networks = [n for n in networks if n.expected and n.expected.reading.steps]
    networks = [n for n in networks if n.package in ("timm", "transformers")]
    networks += collection("share").networks
    for network in chosen([n for n in networks if n.package in libraries], only):
        key = (network.package, network.network)
        if key in done:
            continue
        row = done[key] = FoldedShare(*key)
        try:
            _fold_everywhere(row, network)
        except AttnlabError as error:
            row.reasons = {str(error).splitlines()[0]: 1}
        if row.auto < row.steps or not row.steps:
            print(f"{row.network}: {row.auto} of {row.steps}, {row.reasons}", flush=True)
        write_json(json, {"rows": [asdict(each) for each in done.values()]})
        gc.collect()
    columns = ["library", "networks", "steps", "branch, plainly", "branch", "auto", "worst site"]
    Table("Where asr:se folds", columns, list(_shares(list(done.values())))).print()
