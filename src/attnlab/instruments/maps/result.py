"""What was found about the attention maps of a network: an object that prints, plots, is stored."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from attnlab._errors import InputError
from attnlab._files import write_whole
from attnlab.instruments.maps import figures as plots
from attnlab.page.plot import Spec, to_svg
from attnlab.results.provenance import Provenance, read_provenance

FORMAT = "attnlab maps 1"
LARGEST_PICTURE = 32


@dataclass(frozen=True)
class HeadMap:
    """One head of one attention."""

    spread: float
    """Mean distance of an input's map from the mean map: half the sum over keys of the absolute
    difference, mean over queries. 0: the map does not depend on the input; at most 1."""
    structure: float
    """The same distance of the mean map from attending to all keys alike."""
    change: float
    """‖y' − y‖ / ‖y‖ of the output when this head's map is its mean, mean over inputs."""
    picture: tuple[tuple[float, ...], ...]
    """The mean map, query × key; averaged over neighbours where it is large."""


@dataclass(frozen=True)
class LayerMaps:
    """The heads of one attention."""

    name: str
    heads: tuple[HeadMap, ...]
    queries: int
    keys: int


@dataclass(frozen=True)
class MapsResult:
    """The attention maps of a network on a data set."""

    network: str
    inputs: int
    layers: tuple[LayerMaps, ...]
    change: float
    """Of the output when every map is its mean."""
    agreement: float | None
    """The share of inputs with the same largest output then; None where outputs are not rows."""
    seconds: float
    notes: tuple[str, ...] = field(default=())
    provenance: Provenance | None = None
    """Where it comes from, if a command measured it."""

    @property
    def verdict(self) -> str:
        """One line: how much the maps depend on the input."""
        return plots.maps_in_words(asdict(self))

    def rows(self) -> list[dict[str, Any]]:
        """One dictionary of numbers per head."""
        return [
            {
                "layer": layer.name,
                "head": number,
                "spread": head.spread,
                "structure": head.structure,
                "change": head.change,
            }
            for layer in self.layers
            for number, head in enumerate(layer.heads)
        ]

    def figures(self) -> dict[str, Spec]:
        """Vega-Lite specifications: `spread`, `change`, and `maps LAYER` of each layer."""
        layers = [asdict(layer) for layer in self.layers]
        found = {which: plots.heads_figure(layers, which) for which in ("spread", "change")}
        for layer in layers:
            found[f"maps {layer['name']}"] = plots.mean_maps_figure(layer)
        return found

    def _repr_svg_(self) -> str:
        return to_svg(self.figures()["spread"])

    def to_json(self) -> str:
        return json.dumps({"format": FORMAT, **asdict(self)})

    @classmethod
    def from_json(cls, text: str) -> MapsResult:
        """The result that `to_json` wrote."""
        data = json.loads(text)
        if not isinstance(data, dict) or data.pop("format", None) != FORMAT:
            raise InputError(f"Expected a file written by to_json ({FORMAT!r}) but got another.")
        layers = tuple(_layer(layer) for layer in data.pop("layers"))
        source = read_provenance(data.pop("provenance", None))
        notes = tuple(data.pop("notes"))
        return cls(layers=layers, notes=notes, provenance=source, **data)

    def save(self, path: str | Path) -> Path:
        """Write `to_json()` to `path`, whole or not at all."""
        return write_whole(Path(path), self.to_json() + "\n")

    @classmethod
    def load(cls, path: str | Path) -> MapsResult:
        """Read what `save` wrote."""
        return cls.from_json(Path(path).read_text(encoding="utf-8"))

    def __repr__(self) -> str:
        heads = sum(len(layer.heads) for layer in self.layers)
        return (
            f"MapsResult({self.network}: {heads} heads of {len(self.layers)} layers, "
            f"{self.inputs} inputs. {self.verdict})"
        )


def picture(mean: Tensor) -> tuple[tuple[float, ...], ...]:
    """A mean map (queries, keys) with at most 32 rows and columns, and four digits."""
    from torch.nn.functional import adaptive_avg_pool2d

    queries, keys = mean.shape
    size = min(queries, LARGEST_PICTURE), min(keys, LARGEST_PICTURE)
    small = adaptive_avg_pool2d(mean[None], size)[0]
    return tuple(tuple(float(f"{value:.4g}") for value in row) for row in small.tolist())


def _layer(data: dict[str, Any]) -> LayerMaps:
    heads = tuple(
        HeadMap(**{**head, "picture": tuple(map(tuple, head["picture"]))}) for head in data["heads"]
    )
    return LayerMaps(**{**data, "heads": heads})
