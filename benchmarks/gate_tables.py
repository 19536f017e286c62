"""Several runs of `gates.py`, cell by cell: the median of their ratios.

python benchmarks/gate_tables.py one.json two.json three.json --write-docs docs/benchmarks.md
"""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any

import tyro
from _measure import markdown, paragraph, print_table, renew_section

HEADING = "## Gates: `benchmarks/gates.py`"
LEAST = 0.95
"""No cell should be below."""
LISTED = 0.9
Cells = dict[tuple[str, str, str, bool], dict[str, Any]]
"""By gate, shape, memory format, and whether there is a backward pass."""


def medians(files: tuple[Path, ...]) -> Cells:
    """Of each cell the median ratio and times over the files, which must have the same cells."""
    found: defaultdict[tuple[str, str, str, bool], list[dict[str, Any]]] = defaultdict(list)
    for file in files:
        for case in json.loads(file.read_text())["cases"]:
            shape = "×".join(map(str, case["shape"]))
            found[case["gate"], shape, case["order"], case["backward"]].append(case)
    odd = [key for key, cases in found.items() if len(cases) != len(files)]
    if odd:
        raise SystemExit(f"{len(odd)} cells are not in every file, the first is {odd[0]}.")
    return {
        key: {
            "peer": cases[0]["peer"],
            **{
                name: statistics.median(case[name] for case in cases)
                for name in ("ratio", "ours_ms", "peer_ms")
            },
        }
        for key, cases in found.items()
    }


def by_gate(cells: Cells) -> list[list[str]]:
    """Gate, peer, time of the peer by ours forward and with backward, and the lowest cell."""
    rows = []
    for gate in dict.fromkeys(key[0] for key in cells):
        mine = {key: cell for key, cell in cells.items() if key[0] == gate}
        lowest = min(mine, key=lambda key: mine[key]["ratio"])
        peer = mine[lowest]["peer"]
        both = [total([cell for key, cell in mine.items() if key[3] == b]) for b in (False, True)]
        rows.append(
            [
                f"`{gate}`",
                "formula" if peer == "plain" else peer,
                *(f"{ratio:.2f}" for ratio in both),
                f"{mine[lowest]['ratio']:.2f} ({named(lowest)})",
            ]
        )
    return rows


def total(cells: list[dict[str, Any]]) -> float:
    """Time of all peers by that of all of ours."""
    return sum(cell["peer_ms"] for cell in cells) / sum(cell["ours_ms"] for cell in cells)


def named(key: tuple[str, str, str, bool]) -> str:
    _, shape, order, backward = key
    return f"{shape}, {order}, {'with backward' if backward else 'forward'}"


def main(files: tyro.conf.Positional[tuple[Path, ...]], write_docs: Path | None = None) -> None:
    """The median over `files`, printed, and as the section of a page."""
    cells = medians(files)
    columns = ["gate", "peer", "forward", "forward + backward", "lowest cell"]
    rows = by_gate(cells)
    print_table(f"Peer / ours, median of {len(files)} runs", columns, rows)
    below = {key: cell["ratio"] for key, cell in cells.items() if cell["ratio"] < LEAST}
    summary = f"All {len(rows)} gates together {total(list(cells.values())):.2f}"
    others = [cell for key, cell in cells.items() if key[0] != "gam"]
    if len(others) < len(cells):
        summary += (
            ", most of which is the time of `gam`'s large convolutions; without `gam` "
            f"{total(others):.2f}"
        )
    summary += f". Of {len(cells)} cells {len(below)} are below {LEAST}"
    listed = "; ".join(
        f"`{key[0]}` {named(key)} {ratio:.2f}"
        for key, ratio in sorted(below.items(), key=lambda entry: entry[1])
        if ratio < LISTED
    )
    summary += f", and below {LISTED}: {listed}." if listed else "."
    print(summary)
    if write_docs is not None:
        machine = json.loads(files[0].read_text())["machine"]
        runs = "One run" if len(files) == 1 else f"Median of {len(files)} runs"
        about = (
            "Gate and multiplication, against timm's module where there is one and the formula as "
            "usually written elsewhere. Time of the peer divided by ours, over four shapes "
            "(128×64×32×32, 128×256×8×8, 8×256×56×56, 8×2048×7×7) and both memory formats; above "
            f"1 ours is faster. {runs}, {machine['threads']} thread, "
            f"{machine['processor']}, torch {machine['torch']}, {machine['date']}."
        )
        text = f"{paragraph(about)}\n\n{markdown(columns, rows)}\n\n{paragraph(summary)}"
        renew_section(write_docs, HEADING, text)


if __name__ == "__main__":
    tyro.cli(main)
