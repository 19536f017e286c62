"""Where a measurement comes from, written into its file and onto its page."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from attnlab._checksums import file_checksum


@dataclass(frozen=True)
class Provenance:
    """What a reader needs to make it again, or to see that it was made from something else."""

    network: str
    gate: str = ""
    """That was inserted by the command; empty where none was."""
    weights: str = ""
    """A file, or the library's name for them; empty where they are random."""
    weights_checksum: str = ""
    """SHA-256 of that file."""
    data: str = ""
    data_checksum: str = ""
    """SHA-256 of the content of its files, or of the pixels of embedded data."""
    command: str = ""
    date: str = ""
    version: str = ""

    @property
    def trained(self) -> bool:
        """Whether the weights are any but random ones."""
        return bool(self.weights)


UNTRAINED = "The weights are random: this is the untrained control, not a trained network."


def provenance(
    network: str,
    *,
    gate: str | None = None,
    weights: str | Path | None = None,
    data: str = "",
    data_checksum: str = "",
    command: str = "",
) -> Provenance:
    """Say where figures come from that are made now, by this version; weights that are a file get
    a checksum."""
    is_file = weights is not None and Path(weights).is_file()
    return Provenance(
        network=network,
        gate=gate or "",
        weights="" if weights is None else str(weights),
        weights_checksum=file_checksum(str(weights)) if is_file else "",
        data=data,
        data_checksum=data_checksum,
        command=command,
        date=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        version=version("attnlab"),
    )
