"""Discovery and insertion on small networks, against an independent truth: `timm` and `beyond`."""

from __future__ import annotations

import gc
import importlib.util
import re
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import timm as timm_package
import torch
from timm.layers import DropPath
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from attnlab._errors import AttnlabError, SelectionError, SiteError, StepsNotFoundError
from attnlab._files import write_whole
from attnlab.residuals import Site, Step
from attnlab.residuals.steps import steps
from attnlab.surgery.insertion import attachments
from attnlab.surgery.insertion.insert import insert
from benchmarks._common import Table, machine, read_json, settings, write_json
from benchmarks.coverage.networks import (
    BATCH,
    Collection,
    Network,
    Reading,
    call,
    chosen,
    collection,
    version,
)

Settings = dict[str, Any]


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
    """ok; at k of n: the other sites are refused; failed; refused; - if there is nothing to insert
    into."""
    output_change: float | None = None
    forward: bool | None = None
    backward: bool | None = None
    keys_kept: bool | None = None
    slots: int = 0
    additions: int = 0
    seconds: float = 0.0
    reason: str = ""
    """Why a network was refused, or what is wrong with the discovery or the insertion."""
    differences: list[str] = field(default_factory=list)

    @property
    def cells(self) -> dict[str, str]:
        """All columns that a table can have."""

        def flag(value: bool | None) -> str:
            return "-" if value is None else ("yes" if value else "no")

        change = "-" if self.output_change is None else f"{self.output_change:.0e}"
        return {
            "package": self.package,
            **dict.fromkeys(("family", "for"), self.group),
            "network": self.network,
            "steps": str(self.expected),
            "found": str(self.found),
            "discovery": self.discovery,
            "insertion": self.insertion,
            "Δoutput": change,
            "forward": flag(self.forward),
            "backward": flag(self.backward),
            "keys": flag(self.keys_kept),
            "slot": str(self.slots),
            "add": str(self.additions),
            "s": f"{self.seconds:.1f}",
            **dict.fromkeys(("reason", "note"), self.reason),
        }


def differences_of(expected: Reading, found: list[Step]) -> list[str]:
    """Return what is missing (-), what is too much (+), and stages that differ."""
    sequence = [f"{s.owner} {s.kind} {prod(s.shape) // BATCH}" for s in found]
    numbers = [step.stage for step in found]
    stages = [numbers.count(stage) for stage in dict.fromkeys(numbers)]
    missing, extra = list(expected.sequence), []
    for line, step in zip(sequence, found, strict=True):
        if line in missing:
            missing.remove(line)
        else:
            extra.append(f"+ {line} ({step.source})")
    lines = [f"- {line}" for line in missing] + extra
    if not lines and sequence != expected.sequence:
        lines = ["the order of the steps differs"]
    if stages != expected.stages:
        lines.append(f"stages {stages} instead of {expected.stages}")
    return lines


def _judge_discovery(row: Row, network: Network, found: list[Step]) -> None:
    assert network.expected is not None
    row.found = len(found)
    row.differences = differences_of(network.expected.reading, found)
    if not row.differences:
        row.discovery = "right"
        return
    for reading in network.expected.accepted:
        if not differences_of(reading, found):
            row.discovery, row.reason = "other", "; ".join(reading.because)


def _outputs(model: nn.Module, example: Any) -> list[Tensor]:
    """Return the tensors of the output, drawn from the same random numbers each time."""
    torch.manual_seed(1)
    with torch.no_grad():
        return [leaf for leaf in tree_leaves(call(model, example)) if isinstance(leaf, Tensor)]


def _change(a: Tensor, b: Tensor) -> float:
    """Return the largest difference relative to the largest value; boxes of no object differ by
    nothing, and what is infinite or undefined must stay so."""
    if not a.is_floating_point() or not a.numel():
        return 0.0 if torch.equal(a, b) else float("inf")
    if not torch.equal(a.isfinite(), b.isfinite()):
        return float("inf")
    a, b = a[a.isfinite()], b[b.isfinite()]
    return float((a - b).abs().max() / b.abs().max().clamp_min(1e-12)) if a.numel() else 0.0


