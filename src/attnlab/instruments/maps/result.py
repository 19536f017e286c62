"""What was found about the attention maps of a network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from attnlab.instruments.different import too_few_inputs
from attnlab.instruments.maps import figures
from attnlab.page.parts import Page
from attnlab.page.plot import Spec
from attnlab.page.tables import Cell, Table, number_cell
from attnlab.results.base import Number, Numbers, Result

ALIKE = 0.1
"""A head whose maps are nearer than this to their mean hardly depends on the input."""


@dataclass(frozen=True)
class HeadMap:
    """One head of one attention."""

    spread: Number
    """Mean distance of an input's map from the mean map: half the sum over keys of the absolute
    difference, mean over queries. 0: the map does not depend on the input; at most 1."""
    structure: Number
    """The distance of the mean map from attending to all keys alike, measured in the same way."""
    change: Number
    """‖y' − y‖ / ‖y‖ of the output when this head's map is its mean, mean over inputs."""
    picture: tuple[Numbers, ...]
    """The mean map, query × key; averaged over neighbours if it is large."""


@dataclass(frozen=True)
class LayerMaps:
    """The heads of one attention."""

    name: str
    heads: tuple[HeadMap, ...]
    queries: int
    keys: int


@dataclass(frozen=True)
class MapsResult(Result):
    """The attention maps of a network on a data set."""

    FORMAT: ClassVar[str] = "attnlab maps 1"

    network: str
    inputs: int
    different_inputs: int
    """How many of the inputs differ, counted up to 8; fewer are too few to call heads alike."""
    layers: tuple[LayerMaps, ...]
    change: Number
    """‖y' − y‖ / ‖y‖ of the output when every map is its mean, mean over inputs."""
    agreement: float | None
    """The share of inputs with the same largest output then; None if outputs are not rows."""

    @property
    def heads(self) -> list[HeadMap]:
        """The heads of all layers."""
        return [head for layer in self.layers for head in layer.heads]

    @property
    def verdict(self) -> str:
        """How much the maps depend on the input, and what their means would do."""
        few = too_few_inputs(self.different_inputs, "input")
        if self.different_inputs <= 1:
            return few
        spreads = sorted(head.spread for head in self.heads)
        largest = max(head.change for head in self.heads)
        text = (
            f"{sum(spread < ALIKE for spread in spreads)} of {len(spreads)} heads attend nearly "
            f"alike whatever the input (distance from their mean map below {ALIKE:g}; median "
            f"{spreads[len(spreads) // 2]:.2g}). With its mean map, a single head changes the "
            f"output by at most {100 * largest:.2g} %, all heads together by "
            f"{100 * self.change:.2g} %"
        )
        if self.agreement is not None:
            text += f", and {100 * self.agreement:.0f} % of the answers stay"
        return f"{text}. {few}".rstrip()

    def table(self) -> Table:
        """Return a table with a row per head."""
        columns = ["layer", "head", "spread over inputs", "mean map, from uniform"]
        rows = [
            [
                Cell(layer.name),
                number_cell(place, "{}"),
                number_cell(head.spread, "{:.3f}"),
                number_cell(head.structure, "{:.3f}"),
                number_cell(head.change, "{:.4f}"),
            ]
            for layer in self.layers
            for place, head in enumerate(layer.heads, 1)
        ]
        return Table([*columns, "change of output"], rows, f"{self.network}, {self.inputs} inputs")

    def figures(self) -> dict[str, Spec]:
        """Vega-Lite specifications: `spread`, `change`, and `maps LAYER` of each layer."""
        return {
            "spread": figures.heads_figure(self.layers, "spread"),
            "change": figures.heads_figure(self.layers, "change"),
            **{f"maps {layer.name}": figures.mean_maps_figure(layer) for layer in self.layers},
        }

    def page(self) -> Page:
        """Whether the maps depend on the input, what the means look like, and all numbers."""
        from attnlab.instruments.maps.page import maps_page

        return maps_page(self)

    def __repr__(self) -> str:
        return (
            f"MapsResult({self.network}: {len(self.heads)} heads of {len(self.layers)} layers, "
            f"{self.inputs} inputs. {self.verdict})"
        )
