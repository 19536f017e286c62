"""The page of the stiffness of one network, and the one that compares several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from math import isfinite

from attnlab.instruments.block_figures import block_figure, heat_figure
from attnlab.instruments.stiffness.figures import nsi_figure
from attnlab.instruments.stiffness.result import StiffnessResult
from attnlab.instruments.stiffness.surfaces import surface_figures
from attnlab.page.glossary import words
from attnlab.page.parts import (
    Cell,
    Chip,
    Figure,
    Folded,
    Heading,
    Notes,
    Page,
    Part,
    Section,
    Table,
    number_cell,
)
from attnlab.results.origin import (
    is_untrained,
    network_title,
    provenance_chips,
    provenance_section,
)
from attnlab.results.provenance import UNTRAINED

_EXACTNESS = "5 % and 95 % are within 0.017 % of the exact quantiles."


def stiffness_page(result: StiffnessResult) -> Page:
    """The page of the stiffness of one network."""
    lead = (
        "NSI per step, mean and 5–95 % of inputs; grey steps, the first of a stage, do not count."
    )
    sections = [
        Section(
            "How stiff is each step?",
            lead,
            [
                Figure(nsi_figure(result.nsi), wide=len(result.nsi) > 30),
                words("step", "NSI", "TNS"),
            ],
            _answer(result),
            "Compare with other networks, or with the same one before training: the command "
            "`stiffness` with several networks and `--out` makes a page of all.",
        ),
        Section(
            "How many inputs, how many steps?",
            "",
            [
                *surface_figures({result.network: result}, ""),
                words("δ(M)", "p̂(M)", "M₁", "M₂"),
            ],
            "The volume under δ(M) is TNS: it says how large and how common stiff steps are.",
        ),
        Section("All numbers", _EXACTNESS, [result.table()]),
        _alerts({"": result}),
        provenance_section(result.provenance),
    ]
    title = network_title(result.network, result.provenance)
    return Page(title, _verdict(result), _chips(result), sections, "Stiffness of the steps")


def _verdict(result: StiffnessResult) -> str:
    stiffest = result.stiffest
    verdict = f"TNS **{result.tns:.4g}** over {result.inputs} inputs."
    if stiffest is not None and result.tns:
        verdict += (
            f" Block **{stiffest.label}** ({stiffest.name}) is the stiffest of "
            f"{100 * stiffest.share:.0f} % of them."
        )
    return f"{verdict} {UNTRAINED}" if is_untrained(result.provenance) else verdict


def _chips(result: StiffnessResult) -> list[Chip]:
    """How the network was measured, in words and figures."""
    skipped = f"{result.skipped} inputs skipped"
    return [
        *provenance_chips(result.provenance),
        Chip(f"{result.inputs} inputs"),
        Chip(f"convention {result.convention}"),
        *([Chip(f"{result.tokens} tokens")] if result.tokens != "all" else []),
        Chip(result.plan),
        Chip(f"{result.parameters / 1e6:.2f} M parameters"),
        Chip(f"{result.seconds:.1f} s"),
        *([Chip(skipped, "warn")] if result.skipped else []),
    ]


def _answer(result: StiffnessResult) -> str:
    kept = [step for step in result.nsi if step.kept and isfinite(step.mean)]
    if not kept or not any(step.mean for step in kept):
        return (
            "No counted step moves the features at all, so there is nothing to be stiff: see the "
            "alerts for why."
        )
    most = max(kept, key=lambda step: step.mean)
    least = min(kept, key=lambda step: step.mean)
    return (
        f"The counted steps move the features by {least.mean:.2g} (block {least.label}) to "
        f"{most.mean:.2g} (block {most.label}) of their length."
    )


def comparison_page(measured: Sequence[StiffnessResult]) -> Page:
    """The page of the stiffness of two or more networks, side by side."""
    results = dict(zip(names_of(measured), measured, strict=True))
    ordered = sorted(results.items(), key=lambda item: item[1].tns)
    shown = ", ".join(f"**{name}** {found.tns:.3g}" for name, found in ordered)
    verdict = f"TNS: {shown}. The steps of {ordered[0][0]} are the most even."
    tables: list[Part | Folded] = [Folded(name, [found.table()]) for name, found in results.items()]
    sections = [
        _who(results, ordered),
        *_how_many(results),
        Section("All numbers", _EXACTNESS, tables),
        _alerts(results),
    ]
    for name, found in results.items():
        section = provenance_section(found.provenance)
        sections.append(Section(f"Where does {name} come from?", "", section.parts, section.answer))
    chips = [Chip(f"{len(results)} networks")]
    chips += [
        Chip(f"{name}: random weights", "warn")
        for name, found in results.items()
        if is_untrained(found.provenance)
    ]
    return Page("Which network has the more even steps?", verdict, chips, sections, "Stiffness")


def _who(
    results: Mapping[str, StiffnessResult], ordered: Sequence[tuple[str, StiffnessResult]]
) -> Section:
    cells = [
        (name, step.label, step.mean)
        for name, found in results.items()
        for step in found.nsi
        if isfinite(step.mean)
    ]
    parts: list[Part | Folded] = [
        _overview(results),
        block_figure(heat_figure(cells, legend="NSI", x_title="step (stage.block)")),
        words("step", "NSI", "TNS"),
    ]
    return Section(
        "Who is stiffer, and where?",
        "Mean NSI of every step. An empty field: the network has no such step.",
        parts,
        _compared(ordered),
        _differences(list(results.items()))
        or "The networks were measured alike; a difference is theirs.",
    )


def _how_many(results: Mapping[str, StiffnessResult]) -> list[Section]:
    """The surfaces side by side, if two networks or more were measured on the same degrees."""
    first = next(iter(results.values()))
    alike = {n: f for n, f in results.items() if _degrees(f) == _degrees(first)}
    if len(alike) < 2:
        return []
    return [
        Section(
            "How many inputs, how many steps?",
            "",
            [*surface_figures(alike, ""), words("δ(M)", "p̂(M)", "M₁", "M₂")],
            "The larger the bright corner, the larger and the more common stiff steps are.",
        )
    ]


def names_of(results: Sequence[StiffnessResult]) -> list[str]:
    """A name for each that tells it from the others: with its gate, its weights, or a number."""
    titles = [network_title(result.network, result.provenance) for result in results]
    if len(set(titles)) < len(titles):
        titles = [
            f"{title}, {'random' if is_untrained(result.provenance) else _weights(result)}"
            for title, result in zip(titles, results, strict=True)
        ]
    return [
        title if titles.count(title) == 1 else f"{title} ({number})"
        for number, title in enumerate(titles, 1)
    ]


def _weights(result: StiffnessResult) -> str:
    if result.provenance is None:
        return "unknown weights"
    weights = result.provenance.weights
    return weights.rstrip("/").rpartition("/")[2] or weights


def _overview(results: Mapping[str, StiffnessResult]) -> Table:
    rows = []
    for name, found in results.items():
        stiffest = found.stiffest
        rows.append(
            [
                Cell(name),
                Cell(
                    f"{found.tns:.4f}",
                    f"± {found.tns_error:.4f}",
                    found.tns,
                ),
                Cell("—" if stiffest is None else stiffest.label),
                number_cell(len(found.nsi), "{}"),
                number_cell(found.parameters / 1e6, "{:.2f}"),
                number_cell(found.inputs, "{}"),
                Cell(found.convention),
            ]
        )
    columns = ["network", "TNS", "stiffest step", "steps", "params M", "inputs", "convention"]
    return Table(columns, rows, "TNS with its standard error over inputs.")


def _compared(ordered: Sequence[tuple[str, StiffnessResult]]) -> str:
    (low, least), (high, most) = ordered[0], ordered[-1]
    if not least.tns:
        return f"{low} has a TNS of 0, {high} of {most.tns:.3g}."
    return (
        f"{high} has {most.tns / least.tns:.1f} times the TNS of {low}: single steps stick "
        f"out of their stage more."
    )


def _differences(networks: Sequence[tuple[str, StiffnessResult]]) -> str:
    """What makes a comparison doubtful."""
    found: dict[str, None] = {}
    for (a, one), (b, two) in combinations(networks, 2):
        if one.convention != two.convention:
            found[f"{a} and {b} were measured by different conventions of NSI"] = None
        if one.tokens != two.tokens:
            found[f"{a} and {b} were measured on different tokens"] = None
        if one.plan != two.plan:
            found[f"{a} ({one.plan}) and {b} ({two.plan}) differ in depth"] = None
        if _data(one) != _data(two):
            found[f"{a} and {b} saw different images"] = None
        if is_untrained(one.provenance) != is_untrained(two.provenance):
            found[f"only one of {a} and {b} is trained"] = None
    if not found:
        return ""
    return f"Be careful: {'; '.join(found)}. TNS grows with depth before any training."


def _data(result: StiffnessResult) -> tuple[str, int]:
    source = result.provenance
    return "" if source is None else source.data_checksum, result.inputs


def _degrees(found: StiffnessResult) -> tuple[tuple[float, ...], tuple[float, ...]]:
    return found.relative_degrees, found.absolute_degrees


def _alerts(results: Mapping[str, StiffnessResult]) -> Section:
    parts: list[Part | Folded] = []
    for name, result in results.items():
        notes = [Chip(note, "warn") for note in result.notes]
        if name and notes:
            parts.append(Heading(name))
        parts += [Notes(notes)] if notes else []
    return Section("Alerts", "", parts or [Notes([Chip("Nothing to report.", "good")])])
