"""What was found about the gates of a network."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from attnlab.instruments.different import ENOUGH, too_few_inputs
from attnlab.instruments.stripe import figures
from attnlab.page.parts import Page
from attnlab.page.plot import Spec
from attnlab.page.tables import Cell, Table, number_cell
from attnlab.results.base import Number, Numbers, Result

ALIKE = 0.5
"""Gates whose spread across images is below this share of that across channels are stripes."""
_ALL_ALIKE = 1e-9
"""Channels that differ by less do not differ: far below what trained gates do (0.01 and more), and
far above the rounding of a mean in float64."""


@dataclass(frozen=True)
class SiteStripe:
    """One gate over images and channels; if it varies in space, its mean over space."""

    label: str
    """The block of the step on whose branch it lies, or its module's name."""
    name: str
    kind: str
    """`inserted`, the network's `own`, in a `norm`, or a `product` that the network makes, such as
    LayerScale, gated attention and hyper-connections."""
    channels: int
    mean: Number
    smallest: Number
    largest: Number
    image_spread: Number
    """Standard deviation over images, mean over channels."""
    channel_spread: Number
    """Standard deviation over channels of the mean over images."""
    constant: bool
    """Whether enough different images were seen, and all had the same gate to the last bit."""
    channel_means: Numbers
    sampled_channels: tuple[int, ...]
    sample: tuple[Numbers, ...]
    """Gates of some images, image × sampled channel."""
    maps: tuple[tuple[Numbers, ...], ...] = ()
    """Spatial attention of the same images, image × row × column; of CBAM its spatial factor, of
    other gates that vary in space their mean over channels."""

    @property
    def ratio(self) -> float | None:
        """Spread across images relative to spread across channels; 0 is a pure stripe. None if the
        channels do not differ either, so that there is no stripe to see."""
        across = self.channel_spread
        return self.image_spread / across if across > _ALL_ALIKE else None


@dataclass(frozen=True)
class StripeResult(Result):
    """The gates of a network on a data set."""

    FORMAT: ClassVar[str] = "attnlab stripe 1"

    network: str
    images: int
    different_images: int
    """How many of the images differ, counted up to 8; fewer are too few to call a gate constant."""
    sites: tuple[SiteStripe, ...]

    def slim(self) -> StripeResult:
        """Return the result without the gates of single images and channels."""
        sites = tuple(
            replace(site, channel_means=(), sampled_channels=(), sample=(), maps=())
            for site in self.sites
        )
        return replace(self, sites=sites)

    @property
    def enough_images(self) -> bool:
        """Whether there were enough different images to call a gate constant."""
        return self.different_images >= ENOUGH

    @property
    def verdict(self) -> str:
        """How far the gates are from constant, and whether there were enough images to say so."""
        few = too_few_inputs(self.different_images, "image")
        if self.different_images <= 1:
            return few
        return f"{self._stripes()} {few}".rstrip()

    def _stripes(self) -> str:
        known = self.ratios()
        moving = sum(site.image_spread > _ALL_ALIKE for site in self.sites)
        if not known and moving:
            return (
                f"The channels of no gate differ, as in gates of one value for all of them, so "
                f"there is no stripe to see; at {moving} of {len(self.sites)} gates the images do."
            )
        if not known:
            return (
                "Neither images nor channels differ at any gate: there is no stripe to see, as in "
                "a network whose gates were not trained."
            )
        striped = sum(ratio < ALIKE for ratio in known)
        return (
            f"At {striped} of {len(known)} gates the spread across images is less than half of "
            f"the spread across channels (median ratio {known[len(known) // 2]:.2g})."
        )

    def ratios(self) -> list[float]:
        """The ratios of all gates that have one, from the smallest to the largest."""
        return sorted(site.ratio for site in self.sites if site.ratio is not None)

    def table(self) -> Table:
        """Return a table with a row per gate."""
        columns = ["block", "gate", "channels", "mean", "spread over images", "over channels"]
        rows = [_cells(site) for site in self.sites]
        return Table([*columns, "ratio"], rows, f"{self.network}, {self.images} images", names=2)

    def figures(self) -> dict[str, Spec]:
        """Vega-Lite specifications: `spread`, and per gate `gates NAME` and `maps NAME`."""
        found = {"spread": figures.spread_figure(self.sites)}
        for site in self.sites:
            found[f"gates {site.name}"] = figures.gates_figure(site)
            if site.maps:
                found[f"maps {site.name}"] = figures.maps_figure(site)
        return found

    def page(self) -> Page:
        """Whether the gates are constant, what they look like, and all numbers."""
        from attnlab.instruments.stripe.page import stripe_page

        return stripe_page(self)

    def __repr__(self) -> str:
        return (
            f"StripeResult({self.network}: {len(self.sites)} gates, {self.images} images. "
            f"{self.verdict})"
        )


def _cells(site: SiteStripe) -> list[Cell]:
    ratio = Cell("constant", order=0.0) if site.constant else number_cell(site.ratio, "{:.3f}")
    return [
        Cell(site.label),
        Cell(site.name),
        number_cell(site.channels, "{}"),
        number_cell(site.mean, "{:.3f}"),
        number_cell(site.image_spread, "{:.4f}"),
        number_cell(site.channel_spread, "{:.4f}"),
        ratio,
    ]
