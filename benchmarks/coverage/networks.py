"""Small networks of timm and of other packages, built without weights, with an input for each.

`data/timm.json` and `data/beyond.json` hold one network per line: how its package's own constructor
is called, what it runs on, and the residual steps that are expected of it. timm's families are its
modules; some have several networks, where a family holds several block designs. Networks are made
small by their options: few layers, few channels, small images. Nothing is downloaded, and packages
are imported when one of their networks is built, so that each is optional.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import json
import os
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from attnlab._files import write_whole
from benchmarks._common import DATA

BATCH = 2
SMALL_NOISE = 0.02
DISTRIBUTIONS = {"open_clip": "open_clip_torch", "vit_pytorch": "vit-pytorch"}

# Nothing here needs a network or a home folder.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("YOLO_OFFLINE", "true")
os.environ.setdefault("YOLO_VERBOSE", "false")


@dataclass(frozen=True)
class Reading:
    """The residual steps of a network, by one reading of its sources."""

    steps: int
    stages: list[int]
    """How many steps each stage has."""
    identity: int
    """Steps with an identity shortcut."""
    projection: int
    sequence: list[str]
    """Each step as `owner kind elements`, in order of execution."""
    because: list[str] = field(default_factory=list)
    """Why another reading than the one that counts is accepted."""


@dataclass(frozen=True)
class Expected:
    """The reading that counts, and the others that are accepted."""

    reading: Reading
    accepted: list[Reading]


@dataclass(frozen=True)
class Network:
    """How to build a network, what it runs on, and what is expected of it."""

    package: str
    group: str
    """The family of timm, or what the network is for: detection, text, ..."""
    network: str
    make: str
    """The Python name of a class or function."""
    input: dict[str, Any]
    """See `example`."""
    arguments: list[Any] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] | None = None
    """Options of the class's own configuration class (transformers)."""
    tuples: bool = False
    """Whether the constructor wants tuples where JSON has lists."""
    drawn: str = ""
    """Buffers whose names end so are drawn at random, as after training. Encodec's codebooks start
    at zero, and then every signal has one code."""
    expected: Expected | None = None

    @property
    def label(self) -> str:
        """What patterns are matched with."""
        return f"{self.package} {self.group} {self.network}"

    def build(self) -> nn.Module:
        """Call the constructor."""
        about = {"make": self.make, "arguments": self.arguments, "options": self.options}
        if self.config is not None:
            inner = {"make": f"{self.make}.config_class", "options": self.config}
            about = {"make": self.make, "arguments": [inner]}
        model: nn.Module = _made(about, self.tuples)
        for name, buffer in model.named_buffers() if self.drawn else ():
            if name.endswith(self.drawn):
                buffer.normal_()
        return model

    def stirred(self, noise: float | None = SMALL_NOISE) -> nn.Module:
        """Build with seeded random weights, none of them zero.

        A branch that starts at zero (zero-init norms, tiny layer scales) would hand its gate no
        gradient, whatever the insertion does. None takes noise as large as a layer's own weights:
        after many small layers nothing depends notably on the input.
        """
        torch.manual_seed(0)
        model = self.build()
        with torch.no_grad():
            for parameter in model.parameters():
                inputs = parameter[0].numel() if parameter.dim() > 1 else 4
                scale = max(inputs, 1) ** -0.5 if noise is None else noise
                parameter.add_(torch.randn_like(parameter), alpha=scale)
        return model.eval()

    def example(self, batch: int = BATCH) -> Any:
        """Draw an input: a tensor, a tuple of them, or a dictionary of them."""
        return _drawn(self.input, batch)


class Collection(NamedTuple):
    """One file of networks, with the versions of the packages that its expectations are of."""

    packages: dict[str, str]
    networks: list[Network]


def collection(name: str) -> Collection:
    """Read `timm`, `beyond` or `share` from the data."""
    content = json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))
    return Collection(content["packages"], [_network(row) for row in content["networks"]])


