"""What a run is made from, and the id that follows from it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping

from pydantic import PositiveInt, SerializerFunctionWrapHandler, model_serializer

from attnlab._strict import Strict

FILE = "identity.json"


def run_id_of(identity: Mapping[str, object]) -> str:
    """Twelve hex digits of the content of identity.json."""
    text = json.dumps(identity, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


class Identity(Strict):
    """identity.json of a run's directory."""

    settings: dict[str, object]
    """The settings that differ from their defaults."""
    data: str
    """The checksum of the data."""
    threads: PositiveInt
    """The number of threads of each process that trains it."""
    weights: str | None = None
    """The checksum of the file of weights that the backbone starts from."""
    devices: PositiveInt = 1
    """Among how many devices its batches are divided: batch norms see the part of their own."""
    sources: dict[str, str] = {}
    """The checksums of the user's own classes, by what they are: `{"gate my_gates.MyGate": …}`."""

    @model_serializer(mode="wrap")
    def _given(self, handler: SerializerFunctionWrapHandler) -> dict[str, object]:
        """As it was written before runs could have several devices, if this one has one."""
        found: dict[str, object] = handler(self)
        return {k: v for k, v in found.items() if (k, v) != ("devices", 1)}

    @property
    def run_id(self) -> str:
        """Return the run's name, twelve hex digits of the hash of its identity."""
        return run_id_of(self.model_dump(mode="json"))

    def differences(self, now: Identity) -> list[str]:
        """Say in words what is not the same in `now`."""
        found = [] if self.data == now.data else ["the data changed"]
        if self.weights != now.weights:
            found.append("the file of weights changed")
        for what in sorted(self.sources.keys() & now.sources.keys()):
            if self.sources[what] != now.sources[what]:
                kind, _, name = what.partition(" ")
                found.append(f"the {kind}'s source changed ({name})")
        if self.threads != now.threads:
            found.append(f"threads per process were {self.threads}, are {now.threads}")
        if self.devices != now.devices:
            found.append(f"devices were {self.devices}, are {now.devices}")
        before, after = dict(flat_settings(self.settings)), dict(flat_settings(now.settings))
        for name in sorted(before.keys() | after.keys()):
            if before.get(name) != after.get(name):
                old, new = (_shown(values, name) for values in (before, after))
                found.append(f"{name} was {old}, is {new}")
        return found


def flat_settings(settings: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """`recipe.epochs`, 3: the names of nested settings joined by dots; empty tables left out."""
    for name, value in settings.items():
        if isinstance(value, Mapping) and value:
            yield from flat_settings(value, f"{prefix}{name}.")
        elif value != {}:
            yield f"{prefix}{name}", value


def _shown(values: dict[str, object], name: str) -> str:
    return repr(values[name]) if name in values else "left out"
