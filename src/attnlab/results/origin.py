"""What every page of a result has: where its numbers come from, and what to know about them."""

from __future__ import annotations

from collections.abc import Sequence

from attnlab.page.parts import Cell, Chip, Notes, Section, Table
from attnlab.results.provenance import UNTRAINED, Provenance

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


def provenance_section(found: Provenance | None) -> Section:
    """Network, gate, weights, data, command, date and version of a measurement."""
    title = "Where do these numbers come from?"
    if found is None:
        return Section(title, "", [], "The file does not say: its network was made in Python.")
    rows = [
        [Cell(name), Cell(str(vars(found)[key] or "random, from seed 0"))]
        for key, name in _NAMES.items()
        if vars(found)[key] or key == "weights"
    ]
    lead = "From the weights named here." if found.trained else UNTRAINED
    again = "To make them again, run the command with these weights and data."
    return Section(title, "", [Table(["", ""], rows, names=2)], lead, again)


def provenance_chips(found: Provenance | None) -> list[Chip]:
    """Beside the verdict: that weights are random, what gate there is, and the data."""
    if found is None:
        return []
    chips = [] if found.trained else [Chip("random weights: untrained control", "warn")]
    chips += [Chip(f"gate {found.gate}")] if found.gate else []
    return chips + ([Chip(f"data {_short(found.data)}")] if found.data else [])


def notes_section(notes: Sequence[str]) -> Section:
    """Return what a reader has to know about the numbers."""
    chips = [Chip(as_sentence(note), "warn") for note in notes] or [
        Chip("Nothing to report.", "good")
    ]
    return Section("Alerts", "", [Notes(chips)])


def as_sentence(note: str) -> str:
    """The note as a page says it: with a capital, unless it begins with code, and a full stop."""
    begins = note[:1].upper() if note.partition(" ")[0].isalpha() else note[:1]
    return begins + note[1:] + ("" if note.endswith((".", "!", "?")) else ".")


def is_untrained(found: Provenance | None) -> bool:
    """Return whether the weights are known to be random."""
    return found is not None and not found.trained


def network_title(network: str, found: Provenance | None) -> str:
    """The name of a network with that of its gate: `resnet20 with se`."""
    return f"{network} with {found.gate}" if found is not None and found.gate else network


def _short(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2] or path
