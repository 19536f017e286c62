"""What was found about the gates of a network: one object that prints, plots and goes to JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from attnlab._errors import InputError
from attnlab._files import write_whole
from attnlab.instruments.stripe import figures as gates
from attnlab.page.plot import Spec, to_svg
from attnlab.results.provenance import Provenance, read_provenance

FORMAT = "attnlab stripe 1"


@dataclass(frozen=True)
class SiteStripe:
    """One gate over images and channels; where it varies in space, its mean over space."""

    label: str
    name: str
    kind: str
    """`inserted`, the network's `own`, or in a `norm`."""
    channels: int
    mean: float
    smallest: float
    largest: float
    image_spread: float
    """Standard deviation over images, mean over channels."""
    channel_spread: float
    """Standard deviation over channels of the mean over images."""
    constant: bool
    """Whether every image had the same gate to the last bit; never where fewer than eight
    different images were seen."""
    channel_means: tuple[float, ...]
    sampled_channels: tuple[int, ...]
    sample: tuple[tuple[float, ...], ...]
    """Gates of some images, image × sampled channel."""
    maps: tuple[tuple[tuple[float, ...], ...], ...] = ()
    """Spatial attention of the same images, image × row × column; of CBAM its spatial factor, of
    other gates that vary in space their mean over channels."""

    @property
    def ratio(self) -> float | None:
        """Spread across images relative to spread across channels; 0 is a pure stripe. None where
        the channels do not differ either, so that there is no stripe to see."""
        return gates.stripe_ratio(vars(self))


@dataclass(frozen=True)
class StripeResult:
    """The gates of a network on a data set."""

    network: str
    images: int
    different: int
    """How many of them differ from all others in a bit, counted up to eight."""
    sites: tuple[SiteStripe, ...]
    seconds: float
    notes: tuple[str, ...] = field(default=())
    provenance: Provenance | None = None
    """Where it comes from, if a command measured it."""

    @property
    def verdict(self) -> str:
        """One line: how far the gates are from constant."""
        return gates.stripes_in_words([site.ratio for site in self.sites], self.different)

    def figures(self) -> dict[str, Spec]:
        """Vega-Lite specifications: `spread`, and per gate `gates LABEL` and `maps LABEL`."""
        sites = [vars(site) for site in self.sites]
        found = {"spread": gates.spread_figure(sites)}
        for site in sites:
            found[f"gates {site['name']}"] = gates.gates_figure(site)
            if site["maps"]:
                found[f"maps {site['name']}"] = gates.maps_figure(site)
        return found

    def _repr_svg_(self) -> str:
        return to_svg(gates.spread_figure([vars(site) for site in self.sites]))

    def rows(self) -> list[dict[str, Any]]:
        """One dictionary of numbers per gate."""
        left_out = ("channel_means", "sampled_channels", "sample", "maps")
        return [
            {**{k: v for k, v in asdict(site).items() if k not in left_out}, "ratio": site.ratio}
            for site in self.sites
        ]

    def to_json(self) -> str:
        return json.dumps({"format": FORMAT, **asdict(self)})

    @classmethod
    def from_json(cls, text: str) -> StripeResult:
        """The result that `to_json` wrote."""
        data = json.loads(text)
        if not isinstance(data, dict) or data.pop("format", None) != FORMAT:
            raise InputError(f"Expected a file written by to_json ({FORMAT!r}) but got another.")
        sites = tuple(
            SiteStripe(**{k: _tuples(v) for k, v in site.items()}) for site in data.pop("sites")
        )
        source = read_provenance(data.pop("provenance", None))
        return cls(sites=sites, provenance=source, **{k: _tuples(v) for k, v in data.items()})

    def save(self, path: str | Path) -> Path:
        """Write `to_json()` to `path`, whole or not at all."""
        return write_whole(Path(path), self.to_json() + "\n")

    @classmethod
    def load(cls, path: str | Path) -> StripeResult:
        """Read what `save` wrote."""
        return cls.from_json(Path(path).read_text(encoding="utf-8"))

    def __repr__(self) -> str:
        return (
            f"StripeResult({self.network}: {len(self.sites)} gates, {self.images} images. "
            f"{self.verdict})"
        )


def _tuples(tree: Any) -> Any:
    return tuple(_tuples(value) for value in tree) if isinstance(tree, list) else tree
