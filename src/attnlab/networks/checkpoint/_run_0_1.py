"""What a run of attnlab 0.1 says about its network.

Its `model.safetensors` has a `run_id`, the name of the backbone and that of the gate beside the
tensors; the rest is in `config.json` and `data.json` of the run's folder.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attnlab._errors import WeightsError

_KEYS = ("run_id", "backbone", "attention")


def described_by_run(file: Path, metadata: Mapping[str, str]) -> dict[str, Any] | None:
    """The fields of a `Description` for a run's `file` with its `metadata`; None for others."""
    if not all(key in metadata for key in _KEYS):
        return None
    config, data = (_read(file, name) for name in ("config.json", "data.json"))
    try:
        fields = {
            "model": config["backbone"],
            "num_classes": data["classes"],
            "model_options": config["backbone_options"],
            "gate": None if config["attention"] == "none" else config["attention"],
            "where": config["where"],
            "start": config["start"],
            "gate_options": config["gate_options"],
            "input_size": data["shape"],
        }
    except KeyError as error:
        raise WeightsError(
            f"{str(file)!r} was written by a run of attnlab 0.1, and config.json or data.json "
            f"beside it has no {error}."
        ) from error
    for key in ("backbone", "attention"):
        if config[key] != metadata[key]:
            raise WeightsError(
                f"{str(file)!r} is of a run with the {key} {metadata[key]!r}, but config.json "
                f"beside it is of one with {config[key]!r}. Put the file back beside its own."
            )
    return fields


def _read(file: Path, name: str) -> dict[str, Any]:
    path = file.parent / name
    if not path.is_file():
        raise WeightsError(
            f"{str(file)!r} was written by a run of attnlab 0.1, whose {name} says the rest about "
            f"the network, but it is not beside it. Put it there, or pass a description."
        )
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise WeightsError(f"{str(path)!r} cannot be read: {error}.") from error
    if not isinstance(content, dict):
        raise WeightsError(f"{str(path)!r} cannot be read: it is not a table.")
    return content