def chosen(networks: list[Network], only: str) -> Iterator[Network]:
    """Yield the networks of installed packages whose label matches the pattern."""
    for network in networks:
        if re.search(only, network.label) and importlib.util.find_spec(network.package):
            yield network


def written(networks: Collection) -> str:
    """Return a file of networks as it is stored, one per line."""
    lines = ",\n".join(json.dumps(_row(each), ensure_ascii=False) for each in networks.networks)
    return f'{{"packages": {json.dumps(networks.packages)}, "networks": [\n{lines}\n]}}\n'


def write_collection(name: str, networks: list[Network]) -> Path:
    """Write a file of networks with the versions that are installed."""
    versions = {p: version(p) for p in dict.fromkeys(n.package for n in networks)}
    return write_whole(DATA / f"{name}.json", written(Collection(versions, networks)))


def version(package: str) -> str:
    """Return the installed version of a package."""
    return importlib.metadata.version(DISTRIBUTIONS.get(package, package))


def call(model: nn.Module, example: Any) -> Any:
    """Run a network on an example of any form."""
    if isinstance(example, dict):
        return model(**example)
    return model(*example) if isinstance(example, tuple) else model(example)


def _network(row: dict[str, Any]) -> Network:
    expected = row.pop("expected", None)
    if expected is not None:
        accepted = [Reading(**each) for each in expected.pop("accepted")]
        expected = Expected(Reading(**expected), accepted)
    return Network(**row, expected=expected)


def _row(network: Network) -> dict[str, Any]:
    """Return a network as it is stored: without what is empty."""
    row = {key: value for key, value in asdict(network).items() if value or key == "input"}
    if network.expected is not None:
        reading = asdict(network.expected.reading)
        del reading["because"]
        accepted = [asdict(each) for each in network.expected.accepted]
        row["expected"] = {**reading, "accepted": accepted}
    return row


def _made(value: Any, tuples: bool) -> Any:
    """Build what a line describes: `{"make": name, "arguments": …, "options": …}`, also inside."""
    if isinstance(value, list):
        return (tuple if tuples else list)(_made(each, tuples) for each in value)
    if not isinstance(value, dict):
        return value
    if "make" not in value:
        return {key: _made(each, tuples) for key, each in value.items()}
    arguments = [_made(each, tuples) for each in value.get("arguments", ())]
    options = {key: _made(each, tuples) for key, each in value.get("options", {}).items()}
    return _found(value["make"])(*arguments, **options)


def _found(path: str) -> Any:
    """Import the longest part of a dotted path that is a module; the rest are attributes."""
    module, *names = path.split(".")
    found = importlib.import_module(module)
    for name in names:
        module = f"{module}.{name}"
        try:
            found = getattr(found, name)
        except AttributeError:
            found = importlib.import_module(module)
    return found


def _drawn(about: dict[str, Any], batch: int) -> Any:
    """Draw what a line describes.

    `{"normal": [3, 64, 64]}` is a batch of such tensors; `uniform`, `integers` (token numbers) and
    `zeros` likewise, `"whole"` if the batch is part of the shape, `times` a factor. `every` is one
    number for each input, `each` a list of inputs, `arguments` a tuple, `named` a dictionary and
    `fixed` the value itself.
    """
    ((kind, value), *_) = about.items()
    if kind == "arguments":
        return tuple(_drawn(each, batch) for each in value)
    if kind == "named":
        return {name: _drawn(each, batch) for name, each in value.items()}
    if kind == "each":
        return [_drawn({**value, "whole": True}, batch) for _ in range(batch)]
    if kind == "every":
        return torch.tensor([value] * batch)
    if kind == "fixed":
        return value
    shape = value if about.get("whole") else [batch, *value]
    made: Tensor
    if kind == "integers":
        made = torch.randint(about.get("from", 4), 90, shape)
    else:
        made = {"normal": torch.randn, "uniform": torch.rand, "zeros": torch.zeros}[kind](shape)
    return made * about["times"] if "times" in about else made
