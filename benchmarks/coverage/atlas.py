"""The atlas of residual language networks: steps, which of them can go, and who looks ahead."""

from __future__ import annotations

import gc
import re
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from json import dumps
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import attnlab
from attnlab._errors import AttnlabError, SelectionError
from attnlab._files import write_whole
from attnlab.residuals import Step, Watchable, watchable
from attnlab.surgery.insertion import attachments
from attnlab.surgery.shortening.check import check_removal
from attnlab.surgery.shortening.operation import decide_removal, why_not
from benchmarks._common import Table, machine, read_json, settings, write_json
from benchmarks.coverage.networks import Network, call, chosen, collection, version
from benchmarks.coverage.table import differences_of


@dataclass
class Entry:
    """What was found in one family."""

    group: str
    """causal or encoder: by which head it was built."""
    family: str
    network: str
    expected: int
    found: int = 0
    forms: dict[str, int] = field(default_factory=dict)
    """What the steps carry, read and write, as formulas, and how many are so."""
    streams: int = 1
    gates: list[str] = field(default_factory=list)
    """What the network multiplies by in its steps, by its own name and role; `*` is a block."""
    discovery: str = "wrong"
    """right, other (a reading that the truth accepts too), or wrong."""
    stages: int = 0
    removable: int = 0
    """Steps that may go by themselves, before the check ..."""
    removal: str = ""
    """... and the check of one of them: exact, or why not."""
    foldable: int | None = None
    """Steps whose branch takes a constant gate in, exactly; None if it was not tried."""
    kept: str = ""
    """Why the first other step does not, or why no gate folds at all."""
    causal: bool | None = None
    """Whether no output depends on a later token, by changing the last one."""
    cpu_seconds: float = 0.0
    """Of one recorded run with its steps."""
    differences: list[str] = field(default_factory=list)

    @property
    def cells(self) -> list[str]:
        causal = "-" if self.causal is None else ("yes" if self.causal else "no")
        counts = [str(n) for n in (self.expected, self.found)]
        return [
            self.family,
            self.network,
            *counts,
            self.discovery,
            str(self.stages),
            f"{self.removable} of {self.found}",
            self.removal,
            f"{self.foldable} of {self.found}",
            ", ".join(f"`{form}`" for form in self.forms),
            causal,
            f"{self.cpu_seconds:.2f}",
        ]


COLUMNS = [
    "family",
    "network",
    "steps",
    "found",
    "discovery",
    "stages",
    "may go",
    "one removed",
    "fold",
    "update",
    "causal",
    "CPU s",
]


def _looks_ahead(model: nn.Module, example: dict[str, Tensor]) -> bool | None:
    """Whether an output at an earlier place changes with the last token; None if there is no output
    for every token."""
    tokens = example["input_ids"]
    other = {**example, "input_ids": tokens.clone()}
    other["input_ids"][:, -1] = (tokens[:, -1] + 1) % 90
    with torch.no_grad():
        before, after = (call(model, each)[0] for each in (example, other))
    if before.shape[:2] != tokens.shape:
        return None
    scale = before.abs().max()
    return bool((before[:, :-1] - after[:, :-1]).abs().max() > 1e-5 * scale)


