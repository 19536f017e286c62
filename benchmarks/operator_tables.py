"""The tables of `operators.py`, for the terminal and for a section of a page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from _measure import markdown, paragraph, print_table, renew_section
from operator_limits import limits

HEADING = "## Operators: `benchmarks/operators.py`"
Record = dict[str, Any]
Table = tuple[str, list[str], list[list[str]]]
"""What stands before it, columns and rows."""


def tables(record: Record) -> list[Table]:
    """All of them."""
    return [
        _against_unfold(record),
        _layers(record),
        _parts(record),
        _primitives(record),
        limits(record),
        _others(record),
    ]


def _cells(record: Record, value: Callable[[str], float | None], digits: int = 1) -> list[str]:
    """One cell for each shape."""
    found = []
    for shape in record["shapes"]:
        number = value(shape)
        found.append("–" if number is None else f"{number:.{digits}f}")
    return found


def _against_unfold(record: Record) -> Table:
    def row(label: str, column: str, core: str, name: str, what: str) -> list[str]:
        def value(shape: str) -> float:
            table = record["columns"][column]["shapes"][shape][f"{core} core"]
            return float(table["unfold"][what] / max(table[name][what], 1 / 256))

        return [label, *_cells(record, value, 0)]

    rows = []
    for core in ("involution", "attention"):
        for heap in ("default", "kept heap"):
            for what, title in (("forward", "forward"), ("both", "forward + backward")):
                rows.append(row(f"{core}, {title}, {heap}", heap, core, "attnlab", what))
        rows.append(row(f"{core}, memory", "memory", core, "attnlab", "memory"))
        plain = row(f"{core} in plain torch", "default", core, "attnlab, pure torch", "both")
        rows.append([f"{plain[0]}, forward + backward", *plain[1:]])
    text = (
        "The aggregations alone against unfold (the authors' portable involution, and SASA), one "
        "thread, process time; how many times faster, or smaller. *Kept heap*: an allocator that "
        "does not return memory, which is kinder to unfold."
    )
    return text, ["", *record["shapes"]], rows


GOALS = {("forward", "S1"): 0.5, ("both", "S1"): 0.7}
"""Of the involution layer against the 3×3 convolution; on the others 0.3 and 0.4."""


def _layers(record: Record) -> Table:
    rows = []
    for column, label in (
        ("default", "one thread"),
        ("kept heap", "one thread, kept heap"),
        ("avx512", "one thread, AVX-512"),
        ("avx2", "one thread, AVX2"),
        ("two threads", "two threads"),
        ("two threads, kept heap", "two threads, kept heap"),
    ):
        if column not in record["columns"]:
            continue
        for what, title in (("forward", "forward"), ("both", "forward + backward")):
            rows.append(
                [
                    f"involution / convolution, {title}, {label}",
                    *_cells(record, _layer_ratio(record, column, "involution", what), 2),
                ]
            )
    memory = _layer_ratio(record, "memory", "involution", "memory")
    rows.append(["involution / convolution, memory", *_cells(record, memory, 2)])
    for what in ("forward", "both"):
        goals = [
            f"{GOALS.get((what, shape), 0.3 if what == 'forward' else 0.4)}"
            for shape in record["shapes"]
        ]
        title = "forward" if what == "forward" else "forward + backward"
        rows.append([f"goal, {title}", *goals])
    for what, title in (("forward", "forward"), ("both", "forward + backward")):

        def halo(shape: str, what: str = what) -> float:
            table = record["columns"]["default"]["shapes"][shape]["layers"]
            return float(table["timm HaloAttn"][what] / table["attention"][what])

        rows.append([f"HaloAttn / attention, {title} (goal 5)", *_cells(record, halo)])
    text = (
        "Whole layers: time of involution divided by that of a 3×3 convolution of the same "
        "channels (below 1 it is faster), and of timm's HaloAttn divided by local attention's."
    )
    return text, ["", *record["shapes"]], rows


def _layer_ratio(
    record: Record, column: str, name: str, what: str
) -> Callable[[str], float | None]:
    def value(shape: str) -> float | None:
        table = record["columns"][column]["shapes"][shape]["layers"]
        return float(table[name][what] / table["convolution 3×3"][what])

    return value


def _parts(record: Record) -> Table:
    fastest = next(name for name in ("avx512", "avx2") if name in record["columns"])
    shapes = record["columns"][fastest]["shapes"]
    names = shapes[record["shapes"][0]]["parts"]
    rows = [
        [name, *_cells(record, lambda shape, name=name: 1e3 * shapes[shape]["parts"][name], 2)]
        for name in names
    ]
    text = (
        "Where the forward pass of an involution layer spends its time, milliseconds, one thread, "
        f"{fastest}. Maps alone are written to memory, aggregation alone reads them; the layer "
        "makes a few rows of them where it uses them."
    )
    return text, ["", *record["shapes"]], rows


def _primitives(record: Record) -> Table:
    rows = []
    for name in ("av", "qk", "sc"):
        for column, label in (("avx512", "AVX-512"), ("avx2", "AVX2")):
            if column not in record["columns"]:
                continue
            cells = []
            for shape in record["shapes"]:
                found = record["columns"][column]["shapes"][shape]["kernels"]
                cells.append(f"{1e3 * found[name]:.2f} ({found[name] / found['floor']:.1f})")
            rows.append([f"{name}, {label}", *cells])
    text = (
        "The primitives in milliseconds, and as multiples of reading the maps and copying the "
        "input once in the same process (goal 2.5); one thread, instruction sets in turns."
    )
    return text, ["", *record["shapes"]], rows


def _others(record: Record) -> Table:
    rows = []
    times, peaks = (record["columns"][column]["shapes"] for column in ("default", "memory"))
    for name in times[record["shapes"][0]]["layers"]:
        cells = []
        for shape in record["shapes"]:
            one, peak = times[shape]["layers"][name], peaks[shape]["layers"][name]
            cells.append(
                f"{1e3 * one['forward']:.1f} / {1e3 * one['both']:.1f} / {peak['memory']:.0f}"
            )
        rows.append([name, *cells])
    text = (
        "Every layer, one thread: milliseconds forward / forward with backward / peak MiB of the "
        "latter."
    )
    return text, ["", *record["shapes"]], rows


def print_tables(record: Record) -> None:
    for text, columns, rows in tables(record):
        print_table(text, columns, rows)
    print(
        f"{record['minutes']:.1f} minutes, load {record['load'][0]:.1f} to {record['load'][1]:.1f}"
    )


def section(record: Record) -> str:
    """What the page says."""
    of, reached = record["machine"], record["columns"]["default"]["limits"]
    rates = ", ".join(f"{value:.0f} {name}" for name, value in reached.items())
    first = (
        "Window 7×7; S1 is 8×64×56×56, S2 8×128×28×28, S3 8×256×14×14, S4 8×512×7×7. "
        f"{of['processor']}, torch {of['torch']}, {of['date']}; load of the machine "
        f"{record['load'][0]:.1f} before and {record['load'][1]:.1f} after. In the same run, one "
        f"thread: {rates}."
    )
    found = [paragraph(first)]
    for text, columns, rows in tables(record):
        found += [paragraph(text), markdown(columns, rows)]
    return "\n\n".join(found)


def write_section(page: Path, record: Record) -> None:
    """Renew the section of `page`."""
    renew_section(page, HEADING, section(record))
