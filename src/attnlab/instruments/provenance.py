"""Where the numbers of a page come from, as a section of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attnlab.page.parts import Cell, Chip, Section, Table
from attnlab.results.provenance import UNTRAINED

_NAMES = {
    "network": "network",
    "gate": "gate inserted",
    "weights": "weights",
    "weights_checksum": "weights, SHA-256",
    "data": "data",
    "data_checksum": "data, SHA-256",
    "command": "command",
    "date": "date",
    "version": "attnlab",
}


def provenance_section(result: Mapping[str, Any]) -> Section:
    """Network, gate, weights, data, command, date and version of a measurement's file."""
    title, found = "Where do these numbers come from?", result.get("provenance")
    if not found:
        text = "The file does not say: it was written by Python, or by attnlab 0.1."
        return Section(title, "", [], text)
    rows = [
        [Cell(name), Cell(str(found.get(key) or "random, from seed 0"))]
        for key, name in _NAMES.items()
        if found.get(key) or key == "weights"
    ]
    lead = UNTRAINED if is_untrained(result) else "From the weights named here."
    again = "To make them again, run the command with these weights and data."
    return Section(title, "", [Table(["", ""], rows, names=2)], lead, again)


def provenance_chips(result: Mapping[str, Any]) -> list[Chip]:
    """Beside the verdict: that weights are random, what gate there is, and the data."""
    found = result.get("provenance") or {}
    chips = [Chip("random weights: untrained control", "warn")] if is_untrained(result) else []
    chips += [Chip(f"gate {found['gate']}")] if found.get("gate") else []
    return chips + ([Chip(f"data {_short(found['data'])}")] if found.get("data") else [])


def is_untrained(result: Mapping[str, Any]) -> bool:
    """Whether the file says that the weights are random."""
    found = result.get("provenance") or {}
    return bool(found) and not found.get("weights")


def network_title(result: Mapping[str, Any]) -> str:
    """`resnet20 with se`."""
    gate = (result.get("provenance") or {}).get("gate")
    return f"{result['network']} with {gate}" if gate else str(result["network"])


def _short(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2] or path