def _same_values(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and torch.equal(a.nan_to_num(), b.nan_to_num())


def _judge_insertion(
    row: Row, model: nn.Module, example: Any, gate: str, about: Settings, **options: str
) -> Iterator[str]:
    """Insert a gate at every step that takes one; yield what is wrong."""
    before = {name: value.clone() for name, value in model.state_dict().items()}
    plain = _outputs(model, example)
    refusals: list[str] = []

    def takes_a_gate(site: Site) -> bool:
        if site.refusal:
            refusals.append(site.refusal)
        return not site.refusal

    try:
        gated, _ = insert(
            model, gate, where=takes_a_gate, example=example, start="identity", **options
        )
    except SelectionError:
        row.insertion, row.reason = f"at 0 of {row.found}", refusals[0]
        return
    attached = dict(attachments(gated))
    row.insertion = f"at {len(attached)} of {row.found}" if refusals else "ok"
    row.reason = "; ".join(part for part in [row.reason, *refusals[:1]] if part)
    row.slots = sum(attachment.site.host == "output" for attachment in attached.values())
    row.additions = len(attached) - row.slots
    if len(attached) + len(refusals) != row.found:
        yield f"{len(attached)} gates for {row.found} steps"
    same, after = _outputs(gated, example), gated.state_dict()
    if not plain or [each.shape for each in same] != [each.shape for each in plain]:
        yield "nothing to compare in the output"
    else:
        row.output_change = max(map(_change, same, plain))
        if not row.output_change <= about["same_output"]:
            yield f"output changed by {row.output_change:.1e}"
    row.keys_kept = all(n in after and _same_values(after[n], before[n]) for n in before)
    if not row.keys_kept:
        yield "keys or values of the state dict changed"
    if about["training"]:
        yield from _judge_training(row, gated, example)


def _judged_with(row: Row, model: nn.Module, example: Any, gate: str, about: Settings) -> list[str]:
    """What is wrong with insertion of `gate`; of its constant form where it would show later tokens
    to earlier ones, or padding to the rest, and is refused."""
    try:
        return list(_judge_insertion(row, model, example, gate, about))
    except SiteError as error:
        looks = re.search("looks over all (tokens|places)", str(error))
        if looks is None:
            raise
    constant = {"activation": "sigmoid"}  # the usual tanh has no start at identity
    wrong = list(_judge_insertion(row, model, example, f"asr:{gate}", about, **constant))
    said = f"`{gate}` would mix {looks[1]} and is refused; with `asr:{gate}`"
    row.reason = "; ".join(part for part in [row.reason, said] if part)
    return wrong


def _judge_training(row: Row, gated: nn.Module, example: Any) -> Iterator[str]:
    """Run forward and backward in training mode; yield what is wrong."""
    gated.train()
    for module in gated.modules():
        if isinstance(module, DropPath):
            module.drop_prob = 0.0  # a branch dropped for the whole batch has no gradient
    outputs = [leaf.float() for leaf in tree_leaves(call(gated, example))]
    row.forward = all(bool(output.isfinite().all()) for output in outputs)
    if not row.forward:
        yield "output not finite"
    torch.stack([(output * torch.randn_like(output)).sum() for output in outputs]).sum().backward()
    attached = dict(attachments(gated))
    unreached = [name for name, gate in attached.items() if not _gradient_reaches(gate)]
    row.backward = not unreached
    if unreached:
        yield f"no gradient at {len(unreached)} of {len(attached)}, e.g. {unreached[0]}"


def _gradient_reaches(gate: nn.Module) -> bool:
    gradients = [p.grad for p in gate.parameters() if p.grad is not None]
    return any(bool(g.isfinite().all()) and float(g.abs().max()) > 0 for g in gradients)


def _judge(network: Network, gate: str, about: Settings) -> Row:
    assert network.expected is not None
    expected = network.expected.reading.steps
    row = Row(network.package, network.group, network.network, expected)
    start = time.perf_counter()
    try:
        model, example = network.stirred(about.get("noise")), network.example()
        try:
            found = steps(model, example)
        except StepsNotFoundError as error:
            _judge_discovery(row, network, [])
            row.insertion = "refused" if expected else "-"
            row.reason = row.reason or str(error).split(". ")[0]
        else:
            _judge_discovery(row, network, found)
            wrong = _judged_with(row, model, example, gate, about)
            row.insertion = "failed" if wrong else row.insertion
            row.reason = "; ".join(part for part in [row.reason, *wrong] if part)
    except AttnlabError as error:
        row.insertion, row.reason = "refused", str(error).splitlines()[0]
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        text = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        row.insertion = "failed"
        row.reason = f"{text} ({Path(place.filename).name}:{place.lineno})"
    row.seconds = round(time.perf_counter() - start, 2)
    gc.collect()
    return row


def _share(names: set[str], wrong: set[str]) -> str:
    right = len(names - wrong)
    return f"{right} ({100 * right / len(names):.1f} %)"


def _discovered(what: str, rows: list[Row], key: Callable[[Row], str]) -> Iterator[str]:
    """Count networks, or families: one counts as right when all its networks are."""
    names = {key(row) for row in rows}
    if names:
        strictly = _share(names, {key(row) for row in rows if row.discovery != "right"})
        either = _share(names, {key(row) for row in rows if row.discovery == "wrong"})
        yield (
            f"{len(names)} {what}: discovery right on {strictly}, {either} with the other accepted "
            "readings"
        )


def _totals(rows: list[Row], families: bool) -> Iterator[str]:
    with_steps = [row for row in rows if row.expected]
    without = [row for row in rows if not row.expected]
    yield from _discovered("networks", rows, lambda row: f"{row.package} {row.network}")
    yield from _discovered(
        "of them with steps", with_steps, lambda row: f"{row.package} {row.network}"
    )
    if families:
        yield from _discovered("families with steps", with_steps, lambda row: row.group)
    if without:
        right = sum(row.discovery == "right" for row in without)
        yield f"{len(without)} without steps: right on {right}"
    yield f"{sum(row.expected for row in rows)} steps expected, {sum(r.found for r in rows)} found"
    tried = [row for row in rows if row.found]
    counts = [sum(row.insertion == kind for row in tried) for kind in ("ok", "failed")]
    partly = sum(row.insertion.startswith("at ") for row in tried)
    yield (
        f"{len(tried)} networks with found steps: insertion works at every step of {counts[0]}, at "
        f"some of {partly}; something is wrong with {counts[1]}"
    )


def _by_package(rows: list[Row]) -> Table:
    found = []
    for package in dict.fromkeys(row.package for row in rows):
        own = [row.discovery for row in rows if row.package == package]
        counts = [str(own.count(kind)) for kind in ("right", "other", "wrong")]
        found.append([f"{package} {version(package)}", str(len(own)), *counts])
    columns = ["package", "networks", "right", "other accepted reading", "wrong"]
    return Table("By package", columns, found)


def _unexpected(rows: list[Row]) -> Iterator[str]:
    """Explain every network that is not as expected."""
    yield from ("## Not as expected", "")
    yield from ("`-` is a step that was not found, `+` an addition that is taken for one.", "")
    for row in [row for row in rows if row.discovery != "right"]:
        why = row.reason or settings("coverage")["why"].get(row.network, "not known why")
        yield from (f"**{row.package} {row.network}** ({row.discovery}): {why}.", "")
        yield from (*(f"    {line}" for line in row.differences), "")


def _page(name: str, table: Table, rows: list[Row], skipped: list[str], gate: str) -> str:
    about, of = settings("coverage")[name], machine()
    measured = (
        f"{of['date']}, {of['processor']} ({of['cores']} cores, 1 thread used), "
        f"Python {of['python']}, torch {of['torch']}, timm {timm_package.__version__}"
    )
    lines = [f"# {about['title']}", "", about["text"].strip(), ""]
    lines += [f"Gate `{gate}`, {about['about']}. Measured {measured}."]
    lines += [f"Made by `python -m benchmarks.coverage {name} --markdown {about['page']}`.", ""]
    lines += [f"- {line}" for line in _totals(rows, about["families"])]
    lines += [*(f"- skipped: {line}" for line in skipped), ""]
    if name == "beyond":  # timm's table tells its reasons itself, and is one package
        lines += [_by_package(rows).markdown(), "", *_unexpected(rows), "## All networks", ""]
    return "\n".join([*lines, table.markdown(), ""])


def _skipped(stored: Collection) -> Iterator[str]:
    for package, made_with in stored.packages.items():
        if importlib.util.find_spec(package) is None:
            yield f"{package}, which is not installed"
        elif version(package) != made_with:
            yield f"nothing, but the truth was made with {package} {made_with}"


def _known(json: Path, resume: bool) -> dict[tuple[str, str], Row]:
    rows = read_json(json)["rows"] if resume and json.exists() else []
    return {(row["package"], row["network"]): Row(**row) for row in rows}


def _run(name: str, only: str, gate: str, json: Path, resume: bool, markdown: Path | None) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    about, stored = settings("coverage")[name], collection(name)
    skipped = list(_skipped(stored))
    print(*skipped, sep="\n")
    done, rows = _known(json, resume), []
    for network in chosen(stored.networks, only):
        key = (network.package, network.network)
        row = done[key] = done.get(key) or _judge(network, gate, about)
        rows.append(row)
        print(f"{network.label}: {row.discovery}, {row.insertion}", flush=True)
        write_json(json, {"gate": gate, "rows": [asdict(each) for each in done.values()]})
    columns = about["columns"]
    table = Table(about["title"], columns, [[r.cells[c] for c in columns] for r in rows])
    table.print()
    print(*_totals(rows, about["families"]), sep="\n")
    if markdown:
        write_whole(markdown, _page(name, table, rows, skipped, gate))


def timm(
    only: str = "",
    gate: str = "se",
    json: Path = Path("out/coverage-timm.json"),
    resume: bool = False,
    markdown: Path | None = None,
) -> None:
    """Judge discovery and insertion on one small network of every timm family.

    Args:
        only: a pattern for package, family and name.
        gate: the gate to insert.
        json: where the rows are written after each network.
        resume: keep the rows that are there already.
        markdown: write the page here at the end.
    """
    _run("timm", only, gate, json, resume, markdown)


def beyond(
    only: str = "",
    gate: str = "se",
    json: Path = Path("out/coverage-beyond.json"),
    resume: bool = False,
    markdown: Path | None = None,
) -> None:
    """Judge discovery and insertion on small networks of the other packages that are installed.

    Args:
        only: a pattern for package, purpose and name.
        gate: the gate to insert.
        json: where the rows are written after each network.
        resume: keep the rows that are there already.
        markdown: write the page here at the end.
    """
    _run("beyond", only, gate, json, resume, markdown)
