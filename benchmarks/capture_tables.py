"""What `capture.py` writes into a page."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from _measure import machine, markdown, paragraph, renew_section

HEADING = "## Capture: `benchmarks/capture.py`"
GOALS = {"reading": "–", "eager": "9 %", "compiled": "6.5 %", "native": "4.5 %"}
Found = dict[str, Any]


def write_section(page: Path, found: list[Found]) -> None:
    """Renew the section of `page` with what was measured with each instruction set."""
    renew_section(page, HEADING, section(found))


def section(found: list[Found]) -> str:
    """What the page says."""
    of = machine()
    text = (
        "Share of the time spent inside the measuring functions, batch 128 of 32×32, contiguous / "
        "channels last, one thread. *Reading* is the floor: both tensors of a step are summed and "
        f"nothing else is done. {of['processor']}, torch {of['torch']}, {of['date']}; load of the "
        f"machine {os.getloadavg()[0]:.1f} at the end."
    )
    parts = [paragraph(text)]
    for one in found:
        networks = list(dict.fromkeys(row["network"] for row in one["forward"]))
        rows = [
            [way, GOALS[way], *(_shares(one["forward"], name, way) for name in networks)]
            for way in GOALS
        ]
        parts += [f"{one['instructions']}:", markdown(["reduction", "goal", *networks], rows)]
    if "others" in found[0]:
        parts += [paragraph(_others_text(found[0]["others"]))]
    if "tns_ms" in found[0]:
        parts += [f"TNS of 10,000 inputs × 54 blocks takes {found[0]['tns_ms']:.1f} ms."]
    return "\n\n".join(parts)


def _shares(rows: list[Found], network: str, way: str) -> str:
    shares = [
        f"{100 * row['share']:.1f}"
        for row in rows
        if row["network"] == network and row["reduction"] == way
    ]
    return f"{' / '.join(shares)} %"


def _others_text(rows: list[Found]) -> str:
    told = [
        f"{row['library']} {row['version']} on {row['network']} {row['ratio']:.2f}"
        if row["ratio"] is not None
        else f"{row['library']} was not measured ({row['reason']})"
        for row in rows
    ]
    return (
        "Others that watch a network, whole watched forward to plain, contiguous (they keep the "
        f"tensors, attnlab keeps norms): {', '.join(dict.fromkeys(told))}."
    )
