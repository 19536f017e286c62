"""The tables of `operators`, with a roofline: multiply-adds as a matrix product, and reading."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks._common import Table, paragraph, settings

HEADING = "## Operators: `python -m benchmarks.speed operators`"
SETTINGS = settings("speed")["operators"]
PASSES = {"forward": "forward", "both": "forward + backward"}
GROUP, REDUCTION = 16, 4
"""Channels of one involution group, and how many fewer its maps are made of."""
PRODUCT, GOAL = "these as a matrix product, ms", "2.5 times that: the goal, ms"
Record = dict[str, Any]


def tables(record: Record) -> list[Table]:
    """Return all of them."""
    makers = (_against_unfold, _layers, _parts, _primitives, _limits, _others)
    return [make(record) for make in makers]


def section(record: Record) -> str:
    """Return what the page says."""
    of, reached = record["machine"], record["columns"]["default"]["limits"]
    rates = ", ".join(f"{value:.0f} {name}" for name, value in reached.items())
    first = (
        "Window 7×7; S1 is 8×64×56×56, S2 8×128×28×28, S3 8×256×14×14, S4 8×512×7×7. "
        f"{of['processor']}, torch {of['torch']}, {of['date']}; load of the machine "
        f"{record['load'][0]:.1f} before and {record['load'][1]:.1f} after. In the same run, one "
        f"thread: {rates}."
    )
    found = [paragraph(first)]
    for table in tables(record):
        found += [paragraph(table.title), table.markdown()]
    return "\n\n".join(found)


def _row(
    record: Record, label: str, column: str, value: Callable[[Record], float], digits: int
) -> list[str]:
    """Return one row: `value` of what a column measured, for each shape."""
    shapes = record["columns"][column]["shapes"]
    return [label, *(f"{value(shapes[shape]):.{digits}f}" for shape in record["shapes"])]


def _fastest(record: Record) -> str:
    return next(name for name in ("avx512", "avx2") if name in record["columns"])


def _against_unfold(record: Record) -> Table:
    def row(label: str, column: str, core: str, name: str, what: str) -> list[str]:
        def value(found: Record) -> float:
            contest = found[f"{core} core"]
            return float(contest["unfold"][what] / max(contest[name][what], 1 / 256))

        return _row(record, f"{core}{label}", column, value, 0)

    rows = []
    for core in ("involution", "attention"):
        for heap in ("default", "kept heap"):
            for what, title in PASSES.items():
                rows.append(row(f", {title}, {heap}", heap, core, "attnlab", what))
        rows.append(row(", memory", "memory", core, "attnlab", "memory"))
        title = f" in plain torch, {PASSES['both']}"
        rows.append(row(title, "default", core, "attnlab, pure torch", "both"))
    text = (
        "The aggregations alone against unfold (the authors' portable involution, and SASA), one "
        "thread, process time; how many times faster, or smaller. *Kept heap*: an allocator that "
        "does not return memory, which is kinder to unfold."
    )
    return Table(text, ["", *record["shapes"]], rows)


LAYER_COLUMNS = {
    "default": "one thread",
    "kept heap": "one thread, kept heap",
    "avx512": "one thread, AVX-512",
    "avx2": "one thread, AVX2",
    "two threads": "two threads",
    "two threads, kept heap": "two threads, kept heap",
}


def _layers(record: Record) -> Table:
    def ratio(label: str, column: str, name: str, by: str, what: str, digits: int) -> list[str]:
        def value(found: Record) -> float:
            return float(found["layers"][name][what] / found["layers"][by][what])

        return _row(record, label, column, value, digits)

    against = "involution / convolution"
    pair = ("involution", "convolution 3×3")
    rows = [
        ratio(f"{against}, {title}, {label}", column, *pair, what, 2)
        for column, label in LAYER_COLUMNS.items()
        if column in record["columns"]
        for what, title in PASSES.items()
    ]
    rows.append(ratio(f"{against}, memory", "memory", *pair, "memory", 2))
    for what, title in PASSES.items():
        goals = SETTINGS["goals"][what]
        rows.append([f"goal, {title}", *(str(goals.get(shape, "–")) for shape in record["shapes"])])
    for what, title in PASSES.items():
        label = f"HaloAttn / attention, {title} (goal 5)"
        rows.append(ratio(label, "default", "timm HaloAttn", "attention", what, 1))
    text = (
        "Whole layers: time of involution divided by that of a 3×3 convolution of the same "
        "channels (below 1 it is faster), and of timm's HaloAttn divided by local attention's."
    )
    return Table(text, ["", *record["shapes"]], rows)


def _parts(record: Record) -> Table:
    fastest = _fastest(record)
    names = record["columns"][fastest]["shapes"][record["shapes"][0]]["parts"]
    rows = [
        _row(record, name, fastest, lambda found, name=name: 1e3 * found["parts"][name], 2)
        for name in names
    ]
    text = (
        "Where the forward pass of an involution layer spends its time, milliseconds, one thread, "
        f"{fastest}. Maps alone are written to memory, aggregation alone reads them; the layer "
        "makes a few rows of them where it uses them."
    )
    return Table(text, ["", *record["shapes"]], rows)


def _primitives(record: Record) -> Table:
    rows = []
    for name in ("av", "qk", "sc"):
        for column, label in (("avx512", "AVX-512"), ("avx2", "AVX2")):
            if column not in record["columns"]:
                continue
            shapes = record["columns"][column]["shapes"]
            found = [shapes[shape]["kernels"] for shape in record["shapes"]]
            cells = [f"{1e3 * one[name]:.2f} ({one[name] / one['floor']:.1f})" for one in found]
            rows.append([f"{name}, {label}", *cells])
    text = (
        "The primitives in milliseconds, and as multiples of reading the maps and copying the "
        "input once in the same process (goal 2.5); one thread, instruction sets interleaved."
    )
    return Table(text, ["", *record["shapes"]], rows)


def _others(record: Record) -> Table:
    rows = []
    times, peaks = (record["columns"][column]["shapes"] for column in ("default", "memory"))
    for name in times[record["shapes"][0]]["layers"]:
        cells = []
        for shape in record["shapes"]:
            one, peak = times[shape]["layers"][name], peaks[shape]["layers"][name]
            seconds = f"{1e3 * one['forward']:.1f} / {1e3 * one['both']:.1f}"
            cells.append(f"{seconds} / {peak['memory']:.0f}")
        rows.append([name, *cells])
    text = (
        "Every layer, one thread: milliseconds forward / forward with backward / peak MiB of the "
        "latter."
    )
    return Table(text, ["", *record["shapes"]], rows)


def _limits(record: Record) -> Table:
    """Return what no kernel can be faster than, next to what was measured."""
    name = _fastest(record)
    columns = {s: _limits_of(s, name, record["columns"][name]) for s in record["shapes"]}
    labels = next(iter(columns.values()))
    rows = [[label, *(column[label] for column in columns.values())] for label in labels]
    beyond = [s for s, column in columns.items() if float(column[GOAL]) < float(column[PRODUCT])]
    below = ", and the goal of 2.5 times reading lies below the first limit on " if beyond else ""
    below += ", ".join(beyond)
    text = (
        f"Limits of this core, {name}, one thread: a kernel takes at least as long as its "
        "multiply-adds would in a large matrix product, and as reading its operands once. Where "
        f"these fit into the cache, reading is nearly free{below}. A matrix product reads a number "
        "once for many multiply-adds; here each needs a vector of its own from the cache, at an "
        "address that is not a multiple of a vector's length. With vectors of 16 numbers, rows of "
        "14, 28 and 56 leave an eighth of the lanes empty."
    )
    return Table(text, ["", *record["shapes"]], rows)


def _limits_of(shape: str, name: str, column: Record) -> dict[str, str]:
    batch, channels, side, window = SETTINGS["shapes"][shape]
    pixels, taps, reduced = batch * side**2, window**2, channels // REDUCTION
    aggregation = pixels * channels * taps
    fused = aggregation + pixels * reduced * (channels // GROUP * taps)
    layer = fused + pixels * channels * reduced
    rate = 1e9 * column["limits"]["matmul GFLOP/s"] / 2
    projections = 3 * pixels * channels**2
    measured = column["shapes"][shape]
    times = {each: found["forward"] for each, found in measured["layers"].items()}
    kernels, convolution = measured["kernels"], times["convolution 3×3"]
    limit = max(aggregation / rate, kernels["floor"])
    before = measured["parts"]["1×1 convolution"] + measured["parts"]["norm and ReLU"]
    lanes = 16 if name == "avx512" and side > 8 else 8
    in_rows = before + fused / rate * -(-side // lanes) * lanes / side
    at_best = times["timm HaloAttn"] * rate / projections
    return {
        "multiply-adds of `av`, millions": f"{aggregation / 1e6:.0f}",
        PRODUCT: f"{1e3 * aggregation / rate:.2f}",
        "reading once, ms": f"{1e3 * kernels['floor']:.2f}",
        GOAL: f"{2.5e3 * kernels['floor']:.2f}",
        "`av`, ms": f"{1e3 * kernels['av']:.2f}",
        "`av` by the larger limit": f"{kernels['av'] / limit:.1f}",
        "multiply-adds of the involution layer, millions": f"{layer / 1e6:.0f}",
        "these as a matrix product, by the convolution's time": f"{layer / rate / convolution:.2f}",
        "1×1 convolution and norm as measured, the rest as that product in rows": (
            f"{in_rows / convolution:.2f}"
        ),
        "the layer by the convolution's time": f"{times['involution'] / convolution:.2f}",
        "projections of local attention as a matrix product, ms": f"{1e3 * projections / rate:.2f}",
        "HaloAttn by these: local attention at best": f"{at_best:.1f}",
    }
