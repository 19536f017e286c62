"""What a command knows of where its numbers come from."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attnlab.results.provenance import Provenance

_COMMAND: ContextVar[str] = ContextVar("command", default="")


@contextmanager
def as_command(arguments: Sequence[str]) -> Iterator[None]:
    """What is made inside was made by `attnlab ARGUMENTS`."""
    token = _COMMAND.set(shlex.join(["attnlab", *arguments]))
    try:
        yield
    finally:
        _COMMAND.reset(token)


def command_line() -> str:
    """The command that is running; empty where none is."""
    return _COMMAND.get()


def of_name(
    name: str, gate: str | None, weights: str | None, data: str | None, root: Path = Path("data")
) -> Provenance:
    """Of a network given by name, on images given by name or folder, if on any."""
    from attnlab.data import images_checksum
    from attnlab.results.provenance import provenance

    return provenance(
        name,
        gate=gate,
        weights=weights,
        data=data or "",
        data_checksum="" if data is None else images_checksum(data, root),
        command=_COMMAND.get(),
    )


def of_run(folder: Path) -> Provenance:
    """Of a finished run, on its own test images."""
    from attnlab.results import StoredRun
    from attnlab.results.provenance import provenance

    run = StoredRun(folder)
    gate = run.config.attention
    return provenance(
        run.config.backbone or folder.name,
        gate=None if gate == "none" else gate,
        weights=folder / "model.safetensors",
        data=f"{run.data.name if run.data else ''} (test images of the run)",
        data_checksum=run.data.checksum if run.data else "",
        command=_COMMAND.get(),
    )


def of_file(source: str, network: str, gate: str | None, weights: str | None) -> Provenance:
    """Of a folded network: a file, a run's folder, or a name with weights."""
    from attnlab.results.provenance import provenance

    path = Path(source)
    if path.is_dir():
        path = path / "model.safetensors"
    file = str(path) if path.is_file() else weights
    return provenance(network, gate=gate, weights=file, command=_COMMAND.get())