def _removed(model: nn.Module, found: Watchable, steps: list[Step], example: Any) -> str:
    """The check of a removal of one of `steps`: the middle one, or the first other that passes."""
    if not steps:
        reasons = {why_not(model, found, step) for step in found.steps}
        return f"no: {min(reasons)}" if reasons else "no: no steps"
    middle = steps[len(steps) // 2]
    why = ""
    for step in (middle, *(each for each in steps if each is not middle)):
        try:
            error, precision = check_removal(
                model, decide_removal(model, [step], example), [step], example
            )
        except AttnlabError as refusal:
            why = why or str(refusal).partition(": ")[2].partition(". ")[0]
        else:
            return f"{'exact' if error == 0 else f'{error:.0e}'} ({precision})"
    return f"no: {why}"


def _entry(network: Network) -> Entry:
    assert network.expected is not None
    row = Entry(
        network.group,
        network.network,
        network.make.rpartition(".")[2],
        network.expected.reading.steps,
    )
    try:
        model, example = network.stirred(), network.example()
        began = time.process_time()
        found = watchable(model, example)
        row.cpu_seconds = round(time.process_time() - began, 2)
        steps = list(found.steps)
        row.forms = dict(Counter(str(step.form) for step in steps))
        row.streams = max((step.form.streams for step in steps), default=1)
        row.gates = _gates_of_blocks(found)
        row.found, row.stages = len(steps), max((step.stage for step in steps), default=0)
        row.differences = differences_of(network.expected.reading, steps)
        if not row.differences:
            row.discovery = "right"
        elif any(not differences_of(each, steps) for each in network.expected.accepted):
            row.discovery = "other"
        free = [step for step in steps if not why_not(model, found, step)]
        row.removable = len(free)
        row.removal = _removed(model, found, free, example)
        ahead = _looks_ahead(model, example)
        row.causal = None if ahead is None else not ahead
    except Exception as error:
        row.removal = f"no: {type(error).__name__}: {str(error).partition(chr(10))[0][:90]}"
    gc.collect()
    return row


def _fold(row: Entry, network: Network) -> None:
    """Insert a constant gate, with values as if trained, at every step that takes one, and fold."""
    row.foldable = 0
    try:
        model, example = network.stirred(), network.example()
        gated, _ = attnlab.insert(
            model, "asr:se", where=lambda site: not site.refusal, example=example
        )
        with torch.no_grad():
            for _, attachment in attachments(gated):
                for parameter in attachment.parameters():
                    parameter.add_(torch.randn_like(parameter), alpha=0.3)
        receipt = attnlab.fold(gated, partial=True, example=example)[1]
    except SelectionError:
        row.kept = "no step takes a gate: each runs several times"
    except Exception as error:
        row.kept = f"{type(error).__name__}: {str(error).partition(chr(10))[0][:150]}"
    else:
        row.foldable = len(receipt.sites)
        row.kept = next((site.kept for site in receipt.kept), "")
    gc.collect()


def _gates_of_blocks(found: Watchable) -> list[str]:
    """The names of what multiplies in the blocks, with `*` for the number of a block."""
    names = [gate.name for gate in found.gates if gate.kind == "product"]
    return list(dict.fromkeys(re.sub(r"\b\d+\b", "*", name) for name in names))


def _totals(rows: list[Entry]) -> Iterator[str]:
    for group in dict.fromkeys(row.group for row in rows):
        own = [row for row in rows if row.group == group]
        right = sum(row.discovery != "wrong" for row in own)
        everywhere = sum(bool(row.found) and row.foldable == row.found for row in own)
        goes = sum(not row.removal.startswith("no") for row in own)
        slowest = max(own, key=lambda row: row.cpu_seconds)
        yield (
            f"{group}: {len(own)} families; steps right in {right} ({100 * right / len(own):.1f} "
            f"%), a step can be removed in {goes} ({100 * goes / len(own):.1f} %), a constant "
            f"gate folds at every step in {everywhere} ({100 * everywhere / len(own):.1f} %); the "
            f"slowest took {slowest.cpu_seconds:.1f} CPU s ({slowest.family}); several streams in "
            f"{sum(row.streams > 1 for row in own)}, gates or scales of their own in "
            f"{sum(bool(row.gates) for row in own)}"
        )


def _page(rows: list[Entry]) -> str:
    about, of = settings("coverage")["language"], machine()
    lines = [f"# {about['title']}", "", about["text"].strip(), ""]
    lines += [
        f"Measured {of['date']}, {of['processor']}, one thread, Python {of['python']}, torch "
        f"{of['torch']}, transformers {version('transformers')}. Made by `python -m "
        f"benchmarks.coverage language --markdown {about['page']}`.",
        "",
    ]
    lines += [f"- {line}" for line in _totals(rows)]
    lines += ["", "## Not as expected", ""]
    lines += ["`-` is a step that was not found, `+` an addition that is taken for one.", ""]
    for row in [row for row in rows if row.discovery == "wrong"]:
        why = settings("coverage")["why"].get(row.family, "not known why")
        lines += [f"**{row.family}**: {why}.", ""]
        lines += [*(f"    {line}" for line in row.differences[:6]), ""]
    for group in dict.fromkeys(row.group for row in rows):
        cells = [row.cells for row in rows if row.group == group]
        lines += [f"## {group.capitalize()} networks", ""]
        lines += [Table("", COLUMNS, cells).markdown(), ""]
    return "\n".join(lines)


def language(
    only: str = "",
    json: Path = Path("out/coverage-language.json"),
    resume: bool = False,
    markdown: Path | None = None,
    atlas: Path | None = None,
) -> None:
    """Judge discovery and removal on a tiny network of every causal and encoder family of
    transformers that is built from its own configuration class.

    Args:
        only: a pattern for package, group and family.
        json: where the rows are written after each network.
        resume: keep the rows that are there already.
        markdown: write the page here at the end.
        atlas: write the rows here at the end, without times: the same on every machine.
    """
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    known = read_json(json)["rows"] if resume and json.exists() else []
    done = {(row["group"], row["family"]): Entry(**row) for row in known}
    rows = []
    for network in chosen(collection("language").networks, only):
        key = (network.group, network.network)
        row = done[key] = done.get(key) or _entry(network)
        if row.foldable is None:
            _fold(row, network)
        rows.append(row)
        folds = f"folds at {row.foldable}"
        print(f"{network.label}: {row.discovery}, {row.removal}, {folds}", flush=True)
        write_json(json, {"rows": [asdict(each) for each in done.values()]})
    print(*_totals(rows), sep="\n")
    if atlas:
        kept = [{k: v for k, v in asdict(row).items() if k != "cpu_seconds"} for row in rows]
        write_whole(atlas, "[\n" + ",\n".join(map(dumps, kept)) + "\n]\n")
    if markdown:
        write_whole(markdown, _page(rows))
