"""Files of weights that say which network they belong to.

A `.safetensors` file has a table of texts beside its tensors; ours holds, under the key `attnlab`,
what is needed to build the network that the weights fit. Nothing is ever unpickled, and a file
alone never has modules imported: for classes of the user's own, `load` asks for the description.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from attnlab._errors import WeightsError
from attnlab._imported import is_path
from attnlab.backbones.weights import load_weights
from attnlab.create import create
from attnlab.fold._fuse import fuse
from attnlab.fold._swap import exchange
from attnlab.insert import insert, remove
from attnlab.record.example import example_input

_KEY = "attnlab"


@dataclass(frozen=True)
class Description:
    """How to build a network: the arguments of `create` and `insert`, and what was folded."""

    model: str
    num_classes: int | None = None
    model_options: dict[str, Any] = field(default_factory=dict)
    gate: str | None = None
    where: str | list[str] | None = None
    start: Literal["paper", "identity"] = "paper"
    gate_options: dict[str, Any] = field(default_factory=dict)
    input_size: list[int] | None = None
    """Channels, height, width of the images; what the network says of itself if None."""
    kept: list[str] | None = None
    """After a fold, the gates that stay; None before."""
    removed: list[str] = field(default_factory=list)
    """Modules of the network that were folded away."""
    fused: bool = False

    def build(self) -> nn.Module:
        """The network, with its first weights."""
        network = create(self.model, self.num_classes, **self.model_options)
        if self.gate is not None and self.kept != []:
            network, _ = insert(
                network,
                self.gate,
                self.where,
                self.start,
                example=self.example(network),
                inplace=True,
                **self.gate_options,
            )
            if self.kept is not None:
                remove(network, keep=frozenset(self.kept))
        for name in self.removed:
            exchange(network, network.get_submodule(name), nn.Identity())
        if self.fused:
            fuse(network, self.example(network))
        return network

    @property
    def own_classes(self) -> list[str]:
        """The user's own classes among the network and its gates, as in "my_gates.MyGate"."""
        library, _, _ = self.model.rpartition(":")
        gates = [] if self.gate is None else re.split(r"[+:*]", self.gate)
        return [name for name in (*([] if library else [self.model]), *gates) if is_path(name)]

    def shown(self) -> str:
        """The Python that makes it, without what has its default."""
        changed = [
            f"{each.name}={getattr(self, each.name)!r}"
            for each in fields(self)
            if each.name != "model"
            and getattr(self, each.name) not in (None, {}, [], False, "paper")
        ]
        return f"Description({', '.join([repr(self.model), *changed])})"

    def example(self, network: nn.Module, batch: int = 1) -> Tensor:
        """An input of the described size."""
        if self.input_size is None:
            return example_input(network, batch)
        generator = torch.Generator().manual_seed(0)
        return torch.randn(batch, *self.input_size, generator=generator)


def save(network: nn.Module, path: str | Path, description: Description) -> Path:
    """Write the weights of `network` and its `description` to `path`, whole or not at all."""
    from safetensors.torch import save_file

    path = Path(path)
    # Tied tensors are written twice: safetensors refuses tensors that share memory.
    tensors = {
        name: value.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, value in network.state_dict().items()
    }
    with whole_file(path) as partial:
        save_file(tensors, partial, {_KEY: json.dumps(asdict(description))})
    return path


def load(path: str | Path, description: Description | None = None) -> nn.Module:
    """The network of a file in eval mode; `description` for a file that has none."""
    described = describe(path) if description is None else description
    if described is None:
        raise WeightsError(
            f"{str(path)!r} does not say which network it belongs to. Expected a file written by "
            f"`save` of attnlab.fold, or a description of the network."
        )
    if description is None and described.own_classes:
        raise WeightsError(
            f"{str(path)!r} names classes that are not attnlab's "
            f"({', '.join(described.own_classes)}), and a file of weights may not have code "
            f"imported. If you trust them, pass description={described.shown()}."
        )
    network = described.build()
    load_weights(network, path)
    return network.eval()


def describe(path: str | Path) -> Description | None:
    """What the file at `path` says about its network; None where it says nothing."""
    from safetensors import SafetensorError, safe_open

    path = Path(path)
    if path.suffix != ".safetensors" or not path.is_file():
        return None
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
    except SafetensorError:
        return None  # reading its tensors will say what is wrong
    if _KEY not in metadata:
        return None
    try:
        content = json.loads(metadata[_KEY])
        known = {each.name for each in fields(Description)}
        if not isinstance(content, dict) or not set(content) <= known:
            raise ValueError(f"expected a table with {', '.join(sorted(known))}")
        return Description(**content)
    except (ValueError, TypeError) as error:
        raise WeightsError(
            f"The description of the network in {str(path)!r} cannot be read: {error}"
        ) from error


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A path beside `path` to write to, which replaces it when the block ends without an error."""
    if not path.parent.is_dir():
        raise WeightsError(f"There is no folder {str(path.parent)!r} to write to.")
    descriptor, name = tempfile.mkstemp(path.suffix, f".{path.stem}.", path.parent)
    os.close(descriptor)
    partial = Path(name)
    try:
        yield partial
        partial.chmod(0o644)  # mkstemp's files are for the owner only
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
